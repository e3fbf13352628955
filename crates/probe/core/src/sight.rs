//! What is known of operations without kernel events (NCCL up to 2.25, and where they are switched off), from their flows.
//!
//! An operation inside a host has no flow: nothing of it is ever seen. It must not stay in flight, since whoever looks would
//! take it for what the rank is in. Its communicator runs its operations in order, so it is given up when a later one with
//! flows ends; at once where the communicator has shown no flow in a whole window of operations; and after a window.
use crate::comms::Comm;
use crate::flows::{Flow, KERNEL_EVENTS};
use crate::handle::DROP_HANDLE;
use crate::ops::Op;
use crate::runtime::Runtime;
use mycroft_record::OpClass;
use mycroft_ring::{OpSlot, RawOpDone};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// When a device that was free at `free` went into a receive, of which it took the first data at `taken`, ready since `ready`. If
/// it took it in less time than it could have waited for it, it waited since it was free; else it came when it took it.
fn came(free: u64, ready: u64, taken: u64) -> u64 {
    if taken.saturating_sub(ready) < ready.saturating_sub(free) { free } else { taken }
}

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

    /// An operation was issued, and nothing more of it will be seen.
    pub fn end_unseen(&self, raw: u64) {
        if let Some(op) = self.ops.get(raw) {
            self.end_op(raw, op, None);
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

    /// What the time since `entered` cost the running operation: it counts from the operation's kernel start, or from when the
    /// device was first seen to be in it.
    #[inline]
    pub(crate) fn cost(&self, flow: &Flow, entered: u64, now: u64) -> u64 {
        let mut started = flow.op_started.load(Relaxed);
        if started == 0 && flow.shape.load(Relaxed) & KERNEL_EVENTS != 0 {
            let op = self.writer().op(OpSlot::from_bits(flow.op_slot.load(Relaxed)));
            started = op.map_or(0, |cell| cell.started_ticks());
            if started != 0 {
                flow.op_started.store(started, Relaxed);
            } else if op.is_some() && self.kernel_seen.load(Relaxed) {
                // Its kernel has not started: the step cost it nothing yet.
                return 0;
            }
        } else if started == 0 && Runtime::is_own(flow) {
            started = self.ops.get(flow.op.load(Relaxed)).map_or(0, |op| op.seen.load(Relaxed));
            if started == 0 {
                return 0;
            }
            flow.op_started.store(started, Relaxed);
        }
        now.saturating_sub(entered.max(started))
    }

    /// The device has moved the first chunk of a flow: handed it over, or taken it, which was ready for it from `ready` on. The
    /// first data of a collective that comes may come before its own device does, so only what it sends tells.
    pub(crate) fn first_moved(&self, op_raw: u64, is_send: bool, ready: u64, now: u64) {
        if self.kernel_events() {
            return;
        }
        let Some(op) = self.ops.get(op_raw).filter(|op| is_send || op.is_recv()) else { return };
        let free = self.device_free.load(Relaxed).max(op.begun());
        let at = if is_send { now } else { came(free, ready, now) };
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

#[cfg(test)]
mod tests {
    use super::came;

    #[test]
    fn a_device_waits_for_data_or_data_for_it() {
        assert_eq!(came(100, 190, 200), 100, "it waited");
        assert_eq!(came(100, 110, 200), 200, "the data waited");
        assert_eq!(came(100, 50, 200), 200, "the data was there before it was free");
    }
}
