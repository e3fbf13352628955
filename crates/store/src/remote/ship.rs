//! The thread that sends segments of a store's folder. It holds one segment at a time and waits for each piece; a server
//! that is slow or away slows nothing but it: what waits are files.
use super::address::ClickHouseAt;
use super::table::{Segment, Table};
use crate::error::StoreError;
use crate::footer;
use crate::names::{self, SegmentFile, io_error};
use crate::source::read_segment;
use mycroft_record::{HostTime, NANOS_PER_SEC};
use mycroft_wire::log::numbered_files;
use mycroft_wire::sync::lock;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// How long a server that was away is left alone.
const RETRY: Duration = Duration::from_secs(10);
/// A segment that is there stays a file, too, for so long behind its last arrival, and after it was found there: a server that
/// starts lives through its last ten minutes without the database, and who has listed the folder finds what was in it.
const LOCAL_NS: u64 = 3600 * NANOS_PER_SEC;
/// For how long it is told that segments were deleted.
const LOST_TOLD_NS: u64 = 3600 * NANOS_PER_SEC;
/// How often old days are looked for.
const DROP_EVERY_NS: u64 = 3600 * NANOS_PER_SEC;

/// What the thread and its owner share.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// There may be something to send.
    is_due: bool,
    /// Somebody waits for the next round: also where the server was away a moment ago.
    is_asked: bool,
    is_stopping: bool,
    /// The store's time, as told last.
    now: HostTime,
    /// Why nothing is sent.
    trouble: Option<String>,
    /// Segments that wait.
    waiting: usize,
    /// Segments that were deleted before they were sent.
    lost: usize,
    lost_at: HostTime,
    /// Rounds that have ended.
    rounds: u64,
}

/// The thread's owner. Dropped: the thread ends after what it is waiting for.
#[derive(Debug)]
pub(crate) struct Shipper {
    shared: Arc<Shared>,
}

impl Drop for Shipper {
    fn drop(&mut self) {
        lock(&self.shared.state).is_stopping = true;
        self.shared.changed.notify_all();
    }
}

impl Shipper {
    /// Starts the thread. A server that is away is waited for.
    ///
    /// # Errors
    /// The file of the authority cannot be used, or no thread can be started.
    pub(crate) fn start(dir: &Path, at: &ClickHouseAt, store: &str, keep: Duration) -> Result<Shipper, StoreError> {
        let table = Table::new(at, store)?;
        let shared = Arc::new(Shared::default());
        let days = keep.as_secs().div_ceil(24 * 3600).max(1);
        let keep_ns = u64::try_from(keep.as_nanos()).unwrap_or(u64::MAX);
        let mut worker = Worker {
            dir: dir.to_owned(),
            table,
            shared: Arc::clone(&shared),
            days,
            keep_ns,
            forgets: None,
            there: BTreeMap::new(),
            says_arrival: BTreeMap::new(),
            seen: BTreeSet::new(),
            dropped_at: HostTime::NONE,
        };
        let thread = std::thread::Builder::new().name("mycroft-records".to_owned());
        thread.spawn(move || worker.run()).map_err(io_error("starting the thread that sends records of", dir))?;
        Ok(Shipper { shared })
    }

    /// Looks for something to send.
    pub(crate) fn wake(&self, now: HostTime) {
        let mut state = lock(&self.shared.state);
        (state.is_due, state.now) = (true, now);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// What is wrong, one sentence.
    pub(crate) fn trouble(&self) -> Option<String> {
        let state = lock(&self.shared.state);
        let lost = match state.lost {
            _ if state.now.since_ns(state.lost_at) >= LOST_TOLD_NS => String::new(),
            0 => String::new(),
            lost => format!("{lost} segments were deleted before they were sent: the folder may not hold more; "),
        };
        match &state.trouble {
            Some(why) => {
                Some(format!("{lost}{} segments wait in the store's folder for ClickHouse: {why}", state.waiting))
            }
            None => Some(lost.trim_end_matches("; ").to_owned()).filter(|lost| !lost.is_empty()),
        }
    }

    /// Looks for something to send, and waits until a round that began after this has ended.
    pub(crate) fn round(&self, now: HostTime) {
        let mut state = lock(&self.shared.state);
        // The round that is on may have passed by what is new.
        let wanted = state.rounds + 2;
        while state.rounds < wanted {
            (state.is_asked, state.now) = (true, now);
            self.shared.changed.notify_all();
            state = self.shared.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

/// A segment that is in the tables.
#[derive(Clone, Copy)]
struct There {
    segment: Segment,
    /// Since when its file is not needed, by the store's time.
    since: Option<HostTime>,
}

impl There {
    fn new(segment: Segment) -> There {
        There { segment, since: None }
    }
}

struct Worker {
    dir: PathBuf,
    table: Table,
    shared: Arc<Shared>,
    days: u64,
    keep_ns: u64,
    /// Whether the tables forget old rows; `None`: the server was not asked yet, or was away since.
    forgets: Option<bool>,
    /// Segments that are in the tables.
    there: BTreeMap<u64, There>,
    /// Whether the segment of a log says when its batches arrived.
    says_arrival: BTreeMap<u64, bool>,
    /// Segments that waited in the last round.
    seen: BTreeSet<u64>,
    dropped_at: HostTime,
}

impl Worker {
    fn run(&mut self) {
        // What waits from before is sent without being asked.
        let mut not_before = Instant::now();
        lock(&self.shared.state).is_due = true;
        while self.wait(not_before) {
            let outcome = self.round();
            let mut state = lock(&self.shared.state);
            state.trouble = outcome.as_ref().err().map(ToString::to_string);
            if outcome.is_err() {
                // What it has is asked anew: it may have taken what nobody learned of.
                self.forgets = None;
                not_before = Instant::now() + RETRY;
            }
            state.rounds += 1;
            drop(state);
            self.shared.changed.notify_all();
        }
    }

    /// Waits until there is something to do. False: the owner is gone.
    fn wait(&self, not_before: Instant) -> bool {
        let mut state = lock(&self.shared.state);
        loop {
            if state.is_stopping {
                return false;
            }
            let left = not_before.saturating_duration_since(Instant::now());
            if state.is_asked || (state.is_due && left.is_zero()) {
                (state.is_due, state.is_asked) = (false, false);
                return true;
            }
            let left = if left.is_zero() { RETRY } else { left };
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }

    fn goes_on(&self) -> bool {
        !lock(&self.shared.state).is_stopping
    }

    /// Sends what is not there, oldest first, and deletes files that are not needed any more.
    fn round(&mut self) -> Result<(), StoreError> {
        let now = lock(&self.shared.state).now;
        let files = self.files()?;
        let waiting: BTreeSet<u64> =
            files.iter().map(|file| file.log).filter(|log| !self.there.contains_key(log)).collect();
        {
            let mut state = lock(&self.shared.state);
            state.waiting = waiting.len();
            let lost = self.seen.iter().filter(|log| !waiting.contains(log) && !self.there.contains_key(log)).count();
            if lost > 0 {
                (state.lost, state.lost_at) = (state.lost + lost, now);
            }
        }
        self.seen = waiting;
        if self.forgets.is_none() {
            self.forgets = Some(self.table.prepare(self.days)?);
            self.there = self.table.segments()?.into_iter().map(|(log, segment)| (log, There::new(segment))).collect();
        }
        for file in files {
            if !self.goes_on() {
                return Ok(());
            }
            let log = file.log;
            match self.there.get(&log).copied() {
                Some(there) => self.clear(file, there, now)?,
                None => self.send(file, 1)?,
            }
            if self.there.contains_key(&log) && self.seen.remove(&log) {
                lock(&self.shared.state).waiting = self.seen.len();
            }
        }
        if self.forgets == Some(false) && now.since_ns(self.dropped_at) >= DROP_EVERY_NS {
            self.table.drop_days(now - self.keep_ns)?;
            self.dropped_at = now;
        }
        Ok(())
    }

    /// Segments whose log is gone: the others are made again. Those that do not say when their batches arrived are of an older release,
    /// and stay files.
    fn files(&mut self) -> Result<Vec<SegmentFile>, StoreError> {
        let wal = names::wal_dir(&self.dir);
        let logs: BTreeSet<u64> = numbered_files(&wal, "log").map_err(io_error("listing", &wal))?.into_iter().collect();
        let mut files = names::segments(&self.dir)?;
        files.retain(|file| !logs.contains(&file.log));
        let names: BTreeSet<u64> = files.iter().map(|file| file.log).collect();
        self.says_arrival.retain(|log, _| names.contains(log));
        let says = |file: &SegmentFile| footer::says_arrival(&file.path);
        files.retain(|file| *self.says_arrival.entry(file.log).or_insert_with(|| says(file)));
        files.sort_by_key(|file| file.log);
        Ok(files)
    }

    fn send(&mut self, file: SegmentFile, nth: u32) -> Result<(), StoreError> {
        let log = file.log;
        // One that cannot be read stays where it is, as without a database; the others go on.
        let Ok(arrived) = read_segment(file) else { return Ok(()) };
        if arrived.is_empty() {
            return Ok(());
        }
        let shared = &self.shared;
        let sent = self.table.send((log, attempt()?, nth), arrived, &|| !lock(&shared.state).is_stopping)?;
        if let Some(segment) = sent {
            self.there.insert(log, There::new(segment));
        }
        Ok(())
    }

    /// Deletes a file whose records are there, and old enough. They are counted again before: what a server acknowledged it may have
    /// lost with its machine.
    fn clear(&mut self, file: SegmentFile, there: There, now: HostTime) -> Result<(), StoreError> {
        let There { segment, since } = there;
        // Before the first time is told nothing is old.
        let Some(now) = now.some() else { return Ok(()) };
        let since = since.unwrap_or(now);
        self.there.insert(segment.log, There { segment, since: Some(since) });
        let arrived = HostTime(u64::from(segment.at) * NANOS_PER_SEC);
        if now.since_ns(arrived.max(since)) < LOCAL_NS {
            return Ok(());
        }
        let rows = self.table.count(&segment)?;
        if !segment.is_whole(rows) {
            return self.send(file, segment.nth.saturating_add(1));
        }
        std::fs::remove_file(&file.path).map_err(io_error("removing", &file.path))?;
        // The hour's and the day's folders go with their last file; others are not empty and stay.
        let hour = file.path.parent();
        for folder in [hour, hour.and_then(Path::parent)].into_iter().flatten() {
            let _ = std::fs::remove_dir(folder);
        }
        Ok(())
    }
}

/// A number that no other attempt has.
fn attempt() -> Result<u64, StoreError> {
    let mut random = [0; 8];
    let path = Path::new("/dev/urandom");
    File::open(path).and_then(|mut file| file.read_exact(&mut random)).map_err(io_error("reading", path))?;
    Ok(u64::from_le_bytes(random))
}
