//! What is known of operations without kernel events (NCCL up to 2.25, and where they are switched off), from their flows.
//!
//! An operation inside a host has no flow: nothing of it is ever seen. It must not stay in flight, since whoever looks would
//! take it for what the rank is in. Its communicator runs its operations in order, so it is given up when a later one with
//! flows ends; at once where the communicator has shown no flow in a whole window of operations; and after a window.
use crate::comms::Comm;
use crate::handle::DROP_HANDLE;
use crate::ops::Op;
use crate::runtime::Runtime;
use mycroft_record::OpClass;
use mycroft_ring::RawOpDone;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

impl Op {
    fn is_recv(&self) -> bool {
        OpClass::from_code((self.id_class_peer.load(Relaxed) >> 32) as u8) == OpClass::Recv
    }

    /// All of it was enqueued and no flow of it is known: none began, and none was appended.
    fn shows_nothing(&self) -> bool {
        self.stop_seen.load(SeqCst) && self.flows_started.load(SeqCst) == 0 && self.flows_pending.load(SeqCst) == 0
    }
}

impl Runtime {
    /// Without kernel events an operation waits to be seen; one that has waited for a whole window is given up.
    pub(crate) fn expire_unobserved(&self, comm: &Comm, handle: u64) {
        if self.kernel_events() || handle == DROP_HANDLE {
            return;
        }
        let Some(old) = comm.wait_unobserved(handle) else { return };
        if let Some(op) = self.ops.get(old).filter(|op| op.flows_started.load(SeqCst) == 0) {
            self.end_op(old, op, None);
        }
    }

    /// An operation was enqueued: given up at once where its communicator shows no flows.
    pub(crate) fn expire_silent(&self, raw: u64, op: &Op) {
        if op.kernel_events() || !op.shows_nothing() {
            return;
        }
        let Some(comm) = self.comms.at(op.comm()).filter(|comm| comm.is_silent()) else { return };
        self.end_op(raw, op, None);
        if comm.was_not_silent_long() {
            self.give_up_before(comm, op.begun());
        }
    }

    /// An operation of a communicator has a flow.
    #[inline]
    pub(crate) fn shows_flows(&self, comm: u32) {
        if let Some(comm) = self.comms.at(comm) {
            comm.shows_flows();
        }
    }

    /// So many chunks of a flow have been ready; gives their number on.
    #[inline]
    pub(crate) fn data_ready(&self, op_raw: u64, is_send: bool, count: u64, at: u64) -> u64 {
        if count == 1 && !self.kernel_events() {
            self.first_data(op_raw, is_send, at);
        }
        count
    }

    /// A flow of an operation without kernel events has the first of its data: the device has handed it over, or, of a receive,
    /// the network has delivered it. A device that receives goes into that as soon as it is free, as far as anybody can see.
    fn first_data(&self, op_raw: u64, is_send: bool, at: u64) {
        let Some(op) = self.ops.get(op_raw) else { return };
        let at = match (is_send, op.is_recv()) {
            (true, _) => at,
            (false, true) => self.device_free.load(Relaxed).clamp(op.begun(), at.max(op.begun())),
            // The data of a collective may come before its own device does.
            (false, false) => return,
        };
        let _ = op.seen.compare_exchange(0, at, Relaxed, Relaxed);
    }

    /// An operation ends: what its flows show of its beginning, and that those before it are over.
    pub(crate) fn complete_by_flows(&self, op: &Op, ended: Option<u64>, done: &mut RawOpDone) {
        let (false, Some(ended)) = (op.kernel_events(), ended) else { return };
        done.op.started_ticks = op.seen.load(Relaxed);
        self.device_free.fetch_max(ended, Relaxed);
        let Some(comm) = self.comms.at(op.comm()) else { return };
        self.give_up_before(comm, op.begun());
    }

    fn give_up_before(&self, comm: &Comm, begun: u64) {
        comm.each_waiting(|handle| {
            let before = self.ops.get(handle).filter(|other| other.begun() < begun && other.shows_nothing());
            if let Some(other) = before {
                self.end_op(handle, other, None);
            }
        });
    }
}
