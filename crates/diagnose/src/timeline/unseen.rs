//! Collectives that are known to be issued and no more: NCCL tells of some by their calls only, and without kernel events
//! what stays inside a host is not seen.
use super::rank::is_entered;
use super::{OpNode, RankState, Timeline};
use crate::fact::OpRef;
use mycroft_record::{HostTime, OpClass, OpDone, OpKind, OpMeta, Rank};

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
    /// The operation as `rank`, which is in it, knows it.
    pub(crate) fn op_ref(&self, rank: Rank, node: &OpNode) -> Option<OpRef> {
        let unseen = || self.ranks.get(&rank)?.unseen().filter(|meta| OpNode::of(meta) == *node);
        let meta = self.live(rank, node).map(|op| &op.meta).or_else(unseen).copied()?;
        Some(OpRef { meta, label: self.label(&meta) })
    }
}
