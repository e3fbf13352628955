//! The store's directory: write-ahead logs, segments, retention, replay (`docs/formats/store.md`).
//!
//! A batch is appended to the newest log before `append` returns. A sealed log becomes one segment per hour of
//! collection, named by the log's number, and is removed when the last of them is durable; segments whose log is still
//! there do not count. So a crash at any point leaves either the log or all of its segments in force, never both and
//! never neither.
use crate::facade::StoreError;
use crate::segment::{self, Arrived};
use mycroft_record::{Batch, HostTime, NANOS_PER_SEC};
use mycroft_wire::codec;
use mycroft_wire::log::{ENTRY_HEAD_BYTES, LogFile, create_private_dir, numbered_files, read_entry, sync_dir};
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const HOUR_SECONDS: u64 = 3600;
/// Records in one log at most, so that its segments stay within `segment::MAX_ROWS`.
const MAX_LOG_RECORDS: usize = segment::MAX_ROWS;

/// The files of a store.
#[derive(Debug)]
pub(crate) struct Disk {
    dir: PathBuf,
    log: LogFile,
    number: u64,
    /// Number of the next log: above every log and segment there was.
    next: u64,
    records: usize,
    /// Collection time of the log's first batch.
    began: HostTime,
    /// Sealed logs that are not segments yet.
    sealed: Vec<u64>,
    /// Holds the directory against a second server.
    _lock: File,
}

pub(crate) fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { operation, path, source }
}

fn log_path(dir: &Path, number: u64) -> PathBuf {
    dir.join("wal").join(format!("{number:010}.log"))
}

/// One segment file as its name tells: `date=2026-11-21/hour=10/0000000012-0badcafe.parquet`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SegmentFile {
    /// Hours since the epoch.
    pub(crate) hour: u64,
    log: u64,
    /// CRC-32C of the whole file.
    checksum: u32,
    pub(crate) path: PathBuf,
    bytes: u64,
}

/// Year, month and day of a day since the epoch (proleptic Gregorian; eras of 400 years have 146,097 days).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

fn days_of(year: u64, month: u64, day: u64) -> Option<u64> {
    // The inverse, by looking: days of a year lie within 366 of its mean.
    let guess = year.checked_sub(1970)?.checked_mul(1461)? / 4;
    (guess.saturating_sub(40)..guess + 410).find(|days| civil(*days) == (year, month, day))
}

fn hour_dir(dir: &Path, hour: u64) -> PathBuf {
    let (year, month, day) = civil(hour / 24);
    dir.join("segments").join(format!("date={year:04}-{month:02}-{day:02}")).join(format!("hour={:02}", hour % 24))
}

/// Log and checksum.
fn parse_name(name: &str) -> Option<(u64, u32)> {
    let (log, checksum) = name.strip_suffix(".parquet")?.split_once('-')?;
    Some((log.parse().ok()?, u32::from_str_radix(checksum, 16).ok()?))
}

fn parse_date(name: &str) -> Option<u64> {
    let mut parts = name.strip_prefix("date=")?.split('-').map(str::parse);
    days_of(parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?)
}

fn names(dir: &Path) -> Result<Vec<String>, StoreError> {
    let list = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            names.extend(entry?.file_name().into_string());
        }
        names.sort();
        Ok(names)
    };
    match list() {
        // Retention or an earlier look may have removed it in between.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(io_error("listing", dir)),
    }
}

/// All segments, oldest first. Files that are not named as segments are left alone.
pub(crate) fn segments(dir: &Path) -> Result<Vec<SegmentFile>, StoreError> {
    let root = dir.join("segments");
    let mut found = Vec::new();
    for date in names(&root)? {
        let Some(day) = parse_date(&date) else { continue };
        for hour_name in names(&root.join(&date))? {
            let Some(hour) = hour_name.strip_prefix("hour=").and_then(|h| h.parse::<u64>().ok()) else { continue };
            found.extend(named_segments(&root.join(&date).join(&hour_name), day * 24 + hour)?);
        }
    }
    found.sort();
    Ok(found)
}

/// The segments in one folder, by name. Files that are not named as segments are left alone.
pub(crate) fn named_segments(folder: &Path, hour: u64) -> Result<Vec<SegmentFile>, StoreError> {
    let mut found = Vec::new();
    for name in names(folder)? {
        let Some((log, checksum)) = parse_name(&name) else { continue };
        let path = folder.join(name);
        let bytes = std::fs::metadata(&path).map_or(0, |m| m.len());
        found.push(SegmentFile { hour, log, checksum, path, bytes });
    }
    Ok(found)
}

/// The batches of a segment, none where retention was faster.
pub(crate) fn read_segment(file: SegmentFile) -> Result<Vec<Arrived>, StoreError> {
    match segment::read(&file.path, file.checksum) {
        Err(_) if !file.path.exists() => Ok(Vec::new()),
        other => other.map_err(|reason| StoreError::Segment { path: file.path, reason }),
    }
}

impl Disk {
    /// Opens the directory; batches that are in logs only are shown to `each`.
    pub(crate) fn open(dir: &Path, each: &mut dyn FnMut(Batch)) -> Result<Disk, StoreError> {
        let wal = dir.join("wal");
        create_private_dir(dir).map_err(io_error("creating", dir))?;
        create_private_dir(&wal).map_err(io_error("creating", &wal))?;
        let lock_path = dir.join("lock");
        let lock = File::create(&lock_path).map_err(io_error("creating", &lock_path))?;
        lock.try_lock().map_err(|e| io_error("locking (another server uses this directory)", &lock_path)(e.into()))?;
        let mut logs = numbered_files(&wal, "log").map_err(io_error("listing", &wal))?;
        let mut next = drop_unfinished(dir, &logs)?;
        let newest = logs.pop().unwrap_or(next);
        next = next.max(newest + 1);
        for &sealed in &logs {
            open_log(dir, sealed, &mut |batch| each(batch))?;
        }
        let (mut records, mut began) = (0, HostTime::NONE);
        let log = open_log(dir, newest, &mut |batch| {
            records += batch.records.len();
            began = began.some().unwrap_or(batch.collected_at);
            each(batch);
        })?;
        Ok(Disk { dir: dir.to_owned(), log, number: newest, next, records, began, sealed: logs, _lock: lock })
    }

    /// Appends batches as one entry, after sealing the log when they would make it too long.
    pub(crate) fn append<B: Borrow<Batch>>(&mut self, batches: &[B]) -> Result<(), StoreError> {
        let count: usize = batches.iter().map(|b| b.borrow().records.len()).sum();
        if self.records > 0 && self.records + count > MAX_LOG_RECORDS {
            self.seal()?;
        }
        let frame = codec::encode(batches)?;
        self.log.append(&frame).map_err(io_error("appending to", &log_path(&self.dir, self.number)))?;
        self.records += count;
        if let Some(first) = batches.first() {
            self.began = self.began.some().unwrap_or(first.borrow().collected_at);
        }
        Ok(())
    }

    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.log.sync().map_err(io_error("syncing", &log_path(&self.dir, self.number)))
    }

    /// Ends the present log and begins the next; does nothing when it is empty.
    pub(crate) fn seal(&mut self) -> Result<(), StoreError> {
        if self.log.bytes() == 0 {
            return Ok(());
        }
        self.sync()?;
        let next = open_log(&self.dir, self.next, &mut |_| {})?;
        self.sealed.push(self.number);
        self.log = next;
        self.number = self.next;
        self.next += 1;
        self.records = 0;
        self.began = HostTime::NONE;
        Ok(())
    }

    pub(crate) fn began(&self) -> HostTime {
        self.began
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

    /// Everything collected since `from`, and what lies in the same files, for a replay: segments first, then what only
    /// logs hold. Open handles keep logs readable that become segments meanwhile.
    pub(crate) fn sources(&self, from: HostTime) -> Result<Vec<ReplaySource>, StoreError> {
        let first_hour = from.0 / NANOS_PER_SEC / HOUR_SECONDS;
        let listed = segments(&self.dir)?.into_iter().filter(|segment| segment.hour >= first_hour);
        // Segments of a log that is still there are incomplete or about to replace it.
        let finished = listed.filter(|s| s.log != self.number && !self.sealed.contains(&s.log));
        let mut sources: Vec<ReplaySource> = finished.map(ReplaySource::Segment).collect();
        for &number in &self.sealed {
            let path = log_path(&self.dir, number);
            let file = File::open(&path).map_err(io_error("opening", &path))?;
            let end = file.metadata().map_err(io_error("opening", &path))?.len();
            sources.push(ReplaySource::Log { path, file, offset: 0, end });
        }
        let path = log_path(&self.dir, self.number);
        let file = self.log.reader().map_err(io_error("opening", &path))?;
        sources.push(ReplaySource::Log { path, file, offset: 0, end: self.log.bytes() });
        Ok(sources)
    }
}

/// Removes segments whose log is still there: a crash came before all of them were written, or just after; they will be
/// made again. Gives the number of the next log.
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

fn open_log(dir: &Path, number: u64, each: &mut dyn FnMut(Batch)) -> Result<LogFile, StoreError> {
    let path = log_path(dir, number);
    let mut decode = |content: Vec<u8>| {
        // The entry's checksum held, so a frame that cannot be read is of another release; a replay names it.
        if let Ok(decoded) = codec::decode(&content) {
            decoded.batches.into_iter().for_each(&mut *each);
        }
    };
    let (log, _torn) = LogFile::open(&path, &mut decode).map_err(io_error("opening", &path))?;
    sync_dir(&dir.join("wal")).map_err(io_error("syncing", dir))?;
    Ok(log)
}

/// Turns a sealed log into segments and removes it.
pub(crate) fn compact(dir: &Path, number: u64) -> Result<usize, StoreError> {
    let path = log_path(dir, number);
    let file = File::open(&path).map_err(io_error("opening", &path))?;
    let end = file.metadata().map_err(io_error("opening", &path))?.len();
    let mut by_hour: BTreeMap<u64, Vec<Batch>> = BTreeMap::new();
    for batch in Replay::new(vec![ReplaySource::Log { path: path.clone(), file, offset: 0, end }]) {
        // What cannot be read now will not be readable later either.
        let Ok(batch) = batch else { continue };
        if !batch.records.is_empty() {
            by_hour.entry(batch.collected_at.0 / NANOS_PER_SEC / HOUR_SECONDS).or_default().push(batch);
        }
    }
    for (hour, batches) in &by_hour {
        let folder = hour_dir(dir, *hour);
        create_private_dir(&folder).map_err(io_error("creating", &folder))?;
        let temporary = dir.join("wal").join(format!("{number:010}.tmp"));
        let checksum = segment::write(&temporary, batches, &[])
            .map_err(|e| StoreError::Segment { path: temporary.clone(), reason: e.to_string() })?;
        let target = folder.join(format!("{number:010}-{checksum:08x}.parquet"));
        std::fs::rename(&temporary, &target).map_err(io_error("renaming to", &target))?;
        let mut durable = folder.as_path();
        while durable != dir {
            sync_dir(durable).map_err(io_error("syncing", durable))?;
            durable = durable.parent().unwrap_or(dir);
        }
        sync_dir(dir).map_err(io_error("syncing", dir))?;
    }
    std::fs::remove_file(&path).map_err(io_error("removing", &path))?;
    Ok(by_hour.len())
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

/// Where a replay reads.
#[derive(Debug)]
pub(crate) enum ReplaySource {
    Segment(SegmentFile),
    Log { path: PathBuf, file: File, offset: u64, end: u64 },
}

/// All batches of a store, oldest files first; what cannot be read comes as an error that names the file, and the
/// replay goes on behind it.
#[derive(Debug)]
pub struct Replay {
    sources: std::vec::IntoIter<ReplaySource>,
    current: Option<ReplaySource>,
    ready: std::vec::IntoIter<Batch>,
}

impl Replay {
    pub(crate) fn new(sources: Vec<ReplaySource>) -> Replay {
        Replay { sources: sources.into_iter(), current: None, ready: Vec::new().into_iter() }
    }

    /// The next batches, `None` when this source has no more.
    fn advance(source: ReplaySource) -> (Option<ReplaySource>, Result<Vec<Batch>, StoreError>) {
        match source {
            ReplaySource::Segment(file) => {
                let read = read_segment(file);
                let read = read.map(|arrived| arrived.into_iter().map(|arrived| arrived.batch).collect());
                (None, read)
            }
            ReplaySource::Log { path, file, offset, end } => match read_entry(&file, offset, end) {
                Ok(Some(content)) => {
                    let decoded = codec::decode(&content).map(|d| d.batches);
                    let read = decoded.map_err(|e| StoreError::Segment { path: path.clone(), reason: e.to_string() });
                    let offset = offset + ENTRY_HEAD_BYTES + content.len() as u64;
                    (Some(ReplaySource::Log { path, file, offset, end }), read)
                }
                Ok(None) => (None, Ok(Vec::new())),
                Err(e) => (None, Err(io_error("reading", &path)(e))),
            },
        }
    }
}

impl Iterator for Replay {
    type Item = Result<Batch, StoreError>;

    fn next(&mut self) -> Option<Result<Batch, StoreError>> {
        loop {
            if let Some(batch) = self.ready.next() {
                return Some(Ok(batch));
            }
            let source = self.current.take().or_else(|| self.sources.next())?;
            let (rest, read) = Replay::advance(source);
            self.current = rest;
            match read {
                Ok(batches) => self.ready = batches.into_iter(),
                Err(e) => return Some(Err(e)),
            }
        }
    }
}

/// A batch with its times rounded to what segments keep; the same one where they are already, which agents see to.
pub(crate) fn rounded(batch: &Arc<Batch>) -> Arc<Batch> {
    if codec::is_round(batch) {
        return Arc::clone(batch);
    }
    let mut batch = Batch::clone(batch);
    codec::round_to_micros(&mut batch);
    Arc::new(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_names_and_names_have_days() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_778), (2026, 11, 21));
        for days in (0..200_000).step_by(37) {
            let (year, month, day) = civil(days);
            assert_eq!(days_of(year, month, day), Some(days));
        }
        assert_eq!(parse_date("date=2026-13-01"), None);
        assert_eq!(parse_name("0000000012-0000beef.parquet"), Some((12, 0xbeef)));
        assert_eq!(parse_name("0000000012.parquet"), None);
        assert_eq!(parse_name("notes.parquet"), None);
    }
}
