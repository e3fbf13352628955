//! The one door to everything the store keeps.
mod database;
mod leases;
mod series;

pub(crate) use database::{FILE as META_FILE, WAITING as META_WAITING};

use crate::delivery::Deliveries;
use crate::disk::{self, Arrival, Disk};
use crate::error::StoreError;
#[cfg(feature = "clickhouse")]
use crate::meta::identity;
use crate::meta::{ActionRow, CaseRow, MetaPlace, PolicyRow};
use crate::names::{io_error, wal_dir};
use crate::remote::RecordsPlace;
#[cfg(feature = "clickhouse")]
use crate::remote::ship::Shipper;
use crate::runs::Runs;
use crate::source::{Replay, StoreAt, local, sources};
use database::Database;
use mycroft_record::{Batch, HostTime, NANOS_PER_SEC};
use mycroft_wire::codec;
use mycroft_wire::sync::lock;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

/// How long a failed attempt to write a segment is left alone: it costs seconds of a processor, and a disk that fails does not
/// change its mind soon.
const RETRY_NS: u64 = 10 * NANOS_PER_SEC;

/// What a store keeps and for how long.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Segments whose records arrived longer ago than this are deleted.
    pub retain_age: Duration,
    /// Oldest segments are deleted while all together are larger than this, bytes.
    pub retain_bytes: u64,
    /// A log older than this becomes a segment.
    pub segment_age: Duration,
    /// Where cases, actions, policies and series are.
    pub meta: MetaPlace,
    /// Where segments go besides the folder.
    pub records: RecordsPlace,
}

impl Default for StoreConfig {
    /// Seven days or 64 GiB; a segment every ten minutes, six an hour.
    fn default() -> StoreConfig {
        StoreConfig {
            retain_age: Duration::from_secs(7 * 24 * 3600),
            retain_bytes: 64 << 30,
            segment_age: Duration::from_secs(600),
            meta: MetaPlace::File,
            records: RecordsPlace::Folder,
        }
    }
}

/// What `maintain` did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Maintained {
    /// Segments written.
    pub segments_written: usize,
    /// Segments deleted.
    pub segments_removed: usize,
    /// The database of cases could not be used before and can now. Where nothing waited for it ([`Store::meta_waits`]), every case
    /// must be put again.
    pub is_meta_back: bool,
}

/// The store. All methods take `&self`; share it in an `Arc`.
#[derive(Debug)]
pub struct Store {
    config: StoreConfig,
    disk: Mutex<Disk>,
    /// Held while a log becomes a segment, so that only one thread does it; not before this time again.
    compacting: Mutex<HostTime>,
    /// Opened when it is needed first.
    runs: Mutex<Option<Runs>>,
    meta: Database,
    /// Sends segments to where they are besides the folder.
    #[cfg(feature = "clickhouse")]
    shipper: Option<Shipper>,
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether a folder holds a store.
pub fn is_store(dir: &Path) -> bool {
    dir.join(META_FILE).exists() || wal_dir(dir).is_dir()
}

/// The deliveries of a store's folder, whether or not a server uses it. Nothing is written there.
///
/// # Errors
/// When the directory cannot be listed, or the database of its records not be used.
pub fn read_only(at: impl Into<StoreAt>) -> Result<Deliveries, StoreError> {
    Ok(Deliveries::stored(sources(&at.into(), HostTime::NONE)?))
}

impl Store {
    /// Opens or creates the store in `dir`. Where the file of cases cannot be used (a full disk, a damaged file) cases
    /// are kept in memory until it can; [`Store::meta_trouble`] says so.
    ///
    /// # Errors
    /// When the directory cannot be used, or another process uses it; when cases are on a server that cannot be used.
    pub fn open(dir: &Path, config: StoreConfig) -> Result<Store, StoreError> {
        let disk = Disk::open(dir)?;
        let meta = Database::open(dir, &config.meta)?;
        #[cfg(feature = "clickhouse")]
        let shipper = match &config.records {
            RecordsPlace::Folder => None,
            RecordsPlace::ClickHouse(at) => Some(Shipper::start(dir, at, &identity::of(dir)?, config.retain_age)?),
        };
        Ok(Store {
            config,
            disk: Mutex::new(disk),
            compacting: Mutex::default(),
            runs: Mutex::default(),
            meta,
            #[cfg(feature = "clickhouse")]
            shipper,
        })
    }

    /// Notes that a server starts: what is appended from now on is what it takes in, and its first new case gets this number.
    ///
    /// # Errors
    /// When the disk says no: a replay then takes this run and the one before for one.
    pub fn note_started(&self, at: HostTime, next_case: u64) -> Result<(), StoreError> {
        let log = lock(&self.disk).number();
        self.with_runs(|runs| runs.started(at, log, next_case))
    }

    /// Notes that the server told of a case at that time.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn note_told(&self, at: HostTime) -> Result<(), StoreError> {
        self.with_runs(|runs| runs.told(at))
    }

    /// Notes that the server stopped.
    ///
    /// # Errors
    /// When the disk says no: a replay then takes it for one that ended without a word.
    pub fn note_stopped(&self, at: HostTime) -> Result<(), StoreError> {
        self.with_runs(|runs| runs.stopped(at))
    }

    fn with_runs(&self, note: impl FnOnce(&mut Runs) -> Result<(), StoreError>) -> Result<(), StoreError> {
        let dir = lock(&self.disk).dir().to_owned();
        let mut runs = lock(&self.runs);
        match &mut *runs {
            Some(runs) => note(runs),
            none => note(none.insert(Runs::open(&dir)?)),
        }
    }

    /// What was found damaged when the store was opened, one sentence each.
    pub fn damage(&self) -> Vec<String> {
        lock(&self.disk).damage().to_vec()
    }

    /// Why cases are not in their database, where they are not.
    pub fn meta_trouble(&self) -> Option<String> {
        self.meta.trouble()
    }

    /// Why segments are not where they are to be besides the folder, where they are not: they wait in the folder.
    pub fn records_trouble(&self) -> Option<String> {
        #[cfg(feature = "clickhouse")]
        {
            self.shipper.as_ref().and_then(Shipper::trouble)
        }
        #[cfg(not(feature = "clickhouse"))]
        {
            None
        }
    }

    /// Sends the segments that wait now, with this server's time, and waits for it; [`Store::records_trouble`] says whether that
    /// worked. Nothing where segments are in the folder only.
    #[cfg(feature = "clickhouse")]
    pub fn send_records(&self, now: HostTime) {
        self.shipper.iter().for_each(|shipper| shipper.round(now));
    }

    /// Whether what is put while there is trouble is put into the database when it can be used again: it waits on the disk. Else it
    /// is in memory only.
    pub fn meta_waits(&self) -> bool {
        self.meta.waits()
    }

    /// Whether other stores may use the database of cases, too: it is on a server. A file is this store's alone.
    pub fn is_meta_shared(&self) -> bool {
        self.meta.is_shared()
    }

    /// Keeps frames, with one write: they are in the kernel when this returns, so they survive the end of the process.
    /// `flush` and `maintain` make them survive the end of the machine.
    ///
    /// # Errors
    /// When the log cannot be written; none of the frames is kept then.
    pub fn append_frames(&self, arrivals: &[Arrival<'_>]) -> Result<(), StoreError> {
        lock(&self.disk).append(arrivals)
    }

    /// As `append_frames`, for one batch. Times are rounded down to whole microseconds.
    ///
    /// # Errors
    /// As `append_frames`, and when the batch is larger than a frame.
    pub fn append(&self, at: HostTime, batch: &Batch) -> Result<(), StoreError> {
        let frame = if codec::is_round(batch) {
            codec::encode(std::slice::from_ref(batch))?
        } else {
            let mut batch = batch.clone();
            codec::round_to_micros(&mut batch);
            codec::encode(&[batch])?
        };
        self.append_frames(&[Arrival { at, frame: &frame, records: batch.records.len() }])
    }

    /// Whether the disk takes anything now: asked while `append_frames` fails.
    ///
    /// # Errors
    /// What an append would meet.
    pub fn try_room(&self) -> Result<(), StoreError> {
        lock(&self.disk).try_room()
    }

    /// Makes everything appended so far survive the end of the machine. Appending goes on meanwhile.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn flush(&self) -> Result<(), StoreError> {
        let (path, file) = lock(&self.disk).to_sync()?;
        file.sync_data().map_err(io_error("syncing", &path))
    }

    /// Deletes old segments, makes everything durable and writes due segments; call it every few seconds with this
    /// server's time. Appending goes on meanwhile.
    ///
    /// # Errors
    /// When the disk says no; nothing is lost then, and a later call tries again.
    pub fn maintain(&self, now: HostTime) -> Result<Maintained, StoreError> {
        let mut done = Maintained { is_meta_back: self.meta.retry(now), ..Maintained::default() };
        let dir = lock(&self.disk).dir().to_owned();
        // First: on a full disk this is what makes room.
        done.segments_removed = disk::retain(&dir, now - nanos(self.config.retain_age), self.config.retain_bytes)?;
        self.flush()?;
        {
            let mut disk = lock(&self.disk);
            if disk.is_older_than(nanos(self.config.segment_age), now) {
                disk.seal()?;
            }
        }
        let mut not_before = lock(&self.compacting);
        if now >= *not_before {
            *not_before = now + RETRY_NS;
            done.segments_written = self.write_segments()?;
            *not_before = HostTime::NONE;
        }
        #[cfg(feature = "clickhouse")]
        self.shipper.iter().for_each(|shipper| shipper.wake(now));
        Ok(done)
    }

    /// Turns everything appended so far into segments now; gives how many.
    ///
    /// # Errors
    /// As `maintain`.
    pub fn compact(&self) -> Result<usize, StoreError> {
        lock(&self.disk).seal()?;
        let _one_at_a_time = lock(&self.compacting);
        self.write_segments()
    }

    /// The caller holds `compacting`.
    fn write_segments(&self) -> Result<usize, StoreError> {
        let mut written = 0;
        loop {
            let (dir, number) = {
                let disk = lock(&self.disk);
                (disk.dir().to_owned(), disk.first_sealed())
            };
            let Some(number) = number else { return Ok(written) };
            written += disk::compact(&dir, number)?;
            lock(&self.disk).forget_sealed(number);
        }
    }

    /// Every batch kept on disk, by file; what cannot be read comes as an error that names it, and reading goes on.
    ///
    /// # Errors
    /// When the directory cannot be listed.
    pub fn read_all(&self) -> Result<Replay, StoreError> {
        self.read_since(HostTime::NONE)
    }

    /// As `read_all`, without the files that hold nothing that arrived since `from`; batches of the others may have
    /// arrived earlier.
    ///
    /// # Errors
    /// As `read_all`.
    pub fn read_since(&self, from: HostTime) -> Result<Replay, StoreError> {
        Ok(Replay::new(self.sources(from)?))
    }

    /// Every batch kept on disk, in the order of arrival; what an older release has kept, by the time of its collection
    /// and its source, comes first.
    ///
    /// # Errors
    /// As `read_all`.
    pub fn deliveries(&self) -> Result<Deliveries, StoreError> {
        self.deliveries_since(HostTime::NONE)
    }

    /// As `deliveries`, without the files that hold nothing that arrived since `from`.
    ///
    /// # Errors
    /// As `read_all`.
    pub fn deliveries_since(&self, from: HostTime) -> Result<Deliveries, StoreError> {
        Ok(Deliveries::stored(self.sources(from)?))
    }

    fn sources(&self, from: HostTime) -> Result<Vec<crate::source::Source>, StoreError> {
        // Not while a log is replaced by its segment.
        let _still = lock(&self.compacting);
        let dir = lock(&self.disk).dir().to_owned();
        local(&dir, from)
    }

    /// Inserts or replaces a case.
    ///
    /// # Errors
    /// When the database says no.
    pub fn put_case(&self, case: &CaseRow) -> Result<(), StoreError> {
        self.meta.keep(|meta| meta.put_case(case))
    }

    /// Cases of a job (or of all jobs), newest first.
    ///
    /// # Errors
    /// When the database says no.
    pub fn list_cases(&self, job: Option<&str>, limit: usize) -> Result<Vec<CaseRow>, StoreError> {
        self.meta.ask(|meta| meta.list_cases(job, limit))
    }

    /// Writes an action into the audit log, in place of what it said of the same action before. Refused while the database
    /// cannot be used: what nobody could read up later is not done.
    ///
    /// # Errors
    /// When the database says no, or cannot keep it.
    pub fn put_action(&self, action: &ActionRow) -> Result<(), StoreError> {
        self.meta.write(|meta| meta.put_action(action))
    }

    /// Actions, newest first.
    ///
    /// # Errors
    /// When the database says no.
    pub fn list_actions(&self, limit: usize) -> Result<Vec<ActionRow>, StoreError> {
        self.meta.ask(|meta| meta.list_actions(limit))
    }

    /// Writes what may be done to a job.
    ///
    /// # Errors
    /// When the database says no, or cannot keep it.
    pub fn put_policy(&self, policy: &PolicyRow) -> Result<(), StoreError> {
        self.meta.write(|meta| meta.put_policy(policy))
    }

    /// What may be done to which job, by name.
    ///
    /// # Errors
    /// When the database says no.
    pub fn list_policies(&self) -> Result<Vec<PolicyRow>, StoreError> {
        self.meta.ask(|meta| meta.list_policies())
    }
}
