//! What C callers see. Functions behave as rdma-core's manual pages say; those that return a number return an errno value,
//! those that return a pointer set errno.

mod device;
mod export;
mod memory;
mod open;
mod pairs;
mod queues;
mod text;
mod work;

use std::ffi::c_int;

/// Sets errno and gives null.
fn fail<T>(errno: c_int) -> *mut T {
    // SAFETY: the address of this thread's errno, always valid.
    unsafe { *libc::__errno_location() = errno };
    std::ptr::null_mut()
}

/// The number of an IO error.
fn errno_of(error: &std::io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// An operation that is not there.
unsafe extern "C" fn unsupported() -> isize {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = libc::EOPNOTSUPP };
    0
}
