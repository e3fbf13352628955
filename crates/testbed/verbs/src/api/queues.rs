//! Completion queues and the channels that announce them.
use super::device::{COMPLETIONS_MAX, device_of};
use super::{errno_of, fail};
use crate::abi;
use crate::cq::{Cq, Events};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[repr(C)]
struct OwnedChannel {
    ibv: abi::CompChannel,
    events: Arc<Events>,
}

/// `ibv_create_comp_channel`.
pub(super) unsafe extern "C" fn create_comp_channel(context: *mut abi::Context) -> *mut abi::CompChannel {
    match Events::new() {
        Ok(events) => {
            let ibv = abi::CompChannel { context, fd: events.fd(), refcnt: 0 };
            Box::into_raw(Box::new(OwnedChannel { ibv, events })).cast()
        }
        Err(e) => fail(errno_of(&e)),
    }
}

/// `ibv_destroy_comp_channel`.
pub(super) unsafe extern "C" fn destroy_comp_channel(channel: *mut abi::CompChannel) -> c_int {
    if channel.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: `create_comp_channel` made it, and the program gives it back.
    drop(unsafe { Box::from_raw(channel.cast::<OwnedChannel>()) });
    0
}

#[repr(C)]
pub(super) struct OwnedCq {
    ibv: abi::Cq,
    pub(super) cq: Arc<Cq>,
}

/// `ibv_create_cq`.
pub(super) unsafe extern "C" fn create_cq(
    context: *mut abi::Context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut abi::CompChannel,
    vector: c_int,
) -> *mut abi::Cq {
    // SAFETY: the program gives an open context, and null or a channel that it made.
    let (device, rings) = unsafe { (device_of(context), channel.cast::<OwnedChannel>().as_ref()) };
    let Some(device) = device.filter(|_| vector == 0 && (1..=COMPLETIONS_MAX as c_int).contains(&cqe)) else {
        return fail(libc::EINVAL);
    };
    let cq = Cq::new(cqe as usize, rings.map(|channel| Arc::clone(&channel.events)), Arc::clone(&device.events));
    let ibv = abi::Cq {
        context,
        channel,
        cq_context,
        handle: 0,
        cqe,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        comp_events_completed: 0,
        async_events_completed: 0,
    };
    let owned = Box::leak(Box::new(OwnedCq { ibv, cq }));
    let at: *mut OwnedCq = owned;
    owned.cq.handle.store(at.expose_provenance(), Ordering::Release);
    at.cast()
}

/// `ibv_destroy_cq`.
pub(super) unsafe extern "C" fn destroy_cq(cq: *mut abi::Cq) -> c_int {
    if cq.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: `create_cq` made it, and the program gives it back.
    let owned = unsafe { Box::from_raw(cq.cast::<OwnedCq>()) };
    if Arc::strong_count(&owned.cq) > 1 {
        // A queue pair still writes into it: the program may go on using it.
        let _ = Box::into_raw(owned);
        return libc::EBUSY;
    }
    owned.cq.close();
    0
}

/// `ibv_get_cq_event`.
pub(super) unsafe extern "C" fn get_cq_event(
    channel: *mut abi::CompChannel,
    cq: *mut *mut abi::Cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the program gives a channel that it made.
    let Some(owned) = (unsafe { channel.cast::<OwnedChannel>().as_ref() }) else { return -1 };
    match owned.events.take() {
        Ok((_, handle)) => {
            let found: *mut abi::Cq = std::ptr::with_exposed_provenance_mut(handle);
            // SAFETY: events of a queue that is gone are forgotten; the program gives places for both.
            unsafe {
                cq.write(found);
                cq_context.write((*found).cq_context);
            }
            0
        }
        Err(e) => {
            fail::<()>(errno_of(&e));
            -1
        }
    }
}

/// `ibv_ack_cq_events`. Nothing waits for it here: destroying a queue forgets its events.
pub(super) unsafe extern "C" fn ack_cq_events(_: *mut abi::Cq, _: c_uint) {}
