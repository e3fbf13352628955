//! Measure: what each rank, and each way between hosts, took per iteration, in rows of about a second.
//!
//! A row is cut at ends of iterations of one rank, the reference, so that every rank has done the same in it. What a rank
//! took is given as its share of each of its own iterations, times the reference's: a rank whose iterations were cut
//! elsewhere, or of which some are missing, is compared all the same. Times are the rank's own, free of waiting for others
//! (`timeline::iterations`), so a row compares ranks with each other and with their past.
mod cells;
mod local;
mod pauses;
mod role;
mod through;
mod ways;

use crate::timeline::{RankState, Timeline};
use mycroft_record::{HostName, HostTime, NANOS_PER_SEC};
use std::collections::BTreeMap;

pub(crate) use cells::{CELLS, Cells, Component};
use cells::{cells, inside};
pub(crate) use pauses::Slept;
pub(crate) use role::Role;
use ways::Ways;
pub(crate) use ways::{Carries, Sent, Way};

/// A row lasts at least so long: one look of a person, and enough 20 ms iterations for a mean.
const ROW_NS: u64 = NANOS_PER_SEC;
/// .. or so many iterations, where they are shorter: a rank remembers 128 of them.
const ROW_ITERATIONS: usize = 32;
/// Records of an iteration have come from all ranks so long after its end: 0.1 s sample, 0.1 s ship, clocks, and the next
/// iteration's first operations.
const GRACE_NS: u64 = NANOS_PER_SEC / 2;
/// The first iterations compile, allocate and connect.
pub(crate) const WARM_UP: u64 = 3;

/// After so many rows that say something of few ranks the reference must be like most.
const FEW: usize = 3;

/// End and length, milliseconds, of iterations that follow each other.
type Each = Vec<(HostTime, f64)>;

/// About a second of the job.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Row {
    pub(crate) start: HostTime,
    pub(crate) end: HostTime,
    /// Iterations of the reference in it.
    pub(crate) iterations: usize,
    /// Their mean, milliseconds.
    pub(crate) iteration_ms: f64,
    /// End and length of each, milliseconds.
    pub(crate) each: Each,
    /// For how long the device of whoever issued last idled in each iteration: the mean, milliseconds.
    pub(crate) latest_ms: f64,
    /// By slot of the rank; `None`: missing.
    pub(crate) ranks: Vec<Option<Cells>>,
    /// By slot.
    pub(crate) sent: Vec<Sent>,
    /// Proxy threads that slept.
    pub(crate) slept: Vec<Slept>,
    /// Between hosts.
    pub(crate) ways: Ways,
    /// By host: for which share of the time its threads waited for a processor.
    pub(crate) waits: BTreeMap<HostName, f64>,
    /// By host: what a way through more than two of its ranks costs, milliseconds.
    pub(crate) through: BTreeMap<HostName, f64>,
}

impl Row {
    /// Whether it says something of more than half of the ranks of which iterations are seen: else these know none in common. Of ranks
    /// inside a host, without kernel events, none may be.
    fn is_of_most(&self, timeline: &Timeline) -> bool {
        let seen = timeline.ranks.by_slot().iter().filter(|state| state.iterations.total() > 0);
        2 * self.ranks.iter().flatten().count() > seen.count()
    }
}

/// Cuts rows.
#[derive(Debug, Default)]
pub(crate) struct Measure {
    /// The reference: its slot, and its generation of iterations.
    reference: Option<(u32, u64)>,
    /// Rows are taken up to here.
    until: HostTime,
    /// Rows in a row, up to the last, that say something of no more than half of the ranks.
    few: usize,
    /// There was a row that says something of more than half of the ranks.
    knows_most: bool,
    /// By slot: who does the same as whom.
    pub(crate) roles: Vec<Role>,
}

impl Measure {
    /// The rows that are complete since the last call, oldest first, and whether what came before them is no longer
    /// comparable (another reference). A proxy thread that sleeps for `pause_us` pauses.
    pub(crate) fn rows(&mut self, timeline: &Timeline, pause_us: u32) -> (Vec<Row>, bool) {
        let is_other = self.choose(timeline);
        let Some((slot, _)) = self.reference else { return (Vec::new(), is_other) };
        let state = timeline.ranks.at(slot);
        let mut rows = Vec::new();
        while let Some((start, end, ns, each)) = self.next(state) {
            if !is_complete(timeline, end, ns / each.len() as u64) {
                break;
            }
            self.until = end;
            if self.roles.len() != timeline.ranks.len() || rows.is_empty() {
                self.roles = role::of_all(timeline);
            }
            let slept = pauses::slept(timeline, (start, end), pause_us);
            let mut row = row(timeline, (start, end), ns, each, slept);
            let is_of_most = row.is_of_most(timeline);
            self.knows_most |= is_of_most;
            self.few = if is_of_most { 0 } else { self.few + 1 };
            if !is_of_most {
                row.ranks.fill(None);
            }
            // Where most ranks never know an iteration, the ways between hosts are measured all the same.
            if is_of_most || !self.knows_most {
                rows.push(row);
            }
        }
        (rows, is_other)
    }

    /// A row of the iteration that runs, of which the timeline shows what it is `until` now; `None`: the reference's does not.
    pub(crate) fn running(&self, timeline: &Timeline, until: HostTime, pause_us: u32) -> Option<Row> {
        let (slot, _) = self.reference?;
        let it = timeline.ranks.at(slot).iterations.list().back().filter(|it| it.end == until)?;
        let slept = pauses::slept(timeline, (it.start, it.end), pause_us);
        Some(row(timeline, (it.start, it.end), it.ns(), vec![(it.end, it.ns() as f64 / 1e6)], slept))
    }

    /// The rank whose iterations are as long as those of most, that has finished most of them, lost no records and lives; it stays
    /// as long as it does.
    fn choose(&mut self, timeline: &Timeline) -> bool {
        let fits = |state: &RankState| !state.dead_since.is_some() && state.iterations.total() > WARM_UP;
        let like = if self.few < FEW { Like::default() } else { Like::of(timeline) };
        let current = self.reference.filter(|(slot, generation)| {
            let state = timeline.ranks.at(*slot);
            fits(state) && state.iterations.generation() == *generation && like.is_of_most(state)
        });
        if current.is_some() {
            return false;
        }
        let fitting = timeline.ranks.slots().filter(|slot| fits(timeline.ranks.at(*slot)));
        // Of ranks that have finished as many the first: the order of slots is that of ranks here.
        self.few = 0;
        let best = fitting.max_by_key(|slot| {
            let state = timeline.ranks.at(*slot);
            (like.count(state), state.lost == 0, state.iterations.total(), std::cmp::Reverse(*slot))
        });
        let Some(slot) = best else { return false };
        let state = timeline.ranks.at(slot);
        let had = self.reference.replace((slot, state.iterations.generation())).is_some();
        let first = state.iterations.list().get(WARM_UP as usize).map_or(HostTime::NONE, |it| it.start);
        self.until = self.until.max(first);
        had
    }

    /// Begin and end of the next row, the nanoseconds of its iterations, and end and milliseconds of each.
    fn next(&self, state: &RankState) -> Option<(HostTime, HostTime, u64, Each)> {
        let new = state.iterations.list().iter().filter(|it| it.start >= self.until);
        let (mut start, mut ns, mut each) = (None, 0, Vec::new());
        for it in new {
            let from = *start.get_or_insert(it.start);
            ns += it.ns();
            each.push((it.end, it.ns() as f64 / 1e6));
            if it.end.since_ns(from) >= ROW_NS || each.len() >= ROW_ITERATIONS {
                return Some((from, it.end, ns, each));
            }
        }
        None
    }
}

/// How many ranks have iterations of about the same length, by length in half octaves: where some take layers for iterations, most
/// do not.
#[derive(Debug, Default)]
struct Like(BTreeMap<i32, usize>);

impl Like {
    fn of(timeline: &Timeline) -> Like {
        let mut counts = BTreeMap::new();
        for length in timeline.ranks.by_slot().iter().filter_map(length) {
            *counts.entry(length).or_default() += 1;
        }
        Like(counts)
    }

    fn count(&self, state: &RankState) -> usize {
        length(state).and_then(|length| self.0.get(&length)).copied().unwrap_or(0)
    }

    /// Whether no length is that of more than half of the ranks that have one, or this rank's is.
    fn is_of_most(&self, state: &RankState) -> bool {
        let all: usize = self.0.values().sum();
        self.0.values().all(|count| 2 * count <= all) || 2 * self.count(state) > all
    }
}

fn length(state: &RankState) -> Option<i32> {
    Some((2.0 * state.iterations.recent_ms()?.max(1e-3).log2()).round() as i32)
}

/// Whether all ranks have told of the iteration that ended then: who computes or waits longer tells later. Nobody is waited for
/// beyond twice an iteration.
fn is_complete(timeline: &Timeline, end: HostTime, iteration_ns: u64) -> bool {
    let has_told = |state: &RankState| {
        let last = state.iterations.list().back();
        state.dead_since.is_some() || last.is_none_or(|it| it.end + iteration_ns / 4 >= end)
    };
    let waited_ns = timeline.newest_sample.since_ns(end);
    waited_ns >= GRACE_NS && (waited_ns >= GRACE_NS + 2 * iteration_ns || timeline.ranks.by_slot().iter().all(has_told))
}

fn row(timeline: &Timeline, (start, end): (HostTime, HostTime), ns: u64, each: Each, slept: Vec<Slept>) -> Row {
    let iterations = each.len();
    let iteration_ms = ns as f64 / 1e6 / iterations as f64;
    let of = |state: &RankState| cells(state, (start, end), &each);
    let mut ranks: Vec<Option<Cells>> = timeline.ranks.by_slot().iter().map(of).collect();
    let proxy_ms = |slot: u32| ranks[slot as usize].and_then(|cells| cells.ms(Component::Proxy)).unwrap_or(0.0);
    let (ways, sent) = ways::of(timeline, (start, end), iterations, &slept, proxy_ms);
    let known = ranks.iter_mut().zip(&sent).filter_map(|(cells, sent)| Some((cells.as_mut()?, sent)));
    known.for_each(|(cells, sent)| cells.add_sent(sent));
    let through = through::add(timeline, (start, end), &each, &mut ranks);
    local::add(timeline, (start, end), &each, &mut ranks);
    let waits = timeline.loads.waits(start, end);
    let latest_ms = latest_ms(timeline, (start, end), &each);
    Row { start, end, iterations, iteration_ms, each, latest_ms, ranks, sent, slept, ways, waits, through }
}

/// The mean of what the latest rank to issue made its device idle in each iteration: all wait for it, now for this rank and now for
/// that one.
fn latest_ms(timeline: &Timeline, row: (HostTime, HostTime), each: &Each) -> f64 {
    let mut latest_us = vec![0.0; each.len()];
    for state in timeline.ranks.by_slot().iter().filter(|state| !state.dead_since.is_some()) {
        for (nth, it) in inside(state, row, each) {
            if let Some(latest_us) = latest_us.get_mut(nth) {
                *latest_us = f64::from(it.host_us).max(*latest_us);
            }
        }
    }
    latest_us.iter().sum::<f64>() / 1e3 / each.len().max(1) as f64
}
