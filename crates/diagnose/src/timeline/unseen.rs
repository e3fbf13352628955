//! Collectives that are known to be issued and no more: NCCL tells of some by their calls only, and without kernel events
//! what stays inside a host is not seen.
use super::rank::is_entered;
use super::{OpNode, RankState, Stand, Timeline};
use crate::blame::graph::Stillness;
use crate::fact::OpRef;
use mycroft_record::{HostTime, OpClass, OpDone, OpKind, OpMeta, Rank};
use std::collections::BTreeMap;

impl RankState {
    /// Takes in the end of an operation, seen or not.
    pub(super) fn note_unseen(&mut self, done: &OpDone) {
        if done.observed {
            self.has_shown_broadcast |= done.op.kind == OpKind::Broadcast;
            self.ran = self.ran.max(done.op.enqueued_at);
        } else if done.op.id.class == OpClass::Collective {
            let is_newest = self.unseen.is_none_or(|known| known.enqueued_at <= done.op.enqueued_at);
            self.past.was_unseen(done.op.id.comm);
            self.unseen = if is_newest { Some(done.op) } else { self.unseen };
        }
    }

    /// The newest collective that it may be in unseen: nothing that it issued later is seen to have run.
    pub(crate) fn unseen(&self) -> Option<&OpMeta> {
        let may_be_in =
            |at: HostTime| self.ran < at && !self.live.values().any(|op| is_entered(op) && op.meta.enqueued_at > at);
        self.unseen.as_ref().filter(|op| may_be_in(op.enqueued_at))
    }
}

impl Timeline {
    /// For each rank that waits, ascending: since when nothing it waits for, directly or not, has moved, where some ranks have moved
    /// later than they show.
    pub(crate) fn stillness(&self, no_data_after_ns: u64, later: &BTreeMap<Rank, HostTime>) -> Vec<(Rank, Stillness)> {
        let seen = self.graph().stillness(self, no_data_after_ns, later);
        if seen.is_empty() { self.unseen_stillness(no_data_after_ns) } else { seen }
    }

    /// Where nobody of the whole job is in anything that is seen: since when nothing has moved that ranks wait for in operations that
    /// are known from their calls alone, and that a member has not called. Who called it waits, however much later its device comes to
    /// it. An operation that all have called may be over, so nobody is known to wait in it.
    fn unseen_stillness(&self, no_data_after_ns: u64) -> Vec<(Rank, Stillness)> {
        let mut waiting: BTreeMap<OpNode, Vec<&RankState>> = BTreeMap::new();
        for state in self.ranks.by_slot() {
            if let Some(op) = state.unseen() {
                waiting.entry(OpNode::of(op)).or_default().push(state);
            }
        }
        let mut all = Vec::new();
        for (node, waiting) in waiting {
            let is_missing = |member: &Rank| matches!(self.stand(*member, &node), Some(Stand::NotIssued));
            let missing = self.members(&node).into_iter().filter(is_missing);
            let missing: Vec<&RankState> = missing.filter_map(|rank| self.ranks.get(&rank)).collect();
            let Some(moved) = missing.iter().map(|state| state.progress_at).max() else { continue };
            // Of one that is gone nothing more will be known.
            let is_heard = |state: &&&RankState| !state.dead_since.is_some() && !self.no_data(state, no_data_after_ns);
            let looked = missing.iter().filter(is_heard).map(|state| state.sampled_at).min();
            all.extend(waiting.into_iter().map(|state| {
                let until =
                    looked.map_or(state.sampled_at, |looked| looked.min(state.sampled_at)).min(self.newest_sample);
                (state.rank, Stillness { since: moved.max(state.progress_at), until })
            }));
        }
        all.sort_unstable_by_key(|(rank, _): &(Rank, Stillness)| *rank);
        all
    }

    /// The operation as `rank`, which is in it, knows it.
    pub(crate) fn op_ref(&self, rank: Rank, node: &OpNode) -> Option<OpRef> {
        let unseen = || self.ranks.get(&rank)?.unseen().filter(|meta| OpNode::of(meta) == *node);
        let meta = self.live(rank, node).map(|op| &op.meta).or_else(unseen).copied()?;
        Some(OpRef { meta, label: self.label(&meta) })
    }
}
