//! Whether a case is due for a slowdown: what it costs, and whether an ideal test would see that in the job's own spread.
//!
//! The arithmetic, all of it. The same seed is played with the fault and without it: iteration `i` takes `a[i]` with it and
//! `b[i]` without, and everything else that chance does is the same in both.
//!
//! - *Onset* `k`: the first iteration that ends after the fault's first moment. *Full*: the first that begins after it has
//!   come on whole. *End* `n`: the last iteration that was finished before the fault or the run ended.
//! - *Cost*: the sum of `a` over the sum of `b` from full to end, less 1; where a fault never gets full, from onset on.
//! - *Spread* `s`: the standard deviation of `b`, warm-up left out, within iterations of the same plan (evaluations, those
//!   after a checkpoint and each class of size apart from the others: a plan is known), over the mean of `b`.
//! - *Test*: two samples of known spread, the means of the healthy iterations and of those from `j` to `m`. What is to be seen is
//!   `d(j, m)`, the mean of `a[i] - b[i]` over the mean of `b`. The statistic is expected to be
//!   `z(j, m) = d(j, m) / (s * sqrt(1 / h + 1 / (m - j)))`, where `h` is the number of healthy iterations before onset. A fault
//!   that is there from the first second leaves none; then `h` is the number of its iterations: one peer with the same work is
//!   such a sample. One of the whole job has no peer, so that it cannot be seen from the first second.
//! - *Threshold*: one false alarm in [`FALSE_ALARM_S`] with one test after each iteration: the quantile of the normal
//!   distribution at 1 less (mean iteration / `FALSE_ALARM_S`). What is above it by [`POWER_Z`] is seen 99 times in 100.
//! - *Seen*: the first `m` for which any `j` from onset on, [`LEAST`] iterations before it or more, has
//!   `z(j, m) >= threshold + POWER_Z`.
//! - A case is *due* where the fault is seen before its end.
use crate::fault::{Fault, FaultLevel};
use crate::iteration::Iteration;
use crate::program::size_class;
use crate::scenario::Scenario;
use std::collections::BTreeMap;

/// One false alarm in so many seconds: a day.
pub const FALSE_ALARM_S: f64 = 86_400.0;
/// Above the threshold by so much, a normal statistic exceeds it 99 times in 100 (the normal quantile at 0.99).
pub const POWER_Z: f64 = 2.326;
/// Fewest iterations that count as a sample: one or two slow ones are what healthy jobs have too.
pub const LEAST: usize = 3;
/// Least spread, as a share of an iteration: times are told in microseconds, and no clock is better than this.
const SPREAD_MIN: f64 = 1e-4;

/// What a fault costs its job, and whether that is to be seen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Due {
    /// How much longer iterations take, as a share; infinite where the job stops.
    pub cost: f64,
    /// The job's own spread of iteration times, as a share of one.
    pub spread: f64,
    /// A healthy iteration, nanoseconds.
    pub iteration_ns: f64,
    /// Iterations that the fault was there for.
    pub lasted: usize,
    /// How many of them an ideal test needs to see it; `None`: more than there are.
    pub seen_after: Option<usize>,
    /// The threshold with its power: what the statistic must be expected to reach.
    pub needed_z: f64,
    /// The most that it was expected to be.
    pub reached_z: f64,
}

impl Due {
    /// Whether a case is due.
    pub fn is_due(&self) -> bool {
        self.seen_after.is_some()
    }

    /// What it says of itself: `cost 2.1 %, spread 3.0 %, z 3.1 of 6.8 in 40 iterations`.
    pub fn text(&self) -> String {
        let Due { cost, spread, lasted, needed_z, reached_z, .. } = self;
        let seen = match self.seen_after {
            Some(after) => format!("seen after {after} of {lasted} iterations"),
            None => format!("an ideal test needs z {needed_z:.1} and gets {reached_z:.1} in {lasted} iterations"),
        };
        format!("cost {:.1} %, spread {:.1} %, {seen}", 100.0 * cost, 100.0 * spread)
    }

    /// Of one fault: the iterations of the job with it and without it.
    pub fn of(scenario: &Scenario, fault: &Fault, with: &[Iteration], without: &[Iteration]) -> Due {
        let warm = scenario.warm_up_iterations as usize;
        let (mean, spread) = spread(scenario, without, warm);
        let needed_z = threshold(mean / 1e9) + POWER_Z;
        let (from, full) = (1e9 * fault.after_s, 1e9 * (fault.after_s + fault.ramp_s.unwrap_or(0.0)));
        let until =
            fault.lasts_s().filter(|_| fault.every_s.is_none()).map_or(f64::INFINITY, |lasts| from + 1e9 * lasts);
        let onset = with.iter().position(|one| one.ended as f64 > from).unwrap_or(with.len()).max(warm);
        let end = with.iter().take(without.len()).take_while(|one| one.ended as f64 <= until).count().max(onset);
        let excess: Vec<f64> = (onset..end).map(|at| with[at].ns() as f64 - without[at].ns() as f64).collect();
        let mut due = Due {
            cost: 0.0,
            spread,
            iteration_ns: mean,
            lasted: end - onset,
            seen_after: None,
            needed_z,
            reached_z: 0.0,
        };
        if fault.kind.stops_job() {
            return Due { cost: f64::INFINITY, seen_after: Some(0), reached_z: f64::INFINITY, ..due };
        }
        let whole = (onset..end).find(|at| with[*at].began as f64 >= full).unwrap_or(onset);
        let usual: f64 =
            without[whole.min(without.len())..end.min(without.len())].iter().map(|one| one.ns() as f64).sum();
        due.cost = if usual > 0.0 { excess[whole - onset..].iter().sum::<f64>() / usual } else { 0.0 };
        let before = onset - warm.min(onset);
        let is_seen_by_peers = fault.kind.level() != FaultLevel::All;
        due.look(&excess, before, is_seen_by_peers);
        due
    }

    /// Looks after each iteration for the best beginning.
    fn look(&mut self, excess: &[f64], before: usize, has_peers: bool) {
        if before < LEAST && !has_peers {
            return;
        }
        let mut sums = vec![0.0];
        for one in excess {
            sums.push(sums[sums.len() - 1] + one / self.iteration_ns);
        }
        for end in LEAST..=excess.len() {
            for begin in 0..=end - LEAST {
                let n = (end - begin) as f64;
                let healthy = if before < LEAST { n } else { before as f64 };
                let shift = (sums[end] - sums[begin]) / n;
                let z = shift / (self.spread * (1.0 / healthy + 1.0 / n).sqrt());
                self.reached_z = self.reached_z.max(z);
            }
            if self.reached_z >= self.needed_z {
                self.seen_after = Some(end);
                return;
            }
        }
    }
}

/// Mean of healthy iterations, nanoseconds, and what is left of their spread within those of the same plan, as a share of it.
fn spread(scenario: &Scenario, healthy: &[Iteration], warm: usize) -> (f64, f64) {
    let is_due = |every: u32, at: u64| every > 0 && at > 0 && at.is_multiple_of(u64::from(every));
    let mut plans: BTreeMap<(bool, bool, u64), Vec<f64>> = BTreeMap::new();
    for (at, one) in healthy.iter().enumerate().skip(warm) {
        let at = at as u64;
        let (eval, checkpoint) = (is_due(scenario.life.eval_every, at), is_due(scenario.checkpoint_every, at));
        plans.entry((eval, checkpoint, size_class(scenario, at))).or_default().push(one.ns() as f64);
    }
    let (mut sum, mut squares, mut count, mut free) = (0.0, 0.0, 0.0, 0.0);
    for times in plans.values() {
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        sum += times.iter().sum::<f64>();
        count += times.len() as f64;
        free += times.len() as f64 - 1.0;
        squares += times.iter().map(|time| (time - mean).powi(2)).sum::<f64>();
    }
    if count == 0.0 {
        return (1.0, 1.0);
    }
    let mean = (sum / count).max(1.0);
    (mean, ((squares / f64::max(free, 1.0)).sqrt() / mean).max(SPREAD_MIN))
}

/// The statistic that healthy iterations of so many seconds exceed once in [`FALSE_ALARM_S`].
fn threshold(iteration_s: f64) -> f64 {
    quantile(1.0 - (iteration_s / FALSE_ALARM_S).clamp(1e-12, 0.5))
}

/// The normal distribution's quantile (Abramowitz and Stegun 26.2.23, absolute error below 4.5e-4), for at least one half.
fn quantile(share: f64) -> f64 {
    let t = (-2.0 * (1.0 - share).ln()).sqrt();
    t - (2.515_517 + 0.802_853 * t + 0.010_328 * t * t)
        / (1.0 + 1.432_788 * t + 0.189_269 * t * t + 0.001_308 * t * t * t)
}

#[cfg(test)]
mod tests;
