//! What is exported: operations and flows, with who they belong to.
use mycroft_agent::REPEAT_EVERY;
use mycroft_record::{
    Batch, CommId, CommRank, Direction, FlowDone, HostTime, OpClass, OpDone, OpId, OpMeta, OpState, ProcessKey, Record,
    Source, StepMark,
};
use std::collections::BTreeMap;

/// Most operations and flows together: a slice of the trace, with its annotations and its end, is about 1 KB, so 2 GB.
pub(super) const PIECES_MAX: usize = 2_000_000;

/// What has not changed is told again at the first sample after a second: two seconds and a sample are enough.
const TOLD_AGAIN_NS: u64 = 2 * REPEAT_EVERY.as_nanos() as u64 + 500_000_000;

/// A process, by its place in [`Pieces::whose`].
pub(super) type Whose = u32;

/// What both ends of a flow agree on: communicator, whether the operation is a collective (sends and receives are counted apart), its
/// number, channel, sender and receiver.
pub(super) type Way = (CommId, bool, u64, u32, CommRank, CommRank);

/// All of it.
pub(super) struct Pieces {
    from: HostTime,
    to: HostTime,
    /// Processes, with their host, in the order in which they were seen.
    pub(super) whose: Vec<Source>,
    index: BTreeMap<(Source, ProcessKey), Whose>,
    /// Names of communicators, as the framework gave them.
    pub(super) names: BTreeMap<CommId, String>,
    /// Whose rank in a communicator is which.
    pub(super) members: BTreeMap<(CommId, CommRank), Whose>,
    pub(super) ops: Vec<(Whose, OpDone)>,
    pub(super) flows: Vec<(Whose, FlowDone)>,
    pub(super) steps: Vec<(Whose, StepMark)>,
    /// The last sight of operations that have not ended.
    in_flight: BTreeMap<(Whose, OpId), OpState>,
    /// When a process was last looked at.
    sampled: BTreeMap<Whose, HostTime>,
}

impl Pieces {
    /// Nothing yet; of a time.
    pub(super) fn new(from: HostTime, to: HostTime) -> Pieces {
        let (whose, index, names, members) = Default::default();
        let (ops, flows, steps, in_flight, sampled) = Default::default();
        Pieces { from, to, whose, index, names, members, ops, flows, steps, in_flight, sampled }
    }

    /// Whether no more are taken.
    pub(super) fn is_full(&self) -> bool {
        self.ops.len() + self.flows.len() > PIECES_MAX
    }

    /// Takes a batch.
    pub(super) fn take(&mut self, batch: &Batch) {
        let Some(process) = batch.source.process else { return };
        let next = self.whose.len() as Whose;
        let whose = *self.index.entry((batch.source.clone(), process)).or_insert(next);
        if whose == next {
            self.whose.push(batch.source.clone());
        }
        for record in &batch.records {
            match record {
                Record::OpState(state) => {
                    self.in_flight.insert((whose, state.op.id), *state);
                    continue;
                }
                Record::OpDone(done) => {
                    self.in_flight.remove(&(whose, done.op.id));
                }
                Record::Sampled(sampled) => {
                    self.sampled.insert(whose, sampled.at);
                }
                _ => {}
            }
            match record {
                Record::CommInit(init) => {
                    self.names.entry(init.comm).or_insert_with(|| init.name.to_string());
                    self.members.insert((init.comm, init.comm_rank), whose);
                }
                Record::OpDone(done) if self.is_inside(done.op.enqueued_at, done.ended_at) => {
                    self.ops.push((whose, *done));
                }
                Record::FlowDone(done) if self.is_inside(done.times.started_at, done.ended_at) => {
                    self.flows.push((whose, *done));
                }
                Record::StepMark(mark) if self.is_inside(mark.at, mark.at) => self.steps.push((whose, *mark)),
                _ => {}
            }
        }
    }

    /// Operations that had not ended when their process was last looked at, and when that was. An older sight is of one whose end
    /// was lost.
    pub(super) fn in_flight<'a>(&'a self) -> impl Iterator<Item = (Whose, &'a OpMeta, HostTime)> {
        let last = |((whose, _), state): (&(Whose, OpId), &'a OpState)| {
            let last = *self.sampled.get(whose)?;
            let is_there = last.since_ns(state.sampled_at) < TOLD_AGAIN_NS;
            is_there.then_some((*whose, &state.op, last.max(state.sampled_at)))
        };
        let seen = self.in_flight.iter().filter_map(last);
        seen.filter(|(_, op, at)| self.is_inside(op.enqueued_at, *at))
    }

    fn is_inside(&self, began: HostTime, ended: HostTime) -> bool {
        ended >= self.from && began <= self.to
    }

    /// The name of a communicator: that of the framework, else its number.
    pub(super) fn comm(&self, comm: CommId) -> String {
        self.names.get(&comm).filter(|name| !name.is_empty()).cloned().unwrap_or_else(|| comm.to_string())
    }

    /// The way of a flow; `None`: the rank of this end is not known.
    pub(super) fn way(&self, whose: Whose, done: &FlowDone) -> Option<Way> {
        let flow = &done.flow;
        let own = self.own_rank(flow.op.comm, whose)?;
        let (from, to) = match flow.direction {
            Direction::Send => (own, flow.peer),
            Direction::Recv => (flow.peer, own),
        };
        let is_collective = flow.op.class == OpClass::Collective;
        Some((flow.op.comm, is_collective, flow.op.seq.0, u32::from(flow.channel.0), from, to))
    }

    fn own_rank(&self, comm: CommId, whose: Whose) -> Option<CommRank> {
        let first = (comm, CommRank(0));
        let of = self.members.range(first..).take_while(|((other, _), _)| *other == comm);
        of.filter(|(_, member)| **member == whose).map(|((_, rank), _)| *rank).next()
    }
}
