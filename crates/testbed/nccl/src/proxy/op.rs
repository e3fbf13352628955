//! An operation of the proxy.

mod sent;

use crate::env::STEPS;
use crate::profiler::Handle;
use crate::transport::ConnKey;
use crate::transport::fifo::Fifo;
use sent::Sent;

/// One direction of one operation on one channel.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) key: ConnKey,
    pub(crate) fifo: Fifo,
    /// Raw steps in all.
    pub(crate) nsteps: u64,
    pub(crate) chunk_steps: u64,
    pub(crate) slice_steps: u64,
    /// Data of a full chunk, as the plugin is told.
    pub(crate) chunk_bytes: u64,
    /// The plugin hears nothing of it.
    pub(crate) silent: bool,
    /// The activation mask of the call.
    pub(crate) mask: i32,
    /// The plugin's handle of the collective or transfer.
    pub(crate) task: Handle,
    pub(super) handle: Handle,
    pub(super) steps: [Handle; STEPS as usize],
    pub(super) begun: bool,
    pub(super) base: u64,
    pub(super) posted: u64,
    pub(super) ready: u64,
    pub(super) transmitted: u64,
    pub(super) done: u64,
    pub(super) step_bytes: usize,
    pub(super) sum_bytes: usize,
    /// What of it was sent over RDMA.
    pub(super) sent: Sent,
}

impl Op {
    pub(crate) fn new(key: ConnKey, fifo: Fifo, nsteps: u64, steps: (u64, u64), mask: i32, task: Handle) -> Op {
        let chunk_bytes = fifo.slot_bytes() as u64 * steps.0;
        Op {
            key,
            fifo,
            nsteps,
            chunk_bytes,
            silent: false,
            chunk_steps: steps.0,
            slice_steps: steps.1,
            mask,
            task,
            handle: Handle::NONE,
            steps: [Handle::NONE; STEPS as usize],
            begun: false,
            base: 0,
            posted: 0,
            ready: 0,
            transmitted: 0,
            done: 0,
            step_bytes: 0,
            sum_bytes: 0,
            sent: Sent::default(),
        }
    }

    /// A slice is about to go.
    pub(super) fn sends(&mut self, bytes: usize) {
        self.step_bytes = bytes;
        self.sum_bytes += bytes;
        self.sent.slice(bytes);
    }
}
