//! The steps of a flow in flight: where each is, and since when.
use std::sync::atomic::AtomicU64;

/// Steps in flight whose times are kept: NCCL_STEPS, the slots of a connection.
pub(crate) const LANES: usize = 8;

/// Stages of a step, in order; their numbers are also the counters' positions.
pub(crate) mod stage {
    pub(crate) const STARTED: u64 = 0;
    pub(crate) const POSTED: u64 = 1;
    pub(crate) const READY: u64 = 2;
    pub(crate) const TRANSMITTED: u64 = 3;
    pub(crate) const DONE: u64 = 4;
    /// Stopped without having been transmitted (an abort): over, but not done.
    pub(crate) const CUT: u64 = 5;
}

/// One step in flight.
pub(crate) struct Lane {
    /// See [`lane_key`]; 0 when never used. The flow's generation is part of it, so that a new flow need not touch all lanes.
    pub(crate) key: AtomicU64,
    /// When it entered the stage.
    pub(crate) entered: AtomicU64,
}

/// Bits of a lane's key that hold the stage.
pub(crate) const STAGE_BITS: u32 = 4;
/// Steps that a lane's key can tell apart.
pub(crate) const MAX_STEPS: u32 = (1 << (32 - STAGE_BITS)) - 1;

/// From the high end: generation of the flow, step plus one, stage.
#[inline]
pub(crate) fn lane_key(generation: u32, step: u32, stage: u64) -> u64 {
    u64::from(generation) << 32 | u64::from(step + 1) << STAGE_BITS | stage
}

/// The stage in a lane's key.
#[inline]
pub(crate) fn stage_of(key: u64) -> u64 {
    key & ((1 << STAGE_BITS) - 1)
}
