//! The timeline: records of all ranks, ordered and joined, in bounded memory. Every other room reads it.
mod anew;
mod clock;
mod comms;
pub(crate) mod ending;
mod halves;
mod iterations;
mod links;
mod live;
mod loads;
mod past;
mod rank;
mod ranks;
mod running;
#[cfg(test)]
mod tests;
mod unseen;
mod waits;

use mycroft_record::{
    Batch, CommId, CommInit, CommRank, FlowDone, HostName, HostTime, NANOS_PER_SEC, NcclVersion, OpClass, OpId, OpMeta,
    ProcessKey, Rank, Record,
};
use std::collections::{BTreeMap, BTreeSet};

use crate::blame::graph::Graph;
use comms::Comms;
use iterations::Room;
use links::Limits;
use loads::Loads;
use rank::Joined;
use ranks::{Ranks, Slot};
use waits::LiveGraph;

pub(crate) use comms::Comm;
pub use comms::Parallelism;
pub(crate) use iterations::{Iteration, MARKER_MIN, NO_PEER};
pub(crate) use links::{Link, LinkSample, Links, NicSample, Pause};
pub(crate) use loads::{ROOM_MILLI, Usual};
pub(crate) use past::Issued;
pub(crate) use rank::{FlowSlot, LiveFlow, LiveOp, RankState, Stand, device_has_left};

/// A gap this old no longer makes a rank's past unknown.
const GAP_FADES_NS: u64 = 10 * NANOS_PER_SEC;

/// The report of how a process ended follows its disappearance within this.
const EXIT_REPORT_NS: u64 = NANOS_PER_SEC * 3 / 10;

/// One operation instance, the same for all its members: a collective, or the pair of a send and its receive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum OpNode {
    Collective { comm: CommId, seq: u64 },
    Pair { comm: CommId, from: CommRank, to: CommRank, seq: u64 },
}

impl OpNode {
    pub(crate) fn of(meta: &OpMeta) -> OpNode {
        let (comm, seq) = (meta.id.comm, meta.id.seq.0);
        match meta.id.class {
            OpClass::Collective => OpNode::Collective { comm, seq },
            OpClass::Send => OpNode::Pair { comm, from: meta.comm_rank, to: meta.id.peer, seq },
            OpClass::Recv => OpNode::Pair { comm, from: meta.id.peer, to: meta.comm_rank, seq },
        }
    }

    pub(crate) fn comm(&self) -> CommId {
        match self {
            OpNode::Collective { comm, .. } | OpNode::Pair { comm, .. } => *comm,
        }
    }

    /// The operation's id as the member `me` calls it; `None` if `me` has no part in it.
    pub(crate) fn id_for(&self, me: CommRank) -> Option<OpId> {
        let seq = |seq: &u64| mycroft_record::OpSeq(*seq);
        match self {
            OpNode::Collective { comm, seq: n } => {
                Some(OpId { comm: *comm, class: OpClass::Collective, peer: NO_PEER, seq: seq(n) })
            }
            OpNode::Pair { comm, from, to, seq: n } if *from == me => {
                Some(OpId { comm: *comm, class: OpClass::Send, peer: *to, seq: seq(n) })
            }
            OpNode::Pair { comm, from, to, seq: n } if *to == me => {
                Some(OpId { comm: *comm, class: OpClass::Recv, peer: *from, seq: seq(n) })
            }
            OpNode::Pair { .. } => None,
        }
    }
}

/// Everything known of a job.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    pub(crate) ranks: Ranks,
    pub(crate) comms: Comms,
    pub(crate) links: Links,
    pub(crate) loads: Loads,
    unnamed: BTreeMap<(HostName, ProcessKey), Rank>,
    /// Processes of earlier lives of the job.
    before: BTreeSet<(HostName, ProcessKey)>,
    /// Communicators of earlier lives of which a process is gone.
    over: BTreeSet<CommId>,
    /// Newest look of any agent whose host's clock is known; of any at all where none is.
    pub(crate) newest_sample: HostTime,
    /// How wrong the times of a host may be, where that was measured.
    clock_errors: BTreeMap<HostName, u64>,
    /// The most that times of hosts with known clocks may be wrong by.
    pub(crate) clock_error_ns: u64,
    /// Ranks on hosts whose clock is not known.
    unknown_clocks: usize,
    /// Ranks of which something changed since the last look, in the order in which it did.
    changed: Vec<Slot>,
    /// Ranks whose process is gone, or said to be.
    leaving: BTreeSet<Rank>,
    graph: LiveGraph,
}

/// The timeline with what the wait-for graph must know besides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveScene<'a> {
    pub(crate) timeline: &'a Timeline,
    pub(crate) no_data_after_ns: u64,
}

impl Timeline {
    /// The job as the wait-for graph sees it.
    pub(crate) fn scene(&self, no_data_after_ns: u64) -> LiveScene<'_> {
        LiveScene { timeline: self, no_data_after_ns }
    }

    pub(crate) fn observe(&mut self, batch: &Batch, pause_us: u32) {
        let Some(process) = batch.source.process else {
            let nics = batch.records.iter().filter_map(|record| match record {
                Record::NicState(nic) => Some(nic),
                _ => None,
            });
            self.links.on_nics(&batch.source.host, nics);
            for record in &batch.records {
                if let Record::HostVitals(vitals) = record {
                    self.loads.take(&batch.source.host, vitals);
                }
            }
            return;
        };
        if self.is_of_before(batch) {
            return;
        }
        let slot = self.slot_of(&batch.source.host, process);
        for record in &batch.records {
            if !self.over.is_empty() && self.is_of_over(slot, record) {
                continue;
            }
            self.on_record(slot, record, pause_us);
        }
    }

    fn slot_of(&mut self, host: &HostName, process: ProcessKey) -> Slot {
        let rank = if process.rank == Rank::UNKNOWN {
            let next = Rank(Rank::UNTOLD_FROM.0 + self.unnamed.len() as u32);
            *self.unnamed.entry((host.clone(), process)).or_insert(next)
        } else {
            process.rank
        };
        if let Some(slot) = self.ranks.slot(rank)
            && self.ranks.at(slot).process == process
        {
            return slot;
        }
        let clock_error_ns = self.clock_errors.get(host).copied().unwrap_or(0);
        let fresh = || RankState { clock_error_ns, ..RankState::new(rank, host.clone(), process) };
        let slot = self.ranks.slot_or_insert(rank, fresh);
        self.count_unknown_clocks();
        slot
    }

    /// Notes that a rank, and everything it has part in, must be looked at again.
    fn touch_all(&mut self, slot: Slot) {
        self.touch_rank(slot);
        let state = self.ranks.at(slot);
        // Operations may come before their communicator.
        let in_flight = state.live.keys().map(|id| id.comm);
        let comms: Vec<CommId> = state.comms.keys().copied().chain(in_flight).collect();
        comms.into_iter().for_each(|comm| self.touch_comm(slot, comm));
    }

    fn touch_rank(&mut self, slot: Slot) {
        let state = self.ranks.at_mut(slot);
        if !state.changed {
            state.changed = true;
            self.changed.push(slot);
        }
    }

    /// Notes that a rank stands elsewhere in a communicator.
    fn touch_comm(&mut self, slot: Slot, comm: CommId) {
        let joined = self.ranks.at(slot).comms.get(&comm).and_then(|joined| joined.at);
        if let Some(at) = joined.or_else(|| self.comms.slot(comm)) {
            self.comms.touch(at);
        }
    }

    /// Notes that a rank stands elsewhere with regard to an operation of a communicator. Where entry is guessed, that
    /// may change the guess on all its others.
    fn touch(&mut self, slot: Slot, comm: CommId) {
        if self.ranks.at(slot).kernel_events {
            self.touch_rank(slot);
            self.touch_comm(slot, comm);
        } else {
            self.touch_all(slot);
            self.touch_comm(slot, comm);
        }
    }

    fn on_record(&mut self, slot: Slot, record: &Record, pause_us: u32) {
        let room = Room::of(self.ranks.len());
        let state = self.ranks.at_mut(slot);
        match record {
            Record::Process(info) => {
                state.world_size = info.world_size;
                state.nccl_version = NcclVersion(info.nccl_version);
                if std::mem::replace(&mut state.kernel_events, info.kernel_events) != info.kernel_events {
                    self.touch_all(slot);
                }
            }
            Record::ProcessExit(exit) => {
                state.on_exit(exit);
                let rank = state.rank;
                self.leaving.insert(rank);
            }
            Record::CommInit(init) => self.on_comm_init(slot, init),
            Record::CommEnd(end) => {
                let none = || Joined { at: None, me: CommRank(0), ended: true };
                state.comms.entry_or_insert_with(end.comm, none).ended = true;
                state.progress_at = state.progress_at.max(end.at);
            }
            Record::OpState(op) => {
                if state.on_op_state(op) {
                    self.touch(slot, op.op.id.comm);
                }
                self.looked(slot, op.sampled_at);
            }
            Record::OpDone(done) => {
                state.on_op_done(done, room);
                self.touch(slot, done.op.id.comm);
            }
            Record::FlowState(flow) => {
                if state.on_flow_state(flow) {
                    self.touch(slot, flow.flow.op.comm);
                }
            }
            Record::FlowDone(done) => {
                if state.on_flow_done(done, room) {
                    self.touch(slot, done.flow.op.comm);
                }
                self.on_link(slot, done, pause_us);
            }
            Record::Sampled(sampled) => {
                let gone = state.on_sampled(sampled);
                if state.dead_since.is_some() {
                    let rank = state.rank;
                    self.leaving.insert(rank);
                }
                gone.into_iter().for_each(|comm| self.touch(slot, comm));
                self.looked(slot, sampled.at);
            }
            Record::Gap(gap) => state.on_gap(gap),
            Record::ProxyHeld(held) => state.proxy_held = (held.threads > 0).then_some(*held),
            Record::NicState(_) | Record::HostVitals(_) | Record::StepMark(_) | Record::ClockOffset(_) => {}
        }
    }

    fn on_comm_init(&mut self, slot: Slot, init: &CommInit) {
        let at = self.comms.slot_or_insert(init.comm);
        let state = self.ranks.at_mut(slot);
        state.comms.insert(init.comm, Joined { at, me: init.comm_rank, ended: false });
        state.progress_at = state.progress_at.max(init.at);
        state.past.joins(init);
        let (rank, Some(at)) = (state.rank, at) else { return };
        let comm = self.comms.at_mut(at);
        comm.n_ranks = init.n_ranks;
        if comm.name.is_empty() {
            comm.call(&init.name);
        }
        comm.members.insert(init.comm_rank, rank);
        comm.ranks.insert(rank, init.comm_rank);
        self.comms.touch(at);
    }

    /// One end of a flow: the link is known when the other one has come.
    fn on_link(&mut self, slot: Slot, done: &FlowDone, pause_us: u32) {
        let state = self.ranks.at(slot);
        let id = done.flow.op.comm;
        let joined = state.comms.get(&id).copied().filter(|joined| joined.at.is_some());
        let Some(at) = joined.and_then(|joined| joined.at).or_else(|| self.comms.slot(id)) else { return };
        let comm = self.comms.at_mut(at);
        let Some(me) = joined.map(|joined| joined.me).or_else(|| comm.ranks.get(&state.rank).copied()) else { return };
        let Some(ends) = comm.halves.meet(state.rank, me, comm.members.len(), done) else { return };
        let Some(sender) = self.ranks.slot(ends.0.rank) else { return };
        let op = match (done.flow.op.class, done.flow.direction) {
            (OpClass::Recv, _) => OpId { class: OpClass::Send, peer: me, ..done.flow.op },
            (OpClass::Collective | OpClass::Send, _) => done.flow.op,
        };
        let limits = Limits { pause_us, ranks: self.ranks.len() };
        self.links.join(sender, (op, done.flow.channel), ends, limits);
    }

    /// Closes finished iterations, decides which silent processes are gone, and brings the wait-for graph up to date: of
    /// all that, what changed since the last time.
    pub(crate) fn settle(&mut self) {
        let changed = std::mem::take(&mut self.changed);
        let mut again = Vec::new();
        for slot in &changed {
            let state = self.ranks.at_mut(*slot);
            state.changed = false;
            if state.unsettled {
                state.unsettled = state.iterations.settle(&state.past);
                if state.unsettled {
                    again.push(*slot);
                }
            }
        }
        for rank in &self.leaving {
            let Some(slot) = self.ranks.slot(*rank) else { continue };
            let state = self.ranks.at_mut(slot);
            if state.dead_since.is_some() && self.newest_sample >= state.dead_since + EXIT_REPORT_NS {
                state.dead_for_sure = state.exit_clean.is_none();
            }
        }
        let mut graph = std::mem::take(&mut self.graph);
        let comms = self.comms.take_changed();
        graph.update(self, &changed, &comms);
        self.graph = graph;
        again.into_iter().for_each(|slot| self.touch_rank(slot));
    }

    /// The wait-for graph as of the last [`Timeline::settle`].
    pub(crate) fn graph(&self) -> &Graph<OpNode> {
        self.graph.graph()
    }

    /// Ranks whose process is gone, or is said to be.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = &RankState> {
        self.leaving.iter().filter_map(|rank| self.ranks.get(rank))
    }

    pub(crate) fn comm_rank(&self, comm: CommId, rank: Rank) -> Option<CommRank> {
        self.comms.get(&comm)?.ranks.get(&rank).copied()
    }

    pub(crate) fn rank_in(&self, comm: CommId, member: CommRank) -> Option<Rank> {
        self.comms.get(&comm)?.members.get(&member).copied()
    }

    pub(crate) fn host(&self, rank: Rank) -> HostName {
        self.ranks.get(&rank).map_or_else(|| HostName::from(""), |state| state.host.clone())
    }

    /// Ranks of an operation that are known, ascending.
    pub(crate) fn members(&self, node: &OpNode) -> Vec<Rank> {
        let Some(comm) = self.comms.get(&node.comm()) else { return Vec::new() };
        match node {
            OpNode::Collective { .. } => comm.ranks.keys().copied().collect(),
            OpNode::Pair { from, to, .. } => {
                let mut both: Vec<Rank> =
                    [from, to].iter().filter_map(|member| comm.members.get(member).copied()).collect();
                both.sort_unstable();
                both
            }
        }
    }

    /// Where `rank` stands with regard to `node`; `None` if it has no part in it.
    pub(crate) fn stand(&self, rank: Rank, node: &OpNode) -> Option<Stand> {
        let id = node.id_for(self.comm_rank(node.comm(), rank)?)?;
        Some(self.ranks.get(&rank)?.stand(&id))
    }

    /// The operation in flight on `rank`, if it is.
    pub(crate) fn live(&self, rank: Rank, node: &OpNode) -> Option<&LiveOp> {
        let id = node.id_for(self.comm_rank(node.comm(), rank)?)?;
        self.ranks.get(&rank)?.live.get(&id)
    }

    /// The name people know a communicator by.
    pub(crate) fn comm_name(&self, id: CommId) -> String {
        self.comms.get(&id).map_or_else(|| format!("comm {id}"), Comm::said)
    }

    /// The operation in one phrase, e.g. `AllReduce DP_0 #17`.
    pub(crate) fn label(&self, meta: &OpMeta) -> String {
        let name = self.comm_name(meta.id.comm);
        match meta.id.class {
            OpClass::Collective => format!("{} {name} #{}", meta.kind, meta.id.seq),
            OpClass::Send | OpClass::Recv => {
                let peer = self.rank_in(meta.id.comm, meta.id.peer);
                let peer = peer.map_or_else(|| format!("member {}", meta.id.peer), |rank| format!("rank {rank}"));
                let word = if meta.id.class == OpClass::Send { "to" } else { "from" };
                format!("{} {word} {peer} {name} #{}", meta.kind, meta.id.seq)
            }
        }
    }

    /// Records of the rank were lost so lately that its recent past is unknown.
    pub(crate) fn has_fresh_gap(&self, state: &RankState) -> bool {
        state.lost_at.is_some() && self.newest_sample.since_ns(state.lost_at) < GAP_FADES_NS
    }

    /// The agent has not looked at the rank lately although others are looked at: its state is unknown.
    pub(crate) fn no_data(&self, state: &RankState, after_ns: u64) -> bool {
        let after_ns = after_ns.saturating_add(state.clock_error_ns).saturating_add(self.clock_error_ns);
        !state.dead_since.is_some() && self.newest_sample.since_ns(state.sampled_at) > after_ns
    }

    /// Every known rank ended as it should.
    pub(crate) fn ended_well(&self) -> bool {
        !self.ranks.is_empty() && self.ranks.by_slot().iter().all(RankState::ended_well)
    }
}
