//! The store's directory as its one writer uses it: write-ahead logs, segments, retention (`docs/formats/store.md`).
//!
//! A frame is appended to the newest log before `append` returns. A sealed log becomes one segment, named by the log's
//! number, and is removed when the segment is durable; a segment whose log is still there does not count. So a crash at
//! any point leaves either the log or its segment in force, never both and never neither.
use crate::error::StoreError;
use crate::names::{SegmentFile, hour_dir, io_error, log_path, segments, wal_dir};
use crate::segment::{self, Arrived};
use crate::source::{Arrivals, HOUR_SECONDS, MARKS, Source, arrival_head, split};
use mycroft_record::{Batch, HostTime, NANOS_PER_SEC};
use mycroft_wire::codec;
use mycroft_wire::log::{LogFile, Piece, create_private_dir, numbered_files, sync_dir};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Records in one log at most, so that its segment stays within `segment::MAX_ROWS`.
const MAX_LOG_RECORDS: usize = segment::MAX_ROWS;
/// Bytes of one log at most: frames without records count too. 524,288 records of 100 bytes are 50 MiB.
const MAX_LOG_BYTES: u64 = 256 << 20;
/// Lines about damage that are kept: more say nothing new.
const DAMAGE_MAX: usize = 32;
/// What must fit on the disk before a disk that was full counts as usable again: a second of 60 hosts of 8 ranks.
const ROOM_BYTES: usize = 1 << 20;
/// The file by which is tried whether they fit. One that a crash left is overwritten.
const ROOM_FILE: &str = "room";

/// A frame to be kept.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// When this server had it.
    pub at: HostTime,
    /// The frame, whose times are whole microseconds (`codec::is_round`).
    pub frame: &'a [u8],
    /// Records in it.
    pub records: usize,
}

/// The files of a store.
#[derive(Debug)]
pub(crate) struct Disk {
    dir: PathBuf,
    log: LogFile,
    number: u64,
    /// Number of the next log: above every log and segment there was.
    next: u64,
    records: usize,
    /// When the log's first frame arrived.
    began: HostTime,
    /// Sealed logs that are not segments yet.
    sealed: Vec<u64>,
    /// What was found damaged at the opening.
    damage: Vec<String>,
    /// Holds the directory against a second server.
    _lock: File,
}

/// What opening a log tells.
#[derive(Default)]
struct Found {
    entries: usize,
    records: usize,
    /// When the first frame arrived; `NONE` in a log of version 1.
    began: HostTime,
}

impl Disk {
    /// Opens or creates the directory.
    pub(crate) fn open(dir: &Path) -> Result<Disk, StoreError> {
        let wal = wal_dir(dir);
        create_private_dir(dir).map_err(io_error("creating", dir))?;
        create_private_dir(&wal).map_err(io_error("creating", &wal))?;
        let lock_path = dir.join("lock");
        let lock = File::create(&lock_path).map_err(io_error("creating", &lock_path))?;
        lock.try_lock().map_err(|e| io_error("locking (another server uses this directory)", &lock_path)(e.into()))?;
        let mut sealed = numbered_files(&wal, "log").map_err(io_error("listing", &wal))?;
        let mut next = drop_unfinished(dir, &sealed)?;
        let mut damage = Vec::new();
        // A torn tail is cut here, by the one writer, before a segment is made of the log.
        let mut newest = None;
        for &number in &sealed {
            newest = Some((number, open_log(dir, number, &mut damage)?));
        }
        // A run begins with a log of its own: so it is known which run has taken in what.
        let newest = newest.filter(|(_, (_, found))| found.entries == 0);
        let (number, (log, found)) = match newest {
            Some(newest) => {
                sealed.pop();
                newest
            }
            None => (next, open_log(dir, next, &mut damage)?),
        };
        next = next.max(number + 1);
        let Found { records, began, .. } = found;
        Ok(Disk { dir: dir.to_owned(), log, number, next, records, began, sealed, damage, _lock: lock })
    }

    /// Appends frames with one write, after sealing the log when they would make it too long. None of them is kept
    /// after an error.
    pub(crate) fn append(&mut self, arrivals: &[Arrival<'_>]) -> Result<(), StoreError> {
        let records: usize = arrivals.iter().map(|arrival| arrival.records).sum();
        let is_full = self.records + records > MAX_LOG_RECORDS || self.log.bytes() > MAX_LOG_BYTES;
        if is_full && self.log.bytes() > 0 {
            self.seal()?;
        }
        // Segments keep whole microseconds.
        let heads: Vec<_> = arrivals.iter().map(|arrival| arrival_head(HostTime(arrival.at.0 / 1000 * 1000))).collect();
        let parts: Vec<[&[u8]; 2]> = heads.iter().zip(arrivals).map(|(head, a)| [&head[..], a.frame]).collect();
        let entries: Vec<&[&[u8]]> = parts.iter().map(|parts| &parts[..]).collect();
        self.log.append_all(&entries).map_err(io_error("appending to", &log_path(&self.dir, self.number)))?;
        self.records += records;
        if let Some(first) = arrivals.first() {
            self.began = self.began.some().unwrap_or(first.at);
        }
        Ok(())
    }

    /// Whether the disk takes anything now: writes a file of its own and removes it. Whoever reads the log meanwhile would take zeros in it for damage.
    pub(crate) fn try_room(&self) -> Result<(), StoreError> {
        let path = wal_dir(&self.dir).join(ROOM_FILE);
        let tried = std::fs::write(&path, vec![0; ROOM_BYTES]).map_err(io_error("writing", &path));
        let removed = std::fs::remove_file(&path).map_err(io_error("removing", &path));
        tried.and(removed)
    }

    /// What must be synced for everything appended so far to survive the end of the machine.
    pub(crate) fn to_sync(&self) -> Result<(PathBuf, File), StoreError> {
        let path = log_path(&self.dir, self.number);
        let file = self.log.reader().map_err(io_error("syncing", &path))?;
        Ok((path, file))
    }

    /// Ends the present log and begins the next; does nothing when it is empty.
    pub(crate) fn seal(&mut self) -> Result<(), StoreError> {
        if self.log.bytes() == 0 {
            return Ok(());
        }
        self.log.sync().map_err(io_error("syncing", &log_path(&self.dir, self.number)))?;
        let (next, _) = open_log(&self.dir, self.next, &mut self.damage)?;
        self.sealed.push(self.number);
        self.log = next;
        self.number = self.next;
        self.next += 1;
        self.records = 0;
        self.began = HostTime::NONE;
        Ok(())
    }

    /// Number of the present log.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether the present log has been written to for so long. A clock that was set back says nothing: it is then.
    pub(crate) fn is_older_than(&self, age_ns: u64, now: HostTime) -> bool {
        self.began.some().is_some_and(|began| now.since_ns(began).max(began.since_ns(now)) >= age_ns)
    }

    pub(crate) fn first_sealed(&self) -> Option<u64> {
        self.sealed.first().copied()
    }

    pub(crate) fn forget_sealed(&mut self, number: u64) {
        self.sealed.retain(|n| *n != number);
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn damage(&self) -> &[String] {
        &self.damage
    }
}

/// Removes segments whose log is still there: a crash came before the log was removed; they will be made again. Gives the
/// number of the next log.
fn drop_unfinished(dir: &Path, logs: &[u64]) -> Result<u64, StoreError> {
    let mut of_log: BTreeMap<u64, Vec<SegmentFile>> = BTreeMap::new();
    for segment in segments(dir)? {
        of_log.entry(segment.log).or_default().push(segment);
    }
    let next = of_log.keys().next_back().map_or(1, |n| n + 1).max(logs.last().map_or(1, |n| n + 1));
    for (number, files) in &of_log {
        if !logs.contains(number) {
            continue;
        }
        for file in files {
            std::fs::remove_file(&file.path).map_err(io_error("removing", &file.path))?;
        }
    }
    Ok(next)
}

fn open_log(dir: &Path, number: u64, damage: &mut Vec<String>) -> Result<(LogFile, Found), StoreError> {
    let path = log_path(dir, number);
    let mut found = Found::default();
    let mut look = |piece| match piece {
        Piece::Entry { content, .. } => {
            let (at, frame) = split(&content);
            if found.entries == 0 {
                found.began = at;
            }
            found.entries += 1;
            found.records += codec::header(frame).map_or(0, |header| header.records as usize);
        }
        Piece::Damaged { offset, bytes } | Piece::Torn { offset, bytes } => {
            if damage.len() < DAMAGE_MAX {
                damage.push(StoreError::Damaged { path: path.clone(), offset, bytes }.to_string());
            }
        }
    };
    let log = LogFile::open(&path, MARKS, &mut look).map_err(io_error("opening", &path))?;
    sync_dir(&wal_dir(dir)).map_err(io_error("syncing", dir))?;
    Ok((log, found))
}

/// Turns a sealed log into a segment and removes it; gives the number of segments, none where the log held no record.
pub(crate) fn compact(dir: &Path, number: u64) -> Result<usize, StoreError> {
    let path = log_path(dir, number);
    let (mut batches, mut arrivals): (Vec<Batch>, Vec<HostTime>) = (Vec::new(), Vec::new());
    // What cannot be read now will not be readable later either, and was told when the log was opened.
    for Arrived { at, batch } in Arrivals::new(vec![Source::log(dir, number)?]).flatten() {
        if !batch.records.is_empty() {
            batches.push(batch);
            arrivals.push(at);
        }
    }
    if !batches.is_empty() {
        let last = arrivals.iter().copied().max().unwrap_or_default();
        let hour = last.some().unwrap_or_else(|| written_at(&path)).0 / NANOS_PER_SEC / HOUR_SECONDS;
        write_segment(dir, number, hour, &batches, &arrivals)?;
    }
    std::fs::remove_file(&path).map_err(io_error("removing", &path))?;
    Ok(usize::from(!batches.is_empty()))
}

/// When a file was last written, by this machine's clock; of a log of version 1, about when its last frame arrived.
fn written_at(path: &Path) -> HostTime {
    let modified = std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let since_epoch = modified.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    HostTime(u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX))
}

fn write_segment(
    dir: &Path,
    number: u64,
    hour: u64,
    batches: &[Batch],
    arrivals: &[HostTime],
) -> Result<(), StoreError> {
    let folder = hour_dir(dir, hour);
    let temporary = wal_dir(dir).join(format!("{number:010}.tmp"));
    let write = || -> Result<(), StoreError> {
        create_private_dir(&folder).map_err(io_error("creating", &folder))?;
        let checksum = segment::write(&temporary, batches, arrivals)
            .map_err(|e| StoreError::Segment { path: temporary.clone(), reason: e.to_string() })?;
        let target = folder.join(format!("{number:010}-{checksum:08x}.parquet"));
        std::fs::rename(&temporary, &target).map_err(io_error("renaming to", &target))
    };
    if let Err(error) = write() {
        // On a full disk what was written of it takes room that others need.
        let _ = std::fs::remove_file(&temporary);
        return Err(error);
    }
    let mut durable = folder.as_path();
    while durable != dir {
        sync_dir(durable).map_err(io_error("syncing", durable))?;
        durable = durable.parent().unwrap_or(dir);
    }
    sync_dir(dir).map_err(io_error("syncing", dir))
}

/// Deletes segments whose hour ended before `oldest`, then the oldest while all are larger than `max_bytes`.
pub(crate) fn retain(dir: &Path, oldest: HostTime, max_bytes: u64) -> Result<usize, StoreError> {
    let all = segments(dir)?;
    let mut bytes: u64 = all.iter().map(|s| s.bytes).sum();
    let mut removed = 0;
    for segment in &all {
        let ended = (segment.hour + 1).saturating_mul(HOUR_SECONDS * NANOS_PER_SEC);
        if ended > oldest.0 && bytes <= max_bytes {
            break;
        }
        std::fs::remove_file(&segment.path).map_err(io_error("removing", &segment.path))?;
        bytes -= segment.bytes;
        removed += 1;
        // The hour's and the day's folders go with their last file; others are not empty and stay.
        let hour = segment.path.parent();
        for folder in [hour, hour.and_then(Path::parent)].into_iter().flatten() {
            let _ = std::fs::remove_dir(folder);
        }
    }
    Ok(removed)
}
