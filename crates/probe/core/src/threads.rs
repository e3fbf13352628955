//! Each writing thread's own ring: claimed with its first record, given back when the thread ends.
//!
//! What a thread remembers lies in a pthread key and not in a `thread_local!`: the C library takes the memory of a loaded
//! library's thread-local storage at the first access of each thread, and ends the process where there is none.
use crate::runtime::Runtime;
use mycroft_ring::pages::{Backing, Slab, Zeroed};
use mycroft_ring::{DropKind, Errno, RawRecord, RingWriter};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// Records of a thread without a ring that are dropped between two tries for one: a try looks at up to 64 ring headers
/// and asks the kernel for the thread's id.
const RETRY_EVERY: usize = 64;

/// The place of a ring's writer; its thread's alone from the claim to the end of the thread.
struct Place(UnsafeCell<MaybeUninit<RingWriter>>);

// SAFETY: any bytes.
unsafe impl Zeroed for Place {}
// SAFETY: only the thread that claimed the ring of this place reaches into it.
unsafe impl Sync for Place {}
// SAFETY: a ring's writer may be used by any one thread.
unsafe impl Send for Place {}

/// The rings of this process's threads.
pub(crate) struct ThreadRings {
    key: libc::pthread_key_t,
    places: Slab<Place>,
}

/// What a thread knows about its ring, as the value of the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// No record yet; NULL.
    Untried,
    /// Writing to this ring.
    Claimed(usize),
    /// All rings were taken; the number of records until the next try.
    Refused(usize),
}

impl Known {
    #[inline]
    fn of(value: *mut c_void) -> Known {
        match value.addr() {
            0 => Known::Untried,
            value if value & 1 == 1 => Known::Refused(value >> 1),
            value => Known::Claimed((value >> 1) - 1),
        }
    }

    fn value(self) -> *const c_void {
        std::ptr::without_provenance(match self {
            Known::Untried => 0,
            Known::Claimed(ring) => (ring + 1) << 1,
            Known::Refused(left) => left << 1 | 1,
        })
    }
}

impl ThreadRings {
    /// A key of its own, and a place for each of the rings.
    pub(crate) fn new(rings: usize) -> Result<ThreadRings, Errno> {
        let places = Slab::new(rings, Backing::Now)?;
        let mut key = 0;
        // SAFETY: a place for the key, and a function that stays (the library is never unloaded, `-z nodelete`).
        match unsafe { libc::pthread_key_create(&raw mut key, Some(end_thread)) } {
            0 => Ok(ThreadRings { key, places }),
            errno => Err(Errno(errno)),
        }
    }

    #[inline]
    fn known(&self) -> Known {
        // SAFETY: the key exists as long as the process.
        Known::of(unsafe { libc::pthread_getspecific(self.key) })
    }

    /// Whether the C library could remember it; it needs memory for keys beyond the first 32.
    fn remember(&self, known: Known) -> bool {
        // SAFETY: the key exists; the value is a number that nobody follows.
        unsafe { libc::pthread_setspecific(self.key, known.value()) == 0 }
    }

    /// Claims a ring for this thread.
    #[cold]
    fn claim(&self, runtime: &Runtime) -> Known {
        let refused = Known::Refused(RETRY_EVERY);
        let Some(writer) = runtime.writer().claim_ring() else { return refused };
        let ring = writer.index();
        // A writer that nobody remembers is dropped, which gives the ring back.
        let (Some(place), true) = (self.places.get(ring), self.remember(Known::Claimed(ring))) else { return refused };
        // SAFETY: the claim made this place ours.
        unsafe { (*place.0.get()).write(writer) };
        Known::Claimed(ring)
    }
}

/// Pushes a record into the calling thread's ring; dropped and counted where there is none.
#[inline]
pub(crate) fn push(runtime: &Runtime, record: &RawRecord) {
    let rings = runtime.rings();
    let known = match rings.known() {
        Known::Untried | Known::Refused(0) => rings.claim(runtime),
        known => known,
    };
    match known {
        Known::Claimed(ring) => {
            if let Some(place) = rings.places.get(ring) {
                // SAFETY: this thread claimed the ring and wrote its writer here; nobody else reaches into the place.
                unsafe { (*place.0.get()).assume_init_mut() }.push(record);
            }
        }
        Known::Refused(left) => {
            rings.remember(Known::Refused(left.saturating_sub(1)));
            runtime.writer().count_drop(DropKind::Record);
        }
        Known::Untried => runtime.writer().count_drop(DropKind::Record),
    }
}

/// A thread ends: its ring is free for another.
unsafe extern "C" fn end_thread(value: *mut c_void) {
    crate::guard::ffi_guard((), || {
        let (Some(runtime), Known::Claimed(ring)) = (Runtime::made(), Known::of(value)) else { return };
        if let Some(place) = runtime.rings().places.get(ring) {
            // SAFETY: the thread that claimed this ring ends here, and its value of the key is NULL by now.
            unsafe { (*place.0.get()).assume_init_drop() };
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_knows_survives_the_way_through_a_pointer() {
        for known in [Known::Untried, Known::Claimed(0), Known::Claimed(63), Known::Refused(0), Known::Refused(64)] {
            assert_eq!(Known::of(known.value().cast_mut()), known);
        }
    }
}
