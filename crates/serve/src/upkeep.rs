//! The thread that looks after the store: cases into their database, segments, retention, and whether a disk that failed
//! works again. It may wait for the disk as long as it likes.
use crate::api::{CaseJson, DiskJson};
use crate::book::CaseBook;
use crate::case::BookedCase;
use crate::clock::Clock;
use crate::keep_queue::Storage;
use crate::keeper::{disk_failed, disk_full, note};
use crate::stats::Stats;
use mycroft_store::{Store, StoreError, meta::CaseRow};
use mycroft_wire::sync::lock;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often segments are written, old ones deleted, and a failing disk is tried.
const ROUND_EVERY: Duration = Duration::from_secs(1);
/// Numbers left out after a start at which the newest cases could not be read: as many may have been given since the
/// database was last in order.
pub(crate) const NUMBERS_LEFT_OUT: u64 = 1000;

/// The thread's state.
pub(crate) struct Upkeep {
    pub(crate) storage: Storage,
    pub(crate) store: Arc<Store>,
    pub(crate) book: Arc<CaseBook>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) clock: Clock,
}

impl Upkeep {
    /// Runs until the bell is closed, then makes everything durable.
    pub(crate) fn run(self) {
        let mut deadline = Instant::now(); // Cases of an earlier run may have become stale at the start.
        while self.storage.bell.wait(deadline) {
            self.write_cases();
            if Instant::now() >= deadline {
                self.round();
                deadline = Instant::now() + ROUND_EVERY;
            }
        }
        self.write_cases();
        self.write_series();
        if let Some(at) = self.storage.stopped_at().some() {
            self.note("store.runs", self.store.note_stopped(at));
        }
        self.note("store.flush", self.store.flush());
    }

    fn round(&self) {
        self.write_series();
        self.look_at_disk();
        match self.store.maintain((self.clock)()) {
            Ok(done) => {
                if done.is_meta_back && !self.store.meta_waits() {
                    self.book.all().iter().for_each(|case| self.book.unwritten_again(case.number));
                    self.write_cases();
                }
                self.note("store.maintain", Ok(()));
            }
            Err(error) => self.note("store.maintain", Err(error)),
        }
        let cases = self.store.meta_trouble().map(|why| match self.store.meta_waits() {
            true => format!(
                "cases wait in the store's folder, until their database can be used ({why}); records are stored"
            ),
            false => {
                format!("cases are kept in memory only, until their database can be used ({why}); records are stored")
            }
        });
        note(&self.stats, "store.cases-database", cases);
        note(&self.stats, "store.records-database", self.store.records_trouble());
        let hangs = self.storage.queue.hangs().then(|| {
            "the store's disk hangs: records are diagnosed and not stored, agents keep them and send them again"
                .to_owned()
        });
        note(&self.stats, "store.hangs", hangs);
        // Nothing is written while agents hold what failed, so somebody must try.
        if self.storage.queue.is_failing() {
            let tried = self.store.try_room();
            self.storage.queue.note(tried.is_err());
            self.note("store.append", tried);
        }
    }

    fn look_at_disk(&self) {
        let told = self.store.disk_bytes().ok().map(|(free_bytes, bytes)| {
            let config = self.store.config();
            DiskJson { free_bytes, bytes, retain_s: config.retain_age.as_secs(), retain_bytes: config.retain_bytes }
        });
        *lock(&self.stats.disk) = told;
    }

    /// Series that cannot be written are lost: the records, of which they are made, are what counts.
    fn write_series(&self) {
        let now = (self.clock)();
        let written = self.storage.bell.take_series().iter().try_for_each(|rows| self.store.put_series(rows, now));
        self.note("store.series", written);
    }

    fn write_cases(&self) {
        if self.book.is_written() {
            return;
        }
        if let Some(at) = self.storage.told_at().some() {
            // First: a replay that knows of a case knows until when this run told of cases.
            self.note("store.runs", self.store.note_told(at));
        }
        self.note("store.cases", self.book.write_out(|case| self.store.put_case(&row(case))));
    }

    fn note(&self, place: &'static str, outcome: Result<(), StoreError>) {
        let text = outcome.err().map(|error| match place {
            "store.append" if error.is_full() => disk_full(&error),
            "store.append" => disk_failed(&error),
            _ if error.is_full() => format!("the store's disk is full ({error})"),
            _ => format!("storing records and cases: {error}"),
        });
        note(&self.stats, place, text);
    }
}

/// A case as the store keeps it.
pub(crate) fn row(booked: &BookedCase) -> CaseRow {
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
    let left_out = if store.meta_trouble().is_some() { NUMBERS_LEFT_OUT } else { 0 };
    let highest = rows.iter().map(|row| row.id).max().unwrap_or(0) + left_out;
    let cases: Vec<BookedCase> = rows.iter().filter_map(booked).collect();
    let unreadable = rows.len() - cases.len();
    Ok((cases, highest, unreadable))
}

/// The case of a row; `None`: another version wrote it.
pub(crate) fn booked(row: &CaseRow) -> Option<BookedCase> {
    serde_json::from_str::<CaseJson>(&row.json).ok()?.booked()
}
