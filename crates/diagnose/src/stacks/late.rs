//! Stuck or slow? A rank that came late before, and each time the job went on, may only be slow again.
//!
//! Lateness needs no comparison of clocks: how long a rank takes from one operation of a group to the next is measured
//! with its own clock. What it spent waiting for a later peer in the first of the two is taken off, and the rest, its own
//! time, is compared with its peers' own times.
use super::index::{Group, Index};
use mycroft_record::{NANOS_PER_MS, Rank};

/// Operations of a group that are looked at, the newest: some hundred iterations.
const COLUMNS_MAX: usize = 2000;
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
    let mut out: Vec<Lateness> = Vec::new();
    let columns = columns(group);
    let mut before: Option<Vec<Option<i64>>> = None;
    let mut waited: Vec<i64> = vec![0; group.lanes.len()];
    let mut first_last: Option<(i64, i64)> = None;
    for seq in columns.iter().rev().take(COLUMNS_MAX).rev() {
        let times = created(index, group, *seq);
        if let Some(newest) = times.iter().flatten().max() {
            first_last = Some((first_last.map_or(*newest, |pair| pair.0), *newest));
        }
        if let Some(before) = before.replace(times.clone()) {
            let own: Vec<Option<i64>> = before
                .iter()
                .zip(&times)
                .zip(&waited)
                .map(|((a, b), waited)| Some(((*b)? - (*a)? - waited).max(0)))
                .collect();
            column(&mut out, group, id, *seq, &own);
            let last = own.iter().flatten().max().copied().unwrap_or(0);
            waited = own.iter().map(|own| own.map_or(0, |own| last - own)).collect();
        }
    }
    let span = first_last.map_or(0, |(first, last)| last - first);
    for late in &mut out {
        late.span_ns = span;
    }
    out.sort_by(|a, b| b.worst_ns.cmp(&a.worst_ns).then_with(|| a.rank.cmp(&b.rank)));
    out
}

/// Numbers that some lane has, without the first.
fn columns(group: &Group) -> Vec<u64> {
    let longest = group.lanes.iter().max_by_key(|lane| (lane.slots.len(), u32::MAX - lane.rank.0));
    longest.map_or_else(Vec::new, |lane| lane.slots.iter().skip(WARM_UP).map(|slot| slot.seq).collect())
}

fn created(index: &Index<'_>, group: &Group, seq: u64) -> Vec<Option<i64>> {
    let of_lane = |lane| {
        let lane: &super::index::Lane = lane;
        let entry = index.entry(lane, lane.slot(seq)?)?;
        entry.created_at.some().map(|time| time.0 as i64)
    };
    group.lanes.iter().map(of_lane).collect()
}

fn column(out: &mut Vec<Lateness>, group: &Group, id: u32, seq: u64, own: &[Option<i64>]) {
    let mut sorted: Vec<i64> = own.iter().flatten().copied().collect();
    if sorted.len() < 2 {
        return;
    }
    sorted.sort_unstable();
    // The lower median: of two ranks, the faster one is the usual.
    let usual = sorted[(sorted.len() - 1) / 2];
    for (lane, own) in group.lanes.iter().zip(own) {
        let Some(late) = own.map(|own| own - usual).filter(|late| *late >= LATE_AGAIN_NS) else { continue };
        match out.iter_mut().find(|known| known.rank == lane.rank) {
            Some(known) => {
                known.times += 1;
                known.total_ns += late;
                if late > known.worst_ns {
                    (known.worst_ns, known.seq) = (late, seq);
                }
            }
            None => out.push(Lateness {
                group: id,
                rank: lane.rank,
                worst_ns: late,
                total_ns: late,
                times: 1,
                seq,
                span_ns: 0,
            }),
        }
    }
}
