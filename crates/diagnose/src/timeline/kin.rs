//! Whom a rank has above it in a tree. Of neighbours inside its own host no flow tells: a rank whose parent is one of them
//! waits for it unseen, and its slots look as if its own device were slow. Which of the others is its parent shows by what
//! comes first, on one clock: it sends up before anything comes down, and down to a child only after what that sent up.
use mycroft_record::{ChannelId, CommRank, Direction, FlowDone, HostTime, OpSeq};
use std::collections::VecDeque;

/// Flows that wait for the other direction: both of a parent and two children on a few channels.
const WAITING_MAX: usize = 16;
/// Pairs of flows after which no more is learned: a communicator's trees stay as they are.
const PAIRS_ENOUGH: u16 = 64;

/// One direction between the rank and a neighbour.
#[derive(Clone, Copy, Debug)]
struct Half {
    counter: u16,
    seq: OpSeq,
    channel: ChannelId,
    peer: CommRank,
    direction: Direction,
    first_ready_at: HostTime,
}

/// What is known of a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Known {
    parent: bool,
    child: bool,
    pairs: u16,
    ring: bool,
}

/// A rank's visible neighbours in its trees.
#[derive(Debug, Default)]
pub(super) struct Kin {
    waiting: VecDeque<Half>,
    /// By order counter.
    known: Vec<Known>,
}

impl Kin {
    /// Takes in a flow of a collective.
    pub(super) fn on_flow(&mut self, counter: u16, done: &FlowDone) {
        let known = self.known(counter);
        if known.ring || known.pairs >= PAIRS_ENOUGH {
            return;
        }
        let (flow, first_ready_at) = (done.flow, done.times.first_ready_at);
        let (seq, channel, peer, direction) = (flow.op.seq, flow.channel, flow.peer, flow.direction);
        let is_other = |half: &Half| {
            (half.counter, half.seq, half.channel, half.peer) == (counter, seq, channel, peer)
                && half.direction != direction
        };
        if let Some(other) = self.waiting.iter().position(is_other).and_then(|at| self.waiting.remove(at)) {
            let known = self.known(counter);
            known.pairs += 1;
            // Data goes up before it comes down.
            if (direction == Direction::Send) == (first_ready_at < other.first_ready_at) {
                known.parent = true;
            } else {
                known.child = true;
            }
            return;
        }
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(Half { counter, seq, channel, peer, direction, first_ready_at });
    }

    /// The collectives of a counter go around rings: what comes first says nothing there.
    pub(super) fn on_ring(&mut self, counter: u16) {
        if !std::mem::replace(&mut self.known(counter).ring, true) {
            self.waiting.retain(|half| half.counter != counter);
        }
    }

    fn known(&mut self, counter: u16) -> &mut Known {
        let at = usize::from(counter);
        if at >= self.known.len() {
            self.known.resize(at + 1, Known::default());
        }
        &mut self.known[at]
    }

    /// Whether it has children in other hosts in a tree, and no parent: that is in its own host, unless it is the root.
    pub(super) fn has_unseen_parent(&self) -> bool {
        self.known.iter().any(|known| known.child && !known.parent && !known.ring)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::{CommId, FlowCounters, FlowKey, FlowTimes, OpClass, OpId};

    fn flow(peer: u32, direction: Direction, first_ready_at: u64) -> FlowDone {
        let op = OpId { comm: CommId(1), class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(7) };
        FlowDone {
            flow: FlowKey { op, channel: ChannelId(0), peer: CommRank(peer), direction },
            counters: FlowCounters::default(),
            bytes: 1,
            times: FlowTimes { first_ready_at: HostTime(first_ready_at), ..FlowTimes::default() },
            ended_at: HostTime(100),
            peer_wait_polls: 0,
            proxied_for_pid: 0,
        }
    }

    #[test]
    fn who_sends_first_is_a_child_and_who_is_sent_to_first_the_parent() {
        let mut kin = Kin::default();
        kin.on_flow(0, &flow(8, Direction::Send, 50));
        kin.on_flow(0, &flow(8, Direction::Recv, 20));
        assert!(kin.has_unseen_parent(), "it passes down only after something came up");
        kin.on_flow(0, &flow(3, Direction::Recv, 40));
        kin.on_flow(0, &flow(3, Direction::Send, 30));
        assert!(!kin.has_unseen_parent(), "what is sent up comes down again");
        let mut leaf = Kin::default();
        leaf.on_flow(0, &flow(3, Direction::Send, 30));
        leaf.on_flow(0, &flow(3, Direction::Recv, 40));
        assert!(!leaf.has_unseen_parent());
        let mut ring = Kin::default();
        ring.on_flow(0, &flow(8, Direction::Send, 50));
        ring.on_flow(0, &flow(8, Direction::Recv, 20));
        ring.on_ring(0);
        assert!(!ring.has_unseen_parent(), "of two in a ring neither is above the other");
    }
}
