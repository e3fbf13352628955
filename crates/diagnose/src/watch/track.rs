//! What the trigger remembers of one sampled rank: how long its iterations take while nothing changes, and which took longer.
use super::{AS_LONG, Slow};
use crate::config::Config;
use crate::measure::WARM_UP;
use crate::median::median;
use crate::timeline::{Iteration, RankState};
use mycroft_record::{HostTime, NANOS_PER_MS};
use std::collections::{BTreeMap, VecDeque};

/// Healthy iterations that a level is made of, and the last ones that are remembered.
pub(super) const LEVEL_KEPT: usize = 32;
/// So long must the iterations of a level have lasted together.
const LEVEL_LEAST_MS: f64 = 1_000.0;
/// With fewer healthy iterations than this their spread is not known yet.
pub(super) const SPREAD_MIN: usize = 6;
/// The spread of n values is taken (1 + 4/n) times.
const YOUNG_SPREAD: f64 = 4.0;
/// A job is looked at after each iteration, day and night: what chance alone brings about more often than once in so many
/// looks is no sign.
const LOOKS: f64 = 1e6;
/// Kinds of iterations told apart, and how many of each are kept: 8 x 16 x 8 = 1 kB for each of ten sampled ranks.
const KINDS_MAX: usize = 8;
/// See [`KINDS_MAX`].
const OF_KIND_KEPT: usize = 16;
/// Slow is at least this much while the spread is not known.
const SLOW_FACTOR_YOUNG: f64 = 1.4;
/// An iteration that begins this much before a level does still belongs to it: ranks end iterations at about the same time.
pub(super) const SLACK_NS: u64 = 50 * NANOS_PER_MS;
/// An iteration that is longer than usual by so many usual ones is far from usual.
const FAR: f64 = 2.0;

/// One iteration of a sampled rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lap {
    pub(super) start: HostTime,
    pub(super) end: HostTime,
    /// Without what all ranks idled together, and what iterations of as many operations took longer before, milliseconds.
    pub(super) ms: f64,
    /// Longer than healthy ones.
    pub(super) slow: bool,
    /// A case is about it, or it is one of the first.
    pub(super) is_apart: bool,
}

/// How long iterations take while nothing changes, milliseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Level(pub(super) VecDeque<f64>);

/// One sampled rank's recent past.
#[derive(Debug, Default)]
pub(super) struct Track {
    pub(super) generation: u64,
    pub(super) seen: HostTime,
    pub(super) healthy: Level,
    /// What began then has its case.
    pub(super) raised_at: HostTime,
    pub(super) recent: VecDeque<Lap>,
    pub(super) skipped_first: bool,
    pub(super) kinds: Kinds,
}

/// How long iterations took by the number of their operations: one with a loss or an evaluation has more than others, and
/// takes longer whenever it comes. The last ones of each kind, milliseconds.
#[derive(Debug, Default)]
pub(super) struct Kinds(BTreeMap<u32, VecDeque<f64>>);

impl Kinds {
    /// How many milliseconds longer than `usual_ms` an iteration of `ops` operations took whenever one came, if most have fewer;
    /// 0 where none has come.
    fn longer_ms(&self, ops: u32, usual_ms: f64) -> f64 {
        let most = self.0.iter().max_by_key(|(ops, list)| (list.len(), std::cmp::Reverse(**ops)));
        let Some(seen) = self.0.get(&ops).filter(|_| most.is_some_and(|(usual, _)| ops > *usual)) else { return 0.0 };
        (seen.iter().copied().fold(f64::MAX, f64::min) - usual_ms).max(0.0)
    }

    fn take(&mut self, ops: u32, ms: f64) {
        if self.0.len() >= KINDS_MAX && !self.0.contains_key(&ops) {
            return;
        }
        let list = self.0.entry(ops).or_default();
        list.push_back(ms);
        if list.len() > OF_KIND_KEPT {
            list.pop_front();
        }
    }
}

impl Level {
    fn take(&mut self, ms: f64) {
        self.0.push_back(ms);
        if self.0.len() > LEVEL_KEPT {
            self.0.pop_front();
        }
    }

    /// Enough iterations, and of long enough: what recurs in a job's first moments may be a layer. One long one among them
    /// is what lies between two iterations.
    pub(super) fn is_ready(&self, config: &Config) -> bool {
        let lasted = self.0.len() >= LEVEL_KEPT / 2 || self.usual_sum_ms() >= LEVEL_LEAST_MS;
        self.0.len() >= config.baseline_min && lasted
    }

    fn usual_sum_ms(&self) -> f64 {
        self.0.len() as f64 * self.ms().unwrap_or(0.0)
    }

    pub(super) fn ms(&self) -> Option<f64> {
        median(self.0.iter().copied().collect())
    }

    /// How many times as long is slow, and why.
    pub(super) fn factor(&self, config: &Config) -> (f64, String) {
        let Some(mid) = self.ms() else {
            return (config.paper_slow_factor, "the paper's value".to_string());
        };
        let mad = median(self.0.iter().map(|value| (value - mid).abs()).collect()).unwrap_or(0.0);
        // Few values underestimate their spread.
        let few = 1.0 + YOUNG_SPREAD / self.0.len() as f64;
        let spread = 1.0 + config.slow_mads * mad * few / mid.max(1e-9);
        let floor = if self.0.len() < SPREAD_MIN { SLOW_FACTOR_YOUNG } else { config.slow_factor_floor };
        let why = format!("usual {mid:.0} ms, spread {mad:.1} ms over {} iterations", self.0.len());
        (spread.max(floor), why)
    }

    fn is_below(&self, config: &Config, ms: f64) -> bool {
        self.is_ready(config) && self.ms().is_some_and(|mid| ms > mid * self.factor(config).0)
    }
}

impl Track {
    /// Whether the iterations of a time took no longer than usual; `None`: not all of them are over, or remembered, or there is
    /// nothing usual yet.
    pub(super) fn was_usual(&self, config: &Config, from: HostTime, until: HostTime) -> Option<bool> {
        let is_within = self.recent.front().is_some_and(|lap| lap.start <= from + SLACK_NS)
            && self.recent.back().is_some_and(|lap| until <= lap.end + SLACK_NS);
        let mut laps = self.recent.iter().filter(|lap| lap.start < until && lap.end > from);
        (is_within && self.healthy.is_ready(config)).then(|| laps.all(|lap| !self.healthy.is_below(config, lap.ms)))
    }

    /// How long a healthy iteration lasts with what all ranks idle in it, milliseconds; `None`: nothing is usual yet.
    pub(super) fn usual_span_ms(&self) -> Option<f64> {
        let healthy = self.recent.iter().filter(|lap| !lap.slow);
        let span_ms = median(healthy.map(|lap| lap.end.since_ns(lap.start) as f64 / 1e6).collect());
        Some(self.healthy.ms()?.max(span_ms.unwrap_or(0.0)))
    }

    /// Takes in one iteration of `ms` milliseconds (common idle time taken off); returns by how much it was a pause.
    pub(super) fn take(&mut self, config: &Config, iteration: Iteration, ms: f64) -> Option<f64> {
        if !self.skipped_first {
            self.skipped_first = true; // the first iteration compiles, allocates and connects
            self.seen = iteration.end;
            return None;
        }
        let base = self.healthy.ms();
        let longer_ms = base.map_or(0.0, |base| self.kinds.longer_ms(iteration.ops, base));
        let whole_ms = ms;
        let ms = ms - longer_ms;
        let ready = self.healthy.is_ready(config);
        let slow = self.healthy.is_below(config, ms);
        if !slow && !self.is_raised(iteration.start) {
            self.healthy.take(ms);
        }
        // What a fault made longer does not tell what a kind takes, but where nothing else is known of it.
        if !self.is_raised(iteration.start) && (!slow || !self.kinds.0.contains_key(&iteration.ops)) {
            self.kinds.take(iteration.ops, whole_ms);
        }
        let is_apart = self.is_raised(iteration.start) || (self.recent.len() as u64) + 1 < WARM_UP;
        self.recent.push_back(Lap { start: iteration.start, end: iteration.end, ms, slow, is_apart });
        if self.recent.len() > LEVEL_KEPT {
            self.recent.pop_front();
        }
        let over = ms - base.unwrap_or(ms);
        // Where iterations are long, a second more is how they vary.
        (ready && slow && over >= config.pause_ns as f64 / 1e6).then_some(over)
    }

    /// What cases account for begins at `at`; `None`: there are none.
    pub(super) fn raise(&mut self, at: Option<HostTime>) {
        let at = at.unwrap_or_default();
        if self.raised_at != at {
            let is_first = !self.raised_at.is_some();
            self.raised_at = at;
            let raised_at = self.raised_at;
            let told = self.recent.iter_mut().filter(|lap| raised_at.is_some() && lap.start + SLACK_NS >= raised_at);
            told.for_each(|lap| lap.is_apart = true);
            if is_first {
                self.forget(self.recent.iter().filter(|lap| !lap.slow && self.is_raised(lap.start)).count());
            }
        }
    }

    /// Whether an iteration that began then shows what cases account for: it is not how long a healthy one takes.
    fn is_raised(&self, start: HostTime) -> bool {
        self.raised_at.is_some() && start + SLACK_NS >= self.raised_at
    }

    /// The newest so many iterations were not healthy, as far as others are left to tell what is.
    fn forget(&mut self, count: usize) {
        let kept = self.healthy.0.len().saturating_sub(count).max(SPREAD_MIN);
        self.healthy.0.truncate(kept);
    }

    pub(super) fn slow(&self, config: &Config) -> Option<Slow> {
        let slow = self.since(config)?;
        (!self.is_chance(&slow)).then_some(slow)
    }

    //= falcon 3.2
    /// Stragglers come and go, and sequences are long and short: where iterations were as long before without a case, so many of
    /// the last ones are no sign until chance hardly makes as many.
    fn is_chance(&self, slow: &Slow) -> bool {
        let least_ms = slow.base_ms + AS_LONG * (slow.now_ms - slow.base_ms);
        let (since, before): (Vec<&Lap>, Vec<&Lap>) = self.recent.iter().partition(|lap| lap.start >= slow.onset);
        let as_long = |laps: Vec<&Lap>| laps.iter().filter(|lap| lap.ms >= least_ms).count() as u32;
        let before: Vec<&Lap> = before.into_iter().filter(|lap| !lap.is_apart).collect();
        let (of_before, of) = (before.len() as u32, since.len() as u32);
        let (alike, count) = (as_long(before), as_long(since));
        let share = f64::from(alike + 1) / f64::from(of_before + 2);
        alike > 0 && at_least(count, of, share) * LOOKS >= 1.0
    }

    /// Since when most iterations are longer than usual.
    fn since(&self, config: &Config) -> Option<Slow> {
        let window: Vec<&Lap> = self.recent.iter().rev().take(config.slow_window).collect();
        let ((factor, why), base_ms) = (self.healthy.factor(config), self.healthy.ms()?);
        let over_ms = window.iter().filter(|lap| lap.slow).map(|lap| lap.ms - base_ms);
        let slow = over_ms.clone().count();
        if !is_enough(config, base_ms, over_ms) {
            return None;
        }
        // The onset: back over slow iterations, single healthy ones between them included.
        let mut onset = window[0].start;
        let mut within = 0;
        for lap in self.recent.iter().rev() {
            within = if lap.slow { 0 } else { within + 1 };
            if within >= 2 {
                break;
            }
            if lap.slow {
                onset = lap.start;
            }
        }
        let long = self.recent.iter().filter(|lap| lap.slow && lap.start >= onset);
        let now_ms = median(long.map(|lap| lap.ms).collect())?;
        Some(Slow { onset, base_ms, now_ms, factor, slow, of: window.len(), why })
    }
}

/// Whether iterations that took so much longer, milliseconds, are enough to look for who is slow: so many of the last ones, or
/// two by a multiple of the usual ones, since a third may be long in coming.
fn is_enough(config: &Config, usual_ms: f64, over_ms: impl Iterator<Item = f64> + Clone) -> bool {
    over_ms.clone().count() >= config.slow_needed || over_ms.filter(|over_ms| *over_ms >= FAR * usual_ms).count() >= 2
}

/// Probability that at least `long` of `of` are, each with probability `share`.
pub(super) fn at_least(long: u32, of: u32, share: f64) -> f64 {
    let term = |k: u32| {
        let choose = (0..k).fold(1.0, |product, i| product * f64::from(of - i) / f64::from(i + 1));
        choose * share.powi(k as i32) * (1.0 - share).powi((of - k) as i32)
    };
    (long..=of).map(term).sum()
}

/// Median over the recent iterations of the longest piece of computation in each, nanoseconds.
pub(super) fn usual_longest_compute(state: &RankState) -> Option<u64> {
    let pieces = state.iterations.list().iter().rev().take(LEVEL_KEPT).map(|it| f64::from(it.compute_max_us)).collect();
    median(pieces).map(|us| (us * 1e3) as u64)
}
