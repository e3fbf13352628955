//! What ranks have done lately, and what they are in, for whoever looks: collectives by communicator and order number, and what
//! each rank is in. The same that Flight Recorder's analysis lays out of dumps, of a job that runs.
use crate::timeline::{LiveOp, OpNode, RankState, Stand, Timeline};
use mycroft_record::{CommId, HostName, HostTime, OpClass, OpKind, Rank};
use std::collections::BTreeMap;

/// What somebody wants to see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// This communicator only.
    pub group: Option<CommId>,
    /// Communicators at most, those first in which somebody is behind.
    pub groups: usize,
    /// Ranks of each at most: those that are furthest behind, or those from `first` on.
    pub ranks: usize,
    /// The first rank that is shown.
    pub first: Option<Rank>,
    /// Order numbers at most, the newest.
    pub columns: u64,
    /// Ranks at most of which it is told what they are in, those that have been in it longest.
    pub in_flight: usize,
}

/// What ranks have done lately.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Operations {
    /// Communicators with collectives.
    pub groups: Vec<GroupOperations>,
    /// Communicators that are left out.
    pub more_groups: u64,
    /// What ranks are in, those that have been in it longest first.
    pub in_flight: Vec<InFlight>,
    /// Ranks that are left out.
    pub more_in_flight: u64,
}

/// Collectives of a communicator.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupOperations {
    /// The communicator.
    pub comm: CommId,
    /// What people know it by.
    pub name: String,
    /// Its members that are known.
    pub ranks: u64,
    /// The order number after the newest that any of them has issued.
    pub next: u64,
    /// Members that have issued less.
    pub behind: u64,
    /// Members, ascending.
    pub rows: Vec<RankOperations>,
}

/// Collectives of a rank on a communicator.
#[derive(Clone, PartialEq, Debug)]
pub struct RankOperations {
    /// The rank.
    pub rank: Rank,
    /// Its host.
    pub host: HostName,
    /// The order number after the newest that it has issued.
    pub next: u64,
    /// The newest, by order number; of older ones nothing may be known.
    pub ops: Vec<OperationSeen>,
}

/// How far an operation is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Its host has issued it.
    Issued,
    /// The device is in it.
    Running,
    /// It is over.
    Over,
}

impl Stage {
    /// A word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Issued => "issued",
            Stage::Running => "running",
            Stage::Over => "over",
        }
    }
}

/// One operation of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OperationSeen {
    /// Its order number.
    pub seq: u64,
    /// What it is.
    pub kind: OpKind,
    /// How far it is.
    pub stage: Stage,
}

/// What a rank is in.
#[derive(Clone, PartialEq, Debug)]
pub struct InFlight {
    /// The rank.
    pub rank: Rank,
    /// Its host.
    pub host: HostName,
    /// What it is in, with its communicator, peer and order number.
    pub what: String,
    /// When its host issued it, or the device began with it.
    pub since: HostTime,
    /// How far it is.
    pub stage: Stage,
    /// Operations of it that are in flight besides.
    pub more: u64,
}

/// Looks at a job.
pub(crate) fn look(timeline: &Timeline, wanted: &Wanted) -> Operations {
    let mut frontiers: BTreeMap<CommId, Vec<(Rank, u64)>> = BTreeMap::new();
    for state in timeline.ranks.values() {
        for (comm, next) in state.past.collectives_begun() {
            if wanted.group.is_none_or(|group| group == comm) {
                frontiers.entry(comm).or_default().push((state.rank, next));
            }
        }
    }
    let mut order: Vec<(u64, usize, CommId)> = frontiers
        .iter()
        .map(|(comm, members)| {
            let next = newest(members);
            (members.iter().map(|(_, own)| next - own).max().unwrap_or(0), members.len(), *comm)
        })
        .collect();
    order.sort_by_key(|(behind, ranks, comm)| (std::cmp::Reverse((*behind, *ranks)), *comm));
    let more_groups = order.len().saturating_sub(wanted.groups) as u64;
    order.truncate(wanted.groups);
    let groups = order.iter().map(|(_, _, comm)| group(timeline, *comm, &frontiers[comm], wanted)).collect();
    let (in_flight, more_in_flight) = in_flight(timeline, wanted);
    Operations { groups, more_groups, in_flight, more_in_flight }
}

fn newest(members: &[(Rank, u64)]) -> u64 {
    members.iter().map(|(_, next)| *next).max().unwrap_or(0)
}

fn group(timeline: &Timeline, comm: CommId, members: &[(Rank, u64)], wanted: &Wanted) -> GroupOperations {
    let next = newest(members);
    let mut shown: Vec<(Rank, u64)> =
        members.iter().copied().filter(|(rank, _)| wanted.first.is_none_or(|first| *rank >= first)).collect();
    if wanted.first.is_none() {
        shown.sort_by_key(|(rank, own)| (*own, *rank));
    }
    shown.truncate(wanted.ranks);
    shown.sort_unstable();
    let from = next.saturating_sub(wanted.columns);
    let row = |(rank, own): (Rank, u64)| {
        let state = timeline.ranks.get(&rank)?;
        let ops = newest_of(state, comm, from);
        Some(RankOperations { rank, host: state.host.clone(), next: own, ops })
    };
    GroupOperations {
        comm,
        name: timeline.comms.get(&comm).map_or_else(|| format!("comm {comm}"), |comm| comm.said()),
        ranks: members.len() as u64,
        next,
        behind: members.iter().filter(|(_, own)| *own < next).count() as u64,
        rows: shown.into_iter().filter_map(row).collect(),
    }
}

/// The collectives of a rank on a communicator from an order number on.
fn newest_of(state: &RankState, comm: CommId, from: u64) -> Vec<OperationSeen> {
    let is_it = |op: &OpNode| matches!(op, OpNode::Collective { comm: of, seq } if *of == comm && *seq >= from);
    let mut seen: BTreeMap<u64, OperationSeen> = BTreeMap::new();
    for done in state.past.done().filter(|done| done.id.comm == comm && done.id.class == OpClass::Collective) {
        if done.id.seq.0 >= from {
            seen.insert(done.id.seq.0, OperationSeen { seq: done.id.seq.0, kind: done.kind, stage: Stage::Over });
        }
    }
    for op in state.live.values().filter(|op| is_it(&OpNode::of(&op.meta))) {
        let seq = op.meta.id.seq.0;
        seen.insert(seq, OperationSeen { seq, kind: op.meta.kind, stage: stage(state.stand(&op.meta.id)) });
    }
    seen.into_values().collect()
}

fn stage(stand: Stand) -> Stage {
    match stand {
        Stand::NotIssued | Stand::Issued => Stage::Issued,
        Stand::Entered => Stage::Running,
        Stand::Left => Stage::Over,
    }
}

/// What each rank is in: those that have been in it longest first, and how many more ranks are in something.
fn in_flight(timeline: &Timeline, wanted: &Wanted) -> (Vec<InFlight>, u64) {
    let all = timeline.ranks.values().filter(|state| wanted.first.is_none_or(|first| state.rank >= first));
    let mut ranks: Vec<InFlight> = all.filter_map(|state| current(timeline, state, wanted.group)).collect();
    ranks.sort_by_key(|one| (one.since, one.rank));
    let more = ranks.len().saturating_sub(wanted.in_flight) as u64;
    ranks.truncate(wanted.in_flight);
    (ranks, more)
}

/// What a rank is in: the operation its device is in, else the oldest that it has issued.
fn current(timeline: &Timeline, state: &RankState, group: Option<CommId>) -> Option<InFlight> {
    let is_wanted = |op: &&LiveOp| group.is_none_or(|group| op.meta.id.comm == group);
    let ops: Vec<&LiveOp> = state.live.values().filter(is_wanted).collect();
    let op = ops.iter().min_by_key(|op| {
        let stage = stage(state.stand(&op.meta.id));
        (stage != Stage::Running, since(op), op.meta.id)
    })?;
    Some(InFlight {
        rank: state.rank,
        host: state.host.clone(),
        what: timeline.label(&op.meta),
        since: since(op),
        stage: stage(state.stand(&op.meta.id)),
        more: ops.len() as u64 - 1,
    })
}

fn since(op: &LiveOp) -> HostTime {
    op.meta.started_at.some().or(op.meta.enqueued_at.some()).unwrap_or(op.seen_at)
}
