//! Each writing thread's own ring: claimed with its first record, given back when the thread ends.
//!
//! What a thread remembers lies in a pthread key and not in a `thread_local!`: the C library takes the memory of a loaded
//! library's thread-local storage at the first access of each thread, and ends the process where there is none.
use mycroft_ring::pages::{Backing, Slab, Zeroed};
use mycroft_ring::{DropKind, Errno, RawRecord, RingWriter, SegmentWriter};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::panic::catch_unwind;

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
    /// Writing, from this place.
    Claimed(*const Place),
    /// All rings were taken; the number of records until the next try.
    Refused(usize),
}

impl Known {
    #[inline]
    fn of(value: *mut c_void) -> Known {
        match value.addr() {
            0 => Known::Untried,
            // Places are aligned.
            address if address & 1 == 1 => Known::Refused(address >> 1),
            _ => Known::Claimed(value.cast_const().cast()),
        }
    }

    fn value(self) -> *const c_void {
        match self {
            Known::Untried => std::ptr::null(),
            Known::Claimed(place) => place.cast(),
            Known::Refused(left) => std::ptr::without_provenance(left << 1 | 1),
        }
    }
}

impl ThreadRings {
    /// A key of its own, and a place for each of the rings. Must live as long as the process.
    pub(crate) fn new(rings: usize) -> Result<ThreadRings, Errno> {
        const { assert!(align_of::<Place>() > 1, "the lowest bit of an address tells places apart") };
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
        // SAFETY: the key exists; only `of` looks at the value.
        unsafe { libc::pthread_setspecific(self.key, known.value()) == 0 }
    }

    /// Claims a ring for this thread.
    #[cold]
    fn claim(&self, segment: &SegmentWriter) -> Known {
        let refused = Known::Refused(RETRY_EVERY);
        let claimed = segment.claim_ring().and_then(|writer| Some((self.places.get(writer.index())?, writer)));
        let Some((place, writer)) = claimed else { return refused };
        let known = Known::Claimed(place);
        if !self.remember(known) {
            // The writer is dropped, which gives the ring back.
            return refused;
        }
        // SAFETY: the claim made this place ours.
        unsafe { (*place.0.get()).write(writer) };
        known
    }

    /// Pushes a record into the calling thread's ring; dropped and counted where there is none.
    #[inline]
    pub(crate) fn push(&self, segment: &SegmentWriter, record: &RawRecord) {
        let known = match self.known() {
            Known::Untried | Known::Refused(0) => self.claim(segment),
            known => known,
        };
        match known {
            // SAFETY: a place that this thread claimed and wrote its writer to; nobody else reaches into it.
            Known::Claimed(place) => unsafe { (*(*place).0.get()).assume_init_mut() }.push(record),
            Known::Refused(left) => {
                self.remember(Known::Refused(left.saturating_sub(1)));
                segment.count_drop(DropKind::Record);
            }
            Known::Untried => segment.count_drop(DropKind::Record),
        }
    }
}

/// A thread ends: its ring is free for another.
unsafe extern "C" fn end_thread(value: *mut c_void) {
    let ended = catch_unwind(|| {
        if let Known::Claimed(place) = Known::of(value) {
            // SAFETY: the place of the thread that ends here, which has forgotten it by now; places are never unmapped.
            unsafe { (*(*place).0.get()).assume_init_drop() };
        }
    });
    // A payload's destructor could panic in turn: leave it.
    std::mem::forget(ended);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_knows_survives_the_way_through_a_pointer() {
        let place = Place(UnsafeCell::new(MaybeUninit::uninit()));
        for known in [Known::Untried, Known::Claimed(&raw const place), Known::Refused(0), Known::Refused(64)] {
            assert_eq!(Known::of(known.value().cast_mut()), known);
        }
    }
}
