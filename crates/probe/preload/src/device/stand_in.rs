//! The device of the CPU stand-in for NCCL: streams, and kernels that have a nominal duration.
use crate::real::{Real, Stream};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// `ncclInProgress`: the stream works.
const IN_PROGRESS: c_int = 7;

/// The stream of tests, made with the first one.
static STREAM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The stream of tests; `None` where the library is not the stand-in.
pub(super) fn stream() -> Option<Stream> {
    static CREATE: Real = Real::new("mtbStreamCreate\0");
    let stream = STREAM.load(Ordering::Acquire);
    if !stream.is_null() {
        return Some(stream);
    }
    let create = CREATE.get();
    if create.is_null() {
        return None;
    }
    // SAFETY: the stand-in's function of this name, whose signature this is.
    let create: unsafe extern "C" fn(*mut Stream) -> c_int = unsafe { std::mem::transmute(create) };
    let mut stream = std::ptr::null_mut();
    // SAFETY: a place for the stream.
    let code = unsafe { create(&raw mut stream) };
    if code != 0 || stream.is_null() {
        return None;
    }
    // One task at a time, so nobody else made one.
    STREAM.store(stream, Ordering::Release);
    Some(stream)
}

/// Whether all that was put on it is done.
pub(super) fn is_idle(stream: Stream) -> bool {
    static QUERY: Real = Real::new("mtbStreamQuery\0");
    let query = QUERY.get();
    if query.is_null() {
        return true;
    }
    // SAFETY: the stand-in's function of this name, whose signature this is.
    let query: unsafe extern "C" fn(Stream) -> c_int = unsafe { std::mem::transmute(query) };
    // SAFETY: a stream that is never destroyed.
    unsafe { query(stream) != IN_PROGRESS }
}

/// Puts a kernel on it that computes for so many nanoseconds on a healthy device; whether it could.
pub(super) fn compute(stream: Stream, nominal_ns: u64) -> bool {
    static LAUNCH: Real = Real::new("mtbLaunchCompute\0");
    let launch = LAUNCH.get();
    if launch.is_null() {
        return false;
    }
    // SAFETY: the stand-in's function of this name, whose signature this is.
    let launch: unsafe extern "C" fn(Stream, u64) -> c_int = unsafe { std::mem::transmute(launch) };
    // SAFETY: a stream that is never destroyed.
    unsafe { launch(stream, nominal_ns) == 0 }
}
