//! A profiler plugin of somebody else that speaks v5 only, as NCCL Inspector does.
mod other;

use other::Table;
use std::ffi::{c_char, c_int, c_void};

/// Offset of `parentGroup` in a collective's descriptor.
const COLL_GROUP: usize = 104;

type Init =
    unsafe extern "C" fn(*mut *mut c_void, u64, *mut c_int, *const c_char, c_int, c_int, c_int, *const c_void) -> c_int;

#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn init(
    context: *mut *mut c_void,
    hash: u64,
    mask: *mut c_int,
    _name: *const c_char,
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
    unsafe { other::start(context, handle, descr, Some(COLL_GROUP)) }
}

/// What a chain looks up.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ncclProfiler_v5: Table<Init> =
    Table { name: c"other".as_ptr(), init, start, stop: other::stop, record: other::record, finalize: other::finalize };
