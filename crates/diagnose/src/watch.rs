//! Is something wrong now? The trigger of Algorithm 1, with thresholds that learn from the job.
//!
//! It says that and since when, never who: that is `blame`'s question.
mod track;
mod waits;

use crate::blame::graph::Stillness;
use crate::config::Config;
use crate::fact::Fact;
use crate::median::median;
use crate::report::Threshold;
use crate::timeline::{Iteration, Timeline};
use mycroft_record::{HostTime, NANOS_PER_MS, NANOS_PER_SEC, Rank};
use std::collections::{BTreeMap, VecDeque};
use track::{Lap, SLACK_NS, Track, usual_longest_compute};
pub(crate) use waits::REMEMBERED_NS;
use waits::Waits;

/// An iteration that runs for so many usual ones is looked at before it has ended ..
const CRAWLS: f64 = 4.0;
/// .. and again after this share of what it has taken: a look at it costs more than others do.
const CRAWLS_AGAIN: f64 = 0.125;
/// An iteration that is longer than usual by this share of what others are is as long.
const AS_LONG: f64 = 0.8;
/// A stall could be declared this long after it is due, when the samples have come.
const ARRIVAL_NS: u64 = 100 * NANOS_PER_MS;
/// Shortest time between two checks.
const RECHECK_NS: u64 = 50 * NANOS_PER_MS;
/// Time between checks while something looks wrong.
const SUSPICIOUS_RECHECK_NS: u64 = 200 * NANOS_PER_MS;

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
    pub base_ms: f64,
    pub now_ms: f64,
    pub factor: f64,
    pub slow: usize,
    /// Iterations of the window.
    pub of: usize,
    pub why: String,
}

impl Slow {
    pub(crate) fn fact(&self) -> Fact {
        Fact::SlowIterations {
            base_ms: self.base_ms,
            now_ms: self.now_ms,
            factor: self.factor,
            slow: self.slow,
            of: self.of,
            since: self.onset,
            why: self.why.clone(),
        }
    }
}

/// What a look found.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub stall: Option<Stall>,
    pub slow: Option<Slow>,
    /// Until when the iteration that runs was seen, where it takes many times as long as usual.
    pub crawl: Option<HostTime>,
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
    waits: Waits,
    due: Option<HostTime>,
    suspicious: bool,
    looked_at: HostTime,
    /// Whether the iteration that runs crawls is asked again then.
    crawl_at: HostTime,
}

impl Watch {
    /// `raised_at`: slowdowns have their cases, and iterations from here on show what they account for.
    pub(crate) fn look(
        &mut self,
        timeline: &Timeline,
        config: &Config,
        case_open: bool,
        raised_at: Option<HostTime>,
        now: HostTime,
    ) -> Seen {
        self.looked_at = now;
        self.sample(timeline, config);
        let mut seen = Seen::default();
        self.tracks.values_mut().for_each(|track| track.raise(raised_at));
        self.iterations(timeline, config, &mut seen);
        seen.slow = self.slow(timeline, config);
        seen.healthy_streak = self.healthy_streak();
        self.suspicious = seen.slow.is_some() || self.recently_slow();
        let mut still = timeline.stillness(config.no_data_after_ns, &BTreeMap::new());
        self.waits.begin(config, self.has_baseline(config), timeline.newest_sample);
        let tracks = &self.tracks;
        self.waits.confirm(|from, until| {
            let told = tracks.values().filter_map(|track| track.was_usual(config, from, until));
            told.reduce(|all, one| all && one)
        });
        let (threshold_ns, _) = self.stall_threshold(timeline, config);
        if still.iter().any(|(_, stillness)| stillness.ns() >= threshold_ns) {
            let later = timeline.graph().left_behind(timeline);
            still = timeline.stillness(config.no_data_after_ns, &later);
        }
        seen.stall = self.stall(timeline, config, &still, case_open, now);
        if seen.stall.is_none() && timeline.newest_sample >= self.crawl_at {
            seen.crawl = self.crawl(timeline, config);
        }
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
                let raised_at = track.raised_at;
                *track = Track { generation, raised_at, ..Track::default() }; // another marker
            }
            let seen_up_to = track.seen;
            for iteration in list.iter().filter(|it| it.end > seen_up_to && it.end <= settled + SLACK_NS) {
                let idle_ms = common_idle_ms(&lists, iteration);
                let ms = (iteration.ns() as f64 / 1e6 - idle_ms).max(0.0);
                if let Some(over_ms) = track.take(config, *iteration, ms) {
                    seen.long.push((iteration.start, iteration.end, over_ms));
                }
                seen.fresh = true;
            }
            if let Some(last) = track.recent.back() {
                track.seen = track.seen.max(last.end);
            }
        }
    }

    //= mycroft 4.3
    /// The paper's rule is a doubled interval; the job's own spread tightens it, the job's own spread may loosen it.
    /// A rank that lost the end of an iteration seems to have taken two for one: it says nothing.
    fn slow(&self, timeline: &Timeline, config: &Config) -> Option<Slow> {
        let ready = |(rank, track): &(&Rank, &Track)| track.healthy.is_ready(config) && !lossy(timeline, **rank);
        let ready: Vec<&Track> = self.tracks.iter().filter(ready).map(|(_, track)| track).collect();
        let slow: Vec<Slow> = ready.iter().filter_map(|track| track.slow(config)).collect();
        if slow.is_empty() || slow.len() * 2 < ready.len() {
            return None;
        }
        slow.into_iter().min_by(|a, b| a.onset.cmp(&b.onset).then(b.now_ms.total_cmp(&a.now_ms)))
    }

    /// Now, if the iteration that runs has taken many times as long as usual by most of the sampled ranks, and nothing was done in it
    /// that is not done in every one. Of a rank that was not looked at lately (its agent's records are on their way) nobody knows how long.
    fn crawl(&mut self, timeline: &Timeline, config: &Config) -> Option<HostTime> {
        let until = timeline.newest_sample;
        let ready = |(rank, track): &(&Rank, &Track)| track.healthy.is_ready(config) && !lossy(timeline, **rank);
        let ready: Vec<(&Rank, &Track)> = self.tracks.iter().filter(ready).collect();
        let crawls_ms = |(rank, track): &(&Rank, &Track)| {
            let state = timeline.ranks.get(rank).filter(|state| !timeline.no_data(state, config.no_data_after_ns))?;
            let so_far_ms = until.since_ns(state.runs_since()?) as f64 / 1e6;
            (so_far_ms >= CRAWLS * track.usual_span_ms()?).then_some(so_far_ms)
        };
        let all: Vec<f64> = ready.iter().filter_map(crawls_ms).collect();
        let shortest_ms = all.iter().copied().min_by(f64::total_cmp).filter(|_| 2 * all.len() >= ready.len())?;
        self.crawl_at = until + NANOS_PER_SEC.max((CRAWLS_AGAIN * shortest_ms * 1e6) as u64);
        Some(until)
    }

    fn recently_slow(&self) -> bool {
        self.tracks.values().any(|track| track.recent.iter().rev().take(3).any(|lap| lap.slow))
    }

    fn healthy_streak(&self) -> usize {
        let streak = |track: &Track| track.recent.iter().rev().take_while(|lap| !lap.slow).count();
        self.tracks.values().filter(|track| !track.recent.is_empty()).map(streak).min().unwrap_or(0)
    }

    fn has_baseline(&self, config: &Config) -> bool {
        let ready = self.tracks.values().filter(|track| track.healthy.is_ready(config)).count();
        ready > 0 && ready * 2 >= self.tracks.len()
    }

    /// The stall threshold and where it comes from; that ranks seem to wait for as long as clocks differ says nothing.
    fn stall_threshold(&self, timeline: &Timeline, config: &Config) -> (u64, String) {
        let computed = self.tracks.keys().filter_map(|rank| usual_longest_compute(timeline.ranks.get(rank)?));
        let (threshold_ns, why) = self.waits.threshold(config, computed.max().unwrap_or(0));
        timeline.widened(threshold_ns, why)
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
        let live = |rank: &Rank| {
            timeline.ranks.get(rank).is_some_and(|state| {
                !state.dead() && !state.ended_well() && !timeline.no_data(state, config.no_data_after_ns)
            })
        };
        let stillest =
            still.iter().filter(|(rank, _)| live(rank)).max_by_key(|(rank, s)| (s.ns(), std::cmp::Reverse(*rank)));
        self.due = None;
        let (_, worst) = stillest?;
        let (threshold, _) = self.stall_threshold(timeline, config);
        self.waits.learn(worst, threshold, !case_open && !self.suspicious);
        if worst.ns() < threshold {
            self.due = Some((worst.since + threshold + ARRIVAL_NS).max(now + RECHECK_NS));
            return None;
        }
        self.due = Some(now + SUSPICIOUS_RECHECK_NS); // to settle the verdict, or to see it go on
        let stalled = || still.iter().filter(|(rank, s)| s.ns() >= threshold && live(rank));
        let waiting: Vec<Rank> = stalled().map(|(rank, _)| *rank).collect();
        let since = stalled().map(|(_, s)| s.since).min()?;
        Some(Stall { waiting, since, waited_ns: worst.ns() })
    }

    /// Whether a stall may be ranks that are not ready yet: no iteration has a baseline, and it has not lasted for long.
    pub(crate) fn may_be_start(&self, config: &Config, stall: &Stall) -> bool {
        stall.waited_ns < config.stall_start_ns && self.waits.is_young()
    }

    /// Whether no iteration has a baseline: then nothing tells a long step from a stall.
    pub(crate) fn is_young(&self) -> bool {
        self.waits.is_young()
    }

    pub(crate) fn next_check(&self, now: HostTime) -> Option<HostTime> {
        // From the last look on, not from now: whoever asks with every batch would put it off for ever.
        let suspicious = self.suspicious.then(|| (self.looked_at + SUSPICIOUS_RECHECK_NS).max(now));
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
            .filter(|track| track.healthy.is_ready(config))
            .map(|track| track.healthy.factor(config))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((value, why)) = widest {
            out.push(Threshold { name: "slow-iteration", value, unit: "x", why });
        }
        out
    }

    /// Median healthy iteration of the sampled ranks, milliseconds.
    pub(crate) fn iteration_ms(&self) -> Option<f64> {
        median(self.tracks.values().filter_map(|track| track.healthy.ms()).collect())
    }

    /// How many iterations lie between two moments, by the rank that has most of them; those of long ago are not counted.
    fn laps_between(&self, from: HostTime, until: HostTime) -> usize {
        let inside = |lap: &&Lap| lap.start + SLACK_NS >= from && lap.end <= until + SLACK_NS;
        self.tracks.values().map(|track| track.recent.iter().filter(inside).count()).max().unwrap_or(0)
    }

    /// Whether an onset is so long ago that nothing is remembered of what was before it.
    fn is_long_ago(&self, onset: HostTime) -> bool {
        self.tracks.values().any(|track| track.recent.front().is_some_and(|lap| lap.start > onset + SLACK_NS))
    }

    /// Whether a slowdown has been there for so many iterations.
    pub(crate) fn has_lasted(&self, onset: HostTime, laps: usize) -> bool {
        self.is_long_ago(onset) || self.laps_between(onset, HostTime(u64::MAX)) >= laps
    }
}

/// Records of the rank were lost lately, or its clock is jumping: how long it seems to take says nothing.
fn lossy(timeline: &Timeline, rank: Rank) -> bool {
    timeline.ranks.get(&rank).is_some_and(|state| timeline.has_fresh_gap(state) || !state.knows_clock())
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
                .map(|it| f64::from(it.host_us) / 1e3)
                .fold(0.0, f64::max)
        })
        .fold(f64::MAX, f64::min)
        .min(iteration.ns() as f64 / 1e6)
}

#[cfg(test)]
mod tests;
