//! The bounded queue between the sampling thread, which must never wait, and the shipping thread, which does.
use crate::backlog::{Lost, count_lost};
use crate::config::QUEUE_RECORDS_MAX;
use mycroft_record::Batch;
use mycroft_wire::sync::lock;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    batches: VecDeque<Batch>,
    records: usize,
    /// How often batches were queued.
    turn: u64,
    lost: Lost,
    stop_at: Option<Instant>,
}

/// What the shipping thread takes at once.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Everything queued, oldest first.
    pub(crate) batches: Vec<Batch>,
    /// The turn in which the latest of them was queued.
    pub(crate) turn: u64,
    /// What was dropped from the queue since the last time.
    pub(crate) lost: Lost,
    /// Nothing more will come; finish by then.
    pub(crate) stop_at: Option<Instant>,
}

impl Outbox {
    /// Queues batches without waiting. Too many records drop the oldest batches; returns the number of this turn and the
    /// records dropped.
    pub(crate) fn push(&self, batches: impl Iterator<Item = Batch>) -> (u64, u64) {
        let mut inner = self.lock();
        inner.turn += 1;
        let turn = inner.turn;
        for batch in batches {
            inner.records += batch.records.len();
            inner.batches.push_back(batch);
        }
        let mut dropped = 0;
        while inner.records > QUEUE_RECORDS_MAX {
            let Some(oldest) = inner.batches.pop_front() else { break };
            inner.records -= oldest.records.len();
            dropped += oldest.records.len() as u64;
            count_lost(&mut inner.lost, &oldest.source, oldest.records.len() as u64);
        }
        drop(inner);
        self.changed.notify_one();
        (turn, dropped)
    }

    /// Says that nothing more will come, and until when to finish. The first word counts.
    pub(crate) fn stop(&self, by: Instant) {
        self.lock().stop_at.get_or_insert(by);
        self.changed.notify_one();
    }

    /// Waits until there is something, at most `timeout`.
    pub(crate) fn take(&self, timeout: Duration) -> Taken {
        let idle = |inner: &mut Inner| inner.batches.is_empty() && inner.lost.is_empty() && inner.stop_at.is_none();
        let (mut inner, _) =
            self.changed.wait_timeout_while(self.lock(), timeout, idle).unwrap_or_else(PoisonError::into_inner);
        inner.records = 0;
        Taken {
            batches: inner.batches.drain(..).collect(),
            turn: inner.turn,
            lost: std::mem::take(&mut inner.lost),
            stop_at: inner.stop_at,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Whoever panicked while holding it left at worst a wrong record count, which only moves the limit.
        lock(&self.inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::{HostTime, Record, Source, StepMark};

    fn batch(job: &str, records: usize) -> Batch {
        let mark = Record::StepMark(StepMark { at: HostTime(1), step: 1 });
        let source = Source { job: job.into(), host: "host".into(), process: None };
        Batch { source, collected_at: HostTime(1), records: vec![mark; records] }
    }

    #[test]
    fn what_is_queued_is_taken_at_once_and_in_order() {
        let outbox = Outbox::default();
        assert_eq!(outbox.push([batch("a", 1), batch("b", 2)].into_iter()), (1, 0));
        let taken = outbox.take(Duration::from_secs(60));
        assert_eq!((taken.turn, taken.batches), (1, vec![batch("a", 1), batch("b", 2)]));
        assert!(taken.lost.is_empty() && taken.stop_at.is_none());
        assert!(outbox.take(Duration::ZERO).batches.is_empty());
        let by = Instant::now();
        outbox.stop(by);
        outbox.stop(by + Duration::from_secs(1));
        assert_eq!(outbox.take(Duration::from_secs(60)).stop_at, Some(by));
    }

    #[test]
    fn too_many_records_drop_the_oldest_and_say_whose() {
        let outbox = Outbox::default();
        let half = QUEUE_RECORDS_MAX / 2;
        assert_eq!(outbox.push([batch("a", half), batch("b", half)].into_iter()), (1, 0));
        assert_eq!(outbox.push([batch("c", 1)].into_iter()), (2, half as u64));
        let taken = outbox.take(Duration::ZERO);
        assert_eq!(taken.batches.iter().map(|b| &*b.source.job).collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(taken.lost.into_iter().collect::<Vec<_>>(), [(batch("a", 0).source, half as u64)]);
        assert_eq!(outbox.push([batch("c", QUEUE_RECORDS_MAX)].into_iter()), (3, 0), "taking made room");
    }
}
