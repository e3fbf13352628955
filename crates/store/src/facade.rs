//! The one door to everything the store keeps.
use crate::delivery::Deliveries;
use crate::disk::{self, Disk, Replay};
use crate::hot::{Cursor, Hit, Hot, HotLimits, LastState, Query, Tail};
use crate::meta::{CaseRow, JobRow, Meta, MetaError};
use mycroft_record::{Batch, HostTime, JobName, Rank};
use mycroft_wire::codec::EncodeError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a store keeps and for how long.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// The window in memory.
    pub hot: HotLimits,
    /// Segments older than this are deleted.
    pub retain_age: Duration,
    /// Oldest segments are deleted while all together are larger than this, bytes.
    pub retain_bytes: u64,
    /// A log older than this becomes segments.
    pub segment_age: Duration,
}

impl Default for StoreConfig {
    /// Seven days or 64 GiB; a segment every ten minutes, six an hour.
    fn default() -> StoreConfig {
        StoreConfig {
            hot: HotLimits::default(),
            retain_age: Duration::from_secs(7 * 24 * 3600),
            retain_bytes: 64 << 30,
            segment_age: Duration::from_secs(600),
        }
    }
}

/// Why a store operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file or directory could not be used.
    #[error("{operation} {path}: {source}; check that the directory exists, is writable and has space")]
    Io {
        /// What was being done.
        operation: &'static str,
        /// To what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A file of the store cannot be read or written; the others are not affected.
    #[error("segment {path}: {reason}; move the file away if it is not mycroft's or is damaged")]
    Segment {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A batch is too large.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The database of cases and jobs.
    #[error(transparent)]
    Meta(#[from] MetaError),
}

/// What `maintain` did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Maintained {
    /// Segments written.
    pub segments_written: usize,
    /// Segments deleted.
    pub segments_removed: usize,
}

/// What a store holds now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreStats {
    /// Records in the hot window.
    pub hot_records: usize,
    /// Their bytes in memory, about.
    pub hot_bytes: usize,
}

/// Seen of a job since it was last noted in the database.
#[derive(Debug)]
struct JobSpan {
    first_at: HostTime,
    last_at: HostTime,
    noted: bool,
}

/// The store. All methods take `&self`; share it in an `Arc`.
#[derive(Debug)]
pub struct Store {
    config: StoreConfig,
    hot: Mutex<Hot>,
    disk: Option<Mutex<Disk>>,
    /// Held while a log becomes segments, so that only one thread does it.
    compacting: Mutex<()>,
    jobs: Mutex<BTreeMap<JobName, JobSpan>>,
    meta: Meta,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Opens or creates the store in `dir`. Batches that an earlier run had not yet made into segments are in the hot
    /// window again.
    ///
    /// # Errors
    /// When the directory cannot be used, or another process uses it.
    pub fn open(dir: &Path, config: StoreConfig) -> Result<Store, StoreError> {
        let mut hot = Hot::new(config.hot);
        let mut jobs = BTreeMap::new();
        let disk = Disk::open(dir, &mut |batch| {
            note_job(&mut jobs, &batch);
            hot.append(Arc::new(batch));
        })?;
        let meta = Meta::open(&dir.join("meta.sqlite"))?;
        for job in meta.jobs()? {
            let span = JobSpan { first_at: job.first_at, last_at: job.last_at, noted: true };
            jobs.entry(JobName::from(job.name)).or_insert(span);
        }
        let disk = Some(Mutex::new(disk));
        Ok(Store { config, hot: Mutex::new(hot), disk, compacting: Mutex::default(), jobs: Mutex::new(jobs), meta })
    }

    /// A store without a directory, for the demo: hot window and cases in memory, replay of the hot window only.
    ///
    /// # Panics
    /// Without memory for an empty database.
    pub fn memory_only(config: StoreConfig) -> Store {
        let hot = Mutex::new(Hot::new(config.hot));
        let meta = Meta::in_memory().expect("an empty database in memory needs nothing that could be missing");
        Store { config, hot, disk: None, compacting: Mutex::default(), jobs: Mutex::default(), meta }
    }

    /// Takes a batch: it is in the hot window and, with a directory, in the write-ahead log when this returns, so it
    /// survives the end of the process. `flush` and `maintain` make it survive the end of the machine. Times are
    /// rounded down to whole microseconds.
    ///
    /// # Errors
    /// When the log cannot be written; the batch is then not kept.
    pub fn append(&self, batch: &Batch) -> Result<(), StoreError> {
        self.append_all(&[Arc::new(batch.clone())])
    }

    /// As `append`, several batches as one entry of the log: that costs little more than one batch. They fit together
    /// into a frame (`codec`).
    ///
    /// # Errors
    /// As `append`; none of them is kept then.
    pub fn append_all(&self, batches: &[Arc<Batch>]) -> Result<(), StoreError> {
        let batches: Vec<Arc<Batch>> = batches.iter().map(disk::rounded).collect();
        if let Some(disk) = &self.disk {
            lock(disk).append(&batches)?;
        }
        let (mut jobs, mut hot) = (lock(&self.jobs), lock(&self.hot));
        for batch in batches {
            note_job(&mut jobs, &batch);
            hot.append(batch);
        }
        Ok(())
    }

    /// Makes everything appended so far durable.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn flush(&self) -> Result<(), StoreError> {
        match &self.disk {
            Some(disk) => lock(disk).sync(),
            None => Ok(()),
        }
    }

    /// Makes everything durable, writes due segments and deletes old ones; call it every few seconds. Appending goes
    /// on meanwhile.
    ///
    /// # Errors
    /// When the disk says no; nothing is lost then, and the next call tries again.
    pub fn maintain(&self, now: HostTime) -> Result<Maintained, StoreError> {
        lock(&self.hot).trim(now);
        self.note_jobs()?;
        let Some(disk) = &self.disk else { return Ok(Maintained::default()) };
        let age_ns = u64::try_from(self.config.segment_age.as_nanos()).unwrap_or(u64::MAX);
        {
            let mut disk = lock(disk);
            disk.sync()?;
            if disk.began().is_some() && now.since_ns(disk.began()) >= age_ns {
                disk.seal()?;
            }
        }
        let mut done = Maintained { segments_written: self.write_segments(disk)?, segments_removed: 0 };
        let age_ns = u64::try_from(self.config.retain_age.as_nanos()).unwrap_or(u64::MAX);
        let dir = lock(disk).dir().to_owned();
        done.segments_removed = disk::retain(&dir, now - age_ns, self.config.retain_bytes)?;
        Ok(done)
    }

    /// Turns everything appended so far into segments now.
    ///
    /// # Errors
    /// As `maintain`.
    pub fn compact(&self) -> Result<usize, StoreError> {
        let Some(disk) = &self.disk else { return Ok(0) };
        lock(disk).seal()?;
        self.write_segments(disk)
    }

    fn write_segments(&self, disk: &Mutex<Disk>) -> Result<usize, StoreError> {
        let _one_at_a_time = lock(&self.compacting);
        let mut written = 0;
        loop {
            let (dir, number) = {
                let disk = lock(disk);
                (disk.dir().to_owned(), disk.first_sealed())
            };
            let Some(number) = number else { return Ok(written) };
            written += disk::compact(&dir, number)?;
            lock(disk).forget_sealed(number);
        }
    }

    /// At most `max` batches after the cursor, from the hot window.
    pub fn tail(&self, cursor: Cursor, max: usize) -> Tail {
        lock(&self.hot).tail(cursor, max)
    }

    /// Records of the hot window, in time order.
    pub fn query(&self, query: &Query) -> Vec<Hit> {
        lock(&self.hot).query(query)
    }

    /// The last that was heard of each rank of a job, in rank order.
    pub fn last_states(&self, job: &str) -> Vec<(Rank, LastState)> {
        lock(&self.hot).last_states(job)
    }

    /// What is held now.
    pub fn stats(&self) -> StoreStats {
        let hot = lock(&self.hot);
        StoreStats { hot_records: hot.records(), hot_bytes: hot.bytes() }
    }

    /// Every batch kept on disk, oldest first, for a replay; what cannot be read comes as an error that names the
    /// file, and reading goes on. Empty without a directory.
    ///
    /// # Errors
    /// When the directory cannot be listed.
    pub fn read_all(&self) -> Result<Replay, StoreError> {
        self.read_since(HostTime::NONE)
    }

    /// As `read_all`, without the files that hold nothing collected since `from`; batches of the others may be older.
    ///
    /// # Errors
    /// As `read_all`.
    pub fn read_since(&self, from: HostTime) -> Result<Replay, StoreError> {
        match &self.disk {
            Some(disk) => {
                // Not while a log is replaced by its segments.
                let _still = lock(&self.compacting);
                let sources = lock(disk).sources(from)?;
                Ok(Replay::new(sources))
            }
            None => Ok(Replay::new(Vec::new())),
        }
    }

    /// Every batch kept on disk, by the time of its collection and its source: the order in which a replay takes them
    /// in. Only files whose times overlap are in memory together. Empty without a directory.
    ///
    /// # Errors
    /// As `read_all`.
    pub fn deliveries(&self) -> Result<Deliveries, StoreError> {
        match &self.disk {
            Some(disk) => {
                // Not while a log is replaced by its segments.
                let _still = lock(&self.compacting);
                let sources = lock(disk).sources(HostTime::NONE)?;
                Ok(Deliveries::collected(sources))
            }
            None => Ok(Deliveries::collected(Vec::new())),
        }
    }

    /// Jobs seen, in name order.
    pub fn jobs(&self) -> Vec<String> {
        lock(&self.jobs).keys().map(|name| name.to_string()).collect()
    }

    /// Jobs seen, with when, in name order.
    pub fn job_rows(&self) -> Vec<JobRow> {
        let row = |(name, span): (&JobName, &JobSpan)| JobRow {
            name: name.to_string(),
            first_at: span.first_at,
            last_at: span.last_at,
        };
        lock(&self.jobs).iter().map(row).collect()
    }

    fn note_jobs(&self) -> Result<(), StoreError> {
        for row in self.job_rows() {
            let fresh = lock(&self.jobs).get(row.name.as_str()).is_some_and(|span| !span.noted);
            if fresh {
                self.meta.put_job(&row)?;
                if let Some(span) = lock(&self.jobs).get_mut(row.name.as_str()) {
                    span.noted = span.last_at == row.last_at && span.first_at == row.first_at;
                }
            }
        }
        Ok(())
    }

    /// Inserts or replaces a case.
    ///
    /// # Errors
    /// When the database says no.
    pub fn put_case(&self, case: &CaseRow) -> Result<(), StoreError> {
        Ok(self.meta.put_case(case)?)
    }

    /// One case.
    ///
    /// # Errors
    /// When the database says no.
    pub fn get_case(&self, job: &str, id: u64) -> Result<Option<CaseRow>, StoreError> {
        Ok(self.meta.get_case(job, id)?)
    }

    /// Cases of a job (or of all jobs), newest first.
    ///
    /// # Errors
    /// When the database says no.
    pub fn list_cases(&self, job: Option<&str>, limit: usize) -> Result<Vec<CaseRow>, StoreError> {
        Ok(self.meta.list_cases(job, limit)?)
    }
}

fn note_job(jobs: &mut BTreeMap<JobName, JobSpan>, batch: &Batch) {
    let at = batch.collected_at;
    let blank = || JobSpan { first_at: at, last_at: at, noted: false };
    let span = jobs.entry(Arc::clone(&batch.source.job)).or_insert_with(blank);
    if at < span.first_at || at > span.last_at {
        span.first_at = span.first_at.min(at);
        span.last_at = span.last_at.max(at);
        span.noted = false;
    }
}
