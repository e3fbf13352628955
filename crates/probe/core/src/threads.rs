//! Each writing thread's own ring: claimed with its first record, given back when the thread ends.
use crate::runtime::Runtime;
use mycroft_ring::{DropKind, RawRecord, RingWriter};
use std::cell::RefCell;

/// What this thread knows about its ring.
enum ThreadRing {
    /// No record yet.
    Untried,
    /// Writing.
    Claimed(RingWriter),
    /// All rings were taken; the number of records until the next try.
    Refused(u32),
}

/// Records of a thread without a ring that are dropped between two tries for one: a try looks at up to 64 ring headers
/// and asks the kernel for the thread's id.
const RETRY_EVERY: u32 = 64;

thread_local! {
    static RING: RefCell<ThreadRing> = const { RefCell::new(ThreadRing::Untried) };
}

/// Pushes a record into the calling thread's ring; dropped and counted where there is none.
pub(crate) fn push(runtime: &Runtime, record: &RawRecord) {
    let pushed = RING.try_with(|ring| {
        let Ok(mut ring) = ring.try_borrow_mut() else { return false };
        if let ThreadRing::Untried | ThreadRing::Refused(0) = *ring {
            let claimed = runtime.writer().claim_ring();
            *ring = claimed.map_or(ThreadRing::Refused(RETRY_EVERY), ThreadRing::Claimed);
        }
        match &mut *ring {
            ThreadRing::Claimed(writer) => {
                writer.push(record);
                true
            }
            ThreadRing::Refused(left) => {
                *left -= 1;
                false
            }
            ThreadRing::Untried => false,
        }
    });
    // An error means that the thread is in its last destructors.
    if !pushed.unwrap_or(false) {
        runtime.writer().count_drop(DropKind::Record);
    }
}
