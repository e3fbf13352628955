//! How many groups the calling thread has open. In a pthread key and not in a `thread_local!`: the C library takes heap for
//! the thread-local storage of a library that was opened later, and ends the process where there is none.
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

/// The key plus one, 0 before the first group.
static KEY: AtomicU32 = AtomicU32::new(0);

fn made() -> Option<libc::pthread_key_t> {
    KEY.load(Ordering::Acquire).checked_sub(1)
}

#[cold]
fn make() -> Option<libc::pthread_key_t> {
    let mut key = 0;
    // SAFETY: a place for the key; there is nothing to end.
    if unsafe { libc::pthread_key_create(&raw mut key, None) } != 0 {
        return None;
    }
    match KEY.compare_exchange(0, key + 1, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(key),
        Err(other) => {
            // SAFETY: made just now, and nobody else knows it.
            unsafe { libc::pthread_key_delete(key) };
            Some(other - 1)
        }
    }
}

/// Groups that this thread has open.
#[inline]
pub(crate) fn depth() -> usize {
    // SAFETY: the key exists as long as the process.
    made().map_or(0, |key| unsafe { libc::pthread_getspecific(key) }.addr())
}

fn set(depth: usize) {
    let Some(key) = made().or_else(make) else { return };
    // SAFETY: the key exists; nobody follows the value.
    unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance::<c_void>(depth)) };
}

/// A group begins.
pub(crate) fn begin() {
    set(depth().saturating_add(1));
}

/// A group ended; whether it was the outermost.
pub(crate) fn end() -> bool {
    match depth() {
        // More ends than begins: the library refused it.
        0 => false,
        depth => {
            set(depth - 1);
            depth == 1
        }
    }
}
