//! The parts of a descriptor that no version of the interface has changed.
use super::event::ProxyOpInfo;
use std::ffi::c_int;
use std::mem::offset_of;

/// A proxy operation.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct ProxyOp {
    pid: c_int,
    channel_id: u8,
    peer: c_int,
    n_steps: c_int,
    chunk_size: c_int,
    is_send: c_int,
}

/// A step of a proxy operation.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct ProxyStep {
    pub(super) step: c_int,
}

const _: () = {
    assert!(offset_of!(ProxyOp, pid) == 0);
    assert!(offset_of!(ProxyOp, channel_id) == 4);
    assert!(offset_of!(ProxyOp, peer) == 8);
    assert!(offset_of!(ProxyOp, n_steps) == 12);
    assert!(offset_of!(ProxyOp, chunk_size) == 16);
    assert!(offset_of!(ProxyOp, is_send) == 20);
    assert!(offset_of!(ProxyStep, step) == 0);
};

impl ProxyOp {
    pub(super) fn of(o: &ProxyOpInfo) -> ProxyOp {
        ProxyOp {
            pid: o.pid,
            channel_id: o.channel,
            peer: o.peer,
            n_steps: o.n_steps,
            chunk_size: o.chunk_size,
            is_send: c_int::from(o.is_send),
        }
    }
}
