//! The calls of a group, and what becomes of each.

use crate::abi::{DType, Func, RedOp};
use crate::profiler::Handle;
use crate::tuner::Choice;

/// A collective call.
#[derive(Debug, Clone)]
pub(crate) struct CollTask {
    pub(crate) func: Func,
    pub(crate) send: usize,
    pub(crate) recv: usize,
    pub(crate) count: usize,
    pub(crate) dtype: DType,
    pub(crate) op: RedOp,
    pub(crate) root: usize,
}

/// A point-to-point call.
#[derive(Debug, Clone)]
pub(crate) struct P2pTask {
    pub(crate) is_send: bool,
    pub(crate) buff: usize,
    pub(crate) count: usize,
    pub(crate) dtype: DType,
    pub(crate) peer: usize,
}

/// Either.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    Coll(CollTask),
    P2p(P2pTask),
}

/// A call with what the profiler knew when it was made.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) call: Call,
    pub(super) stream: usize,
    pub(super) mask: i32,
    pub(super) group_api: Handle,
    pub(super) api: Handle,
    pub(super) event: Handle,
    /// Channels in use.
    pub(super) channels: usize,
    /// How a collective is done.
    pub(super) choice: Option<Choice>,
}
