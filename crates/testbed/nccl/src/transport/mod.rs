//! How bytes get from a rank to its neighbour: the FIFO both transports share, shared memory, TCP, and RDMA.

pub mod fifo;
pub mod greet;
pub mod net;
pub mod shm;
pub mod tokens;
pub mod verbs;
pub mod waker;

/// What a connection is for. Collectives and point-to-point traffic never share one, as in NCCL (connIndex 0 and 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Lane {
    /// Ring and tree.
    Coll = 0,
    /// Send and receive.
    P2p = 1,
}

/// Which end of a connection this rank is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dir {
    /// This rank fills slots.
    Send,
    /// This rank empties slots.
    Recv,
}

/// A connection of one communicator, seen from this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnKey {
    /// Which end.
    pub dir: Dir,
    /// The other rank.
    pub peer: usize,
    /// The channel.
    pub channel: usize,
    /// The lane.
    pub lane: Lane,
}
