//! What an agent counts of itself.
use crate::capture::Watched;
use crate::config::NOTICES_MAX;
use crate::error::Notice;
use mycroft_wire::sync::lock;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Counters of an agent, since its start where nothing else is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AgentStats {
    /// Segments watched now.
    pub segments: u64,
    /// Looks at all segments.
    pub rounds: u64,
    /// Bytes read from segments.
    pub bytes_read: u64,
    /// Records read from rings.
    pub records_read: u64,
    /// Records lost before the agent read them: rings lapped, dropped by the probe, damaged.
    pub records_lost: u64,
    /// Batches that the wire client took.
    pub batches_shipped: u64,
    /// Encoded bytes that the wire client took.
    pub bytes_shipped: u64,
    /// Frames in the spool now.
    pub spooled: u64,
    /// Records dropped by the agent: the spool was full, or the queue to it.
    pub dropped: u64,
    /// Whether the server is connected now.
    pub connected: bool,
    /// Processor time of the agent's threads.
    pub cpu: Duration,
}

/// The same, shared between the threads.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) segments: AtomicU64,
    pub(crate) rounds: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) records_read: AtomicU64,
    /// The last turn of the outbox of which nothing waits only in memory: all up to it is with the server or on the disk.
    pub(crate) safe_turn: AtomicU64,
    pub(crate) records_lost: AtomicU64,
    pub(crate) batches_shipped: AtomicU64,
    pub(crate) bytes_shipped: AtomicU64,
    pub(crate) spooled: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) connected: AtomicBool,
    /// Processor time of the sampling thread, nanoseconds.
    pub(crate) sampler_cpu_ns: AtomicU64,
    /// Processor time of the shipping thread, nanoseconds.
    pub(crate) shipper_cpu_ns: AtomicU64,
    notices: Mutex<VecDeque<Notice>>,
    watched: Mutex<Vec<Watched>>,
}

impl Shared {
    pub(crate) fn stats(&self) -> AgentStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        AgentStats {
            segments: get(&self.segments),
            rounds: get(&self.rounds),
            bytes_read: get(&self.bytes_read),
            records_read: get(&self.records_read),
            records_lost: get(&self.records_lost),
            batches_shipped: get(&self.batches_shipped),
            bytes_shipped: get(&self.bytes_shipped),
            spooled: get(&self.spooled),
            dropped: get(&self.dropped),
            connected: self.connected.load(Ordering::Relaxed),
            cpu: Duration::from_nanos(get(&self.sampler_cpu_ns) + get(&self.shipper_cpu_ns)),
        }
    }

    /// Keeps a notice; of too many the oldest goes.
    pub(crate) fn notice(&self, notice: Notice) {
        let mut notices = self.lock_notices();
        if notices.len() == NOTICES_MAX {
            notices.pop_front();
        }
        notices.push_back(notice);
    }

    pub(crate) fn take_notices(&self) -> Vec<Notice> {
        self.lock_notices().drain(..).collect()
    }

    /// Publishes which processes are traced.
    pub(crate) fn publish_watched(&self, watched: Vec<Watched>) {
        // Replaced whole, so whoever panicked left the one or the other.
        *lock(&self.watched) = watched;
    }

    /// The processes traced now.
    pub(crate) fn watched(&self) -> Vec<Watched> {
        lock(&self.watched).clone()
    }

    fn lock_notices(&self) -> std::sync::MutexGuard<'_, VecDeque<Notice>> {
        // A thread that panicked while it held the queue left it whole: every change is one push or pop.
        lock(&self.notices)
    }
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
