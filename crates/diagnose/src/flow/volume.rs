//! Bytes that a rank sends to a peer in an operation, by the algorithm that NCCL chose (Pulse, appendix B).
use mycroft_record::OpKind;

/// The ways of an operation between ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Each rank sends to the next one.
    Ring,
    /// Each rank sends to its parent and its children.
    Tree,
    /// Two trees, each with half of the data: what NCCL calls a tree.
    DoubleTree,
    /// One rank sends to another.
    Direct,
}

/// An operation as its call asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// What it does.
    pub kind: OpKind,
    /// Along which ways.
    pub shape: Shape,
    /// Bytes of the call's count: of AllReduce, Broadcast and Reduce all of the data, of AllGather what a rank contributes, of
    /// ReduceScatter what a rank receives, of Send and AllToAll what goes to one peer.
    pub bytes: u64,
    /// Ranks of the communicator.
    pub ranks: u64,
}

/// Of 20 parts of its share a queue pair sends at least 19: channels divide data in whole chunks, not evenly.
const SURE_PARTS: u64 = 19;

impl Asked {
    /// Bytes that a rank sends to each peer that it sends to, over all queue pairs; none where the algorithm does no such
    /// operation. (At the end of a chain, in Broadcast and Reduce along a ring, a rank sends nothing.)
    pub fn bytes_to_peer(&self) -> Option<u64> {
        let Asked { kind, shape, bytes, ranks } = *self;
        let others = ranks.checked_sub(1).filter(|others| *others > 0)?;
        let bytes = u128::from(bytes);
        let sent = match (shape, kind) {
            (Shape::Ring, OpKind::AllReduce) => 2 * bytes * u128::from(others) / u128::from(ranks),
            (Shape::Ring, OpKind::AllGather | OpKind::ReduceScatter) => bytes * u128::from(others),
            (Shape::Ring, OpKind::Broadcast | OpKind::Reduce) => bytes,
            (Shape::Tree, OpKind::AllReduce) => bytes,
            (Shape::DoubleTree, OpKind::AllReduce) => bytes / 2,
            (Shape::Direct, OpKind::Send | OpKind::AllToAll) => bytes,
            _ => return None,
        };
        u64::try_from(sent).ok()
    }

    /// What one of `queue_pairs` that share the way to a peer sends at least: a volume for [`super::Rule`].
    pub fn volume(&self, queue_pairs: u64) -> Option<u64> {
        let share = self.bytes_to_peer()?.checked_div(queue_pairs)?;
        Some(share / 20 * SURE_PARTS + share % 20 * SURE_PARTS / 20)
    }
}
