//! A bundle as the wait-for graph asks for it: who is in what, and who stands where.
//!
//! Two frontiers are kept apart. Entry: which operations a rank has issued. Completion: of these, the oldest in a group
//! that is not done is the one the rank is in; later ones are issued and queue behind it.
use super::doing::Doings;
use super::index::{Group, Index, Lane, Slot};
use super::printed::Told;
use super::tables::Family;
use crate::blame::graph::{Scene, Turn};
use crate::fact::OpRef;
use crate::timeline::Stand;
use mycroft_record::dump::Entry;
use mycroft_record::{
    Algorithm, CommId, CommRank, Datatype, HostTime, OpClass, OpId, OpKind, OpMeta, OpSeq, Protocol, Rank,
};

/// Operations at the end of a lane that may be retired without being done: those in flight when it failed.
const LAST: usize = 64;

/// A collective, not a pair.
const COLLECTIVE: u32 = u32::MAX;

/// One operation instance of a dead job. Indices into [`Index`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct DumpOp {
    pub(super) group: u32,
    /// Index of the pair, or `COLLECTIVE`.
    pair: u32,
    pub(super) seq: u64,
}

impl DumpOp {
    pub(super) fn collective(group: u32, seq: u64) -> DumpOp {
        DumpOp { group, pair: COLLECTIVE, seq }
    }

    pub(super) fn transfer(group: u32, pair: u32, seq: u64) -> DumpOp {
        DumpOp { group, pair, seq }
    }

    /// Sequence number, for collectives.
    pub(super) fn collective_seq(&self) -> Option<u64> {
        (self.pair == COLLECTIVE).then_some(self.seq)
    }
}

/// The index with what stacks say besides.
#[derive(Debug)]
pub(super) struct DumpScene<'a, 'b> {
    pub(super) index: &'b Index<'a>,
    pub(super) doings: &'b Doings<'a>,
    pub(super) told: &'b Told,
}

impl Scene for DumpScene<'_, '_> {
    type Op = DumpOp;

    fn in_flight(&self) -> Vec<(Rank, Vec<DumpOp>)> {
        let ranks = self.index.ranks.iter();
        ranks.map(|rank| (*rank, self.current(*rank))).filter(|(_, ops)| !ops.is_empty()).collect()
    }

    fn members(&self, op: &DumpOp) -> Vec<Rank> {
        let Some(group) = self.index.groups.get(op.group as usize) else { return Vec::new() };
        match group.pairs.get(op.pair as usize) {
            None => group.lanes.iter().map(|lane| lane.rank).collect(),
            Some(pair) => {
                let mut both = vec![pair.from, pair.to];
                both.sort_unstable();
                both.dedup();
                both
            }
        }
    }

    fn stand(&self, rank: Rank, op: &DumpOp) -> Option<Stand> {
        let group = self.index.groups.get(op.group as usize)?;
        match group.pairs.get(op.pair as usize) {
            None => self.stand_in_collective(group, group.lane(rank)?, op.seq),
            Some(pair) => {
                let sender = pair.from == rank;
                if !self.index.has_dump(rank) {
                    return self.stand_unseen(rank);
                }
                Some(match pair.half(sender, op.seq) {
                    Some(half) if half.done => Stand::Left,
                    Some(_) if pair.oldest_open(sender) == Some(op.seq) => Stand::Entered,
                    Some(_) => Stand::Issued,
                    None if op.seq >= pair.end(sender) => Stand::NotIssued,
                    None => Stand::Left,
                })
            }
        }
    }

    fn turn(&self, rank: Rank) -> Turn {
        if self.index.has_dump(rank) { Turn::On } else { Turn::End }
    }
}

impl<'a> DumpScene<'a, '_> {
    /// The operations a rank is in: of each group and each pair, the oldest that is not done and that its device runs.
    fn current(&self, rank: Rank) -> Vec<DumpOp> {
        let mut out = Vec::new();
        for id in self.index.groups_of.get(&rank).into_iter().flatten() {
            let group = &self.index.groups[*id as usize];
            let Some(lane) = group.lane(rank) else { continue };
            if let Some(slot) = self.open_slot(group, lane) {
                let op = DumpOp::collective(*id, slot.seq);
                if self.stand_in_collective(group, lane, slot.seq) == Some(Stand::Entered) {
                    out.push(op);
                }
            }
            for (at, pair) in group.pairs.iter().enumerate() {
                for (me, sender) in [(pair.from, true), (pair.to, false)] {
                    if me == rank {
                        let seq = pair.oldest_open(sender);
                        out.extend(seq.map(|seq| DumpOp { group: *id, pair: at as u32, seq }));
                    }
                }
            }
        }
        out.sort_unstable();
        out.dedup();
        out
    }

    /// The collective a member is in. A recorder that retires without ever completing also retires what failed or was only
    /// issued: such an entry is done only if every member could have entered it.
    fn open_slot<'c>(&self, group: &'c Group, lane: &'c Lane) -> Option<&'c Slot> {
        let open = lane.oldest_open();
        let unsure = lane.dump.is_some_and(|at| self.index.tells[at].retires_only);
        if !unsure {
            return open;
        }
        let reached = self.reached_by_all(group)?;
        let last = lane.slots.last().map(|slot| slot.seq);
        // The last one is done only if nobody is still in it: an operation that failed is retired as well.
        let failed = |slot: &Slot| {
            Some(slot.seq) == last && group.lanes.iter().filter_map(|peer| peer.slot(slot.seq)).any(|peer| !peer.done)
        };
        let false_done = lane
            .slots
            .iter()
            .rev()
            .take(LAST)
            .rev()
            .find(|slot| slot.done && self.waits_for_all(slot) && (slot.seq > reached || failed(slot)));
        match (open, false_done) {
            (Some(a), Some(b)) => Some(if a.seq <= b.seq { a } else { b }),
            (a, b) => a.or(b),
        }
    }

    /// The highest number that every member with a dump has issued.
    fn reached_by_all(&self, group: &Group) -> Option<u64> {
        let lanes = group.lanes.iter().filter(|lane| lane.dump.is_some());
        lanes.map(|lane| lane.slots.last().map(|slot| slot.seq).or(lane.issued).unwrap_or(0)).min()
    }

    /// Nobody can be through it before everybody is in it.
    pub(super) fn waits_for_all(&self, slot: &Slot) -> bool {
        let Some(op) = self.index.tables.ops.get(slot.op as usize) else { return false };
        match &op.family {
            Family::Known(kind) => {
                matches!(kind, OpKind::AllReduce | OpKind::AllGather | OpKind::ReduceScatter | OpKind::AllToAll)
            }
            Family::Named(name) => name.contains("barrier"),
        }
    }

    /// An all-to-all.
    pub(super) fn is_exchange(&self, slot: &Slot) -> bool {
        self.index.tables.ops.get(slot.op as usize).is_some_and(|op| op.kind == OpKind::AllToAll)
    }

    fn stand_in_collective(&self, group: &Group, lane: &Lane, seq: u64) -> Option<Stand> {
        let Some(at) = lane.dump else {
            // Someone is through what nobody leaves before all are in: it was in.
            let through = |peer: &Lane| {
                let done = peer.slot(seq).is_some_and(|slot| slot.done && self.waits_for_all(slot));
                done && self.open_slot(group, peer).is_none_or(|open| open.seq > seq)
            };
            // Or the beginning of its dump says so.
            let issued = lane.issued.is_some_and(|issued| seq <= issued);
            return if issued || group.lanes.iter().any(through) { None } else { self.stand_unseen(lane.rank) };
        };
        let Some(slot) = lane.slot(seq) else {
            let last = lane.slots.last().map(|slot| slot.seq).max(lane.issued);
            let queued = self.index.is_printed(lane) && lane.slots.last().is_some_and(|slot| slot.seq < seq);
            return match last {
                Some(last) if seq <= last && queued => Some(Stand::Issued),
                Some(last) if seq <= last => Some(Stand::Left),
                None if self.index.tells[at].wrapped => None,
                _ => Some(Stand::NotIssued),
            };
        };
        let open = self.open_slot(group, lane).map(|open| open.seq);
        if open.is_none_or(|open| open > seq) {
            return Some(Stand::Left);
        }
        if open != Some(seq) {
            return Some(Stand::Issued);
        }
        let told = self.index.tells[at].started && !slot.started;
        let peers_started =
            || group.lanes.iter().filter_map(|peer| peer.slot(seq)).any(|peer| peer.started || peer.done);
        Some(if told && peers_started() { Stand::Issued } else { Stand::Entered })
    }

    /// A rank without a dump: a lead, unless its stacks show that it waits for its peers itself.
    fn stand_unseen(&self, rank: Rank) -> Option<Stand> {
        let known = !self.doings.waits_for_peers(rank) && !self.told.unknown.contains(&rank);
        known.then_some(Stand::NotIssued)
    }

    /// Members that are through an operation, with a record that shows it.
    pub(super) fn left(&self, op: &DumpOp) -> Vec<Rank> {
        let members = self.members(op);
        let seen = members.into_iter().filter(|rank| self.index.has_dump(*rank));
        seen.filter(|rank| self.stand(*rank, op) == Some(Stand::Left)).collect()
    }

    /// The entry of `rank` in `op`.
    pub(super) fn entry(&self, rank: Rank, op: &DumpOp) -> Option<&'a Entry> {
        let group = self.index.groups.get(op.group as usize)?;
        let lane = group.lane(rank)?;
        match group.pairs.get(op.pair as usize) {
            None => self.index.entry(lane, lane.slot(op.seq)?),
            Some(pair) => {
                let half = pair.half(pair.from == rank, op.seq)?;
                self.index.dump(lane)?.entries.get(half.entry as usize)
            }
        }
    }

    /// Operation and number for people: `all_reduce default_pg #6`, `send 1->2 default_pg #3`.
    pub(super) fn label(&self, op: &DumpOp) -> String {
        let Some(group) = self.index.groups.get(op.group as usize) else { return String::new() };
        let name = group.label();
        match group.pairs.get(op.pair as usize) {
            None => format!("{} {name} #{}", self.name(op), op.seq),
            Some(pair) => match pair.position(op.seq) {
                Some(position) => format!("transfer {}->{} {name} #{position}", pair.from, pair.to),
                None => format!("the oldest open transfer {}->{} {name}", pair.from, pair.to),
            },
        }
    }

    /// The operation's name as most of its members have it.
    pub(super) fn name(&self, op: &DumpOp) -> String {
        let Some(group) = self.index.groups.get(op.group as usize) else { return String::new() };
        if op.collective_seq().is_none() {
            let pair = &group.pairs[op.pair as usize];
            let open = |sender: bool| pair.oldest_open(sender) == Some(op.seq);
            return if open(false) { "recv" } else { "send" }.to_owned();
        }
        let mut votes: Vec<(usize, &str)> = Vec::new();
        for slot in group.lanes.iter().filter_map(|lane| lane.slot(op.seq)) {
            let Some(name) = self.index.tables.ops.get(slot.op as usize).map(|op| &*op.name) else { continue };
            match votes.iter_mut().find(|vote| vote.1 == name) {
                Some(vote) => vote.0 += 1,
                None => votes.push((1, name)),
            }
        }
        votes.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        votes.first().map_or_else(String::new, |vote| vote.1.to_owned())
    }

    /// The number to report: a collective's sequence number, a transfer's position where it is known.
    pub(super) fn seq(&self, op: &DumpOp) -> Option<u64> {
        let group = self.index.groups.get(op.group as usize)?;
        match group.pairs.get(op.pair as usize) {
            None => Some(op.seq),
            Some(pair) => pair.position(op.seq),
        }
    }

    /// The operation as facts refer to it, with what `rank` knows of it.
    pub(super) fn op_ref(&self, rank: Rank, op: &DumpOp) -> OpRef {
        let entry = self.entry(rank, op);
        let time = |time: Option<HostTime>| time.unwrap_or(HostTime::NONE);
        let group = self.index.groups.get(op.group as usize);
        let pair = group.and_then(|group| group.pairs.get(op.pair as usize));
        let class = match pair {
            None => OpClass::Collective,
            Some(pair) if pair.from == rank => OpClass::Send,
            Some(_) => OpClass::Recv,
        };
        let peer = pair.map(|pair| if pair.from == rank { pair.to } else { pair.from });
        let member = |rank: Rank| {
            let at = group.and_then(|group| group.order.iter().position(|member| *member == rank));
            CommRank(at.unwrap_or_default() as u32)
        };
        let slot_op = group.and_then(|group| group.lane(rank)?.slot(op.seq)).map(|slot| slot.op);
        let kind = slot_op.and_then(|op| self.index.tables.ops.get(op as usize)).map(|op| op.kind);
        let meta = OpMeta {
            id: OpId {
                comm: CommId(u64::from(op.group)),
                class,
                peer: peer.map_or(CommRank(0), member),
                seq: OpSeq(self.seq(op).unwrap_or_default()),
            },
            kind: kind.unwrap_or_default(),
            nccl_seq: 0,
            comm_rank: member(rank),
            count: 0,
            datatype: Datatype::Unknown,
            root: u32::MAX,
            algorithm: Algorithm::Unknown,
            protocol: Protocol::Unknown,
            n_channels: 0,
            enqueued_at: time(entry.map(|entry| entry.created_at)),
            started_at: time(entry.map(|entry| entry.created_at)),
            started_last_at: HostTime::NONE,
        };
        OpRef { meta, label: self.label(op) }
    }
}
