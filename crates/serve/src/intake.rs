//! The server's door for records: each frame gets its time of arrival, and goes to the brain and to the keeper in one
//! order.
use crate::clock::Clock;
use crate::inbox::{Inbox, PUSH_WAIT};
use crate::keep_queue::{Entry, KeepQueue, Storage, encoded};
use crate::stats::{Stats, add};
use mycroft_record::Batch;
use mycroft_wire::codec;
use mycroft_wire::sync::lock;
use mycroft_wire::{Attendance, Kept, Receipt, Received, Sink};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The door.
pub(crate) struct Intake {
    inbox: Arc<Inbox>,
    /// None: nothing outlives the server, and what is taken in counts as kept.
    queue: Option<Arc<KeepQueue>>,
    stats: Arc<Stats>,
    clock: Clock,
    /// Held while a frame is given to both, so that the log has them in the order in which the brain had them.
    order: Mutex<()>,
}

impl Intake {
    /// The door to a brain, and to a store where there is one.
    pub(crate) fn new(inbox: &Arc<Inbox>, storage: Option<&Storage>, stats: &Arc<Stats>, clock: &Clock) -> Intake {
        Intake {
            inbox: Arc::clone(inbox),
            queue: storage.map(|storage| Arc::clone(&storage.queue)),
            stats: Arc::clone(stats),
            clock: Arc::clone(clock),
            order: Mutex::default(),
        }
    }

    /// Takes batches that no agent waits for; gives how many of their records found no room on the way to the brain.
    pub(crate) fn ingest(&self, mut batches: Vec<Batch>, wait: Duration) -> usize {
        batches.iter_mut().for_each(codec::round_to_micros);
        let frame = self.queue.is_some().then(|| encoded(&batches)).flatten();
        let records: usize = batches.iter().map(|batch| batch.records.len()).sum();
        let _one_at_a_time = lock(&self.order);
        let at = self.inbox.enter(&self.clock);
        let refused = self.inbox.push_all(at, batches.into_iter().map(Arc::new), wait);
        if let Some(queue) = &self.queue {
            let entry = frame.map(|frame| Entry { at, frame, records, promise: None });
            if entry.is_none_or(|entry| queue.push(entry).is_err()) {
                add(&self.stats.dropped_store, records as u64);
            }
        }
        refused
    }

    /// The bytes to keep: those that came, where their times are as a segment keeps them.
    fn to_keep(&self, received: &mut Received) -> Option<Vec<u8>> {
        if received.batches.iter().all(codec::is_round)
            && let Some(frame) = received.frame.take()
        {
            return Some(frame);
        }
        received.batches.iter_mut().for_each(codec::round_to_micros);
        encoded(&received.batches)
    }
}

impl Sink for Intake {
    fn take(&self, mut received: Received) -> Receipt {
        let records: usize = received.batches.iter().map(|batch| batch.records.len()).sum();
        let queue = self.queue.as_ref().filter(|_| received.keep);
        let frame = queue.and_then(|_| self.to_keep(&mut received));
        let told = queue.filter(|_| !received.told.is_empty()).and_then(|_| encoded(&received.told));
        let _one_at_a_time = lock(&self.order);
        let at = self.inbox.enter(&self.clock);
        if let Some((queue, frame)) = queue.zip(told) {
            // Told again later where there is no room: nobody waits for it.
            drop(queue.push(Entry { at, frame, records: received.told.len(), promise: None }));
        }
        let batches = if received.diagnose { received.batches } else { Vec::new() };
        self.inbox.push_all(at, received.told.into_iter().chain(batches).map(Arc::new), PUSH_WAIT);
        match (queue, frame) {
            (None, _) => Receipt::of(if self.queue.is_some() { Kept::No } else { Kept::Yes }),
            (Some(_), None) => {
                // Larger than a frame once it is rounded: that cannot be, and would come again for ever.
                add(&self.stats.dropped_store, records as u64);
                Receipt::of(Kept::Yes)
            }
            (Some(queue), Some(frame)) => {
                let (promise, receipt) = Receipt::promised();
                // A refused entry is dropped, and its promise says no.
                drop(queue.push(Entry { at, frame, records, promise: Some(promise) }));
                receipt
            }
        }
    }

    fn keeps(&self) -> bool {
        self.queue.as_ref().is_none_or(|queue| queue.keeps())
    }

    fn attends(&self, who: Attendance<'_>) {
        let now = (self.clock)();
        match who {
            Attendance::Came(peer) => {
                self.stats.fleet.said(now, peer);
                self.stats.refusals.mended(&peer.host);
            }
            Attendance::Gone(peer) => self.stats.fleet.said(now, peer),
            Attendance::Refused { host, from, code, text } => {
                self.stats.refusals.note(now, (host, from), (code, text));
            }
        }
    }
}
