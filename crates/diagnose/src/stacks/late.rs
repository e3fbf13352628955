//! Stuck or slow? A rank that came late before, and each time the job went on, may only be slow again.
//!
//! Who came late to an operation shows in when its members issued it. Clocks of hosts differ: a rank that seems late by
//! the same amount in every operation has another clock, so the least it was ever late by (robustly: a low decile) is taken
//! off. Only growth counts: a host that runs behind its peers for long was late once.
use super::index::{Group, Index, Lane};
use mycroft_record::{NANOS_PER_MS, Rank};

/// Operations of a group that are looked at, the newest: some tens of iterations.
const COLUMNS_MAX: usize = 512;
/// The decile of a rank's delays that is taken for the difference of clocks.
const CLOCK_DECILE: usize = 10;
/// Operations at the start of a group that are not looked at: programs start unevenly.
const WARM_UP: usize = 2;
/// Once this late counts: far above what schedulers and allocators do.
const LATE_ONCE_NS: i64 = 500 * NANOS_PER_MS as i64;
/// This late counts if it recurs.
const LATE_AGAIN_NS: i64 = 100 * NANOS_PER_MS as i64;
/// Times that make it recur.
const AGAIN: usize = 2;
/// A finished job is slow when one rank's lateness makes up this share of its time.
const SHARE_OF_TIME: f64 = 0.25;

/// How a rank came late to operations of one group.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Lateness {
    pub(super) group: u32,
    pub(super) rank: Rank,
    /// Worst, nanoseconds.
    pub(super) worst_ns: i64,
    /// All, nanoseconds.
    pub(super) total_ns: i64,
    /// How often.
    pub(super) times: usize,
    /// The operation of the worst.
    pub(super) seq: u64,
    /// Nanoseconds from the first to the last operation looked at.
    pub(super) span_ns: i64,
}

impl Lateness {
    /// Often or long enough to be a habit.
    pub(super) fn is_habit(&self) -> bool {
        self.worst_ns >= LATE_ONCE_NS || self.times >= AGAIN
    }

    /// It is what the job spends its time on.
    pub(super) fn dominates(&self) -> bool {
        self.times >= AGAIN && self.total_ns as f64 >= SHARE_OF_TIME * self.span_ns.max(1) as f64
    }
}

/// Ranks that came late in a group, worst first.
pub(super) fn of_group(index: &Index<'_>, id: u32) -> Vec<Lateness> {
    let group = &index.groups[id as usize];
    let columns = columns(group);
    let times: Vec<Vec<Option<i64>>> =
        group.lanes.iter().map(|lane| columns.iter().map(|seq| created(index, lane, *seq)).collect()).collect();
    // When the earlier half had come. Of two ranks, when the first had.
    let usual: Vec<Option<i64>> = (0..columns.len())
        .map(|at| {
            let mut all: Vec<i64> = times.iter().filter_map(|lane| lane[at]).collect();
            all.sort_unstable();
            if all.len() < 2 { None } else { Some(all[(all.len() - 1) / 2]) }
        })
        .collect();
    let known: Vec<i64> = usual.iter().flatten().copied().collect();
    let span_ns = known.last().zip(known.first()).map_or(0, |(last, first)| last - first);
    let mut out: Vec<Lateness> = group
        .lanes
        .iter()
        .zip(&times)
        .filter_map(|(lane, times)| {
            let delays: Vec<Option<i64>> =
                times.iter().zip(&usual).map(|(mine, usual)| Some((*mine)? - (*usual)?)).collect();
            let late = Lateness { group: id, rank: lane.rank, worst_ns: 0, total_ns: 0, times: 0, seq: 0, span_ns };
            of_rank(late, &delays, &columns)
        })
        .collect();
    out.sort_by(|a, b| b.worst_ns.cmp(&a.worst_ns).then_with(|| a.rank.cmp(&b.rank)));
    out
}

/// Numbers that the fullest lane has, without the first.
fn columns(group: &Group) -> Vec<u64> {
    let fullest = group.lanes.iter().max_by_key(|lane| (lane.slots.len(), u32::MAX - lane.rank.0));
    fullest.map_or_else(Vec::new, |lane| {
        let from = lane.slots.len().saturating_sub(COLUMNS_MAX).max(WARM_UP.min(lane.slots.len()));
        lane.slots[from..].iter().map(|slot| slot.seq).collect()
    })
}

fn created(index: &Index<'_>, lane: &Lane, seq: u64) -> Option<i64> {
    let entry = index.entry(lane, lane.slot(seq)?)?;
    entry.created_at.some().map(|time| time.0 as i64)
}

fn of_rank(mut late: Lateness, delays: &[Option<i64>], columns: &[u64]) -> Option<Lateness> {
    let mut sorted: Vec<i64> = delays.iter().flatten().copied().collect();
    sorted.sort_unstable();
    let clock = *sorted.get(sorted.len() / CLOCK_DECILE)?;
    let mut before = 0;
    for (delay, seq) in delays.iter().zip(columns) {
        let Some(delay) = delay.map(|delay| (delay - clock).max(0)) else { continue };
        let grown = delay - before;
        before = delay;
        if grown < LATE_AGAIN_NS {
            continue;
        }
        late.times += 1;
        late.total_ns += grown;
        if grown > late.worst_ns {
            (late.worst_ns, late.seq) = (grown, *seq);
        }
    }
    (late.times > 0).then_some(late)
}
