//! The thread that writes frames: into the log of the store, many with one write. The brain never waits for a disk.
use crate::keep_queue::{Entry, KeepQueue};
use crate::stats::{Stats, add};
use mycroft_store::{Arrival, Store, StoreError};
use std::sync::Arc;
use tracing::{error, info};

/// Most frames, and records behind the first, that are written at once: a hundredth of a second of the largest job that
/// is caught up with.
const TOGETHER_FRAMES: usize = 256;
const TOGETHER_RECORDS: usize = 1 << 15;

/// The writer's state.
pub(crate) struct Keeper {
    pub(crate) queue: Arc<KeepQueue>,
    pub(crate) store: Arc<Store>,
    pub(crate) stats: Arc<Stats>,
}

impl Keeper {
    /// Runs until the queue is closed and drained.
    pub(crate) fn run(self) {
        while let Some(entries) = self.queue.take(TOGETHER_FRAMES, TOGETHER_RECORDS) {
            self.write(entries);
        }
    }

    /// Writes frames, and tells those who wait. One that cannot be kept must not cost those before it: after a failure
    /// they are written one by one, up to the first that fails.
    fn write(&self, entries: Vec<Entry>) {
        let arrivals: Vec<Arrival<'_>> = entries.iter().map(Entry::arrival).collect();
        let mut outcome = self.store.append_frames(&arrivals);
        let mut kept = if outcome.is_ok() { entries.len() } else { 0 };
        if outcome.is_err() && entries.len() > 1 {
            for arrival in &arrivals {
                outcome = self.store.append_frames(std::slice::from_ref(arrival));
                if outcome.is_err() {
                    break;
                }
                kept += 1;
            }
        }
        drop(arrivals);
        self.queue.note(outcome.is_err());
        let failed = |error: StoreError| if error.is_full() { disk_full(&error) } else { disk_failed(&error) };
        note(&self.stats, "store.append", outcome.err().map(failed));
        for (number, Entry { promise, records, .. }) in entries.into_iter().enumerate() {
            match promise {
                Some(promise) if number < kept => promise.keep(),
                // Said by the server itself: nobody sends it again.
                None if number >= kept => add(&self.stats.dropped_store, records as u64),
                // A promise that is dropped says no.
                Some(_) | None => {}
            }
        }
    }
}

/// What health says while the disk is full.
pub(crate) fn disk_full(error: &StoreError) -> String {
    format!(
        "the store's disk is full: records are diagnosed and not stored, agents keep them and send them again when there \
         is room ({error}): free some space, or lower --retain-bytes"
    )
}

/// What health says while the disk fails otherwise.
pub(crate) fn disk_failed(error: &StoreError) -> String {
    format!(
        "the store's disk fails: records are diagnosed and not stored, agents keep them and send them again when it \
         works ({error})"
    )
}

/// Remembers what is wrong at a place until it is not any more; says so once.
pub(crate) fn note(stats: &Stats, place: &'static str, text: Option<String>) {
    let line = text.clone();
    if stats.problem(place, text) {
        match line {
            Some(line) => error!(place, "{line}"),
            None => info!(place, "{place}: works again"),
        }
    }
}
