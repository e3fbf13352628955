//! Is something wrong now? The trigger of Algorithm 1, with thresholds that learn from the job (design D6).
//!
//! It says that and since when, never who: that is `blame`'s question.
use crate::blame::graph::Stillness;
use crate::blame::slow::median;
use crate::config::Config;
use crate::fact::Fact;
use crate::report::Threshold;
use crate::timeline::{Iteration, RankState, Timeline};
use mycroft_record::{HostTime, NANOS_PER_MS, Rank};
use std::collections::{BTreeMap, VecDeque};

/// Healthy iterations a baseline is made of.
const HEALTHY_KEPT: usize = 32;
/// Flags of the last iterations kept per sampled rank.
const RECENT_KEPT: usize = 32;
/// Healthy waits kept; the second longest counts, so that one hiccup does not blunt the trigger.
const WAITS_KEPT: usize = 64;
/// With fewer healthy iterations than this their spread is not known yet.
const SPREAD_MIN: usize = 6;
/// The spread of n values is taken (1 + 4/n) times.
const YOUNG_SPREAD: f64 = 4.0;
/// Slow is at least this much while the spread is not known.
const SLOW_FACTOR_YOUNG: f64 = 1.4;
/// A stall could be declared this long after it is due, when the samples have come.
const ARRIVAL_NS: u64 = 100 * NANOS_PER_MS;
/// Shortest time between two checks.
const RECHECK_NS: u64 = 50 * NANOS_PER_MS;
/// Time between checks while something looks wrong.
const SUSPICIOUS_RECHECK_NS: u64 = 200 * NANOS_PER_MS;

/// One sampled rank's recent past.
#[derive(Debug, Default)]
struct Track {
    generation: u64,
    seen: HostTime,
    healthy: VecDeque<f64>,
    recent: VecDeque<(Iteration, f64, bool)>,
    skipped_first: bool,
}

/// Nothing moves.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Stall {
    pub waiting: Vec<Rank>,
    pub since: HostTime,
    pub waited_ns: u64,
}

/// Iterations take longer.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Slow {
    pub onset: HostTime,
    pub until: HostTime,
    pub base_ms: f64,
    pub now_ms: f64,
    pub factor: f64,
    pub slow: usize,
    pub of: usize,
    /// Slow iterations in a row, the newest included.
    pub streak: usize,
    pub why: String,
}

/// What a look found.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub stall: Option<Stall>,
    pub slow: Option<Slow>,
    /// Single long iterations among the new ones.
    pub long: Vec<(HostTime, HostTime, f64)>,
    /// New iterations were looked at.
    pub fresh: bool,
    /// Healthy iterations in a row, the newest included, of the sampled rank with the fewest.
    pub healthy_streak: usize,
}

/// The trigger's memory.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    tracks: BTreeMap<Rank, Track>,
    waits: VecDeque<u64>,
    candidate: Option<(HostTime, u64)>,
    due: Option<HostTime>,
    suspicious: bool,
}

impl Watch {
    pub(crate) fn look(&mut self, timeline: &Timeline, config: &Config, case_open: bool, now: HostTime) -> Seen {
        self.sample(timeline, config);
        let mut seen = Seen::default();
        self.iterations(timeline, config, &mut seen);
        seen.slow = self.slow(timeline, config);
        seen.healthy_streak = self.healthy_streak();
        self.suspicious = seen.slow.is_some() || self.recently_slow();
        let still = timeline.graph().stillness(timeline, config.no_data_after_ns);
        seen.stall = self.stall(timeline, config, &still, case_open, now);
        seen
    }

    //= mycroft 4.3
    /// At most ten ranks, at least one per data-parallel group when the groups are known, else spread over the job. Of a
    /// group one whose records are whole, if there is one.
    fn sample(&mut self, timeline: &Timeline, config: &Config) {
        let alive = |rank: &Rank| timeline.ranks.get(rank).is_some_and(|state| !state.dead_since.is_some());
        let mut picks: Vec<Rank> = timeline
            .comms
            .values()
            .filter(|comm| comm.data_parallel)
            .filter_map(|comm| {
                let mut whole = comm.ranks.keys().copied().filter(|rank| alive(rank) && !lossy(timeline, *rank));
                whole.next().or_else(|| comm.ranks.keys().copied().find(|rank| alive(rank)))
            })
            .collect();
        if picks.is_empty() {
            picks = timeline.ranks.keys().filter(|rank| alive(rank)).collect();
        }
        picks.sort_unstable();
        picks.dedup();
        let n = picks.len();
        let take = n.min(config.sampled_ranks);
        let chosen: Vec<Rank> = (0..take).map(|i| picks[i * n / take.max(1)]).collect();
        self.tracks.retain(|rank, _| chosen.contains(rank));
        for rank in chosen {
            self.tracks.entry(rank).or_default();
        }
    }

    fn iterations(&mut self, timeline: &Timeline, config: &Config, seen: &mut Seen) {
        let lists: BTreeMap<Rank, &VecDeque<Iteration>> =
            self.tracks.keys().filter_map(|rank| Some((*rank, timeline.ranks.get(rank)?.iterations.list()))).collect();
        // Only what every sampled rank has finished: whether all were idle together is known no earlier.
        let newest = lists.values().filter_map(|list| list.back().map(|it| it.end)).max().unwrap_or_default();
        let longest = lists.values().filter_map(|list| list.back().map(Iteration::ns)).max().unwrap_or(0);
        let stale = newest - 3 * longest;
        let settled = lists
            .values()
            .filter_map(|list| list.back().map(|it| it.end))
            .filter(|end| *end >= stale)
            .min()
            .unwrap_or_default();
        for (rank, track) in &mut self.tracks {
            let Some(list) = lists.get(rank) else { continue };
            let generation = timeline.ranks.get(rank).map_or(0, |state| state.iterations.generation());
            if track.generation != generation {
                *track = Track { generation, ..Track::default() }; // another marker was chosen
            }
            let seen_up_to = track.seen;
            for iteration in list.iter().filter(|it| it.end > seen_up_to && it.end <= settled + 50 * NANOS_PER_MS) {
                let idle_ms = common_idle_ms(&lists, iteration);
                let ms = (iteration.ns() as f64 / 1e6 - idle_ms).max(0.0);
                if let Some(over_ms) = track.take(config, *iteration, ms) {
                    seen.long.push((iteration.start, iteration.end, over_ms));
                }
                seen.fresh = true;
            }
            if let Some(last) = track.recent.back() {
                track.seen = track.seen.max(last.0.end);
            }
        }
    }

    //= mycroft 4.3
    /// The paper's rule is a doubled interval; the job's own spread tightens it, the job's own spread may loosen it.
    /// A rank that lost the end of an iteration seems to have taken two for one: it says nothing.
    fn slow(&self, timeline: &Timeline, config: &Config) -> Option<Slow> {
        let ready =
            |(rank, track): &(&Rank, &Track)| track.healthy.len() >= config.baseline_min && !lossy(timeline, **rank);
        let ready: Vec<&Track> = self.tracks.iter().filter(ready).map(|(_, track)| track).collect();
        let slow: Vec<Slow> = ready.iter().filter_map(|track| track.slow(config)).collect();
        if slow.is_empty() || slow.len() * 2 < ready.len() {
            return None;
        }
        slow.into_iter().min_by(|a, b| a.onset.cmp(&b.onset).then(b.now_ms.total_cmp(&a.now_ms)))
    }

    fn recently_slow(&self) -> bool {
        self.tracks.values().any(|track| track.recent.iter().rev().take(3).any(|(_, _, slow)| *slow))
    }

    fn healthy_streak(&self) -> usize {
        let streak = |track: &Track| track.recent.iter().rev().take_while(|(_, _, slow)| !slow).count();
        self.tracks.values().filter(|track| !track.recent.is_empty()).map(streak).min().unwrap_or(0)
    }

    fn has_baseline(&self, config: &Config) -> bool {
        let ready = self.tracks.values().filter(|track| track.healthy.len() >= config.baseline_min).count();
        ready > 0 && ready * 2 >= self.tracks.len()
    }

    /// The stall threshold and where it comes from.
    fn stall_threshold(&self, timeline: &Timeline, config: &Config) -> (u64, String) {
        if !self.has_baseline(config) {
            return (config.stall_warmup_ns, "no baseline of healthy iterations yet".to_string());
        }
        let mut waits: Vec<u64> = self.waits.iter().copied().collect();
        waits.sort_unstable();
        let seen = waits.len().checked_sub(2).map_or(0, |at| waits[at]);
        let computed =
            self.tracks.keys().filter_map(|rank| usual_longest_compute(timeline.ranks.get(rank)?)).max().unwrap_or(0);
        let longest = seen.max(computed);
        let learned = longest.saturating_mul(config.stall_wait_factor);
        if learned <= config.stall_floor_ns {
            return (config.stall_floor_ns, "the floor; healthy waits are shorter".to_string());
        }
        let why = format!("{} x the longest healthy wait of {} ms", config.stall_wait_factor, longest / NANOS_PER_MS);
        (learned, why)
    }

    //= mycroft 4.3
    /// "Stalls mid-operation": operations in flight, and nothing they wait for, directly or not, has moved.
    fn stall(
        &mut self,
        timeline: &Timeline,
        config: &Config,
        still: &[(Rank, Stillness)],
        case_open: bool,
        now: HostTime,
    ) -> Option<Stall> {
        let (threshold, _) = self.stall_threshold(timeline, config);
        let live = |rank: &Rank| {
            timeline.ranks.get(rank).is_some_and(|state| {
                !state.dead() && !state.ended_well() && !timeline.no_data(state, config.no_data_after_ns)
            })
        };
        let stillest =
            still.iter().filter(|(rank, _)| live(rank)).max_by_key(|(rank, s)| (s.ns(), std::cmp::Reverse(*rank)));
        self.due = None;
        let (_, worst) = stillest?;
        self.learn_wait(worst, threshold, case_open);
        if worst.ns() < threshold {
            if worst.ns() * 3 > threshold {
                self.due = Some((worst.since + threshold + ARRIVAL_NS).max(now + RECHECK_NS));
            }
            return None;
        }
        self.due = Some(now + SUSPICIOUS_RECHECK_NS); // to settle the verdict, or to see it go on
        let stalled = || still.iter().filter(|(rank, s)| s.ns() >= threshold && live(rank));
        let waiting: Vec<Rank> = stalled().map(|(rank, _)| *rank).collect();
        let since = stalled().map(|(_, s)| s.since).min()?;
        Some(Stall { waiting, since, waited_ns: worst.ns() })
    }

    /// A wait counts as healthy once it is over (even the stillest ranks have moved after it), was no stall, and nothing
    /// else was suspicious.
    fn learn_wait(&mut self, worst: &Stillness, threshold: u64, case_open: bool) {
        let Some((since, ns)) = self.candidate else {
            self.candidate = Some((worst.since, worst.ns()));
            return;
        };
        if worst.since <= since {
            self.candidate = Some((since.min(worst.since), ns.max(worst.ns())));
            return;
        }
        if worst.since <= since + ns {
            return; // others are the stillest now; whether this wait is over shows later
        }
        self.candidate = Some((worst.since, worst.ns()));
        if ns < threshold && !case_open && !self.suspicious {
            self.waits.push_back(ns);
            if self.waits.len() > WAITS_KEPT {
                self.waits.pop_front();
            }
        }
    }

    pub(crate) fn next_check(&self, now: HostTime) -> Option<HostTime> {
        let suspicious = self.suspicious.then(|| now + SUSPICIOUS_RECHECK_NS);
        let due = self.due.map(|at| at.max(now));
        match (due, suspicious) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The stall as a fact.
    pub(crate) fn stall_fact(&self, timeline: &Timeline, config: &Config, stall: &Stall) -> Fact {
        let (threshold_ns, why) = self.stall_threshold(timeline, config);
        Fact::Stalled {
            waiting: stall.waiting.clone(),
            since: stall.since,
            waited_ns: stall.waited_ns,
            threshold_ns,
            why,
        }
    }

    pub(crate) fn thresholds(&self, timeline: &Timeline, config: &Config) -> Vec<Threshold> {
        let (stall, why) = self.stall_threshold(timeline, config);
        let mut out = vec![Threshold { name: "stall", value: stall as f64 / 1e6, unit: "ms", why }];
        let widest = self
            .tracks
            .values()
            .filter(|track| track.healthy.len() >= config.baseline_min)
            .map(|track| track.factor(config))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((value, why)) = widest {
            out.push(Threshold { name: "slow-iteration", value, unit: "x", why });
        }
        out
    }

    /// Median healthy iteration of the sampled ranks, milliseconds.
    pub(crate) fn iteration_ms(&self) -> Option<f64> {
        median(self.tracks.values().filter_map(|track| median(track.healthy.iter().copied().collect())).collect())
    }

    /// Whether a job this slow for this long is a case although nobody can be named.
    pub(crate) fn beyond_doubt(config: &Config, slow: &Slow) -> bool {
        slow.now_ms > config.paper_slow_factor * slow.base_ms && slow.streak >= 2 * config.slow_window
    }
}

/// Records of the rank were lost lately.
fn lossy(timeline: &Timeline, rank: Rank) -> bool {
    timeline.ranks.get(&rank).is_some_and(|state| timeline.has_fresh_gap(state))
}

impl Track {
    /// Takes in one iteration of `ms` milliseconds (common idle time taken off); returns by how much it was a pause.
    fn take(&mut self, config: &Config, iteration: Iteration, ms: f64) -> Option<f64> {
        if !self.skipped_first {
            self.skipped_first = true; // the first iteration compiles, allocates and connects
            self.seen = iteration.end;
            return None;
        }
        let base = median(self.healthy.iter().copied().collect());
        let ready = self.healthy.len() >= config.baseline_min;
        let slow = ready && base.is_some_and(|base| ms > base * self.factor(config).0);
        if !slow {
            self.healthy.push_back(ms);
            if self.healthy.len() > HEALTHY_KEPT {
                self.healthy.pop_front();
            }
        }
        self.recent.push_back((iteration, ms, slow));
        if self.recent.len() > RECENT_KEPT {
            self.recent.pop_front();
        }
        let over = ms - base.unwrap_or(ms);
        (ready && over >= config.pause_ns as f64 / 1e6).then_some(over)
    }

    fn factor(&self, config: &Config) -> (f64, String) {
        let values: Vec<f64> = self.healthy.iter().copied().collect();
        let Some(mid) = median(values.clone()) else {
            return (config.paper_slow_factor, "the paper's value".to_string());
        };
        let mad = median(values.iter().map(|value| (value - mid).abs()).collect()).unwrap_or(0.0);
        // Few values underestimate their spread.
        let few = 1.0 + YOUNG_SPREAD / values.len() as f64;
        let spread = 1.0 + config.slow_mads * mad * few / mid.max(1e-9);
        let floor = if values.len() < SPREAD_MIN { SLOW_FACTOR_YOUNG } else { config.slow_factor_floor };
        let why = format!("usual {mid:.0} ms, spread {mad:.1} ms over {} iterations", values.len());
        (spread.max(floor), why)
    }

    fn slow(&self, config: &Config) -> Option<Slow> {
        let window: Vec<&(Iteration, f64, bool)> = self.recent.iter().rev().take(config.slow_window).collect();
        let slow = window.iter().filter(|(_, _, slow)| *slow).count();
        if slow < config.slow_needed {
            return None;
        }
        // The onset: back over slow iterations, single healthy ones between them included.
        let mut onset = window[0].0.start;
        let mut healthy_run = 0;
        for (iteration, _, slow) in self.recent.iter().rev() {
            healthy_run = if *slow { 0 } else { healthy_run + 1 };
            if healthy_run >= 2 {
                break;
            }
            if *slow {
                onset = iteration.start;
            }
        }
        let base_ms = median(self.healthy.iter().copied().collect())?;
        let slow_ms =
            self.recent.iter().filter(|(it, _, slow)| *slow && it.start >= onset).map(|(_, ms, _)| *ms).collect();
        let (factor, why) = self.factor(config);
        let streak = self.recent.iter().rev().take_while(|(_, _, slow)| *slow).count();
        let until = self.recent.back()?.0.end;
        Some(Slow { onset, until, base_ms, now_ms: median(slow_ms)?, factor, slow, of: window.len(), streak, why })
    }
}

/// How long all sampled ranks had nothing issued in about this iteration (checkpoint, evaluation): nobody's fault.
fn common_idle_ms(lists: &BTreeMap<Rank, &VecDeque<Iteration>>, iteration: &Iteration) -> f64 {
    lists
        .values()
        .filter(|list| !list.is_empty())
        .map(|list| {
            list.iter()
                .rev()
                .take_while(|it| it.end > iteration.start)
                .filter(|it| it.start < iteration.end)
                .map(|it| it.host_us / 1e3)
                .fold(0.0, f64::max)
        })
        .fold(f64::MAX, f64::min)
        .min(iteration.ns() as f64 / 1e6)
}

/// Median over the recent iterations of the longest piece of computation in each.
fn usual_longest_compute(state: &RankState) -> Option<u64> {
    let pieces = state.iterations.list().iter().rev().take(HEALTHY_KEPT).map(|it| it.compute_max_us).collect();
    median(pieces).map(|us| (us * 1e3) as u64)
}
