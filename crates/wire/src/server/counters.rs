//! What a listener counts.
use std::sync::atomic::{AtomicU64, Ordering};

/// What a listener has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServerStats {
    /// Agents connected now, those whose handshake is done.
    pub connections: usize,
    /// Connections refused or ended for breaking the rules.
    pub refused: u64,
    /// Connections put out before they had shown who they are, because too many came.
    pub put_out: u64,
    /// Frames handed to the handler.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames that came twice, dropped.
    pub duplicates: u64,
    /// Frames that could not be decoded, or on which the handler failed each time, rejected.
    pub rejected: u64,
    /// Times that the handler panicked.
    pub handler_panics: u64,
    /// Records of kinds that only newer agents know, skipped.
    pub skipped_records: u64,
}

/// The same while it goes on.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) refused: AtomicU64,
    pub(super) put_out: AtomicU64,
    pub(super) frames: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) duplicates: AtomicU64,
    pub(super) rejected: AtomicU64,
    pub(super) handler_panics: AtomicU64,
    pub(super) skipped_records: AtomicU64,
}

impl Counters {
    /// What they are now, and how many agents are connected.
    pub(super) fn stats(&self, connections: usize) -> ServerStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServerStats {
            connections,
            refused: load(&self.refused),
            put_out: load(&self.put_out),
            frames: load(&self.frames),
            bytes: load(&self.bytes),
            duplicates: load(&self.duplicates),
            rejected: load(&self.rejected),
            handler_panics: load(&self.handler_panics),
            skipped_records: load(&self.skipped_records),
        }
    }
}

/// Counts so many more.
pub(super) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
