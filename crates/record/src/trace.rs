//! A profiler's trace of one rank: its collectives with their times, and its iterations.
use crate::ids::Rank;
use std::sync::Arc;

/// The trace of one rank.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Trace {
    /// File name relative to the folder.
    pub source: Arc<str>,
    /// The rank.
    pub rank: Rank,
    /// Process groups and kinds of operations that [`TraceOp::lane`] counts.
    pub lanes: Vec<TraceLane>,
    /// Collectives, in the order in which they began.
    pub ops: Vec<TraceOp>,
    /// Iterations, in the order in which they began.
    pub steps: Vec<TraceStep>,
    /// Operations beyond what is kept.
    pub beyond: u64,
    /// Operations are known by [`TraceOp::seq`] and not by time, and there are no iterations.
    pub is_numbered: bool,
}

/// A process group and a kind of operation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct TraceLane {
    /// Name of the group, equal on all ranks; empty where not told.
    pub group: Arc<str>,
    /// Its description; empty where not told.
    pub desc: Arc<str>,
    /// The operation, e.g. `allreduce`.
    pub op: Arc<str>,
    /// Members of the group; 0 where not told.
    pub size: u32,
}

/// One collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TraceOp {
    /// Index into [`Trace::lanes`].
    pub lane: u32,
    /// Its number among those of its lane, where the trace is numbered.
    pub seq: u32,
    /// When it began, nanoseconds of the rank's own clock; 0 where the trace is numbered.
    pub start_ns: i64,
    /// How long it took, nanoseconds.
    pub dur_ns: i64,
    /// Elements of its input, or bytes; 0 where not told.
    pub elements: u64,
}

/// One iteration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TraceStep {
    /// Its number.
    pub number: u64,
    /// When it began, nanoseconds of the rank's own clock.
    pub start_ns: i64,
    /// How long it took, nanoseconds.
    pub dur_ns: i64,
}
