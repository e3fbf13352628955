//! A profiler plugin of somebody else that speaks v4 only.
mod other;

use other::Table;
use std::ffi::{c_char, c_int, c_void};

type Init =
    unsafe extern "C" fn(*mut *mut c_void, *mut c_int, *const c_char, u64, c_int, c_int, c_int, *const c_void) -> c_int;

#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn init(
    context: *mut *mut c_void,
    mask: *mut c_int,
    _name: *const c_char,
    hash: u64,
    _nodes: c_int,
    _ranks: c_int,
    rank: c_int,
    _logger: *const c_void,
) -> c_int {
    // SAFETY: the caller's own places.
    unsafe { other::init(context, hash, mask, rank) }
}

unsafe extern "C" fn start(context: *mut c_void, handle: *mut *mut c_void, descr: *mut c_void) -> c_int {
    // SAFETY: the caller's descriptor.
    unsafe { other::start(context, handle, descr, None) }
}

/// What a chain looks up.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ncclProfiler_v4: Table<Init> =
    Table { name: c"other".as_ptr(), init, start, stop: other::stop, record: other::record, finalize: other::finalize };
