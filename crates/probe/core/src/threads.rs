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
    /// All rings were taken; tried once, so that a thread without one costs nothing more.
    Refused,
}

thread_local! {
    static RING: RefCell<ThreadRing> = const { RefCell::new(ThreadRing::Untried) };
}

/// Pushes a record into the calling thread's ring; dropped and counted where there is none.
pub(crate) fn push(runtime: &Runtime, record: &RawRecord) {
    let pushed = RING.try_with(|ring| {
        let Ok(mut ring) = ring.try_borrow_mut() else { return false };
        if matches!(*ring, ThreadRing::Untried) {
            *ring = runtime.writer().claim_ring().map_or(ThreadRing::Refused, ThreadRing::Claimed);
        }
        match &mut *ring {
            ThreadRing::Claimed(writer) => {
                writer.push(record);
                true
            }
            _ => false,
        }
    });
    // An error means that the thread is in its last destructors.
    if !pushed.unwrap_or(false) {
        runtime.writer().count_drop(DropKind::Record);
    }
}
