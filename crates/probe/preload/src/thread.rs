//! The calling thread: which it is, and how it waits.

/// Nanoseconds between two looks of a thread that waits: 5,000 looks a second are about 1 % of a core.
const LOOK_NS: i64 = 200_000;

/// The calling thread; never 0 or 1.
#[inline]
pub(crate) fn this_thread() -> usize {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::pthread_self() as usize }
}

/// Waits a moment.
pub(crate) fn pause() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: LOOK_NS };
    // SAFETY: a valid time, and what is left of it (after a signal) is not asked for.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
}
