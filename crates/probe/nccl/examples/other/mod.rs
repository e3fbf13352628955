//! Somebody else's profiler plugin, for tests of chain-loading: hands out handles of its own and keeps a log of every
//! call. Also says which NCCL it is, as libnccl would, for tests of version detection.
#![allow(unreachable_pub, missing_docs)]
use std::ffi::{c_char, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// What was called: name, context or handle, kind or state, parent, parent group, handle given.
pub type Call = [u64; 6];

pub const INIT: u64 = 1;
pub const START: u64 = 2;
pub const STOP: u64 = 3;
pub const RECORD: u64 = 4;
pub const FINALIZE: u64 = 5;

static CALLS: Mutex<Vec<Call>> = Mutex::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(0x1000);
static ACTIVATION: std::sync::atomic::AtomicPtr<c_int> = std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
static ANSWER: AtomicI32 = AtomicI32::new(0);

fn log(call: Call) {
    CALLS.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(call);
}

fn next() -> u64 {
    NEXT.fetch_add(0x10, Ordering::Relaxed)
}

/// `init`, without what differs between versions. Asks for Coll and ProxyOp events only.
pub unsafe fn init(context: *mut *mut c_void, id: u64, mask: *mut c_int, rank: c_int) -> c_int {
    let given = next();
    log([INIT, id, rank as u64, 0, 0, given]);
    ACTIVATION.store(mask, Ordering::Release);
    // SAFETY: the caller's places for the context and the mask.
    unsafe {
        context.write(given as *mut c_void);
        mask.write(2 | 8);
    }
    ANSWER.load(Ordering::Relaxed)
}

/// `startEvent`; `group_offsets` are those of `parentGroup` in Coll and P2p.
pub unsafe fn start(context: *mut c_void, handle: *mut *mut c_void, descr: *mut c_void, group: Option<usize>) -> c_int {
    let given = next();
    // SAFETY: a descriptor: kind, parent, and in v5 the group.
    let (kind, parent, group) = unsafe {
        let kind = u64::from(descr.cast::<u8>().read());
        let group = if kind == 2 { group } else { None };
        let word = |offset: usize| descr.byte_add(offset).cast::<u64>().read();
        (kind, word(8), group.map_or(0, word))
    };
    log([START, context as u64, kind, parent, group, given]);
    // SAFETY: the caller's place for the handle.
    unsafe { handle.write(given as *mut c_void) };
    0
}

pub unsafe extern "C" fn stop(handle: *mut c_void) -> c_int {
    log([STOP, handle as u64, 0, 0, 0, 0]);
    3
}

pub unsafe extern "C" fn record(handle: *mut c_void, state: c_int, args: *mut c_void) -> c_int {
    // SAFETY: NULL or 8 bytes of arguments.
    let value = if args.is_null() { 0 } else { unsafe { args.cast::<u64>().read() } };
    log([RECORD, handle as u64, state as u64, value, 0, 0]);
    3
}

pub unsafe extern "C" fn finalize(context: *mut c_void) -> c_int {
    log([FINALIZE, context as u64, 0, 0, 0, 0]);
    3
}

/// Copies the log out and clears it: how many calls there were.
/// # Safety
/// `out` must have room for `room` calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn other_calls(out: *mut Call, room: usize) -> usize {
    let mut calls = CALLS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let count = calls.len().min(room);
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(calls.as_ptr(), out, count) };
    calls.clear();
    count
}

/// Changes the mask at run time, as NVIDIA's example plugin does.
#[unsafe(no_mangle)]
pub extern "C" fn other_mask(mask: c_int) {
    let activation = ACTIVATION.load(Ordering::Acquire);
    if !activation.is_null() {
        // SAFETY: the pointer `init` got, which its giver keeps alive.
        unsafe { activation.write_volatile(mask) };
    }
}

/// What `init` answers from now on.
#[unsafe(no_mangle)]
pub extern "C" fn other_answer(answer: c_int) {
    ANSWER.store(answer, Ordering::Relaxed);
}

/// A place in this library for NCCL's mask, so that the library is taken for libnccl.
#[unsafe(no_mangle)]
pub static other_nccl_mask: AtomicI32 = AtomicI32::new(0);

/// As libnccl's.
/// # Safety
/// `version` must be writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { version.write(VERSION.load(Ordering::Relaxed)) };
    0
}

/// What `ncclGetVersion` answers.
static VERSION: AtomicI32 = AtomicI32::new(23_102);

/// What `ncclGetVersion` answers from now on.
#[unsafe(no_mangle)]
pub extern "C" fn other_version(version: c_int) {
    VERSION.store(version, Ordering::Relaxed);
}

/// A table of any version.
#[repr(C)]
pub struct Table<Init> {
    pub name: *const c_char,
    pub init: Init,
    pub start: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut c_void) -> c_int,
    pub stop: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub record: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int,
    pub finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
}

// SAFETY: constant pointers.
unsafe impl<Init> Sync for Table<Init> {}
