//! Protection domains and registered memory.
use super::device::device_of;
use super::fail;
use crate::abi;
use crate::device::Device;
use crate::regions::Rights;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// `ibv_alloc_pd`.
pub(super) unsafe extern "C" fn alloc_pd(context: *mut abi::Context) -> *mut abi::Pd {
    if context.is_null() {
        return fail(libc::EINVAL);
    }
    Box::into_raw(Box::new(abi::Pd { context, handle: 0 }))
}

/// `ibv_dealloc_pd`.
pub(super) unsafe extern "C" fn dealloc_pd(pd: *mut abi::Pd) -> c_int {
    if pd.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: `alloc_pd` made it, and the program gives it back.
    drop(unsafe { Box::from_raw(pd) });
    0
}

#[repr(C)]
struct OwnedMr {
    ibv: abi::Mr,
    device: Arc<Device>,
}

/// `ibv_reg_mr_iova2`.
pub(super) unsafe extern "C" fn reg_mr_iova2(
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut abi::Mr {
    // SAFETY: the program gives a domain that is allocated, whose context is open.
    let context = unsafe { pd.as_ref() }.map_or(std::ptr::null_mut(), |pd| pd.context);
    // SAFETY: as above.
    let Some(device) = (unsafe { device_of(context) }) else { return fail(libc::EINVAL) };
    let rights = Rights {
        local_write: access & abi::ACCESS_LOCAL_WRITE != 0,
        remote_write: access & abi::ACCESS_REMOTE_WRITE != 0,
    };
    if rights.remote_write && !rights.local_write {
        return fail(libc::EINVAL);
    }
    // SAFETY: a program that registers memory promises to keep it until it takes the registration back.
    let key = unsafe { device.regions.add(addr.cast(), length, iova, rights) };
    let ibv = abi::Mr { context, pd, addr, length, handle: key, lkey: key, rkey: key };
    Box::into_raw(Box::new(OwnedMr { ibv, device: Arc::clone(device) })).cast()
}

/// `ibv_reg_mr`.
pub(super) unsafe extern "C" fn reg_mr(
    pd: *mut abi::Pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut abi::Mr {
    // SAFETY: the caller's promises are those of the other.
    unsafe { reg_mr_iova2(pd, addr, length, addr.addr() as u64, access) }
}

/// `ibv_reg_dmabuf_mr`: there is no memory of other devices here.
pub(super) unsafe extern "C" fn reg_dmabuf_mr(
    _: *mut abi::Pd,
    _: u64,
    _: usize,
    _: u64,
    _: c_int,
    _: c_int,
) -> *mut abi::Mr {
    fail(libc::EOPNOTSUPP)
}

/// `ibv_dereg_mr`.
pub(super) unsafe extern "C" fn dereg_mr(mr: *mut abi::Mr) -> c_int {
    if mr.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: `reg_mr` made it, and the program gives it back.
    let owned = unsafe { Box::from_raw(mr.cast::<OwnedMr>()) };
    owned.device.regions.remove(owned.ibv.lkey);
    0
}
