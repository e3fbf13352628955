//! The two ends of a flow come from two agents: the first waits in its communicator for the other.
use mycroft_record::{ChannelId, CommRank, Direction, FlowDone, HostTime, OpClass, OpSeq, Rank};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

/// Halves that wait in a communicator of any size: 1,024 x 128 B = 128 KiB.
const HALVES_MIN: usize = 1024;
/// Halves that wait per member beyond that, most of which find their other half within a second: both directions of
/// eight channels of four operations.
const HALVES_PER_MEMBER: usize = 64;

/// Operation of a link within its communicator: collective or not, order number, channel, sender, receiver.
type JoinKey = (bool, OpSeq, ChannelId, CommRank, CommRank);

/// What one end of a flow tells of the link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Half {
    pub rank: Rank,
    pub direction: Direction,
    pub total_chunks: u32,
    pub bytes: u64,
    pub stage_us: [u32; 3],
    pub stage_max_us: [u32; 3],
    /// From when its first step was ready until its end; 0: not known.
    pub lasted_us: u32,
    pub ended_at: HostTime,
}

impl Half {
    fn of(rank: Rank, done: &FlowDone) -> Half {
        let first = done.times.first_ready_at;
        let lasted_us = if first.is_some() { done.ended_at.since_ns(first) / 1000 } else { 0 };
        Half {
            lasted_us: u32::try_from(lasted_us).unwrap_or(u32::MAX),
            rank,
            direction: done.flow.direction,
            total_chunks: done.counters.total_chunks,
            bytes: done.bytes,
            stage_us: done.times.stage_us,
            stage_max_us: done.times.stage_max_us,
            ended_at: done.ended_at,
        }
    }
}

/// Flows of a communicator of which one end is known.
#[derive(Debug, Default)]
pub(crate) struct Halves {
    waiting: BTreeMap<JoinKey, Half>,
    order: VecDeque<JoinKey>,
    /// The first in the order is known to wait still.
    first_waits: bool,
}

/// The first operation of its counter on a communicator.
const FIRST: OpSeq = OpSeq(0);

impl Halves {
    /// Takes in one end of a flow, of the member `me` of `members`; gives both, the sender's first, when the other one
    /// was there.
    pub(super) fn meet(&mut self, rank: Rank, me: CommRank, members: usize, done: &FlowDone) -> Option<(Half, Half)> {
        let flow = done.flow;
        // The first operation of two sets their connections up (0.5 to 2 s with any plugin in NCCL 2.27.5): no usual time.
        if flow.op.seq == FIRST {
            return None;
        }
        let (from, to) = match flow.direction {
            Direction::Send => (me, flow.peer),
            Direction::Recv => (flow.peer, me),
        };
        let key = (flow.op.class == OpClass::Collective, flow.op.seq, flow.channel, from, to);
        let half = Half::of(rank, done);
        match self.waiting.entry(key) {
            Entry::Occupied(other) if other.get().direction != half.direction => {
                let other = other.remove();
                self.first_waits &= self.order.front() != Some(&key);
                return Some(if half.direction == Direction::Send { (half, other) } else { (other, half) });
            }
            Entry::Occupied(mut again) => {
                again.insert(half);
            }
            Entry::Vacant(place) => {
                place.insert(half);
                self.order.push_back(key);
            }
        }
        self.forget(HALVES_MIN.max(HALVES_PER_MEMBER * members));
        None
    }

    /// Those that met are in the order still; the oldest of the others go.
    fn forget(&mut self, most: usize) {
        while let Some(oldest) = self.order.front() {
            if self.waiting.len() > most {
                self.waiting.remove(oldest);
            } else if self.order.len() <= 2 * most && (self.first_waits || self.waiting.contains_key(oldest)) {
                self.first_waits = true;
                break;
            }
            self.order.pop_front();
            self.first_waits = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::{CommId, FlowCounters, FlowKey, FlowTimes, OpId};

    #[test]
    fn the_first_operation_of_two_tells_no_usual_time() {
        let end = |direction, peer, seq| {
            let op = OpId { comm: CommId(1), class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(seq) };
            FlowDone {
                flow: FlowKey { op, channel: ChannelId(0), peer: CommRank(peer), direction },
                counters: FlowCounters::default(),
                bytes: 1,
                times: FlowTimes::default(),
                ended_at: HostTime(1),
                peer_wait_polls: 0,
                proxied_for_pid: 0,
            }
        };
        let mut halves = Halves::default();
        let mut meet = |seq| {
            let first = halves.meet(Rank(0), CommRank(0), 2, &end(Direction::Send, 1, seq));
            (first.is_some(), halves.meet(Rank(1), CommRank(1), 2, &end(Direction::Recv, 0, seq)).is_some())
        };
        assert_eq!(meet(0), (false, false), "it set their connection up");
        assert_eq!(meet(1), (false, true));
    }
}
