//! The thread that writes: batches into the store, cases into its book of cases. The brain never waits for a disk.
use crate::api::CaseJson;
use crate::book::CaseBook;
use crate::brain::Clock;
use crate::case::BookedCase;
use crate::config::LogSink;
use crate::inbox::{Event, Inbox};
use crate::stats::{Stats, add};
use mycroft_record::Batch;
use mycroft_store::{Store, StoreError, meta::CaseRow};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often segments are written and old ones deleted.
const MAINTAIN_EVERY: Duration = Duration::from_secs(1);

/// Most batches, and records behind the first, that become one entry of the log: half of what a frame may hold, and a
/// hundredth of a second of the largest job that is caught up with.
const TOGETHER_BATCHES: usize = 512;
const TOGETHER_RECORDS: usize = 1 << 15;

/// The writer's state.
pub(crate) struct Keeper {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) store: Store,
    pub(crate) book: Arc<CaseBook>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) clock: Clock,
    pub(crate) log: LogSink,
}

impl Keeper {
    /// Runs until the inbox is closed and drained, then makes everything durable.
    pub(crate) fn run(self) {
        let mut deadline = Instant::now(); // Cases of an earlier run may have become stale at the start.
        loop {
            match self.inbox.next(deadline) {
                Event::Batch(batch) => self.append(batch),
                Event::Command(_) => self.write_cases(),
                Event::Lost(..) => {} // Counted where it was refused.
                Event::Due => {
                    self.write_cases();
                    self.note("store.maintain", self.store.maintain((self.clock)()).map(|_| ()));
                    deadline = Instant::now() + MAINTAIN_EVERY;
                }
                Event::Closed => break,
            }
        }
        self.write_cases();
        self.note("store.flush", self.store.flush());
    }

    /// Appends a batch together with those that wait behind it: for the log they are one.
    fn append(&self, batch: Arc<Batch>) {
        let mut batches = vec![batch];
        batches.extend(self.inbox.more(TOGETHER_BATCHES - 1, TOGETHER_RECORDS));
        if batches.len() > 1 && self.store.append_all(&batches).is_ok() {
            return self.note("store.append", Ok(()));
        }
        // One that cannot be kept must not cost the others.
        for batch in batches {
            let outcome = self.store.append_all(std::slice::from_ref(&batch));
            if outcome.is_err() {
                add(&self.stats.dropped_store, batch.records.len() as u64);
            }
            self.note("store.append", outcome);
        }
    }

    fn write_cases(&self) {
        for case in self.book.take_unwritten() {
            let outcome = self.store.put_case(&row(&case));
            if outcome.is_err() {
                self.book.unwritten_again(case.number);
            }
            let failed = outcome.is_err();
            self.note("store.cases", outcome);
            if failed {
                return; // Tried again at the next round; the disk is not asked for each case in turn.
            }
        }
    }

    /// Remembers what is wrong with the disk until it works again.
    fn note(&self, place: &'static str, outcome: Result<(), StoreError>) {
        let text = outcome.err().map(|error| format!("storing records and cases: {error}"));
        let line = text.clone();
        if self.stats.problem(place, text)
            && let Some(line) = line
        {
            (self.log)(&line);
        }
    }
}

/// A case as the store keeps it.
fn row(booked: &BookedCase) -> CaseRow {
    CaseRow {
        id: booked.number,
        job: booked.job.to_string(),
        state: booked.state.as_str().to_owned(),
        opened_at: booked.case.opened_at,
        updated_at: booked.case.updated_at,
        // Numbers, strings and lists only: serde_json has no way to fail on them.
        json: serde_json::to_string(&CaseJson::of(booked)).unwrap_or_default(),
    }
}

/// The cases of earlier runs, and the highest number ever used; unreadable ones are counted.
pub(crate) fn old_cases(store: &Store, limit: usize) -> Result<(Vec<BookedCase>, u64, usize), StoreError> {
    let rows = store.list_cases(None, limit)?;
    let highest = rows.iter().map(|row| row.id).max().unwrap_or(0);
    let read = |row: &CaseRow| serde_json::from_str::<CaseJson>(&row.json).ok()?.booked();
    let cases: Vec<BookedCase> = rows.iter().filter_map(read).collect();
    let unreadable = rows.len() - cases.len();
    Ok((cases, highest, unreadable))
}
