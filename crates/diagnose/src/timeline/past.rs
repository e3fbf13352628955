//! What a rank has done, in few bytes: its order counters, and what its last operations were.
use mycroft_record::{CommId, CommInit, CommRank, Datatype, HostTime, OpClass, OpId, OpKind, OpMeta, OpSeq};
use std::collections::VecDeque;

/// Completed operations remembered per rank: 512 x 16 B = 8 KiB, 84 MB at 10,240 ranks. Enough to know that a peer has
/// left the operation that others still are in.
const DONE_KEPT: usize = 512;
/// Shapes of operations told apart per rank; those beyond are not compared with the peers'.
const SHAPES_MAX: usize = 4096;
/// No shape.
const NO_SHAPE: u16 = u16::MAX;

/// An order counter: communicator, class, peer.
pub(crate) type Counter = (CommId, OpClass, CommRank);
/// What peers must agree on: kind, elements, their type.
pub(crate) type Shape = (OpKind, u64, Datatype);

/// Keys numbered in the order in which they came; found in a few steps.
#[derive(Clone, Debug)]
pub(crate) struct Numbered<K> {
    keys: Vec<K>,
    /// Numbers in the order of their keys.
    order: Vec<u16>,
    /// The number that was asked for last: records of one operation come together.
    last: u16,
}

impl<K> Default for Numbered<K> {
    fn default() -> Numbered<K> {
        Numbered { keys: Vec::new(), order: Vec::new(), last: 0 }
    }
}

impl<K: Ord + Copy> Numbered<K> {
    pub(crate) fn find(&self, key: &K) -> Option<u16> {
        let at = self.order.binary_search_by(|number| self.keys[usize::from(*number)].cmp(key)).ok()?;
        Some(self.order[at])
    }

    /// The number of a key, a new one when it has none; `None` when there are `max` already.
    pub(crate) fn number(&mut self, key: K, max: usize) -> Option<u16> {
        if self.keys.get(usize::from(self.last)) == Some(&key) {
            return Some(self.last);
        }
        self.last = match self.order.binary_search_by(|number| self.keys[usize::from(*number)].cmp(&key)) {
            Ok(at) => self.order[at],
            Err(at) if self.keys.len() < max => {
                let number = u16::try_from(self.keys.len()).ok()?;
                self.keys.push(key);
                self.order.insert(at, number);
                number
            }
            Err(_) => return None,
        };
        Some(self.last)
    }

    pub(crate) fn key(&self, number: u16) -> &K {
        &self.keys[usize::from(number)]
    }

    /// All keys, in the order in which they came.
    pub(crate) fn keys(&self) -> &[K] {
        &self.keys
    }
}

/// A completed operation. Its order number is cut to 32 bits: only the last few hundred are told apart.
#[derive(Clone, Copy, Debug)]
struct Done {
    enqueued_at: HostTime,
    seq: u32,
    counter: u16,
    shape: u16,
}

/// What was known of a completed operation and is still of use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub shape: Shape,
    pub enqueued_at: HostTime,
}

/// An operation in the order of a rank's program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Issued {
    pub id: OpId,
    pub kind: OpKind,
    pub enqueued_at: HostTime,
}

/// How far each order counter of a rank has come, and its last operations.
#[derive(Debug, Default)]
pub(crate) struct Past {
    counters: Numbered<Counter>,
    /// The order number after the newest of each counter; 0 before the first.
    frontier: Vec<u64>,
    /// Counters that are beyond 0.
    begun: usize,
    shapes: Numbered<Shape>,
    done: VecDeque<Done>,
    /// Communicators with collectives whose end cannot be seen, ascending.
    unseen: Vec<CommId>,
    /// Communicators whose ranks are all on one host, ascending.
    local: Vec<CommId>,
}

impl Past {
    /// The number of an operation's counter.
    pub(crate) fn counter_of(&mut self, id: &OpId) -> Option<u16> {
        let number = self.counters.number((id.comm, id.class, id.peer), usize::from(u16::MAX))?;
        let needed = usize::from(number) + 1;
        self.frontier.resize(self.frontier.len().max(needed), 0);
        Some(number)
    }

    /// Notes that an operation was issued; gives the number of its counter.
    pub(crate) fn learn(&mut self, id: &OpId) -> Option<u16> {
        let number = self.counter_of(id)?;
        let next = &mut self.frontier[usize::from(number)];
        self.begun += usize::from(*next == 0);
        *next = (*next).max(id.seq.0.saturating_add(1));
        Some(number)
    }

    /// The number of an operation's counter, if it has one.
    pub(crate) fn number_of(&self, id: &OpId) -> Option<u16> {
        self.counters.find(&(id.comm, id.class, id.peer))
    }

    /// The counter with this number.
    pub(crate) fn counter(&self, number: u16) -> &Counter {
        self.counters.key(number)
    }

    /// How many order counters it has begun.
    pub(crate) fn begun(&self) -> usize {
        self.begun
    }

    /// The communicators on which it has issued collectives that are seen to end, as far as is known.
    pub(crate) fn collectives(&self) -> impl Iterator<Item = CommId> {
        let counters = self.counters.keys.iter().zip(&self.frontier);
        counters
            .filter(|((_, class, _), next)| *class == OpClass::Collective && **next > 0)
            .map(|((comm, _, _), _)| *comm)
            .filter(|comm| self.unseen.binary_search(comm).is_err())
    }

    /// The communicators on which it has issued collectives, with the order number after the newest.
    pub(crate) fn collectives_begun(&self) -> impl Iterator<Item = (CommId, u64)> {
        let counters = self.counters.keys.iter().zip(&self.frontier);
        counters
            .filter(|((_, class, _), next)| *class == OpClass::Collective && **next > 0)
            .map(|((comm, _, _), next)| (*comm, *next))
    }

    /// A collective of a communicator is over whose end cannot be seen.
    pub(crate) fn was_unseen(&mut self, comm: CommId) {
        if let Err(at) = self.unseen.binary_search(&comm) {
            self.unseen.insert(at, comm);
        }
    }

    /// It is a member of a communicator now, whose ranks may all be on one host.
    pub(crate) fn joins(&mut self, init: &CommInit) {
        let is_local = init.n_nodes == 1 && init.n_ranks > 1;
        if let (true, Err(at)) = (is_local, self.local.binary_search(&init.comm)) {
            self.local.insert(at, init.comm);
        }
    }

    /// Whether a counter is of collectives among ranks of one host.
    pub(crate) fn is_local(&self, number: u16) -> bool {
        let (comm, class, _) = self.counter(number);
        *class == OpClass::Collective && self.local.binary_search(comm).is_ok()
    }

    /// Whether an operation with this number or a later one was issued.
    pub(crate) fn reached(&self, id: &OpId) -> bool {
        let number = self.counters.find(&(id.comm, id.class, id.peer));
        number.is_some_and(|number| self.frontier[usize::from(number)] > id.seq.0)
    }

    /// Notes that an operation is over; gives the number of its counter.
    pub(crate) fn finish(&mut self, meta: &OpMeta) -> Option<u16> {
        let counter = self.learn(&meta.id)?;
        let shape = self.shapes.number((meta.kind, meta.count, meta.datatype), SHAPES_MAX).unwrap_or(NO_SHAPE);
        self.done.push_back(Done { enqueued_at: meta.enqueued_at, seq: meta.id.seq.0 as u32, counter, shape });
        if self.done.len() > DONE_KEPT {
            self.done.pop_front();
        }
        Some(counter)
    }

    /// The last operations that were completed, in the order in which they were.
    pub(crate) fn done(&self) -> impl Iterator<Item = Issued> {
        self.done.iter().map(|done| {
            let (comm, class, peer) = *self.counters.key(done.counter);
            let id = OpId { comm, class, peer, seq: OpSeq(u64::from(done.seq)) };
            let kind = if done.shape == NO_SHAPE { OpKind::Unknown } else { self.shapes.key(done.shape).0 };
            Issued { id, kind, enqueued_at: done.enqueued_at }
        })
    }

    fn find(&self, id: &OpId) -> Option<&Done> {
        let counter = self.counters.find(&(id.comm, id.class, id.peer))?;
        if id.seq.0 >= self.frontier[usize::from(counter)] {
            return None;
        }
        self.done.iter().rev().find(|done| done.counter == counter && done.seq == id.seq.0 as u32)
    }

    /// Whether the operation is one of the last that were completed.
    pub(crate) fn has_done(&self, id: &OpId) -> bool {
        self.find(id).is_some()
    }

    /// What a completed operation was, if it was lately.
    pub(crate) fn known(&self, id: &OpId) -> Option<Known> {
        let done = self.find(id)?;
        let shape = if done.shape == NO_SHAPE { return None } else { *self.shapes.key(done.shape) };
        Some(Known { shape, enqueued_at: done.enqueued_at })
    }
}
