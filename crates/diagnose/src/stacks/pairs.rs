//! Point-to-point traffic: the n-th send from one rank to another meets the n-th receive there from it.
//!
//! `p2p_seq_id` counts all sends and receives of a rank in a group, so it does not compare between ranks. Where both sides
//! still hold their first operation, position in the pair does. Else the sides are aligned at their frontiers: everything
//! done lies before, and the oldest that is not done on either side belongs together.
use super::index::{Group, Tells};
use mycroft_record::Rank;
use mycroft_record::dump::{Dump, OpName};

/// Number of the oldest operation that is not done where positions are not known; far above any position.
const FRONTIER: u64 = 1 << 40;

/// One side of a point-to-point operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Half {
    /// Index into the dump's entries.
    pub(super) entry: u32,
    pub(super) done: bool,
    p2p_seq: u64,
}

/// What one rank sent to another in one group.
#[derive(Debug, Default)]
pub(super) struct Pair {
    pub(super) from: Rank,
    pub(super) to: Rank,
    pub(super) sends: Vec<Half>,
    pub(super) recvs: Vec<Half>,
    /// Number of the first send and of the first receive.
    pub(super) first: (u64, u64),
    /// Both sides hold all their operations.
    pub(super) whole: bool,
}

impl Pair {
    /// The half of operation `seq` on the side of the sender or of the receiver.
    pub(super) fn half(&self, sender: bool, seq: u64) -> Option<&Half> {
        let (list, first) = if sender { (&self.sends, self.first.0) } else { (&self.recvs, self.first.1) };
        list.get(usize::try_from(seq.checked_sub(first)?).ok()?)
    }

    /// Number of the oldest operation that one side has not done.
    pub(super) fn oldest_open(&self, sender: bool) -> Option<u64> {
        let (list, first) = if sender { (&self.sends, self.first.0) } else { (&self.recvs, self.first.1) };
        list.iter().position(|half| !half.done).map(|at| first + at as u64)
    }

    /// Number behind the last operation of one side.
    pub(super) fn end(&self, sender: bool) -> u64 {
        let (list, first) = if sender { (&self.sends, self.first.0) } else { (&self.recvs, self.first.1) };
        first + list.len() as u64
    }

    /// Number of the first operation of one side.
    pub(super) fn first_of(&self, sender: bool) -> u64 {
        if sender { self.first.0 } else { self.first.1 }
    }

    /// Position for people, from 1; `None` where it is not known.
    pub(super) fn position(&self, seq: u64) -> Option<u64> {
        self.whole.then_some(seq + 1)
    }
}

/// Both ends of an operation, global ranks.
fn ends(group: &Group, op: &OpName) -> Option<(Rank, Rank)> {
    let global = |member: Option<u32>| group.order.get(member? as usize).copied();
    Some((global(op.src)?, global(op.dst)?))
}

/// Files entry `number` of `dump`, which belongs to member `lane`. A receive from anybody has no pair and is left out.
pub(super) fn file(group: &mut Group, dump: &Dump, number: u32, lane: usize) {
    let Some(entry) = dump.entries.get(number as usize) else { return };
    let Some(op) = dump.ops.get(entry.op as usize) else { return };
    let me = group.lanes[lane].rank;
    let Some((from, to)) = ends(group, op) else {
        close_coalesced(group, me, entry.p2p_seq, entry.is_done());
        return;
    };
    let at = match group.pairs.binary_search_by_key(&(from, to), |pair| (pair.from, pair.to)) {
        Ok(at) => at,
        Err(at) => {
            group.pairs.insert(at, Pair { from, to, ..Pair::default() });
            at
        }
    };
    let half = Half { entry: number, done: entry.is_done(), p2p_seq: entry.p2p_seq };
    let pair = &mut group.pairs[at];
    if me == from {
        pair.sends.push(half);
    }
    if me == to && (me != from || &*op.op == "recv") {
        pair.recvs.push(half);
    }
}

/// The entry that closes a batch of sends and receives carries the state of them all.
fn close_coalesced(group: &mut Group, me: Rank, p2p_seq: u64, done: bool) {
    if !done {
        return;
    }
    for pair in group.pairs.iter_mut().filter(|pair| pair.from == me || pair.to == me) {
        let lists = [(pair.from, &mut pair.sends), (pair.to, &mut pair.recvs)];
        for (_, list) in lists.into_iter().filter(|(rank, _)| *rank == me) {
            for half in list.iter_mut().rev().take_while(|half| half.p2p_seq == p2p_seq) {
                half.done = true;
            }
        }
    }
}

/// Numbers both sides of every pair so that what belongs together has one number.
pub(super) fn number(group: &mut Group, tells: &[Tells]) {
    for at in 0..group.pairs.len() {
        let (from, to) = (group.pairs[at].from, group.pairs[at].to);
        let whole = |rank: Rank| {
            let lane = group.lane(rank);
            lane.is_some_and(|lane| lane.whole && lane.dump.is_some_and(|dump| !tells[dump].wrapped))
        };
        let both = whole(from) && whole(to);
        let pair = &mut group.pairs[at];
        pair.whole = both;
        if !both {
            let done = |list: &[Half]| list.iter().position(|half| !half.done).unwrap_or(list.len()) as u64;
            pair.first = (FRONTIER - done(&pair.sends), FRONTIER - done(&pair.recvs));
        }
    }
}
