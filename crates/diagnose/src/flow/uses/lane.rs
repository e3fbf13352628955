//! One queue pair's bytes between its silences, beside those of another.
use crate::flow::{Rule, Sent, segment};

/// Fewest operations that tell how a flow goes.
const OPERATIONS_MIN: usize = 6;
/// Amounts of two flows that differ by no more than this share are equal: channels divide data in whole chunks.
const EQUAL: f64 = 0.05;
/// What is less than this share of an operation is no difference: credits and the like.
const NOTHING: f64 = 0.01;
/// Flows of one ring are equal in this share of the stretches between silences: operations at the ends of a capture are cut.
const RING: f64 = 0.9;
/// Of two that exchange, this share of operations begins at the same time,
const TOGETHER: f64 = 0.8;
/// which is within this share of the time to the operation before or after.
const NEAR: f64 = 0.25;
/// Counts of operations of two that exchange differ by no more than this share.
const COUNTS: f64 = 0.03;
/// Turns in which one of two is ahead of the other, each way, that are no chance.
const TURNS_MIN: usize = 3;
/// So often in this share of all stretches: a receiver that is late now and then is no pipeline.
const TURNS: f64 = 0.01;
/// Bytes there and back differ by less than this share in all: a capture ends in the midst of an iteration.
const THERE_AND_BACK: f64 = 0.2;
/// Operations of at least this share of the largest say what a flow is for: losses and norms are far smaller.
const HEAVY: f64 = 0.1;

/// A flow with what is between its silences.
#[derive(Debug)]
pub(super) struct Lane<'a> {
    pub(super) from: u32,
    pub(super) to: u32,
    epochs: &'a [(u64, u32)],
    /// First epoch of each heavy operation.
    starts: Vec<u64>,
    /// An epoch in the middle of each silence.
    silences: Vec<u64>,
    /// Bytes of each heavy operation.
    amounts: Vec<u64>,
    pub(super) bytes: u64,
    /// Epochs from the beginning to the end of each heavy operation.
    lengths: Vec<u64>,
}

impl<'a> Lane<'a> {
    /// None of a flow that sent too seldom.
    pub(super) fn of(sent: &Sent<'a>, epoch_ns: u64, gap_ns: u64) -> Option<Lane<'a>> {
        let curve = sent.epochs.iter().map(|(epoch, bytes)| (*epoch, u64::from(*bytes)));
        let operations = segment(curve, epoch_ns, &Rule { gap_ns, volumes: Vec::new() });
        let largest = operations.iter().map(|one| one.bytes).max()?;
        let silences = operations.windows(2).map(|two| (two[0].end_ns + two[1].start_ns) / 2 / epoch_ns).collect();
        let heavy: Vec<_> = operations.iter().filter(|one| one.bytes as f64 >= HEAVY * largest as f64).collect();
        let lane = Lane {
            from: sent.from,
            to: sent.to,
            epochs: sent.epochs,
            starts: heavy.iter().map(|one| one.start_ns / epoch_ns).collect(),
            silences,
            amounts: heavy.iter().map(|one| one.bytes).collect(),
            bytes: operations.iter().map(|one| one.bytes).sum(),
            lengths: heavy.iter().map(|one| one.duration_ns() / epoch_ns).collect(),
        };
        (heavy.len() >= OPERATIONS_MIN).then_some(lane)
    }

    /// Heavy operations.
    pub(super) fn operations(&self) -> usize {
        self.starts.len()
    }

    /// Bytes that nearly all heavy operations have at most, and those that nearly all have at least.
    pub(super) fn range(&self) -> (u64, u64) {
        let mut amounts = self.amounts.clone();
        amounts.sort_unstable();
        let at = |share: f64| amounts[((amounts.len() - 1) as f64 * share) as usize];
        (at(0.95), at(0.05))
    }

    /// Bytes before the first of these epochs, between each two, and after the last.
    fn between(&self, cuts: &[u64]) -> Vec<u64> {
        let (mut at, mut found) = (0, Vec::with_capacity(cuts.len() + 1));
        for cut in cuts.iter().copied().chain([u64::MAX]) {
            let until = at + self.epochs[at..].partition_point(|(epoch, _)| *epoch < cut);
            found.push(self.epochs[at..until].iter().map(|(_, bytes)| u64::from(*bytes)).sum());
            at = until;
        }
        found
    }

    /// Between its own silences: how much more it sent than another, as a sign; 0: as much.
    ///
    /// One may send its first step and wait for a receiver that comes later: in the next stretch both send, and are even again.
    fn ahead(&self, other: &Lane<'_>) -> Vec<i8> {
        let least = NOTHING * self.bytes as f64 / self.starts.len() as f64;
        let sign = |own: u64, of_other: u64| {
            let equal = least.max(EQUAL * own.max(of_other) as f64);
            if own.abs_diff(of_other) as f64 <= equal { 0 } else { if own > of_other { 1 } else { -1 } }
        };
        let stretches: Vec<(u64, u64)> =
            self.between(&self.silences).into_iter().zip(other.between(&self.silences)).collect();
        let mut signs: Vec<i8> = stretches.iter().map(|(own, of_other)| sign(*own, *of_other)).collect();
        for at in 1..signs.len() {
            let ((own, of_other), (next, of_next)) = (stretches[at - 1], stretches[at]);
            let both_send = next.min(of_next) as f64 > least;
            if signs[at - 1] != 0 && both_send && sign(own + next, of_other + of_next) == 0 {
                (signs[at - 1], signs[at]) = (0, 0);
            }
        }
        signs
    }

    /// Both send the same at the same time, as ways of one ring do.
    pub(super) fn goes_with(&self, other: &Lane<'_>) -> bool {
        let is_equal = |ahead: Vec<i8>| {
            let equal = ahead.iter().filter(|sign| **sign == 0).count();
            equal as f64 >= RING * ahead.len() as f64
        };
        self.is_as_much(other, EQUAL) && is_equal(self.ahead(other)) && is_equal(other.ahead(self))
    }

    fn is_as_much(&self, other: &Lane<'_>, but: f64) -> bool {
        self.bytes.abs_diff(other.bytes) as f64 <= but * self.bytes.max(other.bytes) as f64
    }

    /// Both begin at the same time, as often, with as many bytes or not: each waits for the other.
    pub(super) fn begins_with(&self, other: &Lane<'_>) -> bool {
        let near = |lane: &Lane<'_>, at: usize| {
            let (starts, last) = (&lane.starts, lane.starts.len() - 1);
            let before = if at > 0 { starts[at] - starts[at - 1] } else { u64::MAX };
            let after = if at < last { starts[at + 1] - starts[at] } else { u64::MAX };
            (NEAR * before.min(after) as f64) as u64
        };
        self.is_as_often(other) && self.begins_near(other, near) && other.begins_near(self, near)
    }

    /// One begins while the other is under way: the same sender does both at once, not one after the other.
    pub(super) fn begins_at_once_with(&self, other: &Lane<'_>) -> bool {
        let near = |lane: &Lane<'_>, at: usize| lane.lengths[at];
        self.is_as_often(other) && self.begins_near(other, near) && other.begins_near(self, near)
    }

    fn is_as_often(&self, other: &Lane<'_>) -> bool {
        let (own, of_other) = (self.starts.len(), other.starts.len());
        own.abs_diff(of_other) as f64 <= 1.0 + COUNTS * own.max(of_other) as f64
    }

    fn begins_near(&self, other: &Lane<'_>, near: impl Fn(&Lane<'_>, usize) -> u64) -> bool {
        let is_near = |at: &usize| {
            let start = self.starts[*at];
            let next = other.starts.partition_point(|other| *other < start);
            let around = other.starts[next.saturating_sub(1)..].iter().take(2);
            around.map(|other| other.abs_diff(start)).min().is_some_and(|off| off <= near(self, *at))
        };
        (0..self.starts.len()).filter(is_near).count() as f64 >= TOGETHER * self.starts.len() as f64
    }

    /// Both send as much in all, and now one is ahead, now the other: messages there and back through a pipeline.
    pub(super) fn takes_turns_with(&self, other: &Lane<'_>) -> bool {
        let turns = |ahead: Vec<i8>| {
            let least = (TURNS * ahead.len() as f64) as usize;
            let mut turns: Vec<i8> = ahead.into_iter().filter(|sign| *sign != 0).collect();
            turns.dedup();
            turns.len() >= (2 * TURNS_MIN).max(least)
        };
        // Between the silences of one of them they may be even.
        self.is_as_much(other, THERE_AND_BACK) && (turns(self.ahead(other)) || turns(other.ahead(self)))
    }

    /// The longest run of own operations without one of the other between, that came [`TURNS_MIN`] times.
    pub(super) fn longest_run(&self, other: &Lane<'_>) -> usize {
        let own = self.starts.iter().map(|start| (*start, true));
        let mut all: Vec<(u64, bool)> = own.chain(other.starts.iter().map(|start| (*start, false))).collect();
        all.sort_unstable();
        let runs = all.chunk_by(|one, next| one.1 == next.1).filter(|run| run[0].1);
        let mut lengths: Vec<usize> = runs.map(<[_]>::len).collect();
        lengths.sort_unstable();
        lengths.len().checked_sub(TURNS_MIN).map_or(0, |at| lengths[at])
    }
}
