//! The timeline: records of all ranks, ordered and joined, in bounded memory. Every other room reads it.
mod iterations;
mod links;
mod rank;

use mycroft_record::{
    Batch, CommId, CommRank, HostName, HostTime, NANOS_PER_SEC, OpClass, OpId, OpMeta, ProcessKey, Rank, Record,
};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use iterations::{Iteration, NO_PEER};
pub(crate) use links::{LinkSample, Links, Pause};
pub(crate) use rank::{FlowSlot, LiveFlow, LiveOp, RankState, Stand};

/// First number given to processes whose launcher told no rank; far above any real world size.
const UNKNOWN_RANK_BASE: u32 = 1 << 30;
/// Communicators kept per job.
const COMMS_KEPT: usize = 256 * 1024;
/// A gap this old no longer makes a rank's past unknown.
const GAP_FADES_NS: u64 = 10 * NANOS_PER_SEC;

/// The report of how a process ended follows its disappearance within this.
const EXIT_REPORT_NS: u64 = NANOS_PER_SEC * 3 / 10;

/// A communicator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Comm {
    pub name: Arc<str>,
    pub n_ranks: u32,
    pub members: BTreeMap<CommRank, Rank>,
    pub ranks: BTreeMap<Rank, CommRank>,
}

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
    pub(crate) ranks: BTreeMap<Rank, RankState>,
    pub(crate) comms: BTreeMap<CommId, Comm>,
    pub(crate) links: Links,
    unnamed: BTreeMap<(HostName, ProcessKey), Rank>,
    /// Newest look of any agent.
    pub(crate) newest_sample: HostTime,
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
            for record in &batch.records {
                if let Record::NicState(nic) = record {
                    self.links.on_nic(&batch.source.host, nic);
                }
            }
            return;
        };
        let rank = self.rank_of(&batch.source.host, process);
        for record in &batch.records {
            self.on_record(rank, record, pause_us);
        }
    }

    fn rank_of(&mut self, host: &HostName, process: ProcessKey) -> Rank {
        let rank = if process.rank == Rank::UNKNOWN {
            let next = Rank(UNKNOWN_RANK_BASE + self.unnamed.len() as u32);
            *self.unnamed.entry((host.clone(), process)).or_insert(next)
        } else {
            process.rank
        };
        let fresh = || RankState::new(rank, host.clone(), process.pid, process.nonce);
        let state = self.ranks.entry(rank).or_insert_with(fresh);
        if state.nonce != process.nonce && (state.dead_since.is_some() || state.exit_clean.is_some()) {
            *state = RankState::new(rank, host.clone(), process.pid, process.nonce); // restarted
        }
        rank
    }

    fn on_record(&mut self, rank: Rank, record: &Record, pause_us: u32) {
        let Some(state) = self.ranks.get_mut(&rank) else { return };
        match record {
            Record::Process(info) => {
                state.world_size = info.world_size;
                state.kernel_events = info.kernel_events;
            }
            Record::ProcessExit(exit) => {
                state.alive = false;
                state.exit_clean = Some(exit.clean);
                if !state.dead_since.is_some() {
                    state.dead_since = exit.noticed_at;
                }
            }
            Record::CommInit(init) => {
                state.comms.insert(init.comm, false);
                state.progress_at = state.progress_at.max(init.at);
                if self.comms.len() < COMMS_KEPT || self.comms.contains_key(&init.comm) {
                    let comm = self.comms.entry(init.comm).or_default();
                    comm.n_ranks = init.n_ranks;
                    if comm.name.is_empty() {
                        comm.name = init.name.clone();
                    }
                    comm.members.insert(init.comm_rank, rank);
                    comm.ranks.insert(rank, init.comm_rank);
                }
            }
            Record::CommEnd(end) => {
                state.comms.insert(end.comm, true);
                state.progress_at = state.progress_at.max(end.at);
            }
            Record::OpState(op) => {
                self.newest_sample = self.newest_sample.max(op.sampled_at);
                state.on_op_state(op);
            }
            Record::OpDone(done) => state.on_op_done(done),
            Record::FlowState(flow) => state.on_flow_state(flow),
            Record::FlowDone(done) => {
                state.on_flow_done(done);
                let me = self.comms.get(&done.flow.op.comm).and_then(|comm| comm.ranks.get(&rank));
                if let Some(me) = me {
                    self.links.on_flow(rank, *me, done, pause_us);
                }
            }
            Record::Sampled(sampled) => {
                self.newest_sample = self.newest_sample.max(sampled.at);
                state.on_sampled(sampled);
            }
            Record::Gap(gap) => {
                state.lost += gap.lost;
                state.lost_at = state.lost_at.max(gap.noticed_at);
            }
            Record::NicState(_) | Record::HostVitals(_) | Record::StepMark(_) => {}
        }
    }

    /// Closes finished iterations and decides which silent processes are gone.
    pub(crate) fn settle(&mut self) {
        for state in self.ranks.values_mut() {
            state.iterations.settle();
            if state.dead_since.is_some() && self.newest_sample >= state.dead_since + EXIT_REPORT_NS {
                state.dead_for_sure = state.exit_clean.is_none();
            }
        }
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
        match self.comms.get(&id) {
            Some(comm) if !comm.name.is_empty() => comm.name.to_string(),
            _ => format!("comm {id}"),
        }
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
        !state.dead_since.is_some() && self.newest_sample.since_ns(state.sampled_at) > after_ns
    }

    /// Every known rank ended as it should.
    pub(crate) fn ended_well(&self) -> bool {
        !self.ranks.is_empty() && self.ranks.values().all(RankState::ended_well)
    }
}
