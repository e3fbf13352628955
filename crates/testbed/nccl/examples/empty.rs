//! A profiler plugin that asks for the events that the tracer asks for and does nothing with them: what the collective
//! library itself spends on a plugin, so that the rest of a traced run's cost is the tracer's.
#![allow(non_upper_case_globals, unreachable_pub, reason = "C names; an example, not an interface")]

use std::ffi::{c_char, c_int, c_void};

/// Coll, P2p, ProxyOp, ProxyStep, KernelCh: bits 1, 2, 3, 4 and 6 of the activation mask.
const MASK: c_int = 2 | 4 | 8 | 16 | 64;

unsafe extern "C" fn init(
    context: *mut *mut c_void,
    _id: u64,
    mask: *mut c_int,
    _name: *const c_char,
    _nodes: c_int,
    _ranks: c_int,
    _rank: c_int,
    _log: *const c_void,
) -> c_int {
    // SAFETY: the caller's places for the context and the mask.
    unsafe {
        context.write(std::ptr::dangling_mut());
        mask.write(MASK);
    }
    0
}

unsafe extern "C" fn start(_context: *mut c_void, handle: *mut *mut c_void, _descr: *mut c_void) -> c_int {
    // SAFETY: the caller's place for the handle; any pointer but NULL will do.
    unsafe { handle.write(std::ptr::dangling_mut()) };
    0
}

unsafe extern "C" fn stop(_handle: *mut c_void) -> c_int {
    0
}

unsafe extern "C" fn record(_handle: *mut c_void, _state: c_int, _args: *mut c_void) -> c_int {
    0
}

unsafe extern "C" fn finalize(_context: *mut c_void) -> c_int {
    0
}

/// `ncclProfiler_v6_t`.
#[repr(C)]
pub struct Table {
    name: *const c_char,
    init: *const c_void,
    start: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut c_void) -> c_int,
    stop: unsafe extern "C" fn(*mut c_void) -> c_int,
    record: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int,
    finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
}

// SAFETY: read-only pointers to code and constants.
unsafe impl Sync for Table {}

/// What NCCL looks up.
#[unsafe(no_mangle)]
pub static ncclProfiler_v6: Table =
    Table { name: c"empty".as_ptr(), init: init as *const c_void, start, stop, record, finalize };
