//! A bounded queue of encoded frames on disk, for an agent whose server is away.
//!
//! Frames lie in numbered logs of a sixteenth of the limit each; `head` says up to where they were taken. The oldest
//! frames are dropped, and their records counted, when the limit is reached. Frames survive the end of the process;
//! after the end of the machine the last ones may be missing, never damaged.
use crate::codec;
use crate::dir::{Access, PrivateDir};
use crate::log::{ENTRY_HEAD_BYTES, LogFile, Mark, Marks, Piece, numbers_of};
use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Logs per spool: dropping the oldest frees a sixteenth of the space at once.
const FILES: u64 = 16;
/// Smallest size of a log, so that small limits do not make a file per frame.
const MIN_FILE_BYTES: u64 = 64 * 1024;
/// Bytes of the record count before a frame.
const COUNT_BYTES: usize = 8;

/// Each entry is a record count and a frame.
const MARKS: Marks = Marks { at: COUNT_BYTES, any_of: &[codec::MAGIC] };

/// Why a spool operation failed.
#[derive(Debug, thiserror::Error)]
#[error(
    "{operation} spool {path}: {source}; check that the directory is writable, has space and no other agent uses it"
)]
pub struct SpoolError {
    /// What was being done.
    pub operation: &'static str,
    /// Where.
    pub path: PathBuf,
    /// Why it failed.
    pub source: io::Error,
}

#[derive(Debug)]
struct Entry {
    offset: u64,
    records: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Part {
    number: u64,
    log: LogFile,
    entries: VecDeque<Entry>,
}

/// The queue.
#[derive(Debug)]
pub struct Spool {
    dir: PrivateDir,
    max_bytes: u64,
    /// Oldest first; never empty.
    parts: VecDeque<Part>,
    head: Mark,
    dropped_records: u64,
    /// Records and bytes of the entries of all parts.
    waiting: (u64, u64),
    /// Holds the directory against a second agent.
    _lock: std::fs::File,
}

impl Spool {
    /// Opens or creates the spool in `dir`; frames of an earlier run are still there.
    ///
    /// # Errors
    /// When the directory cannot be used, others may change it, or another process uses it.
    pub fn open(dir: &Path, max_bytes: u64) -> Result<Spool, SpoolError> {
        let failed = |source| SpoolError { operation: "opening", path: dir.to_owned(), source };
        let open = || -> io::Result<Spool> {
            let dir = PrivateDir::open(dir)?;
            let lock = dir.file("lock", Access::ReadWrite)?;
            lock.try_lock()?;
            let (head, taken) = Mark::of(dir.file("head", Access::ReadWrite)?)?;
            let (mut part_number, mut offset) = taken.unwrap_or((0, 0));
            let mut parts = VecDeque::new();
            let mut dropped_records = 0;
            for number in numbers_of(dir.names()?, "spool") {
                if number < part_number {
                    dir.remove(&part_name(number))?;
                    continue;
                }
                let from = if number == part_number { offset } else { 0 };
                parts.push_back(open_part(&dir, number, from, &mut dropped_records)?);
                (part_number, offset) = (part_number.max(number), 0);
            }
            if parts.is_empty() {
                parts.push_back(open_part(&dir, part_number + 1, 0, &mut dropped_records)?);
            }
            let mut spool = Spool { dir, max_bytes, parts, head, dropped_records, waiting: (0, 0), _lock: lock };
            spool.waiting = totals(spool.parts.iter().flat_map(|part| &part.entries));
            Ok(spool)
        };
        open().map_err(failed)
    }

    /// Adds a frame made by `codec::encode` of `records` records; drops and counts the oldest when full.
    ///
    /// # Errors
    /// When it cannot be written; the spool is then as it was.
    pub fn push(&mut self, frame: &[u8], records: u64) -> Result<(), SpoolError> {
        let mut content = records.to_le_bytes().to_vec();
        content.extend_from_slice(frame);
        let need = ENTRY_HEAD_BYTES + content.len() as u64;
        if need > self.max_bytes {
            self.dropped_records += records;
            return Ok(());
        }
        self.make_room(need).map_err(|source| self.failed("making room in", source))?;
        self.append(&content, records).map_err(|source| self.failed("writing to", source))
    }

    fn append(&mut self, content: &[u8], records: u64) -> io::Result<()> {
        let limit = (self.max_bytes / FILES).max(MIN_FILE_BYTES);
        let full = self.parts.back().is_none_or(|p| p.log.bytes() >= limit);
        if full {
            let number = self.parts.back().map_or(1, |p| p.number + 1);
            self.parts.push_back(open_part(&self.dir, number, 0, &mut self.dropped_records)?);
        }
        let Some(part) = self.parts.back_mut() else { return Ok(()) };
        let offset = part.log.bytes();
        part.log.append(content)?;
        let bytes = ENTRY_HEAD_BYTES + content.len() as u64;
        part.entries.push_back(Entry { offset, records, bytes });
        self.waiting = (self.waiting.0.saturating_add(records), self.waiting.1 + bytes);
        Ok(())
    }

    fn make_room(&mut self, need: u64) -> io::Result<()> {
        while self.disk_bytes() + need > self.max_bytes {
            let Some(part) = self.parts.pop_front() else { break };
            let (records, bytes) = totals(part.entries.iter());
            self.dropped_records = self.dropped_records.saturating_add(records);
            self.no_longer(records, bytes);
            self.dir.remove(&part_name(part.number))?;
            if self.parts.is_empty() {
                self.parts.push_back(open_part(&self.dir, part.number + 1, 0, &mut self.dropped_records)?);
                break;
            }
        }
        Ok(())
    }

    /// The oldest frame, which stays until `pop`. Frames that the disk has damaged are dropped and counted.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn peek(&mut self) -> Result<Option<Vec<u8>>, SpoolError> {
        loop {
            let Some(part) = self.parts.iter().find(|p| !p.entries.is_empty()) else { return Ok(None) };
            let Some(entry) = part.entries.front() else { return Ok(None) };
            let read = part.log.read(entry.offset).map_err(|source| self.failed("reading", source))?;
            match read {
                Some(mut content) if content.len() >= COUNT_BYTES => return Ok(Some(content.split_off(COUNT_BYTES))),
                _ => {
                    self.dropped_records += entry.records;
                    self.pop()?;
                }
            }
        }
    }

    /// Removes the oldest frame (the one that `peek` showed).
    ///
    /// # Errors
    /// When that cannot be noted on disk; the frame may then come again after a restart.
    pub fn pop(&mut self) -> Result<(), SpoolError> {
        self.take_front().map_err(|source| self.failed("taking from", source))
    }

    fn take_front(&mut self) -> io::Result<()> {
        while self.parts.len() > 1 && self.parts.front().is_some_and(|p| p.entries.is_empty()) {
            self.remove_first()?;
        }
        let Some(part) = self.parts.front_mut() else { return Ok(()) };
        let Some(entry) = part.entries.pop_front() else { return Ok(()) };
        let (number, next) = (part.number, entry.offset + entry.bytes);
        self.no_longer(entry.records, entry.bytes);
        self.head.set(number, next)?;
        // An emptied spool leaves nothing behind.
        if self.is_empty() {
            self.parts.push_back(open_part(&self.dir, number + 1, 0, &mut self.dropped_records)?);
            while self.parts.len() > 1 {
                self.remove_first()?;
            }
        }
        Ok(())
    }

    fn remove_first(&mut self) -> io::Result<()> {
        match self.parts.pop_front() {
            Some(part) => self.dir.remove(&part_name(part.number)),
            None => Ok(()),
        }
    }

    /// Frames waiting.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|p| p.entries.len()).sum()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.parts.iter().all(|p| p.entries.is_empty())
    }

    /// Bytes on disk, frames already taken from a log that still has others included.
    pub fn disk_bytes(&self) -> u64 {
        self.parts.iter().map(|p| p.log.bytes()).sum()
    }

    /// Records dropped because the spool was full or an entry was damaged, since it was opened.
    pub fn dropped_records(&self) -> u64 {
        self.dropped_records
    }

    /// Records that wait, as their frames say, and the bytes of these on disk.
    pub fn waiting(&self) -> (u64, u64) {
        self.waiting
    }

    fn no_longer(&mut self, records: u64, bytes: u64) {
        self.waiting = (self.waiting.0.saturating_sub(records), self.waiting.1.saturating_sub(bytes));
    }

    fn failed(&self, operation: &'static str, source: io::Error) -> SpoolError {
        SpoolError { operation, path: self.dir.path().to_owned(), source }
    }
}

/// Records and bytes of entries. What a file says of its records may be anything.
fn totals<'a>(entries: impl Iterator<Item = &'a Entry>) -> (u64, u64) {
    entries.fold((0, 0), |(records, bytes), entry| (u64::saturating_add(records, entry.records), bytes + entry.bytes))
}

fn part_name(number: u64) -> String {
    format!("{number:010}.spool")
}

/// Opens a part; entries before `from` are done with. Records in damaged entries are added to `dropped`.
fn open_part(dir: &PrivateDir, number: u64, from: u64, dropped: &mut u64) -> io::Result<Part> {
    let mut entries = VecDeque::new();
    let mut damaged = Vec::new();
    let log = LogFile::of(dir.file(&part_name(number), Access::ReadWrite)?, MARKS, &mut |piece| match piece {
        Piece::Entry { offset, content } if offset >= from => {
            let bytes = ENTRY_HEAD_BYTES + content.len() as u64;
            let records = content.first_chunk::<COUNT_BYTES>().map_or(0, |count| u64::from_le_bytes(*count));
            entries.push_back(Entry { offset, records, bytes });
        }
        Piece::Damaged { offset, .. } if offset >= from => damaged.push(offset),
        Piece::Entry { .. } | Piece::Damaged { .. } | Piece::Torn { .. } => {}
    })?;
    for offset in damaged {
        *dropped += damaged_records(&log, offset)?;
    }
    Ok(Part { number, log, entries })
}

/// How many records a damaged entry held, as its count says; one where even that makes no sense.
fn damaged_records(log: &LogFile, offset: u64) -> io::Result<u64> {
    let mut count = [0; COUNT_BYTES];
    let read = log.reader()?.read_exact_at(&mut count, offset + ENTRY_HEAD_BYTES);
    let plausible = read.ok().map(|()| u64::from_le_bytes(count)).filter(|count| *count <= codec::MAX_RECORDS as u64);
    Ok(plausible.unwrap_or(1).max(1))
}
