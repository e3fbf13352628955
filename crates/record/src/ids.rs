//! Identifiers. Each is a newtype, and its doc says within what it is unique.
use std::fmt;
use std::sync::Arc;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

/// Global rank of a process in its job; unique within a job. `Rank::UNKNOWN` where the launcher did not tell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Rank(pub u32);

/// The number; `?0`, `?1`, ... for processes of which nobody told the rank, `?` where not even that is known.
impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (*self, self.0.checked_sub(Rank::UNTOLD_FROM.0)) {
            (Rank::UNKNOWN, _) => f.write_str("?"),
            (_, Some(nth)) => write!(f, "?{nth}"),
            (_, None) => write!(f, "{}", self.0),
        }
    }
}

id!(
    /// Rank inside one communicator, `0..n_ranks`; unique within a communicator.
    CommRank(u32), "");
id!(
    /// NCCL channel index inside one communicator (paper Table 2 `Channel_id`).
    ChannelId(u8), "");
id!(
    /// Order number of an operation. Collectives: the n-th collective this rank issued on the communicator, equal on
    /// all ranks of a correct program. Point-to-point: the n-th send (or receive) between this rank and one peer.
    /// Counted by the probe in start order from 0; NCCL's own `seqNumber` counts per function and is kept beside it.
    OpSeq(u64), "");

impl Rank {
    /// The launcher gave no global rank; the source's process key still tells processes apart.
    pub const UNKNOWN: Rank = Rank(u32::MAX);
    /// From here on numbers are given by the reader to processes of which nobody told the rank, in the order in which they
    /// are met. Far above any real world size.
    pub const UNTOLD_FROM: Rank = Rank(1 << 30);

    /// Whether the number is the reader's, since nobody told the rank.
    pub fn is_untold(self) -> bool {
        self >= Rank::UNTOLD_FROM
    }
}

/// NCCL's communicator hash (`commHash`, later `commId`): equal on all ranks of a communicator, unique within a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CommId(pub u64);

impl fmt::Display for CommId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Name of a job, unique within a server. Cheap to clone.
pub type JobName = Arc<str>;
/// Name of a host, unique within a job. Cheap to clone.
pub type HostName = Arc<str>;

/// One operation as one rank sees it; unique within (job, rank).
///
/// Two ranks speak of the same collective when `comm` and `seq` are equal. A send `(peer = p, seq = n)` on rank r of a
/// communicator matches the receive `(peer = r, seq = n)` on p.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpId {
    /// The communicator.
    pub comm: CommId,
    /// Which of the counters `seq` belongs to.
    pub class: crate::kind::OpClass,
    /// The peer of a point-to-point operation; `CommRank(0)` for collectives.
    pub peer: CommRank,
    /// The order number.
    pub seq: OpSeq,
}
