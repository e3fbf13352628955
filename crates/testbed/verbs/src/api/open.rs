//! Opening a device: its context, with the functions that programs call through it.
use super::device::{OwnedContext, address_of};
use super::work::{poll_cq, post_recv, post_send, req_notify_cq};
use super::{errno_of, fail, unsupported};
use crate::abi;
use crate::device::Device;
use crate::settings::{Settings, warn};
use std::ffi::c_int;
use std::ptr::null_mut;

fn ops() -> abi::ContextOps {
    let none: Option<abi::Unsupported> = Some(unsupported);
    abi::ContextOps {
        compat_first: [none; 7],
        alloc_mw: none,
        bind_mw: none,
        dealloc_mw: none,
        compat_create_cq: none,
        poll_cq: Some(poll_cq),
        req_notify_cq: Some(req_notify_cq),
        compat_cq: [none; 7],
        post_srq_recv: none,
        compat_qp: [none; 4],
        post_send: Some(post_send),
        post_recv: Some(post_recv),
        compat_last: [none; 5],
    }
}

/// `ibv_open_device`. A device is open once at a time, in one process.
pub(super) unsafe extern "C" fn open_device(device: *mut abi::Device) -> *mut abi::Context {
    let Some(address) = address_of(device) else { return fail(libc::ENODEV) };
    let opened = match Device::open(address, &Settings::read()) {
        Ok(opened) => opened,
        Err(e) => {
            warn(&format!("the device of {address} cannot be opened: {e}"));
            return fail(errno_of(&e));
        }
    };
    let ibv = abi::Context {
        device,
        ops: ops(),
        cmd_fd: -1,
        async_fd: opened.events.fd(),
        num_comp_vectors: 1,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        abi_compat: null_mut(),
    };
    Box::into_raw(Box::new(OwnedContext { ibv, device: opened })).cast()
}

/// `ibv_close_device`.
pub(super) unsafe extern "C" fn close_device(context: *mut abi::Context) -> c_int {
    if context.is_null() {
        return -1;
    }
    // SAFETY: `open_device` made it, and the program gives it back.
    let owned = unsafe { Box::from_raw(context.cast::<OwnedContext>()) };
    owned.device.close();
    0
}
