//! Every constant of the room, with its unit and where it is from.

/// Run lengths of which each has a posterior of its own; values. Longer ones are one: the segment. A fault is due to be seen
/// within 20 values; a difference as small as the noise needs 50 (two samples of n differ for sure, one chance in 10^6, from
/// n = 2 x 5^2 on).
pub(super) const RUNS: usize = 64;
/// Values kept: as many before a change as after it, so that both levels are known as well.
pub(super) const VALUES: usize = 2 * RUNS;
/// Fewest values that make a level: a median of five withstands two odd values.
pub(super) const LEVEL_MIN: usize = 5;
/// Chance that a change begins at a value. FALCON 3.2, Figure 2: two slowdowns, so four changes, in 10,000 iterations.
pub(super) const HAZARD: f64 = 4e-4;
/// Share of values that are long by themselves: a checkpoint in each 20th iteration.
pub(super) const OUTLIERS: f64 = 0.05;
/// Width of what an odd value or a new level may be, in natural logarithms: from equal to 20 times as long. FALCON 3.4,
/// Figure 6: a job at a tenth of its speed, and as much again.
pub(super) const WIDTH: f64 = 3.0;
/// Posterior from which on a change is looked at. FALCON 4.2.
pub(super) const POSTERIOR: f64 = 0.9;
/// Smallest relative change that is one. Half of FALCON's 10 % (4.2), whose one miss (7.2) is of steps below that.
pub(super) const RELATIVE_MIN: f64 = 0.05;
/// Chance at which noise may pass a test of the verification: one in a million values, some days of iterations.
pub(super) const CHANCE: f64 = 1e-6;
/// Spread expected of a series before it is known, relative. FALCON, Table 2: 0.01 to 0.02 within a host. It counts as much
/// as `LEVEL_MIN` values.
pub(super) const SIGMA_USUAL: f64 = 0.02;
/// Longest start, values: leading long ones among them belong to the start.
pub(super) const WARM_UP: usize = 10;
/// Values in a block of the segment's past, and between two looks at a level that is well known: odd values of a checkpoint
/// do not move the median of eight.
pub(super) const BLOCK: usize = 8;
/// Blocks kept of a segment; when full, each two become one, so that any length fits.
pub(super) const BLOCKS: usize = 24;
