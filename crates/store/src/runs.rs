//! When servers started and stopped, and until when each told of cases (`docs/formats/store.md`, "Runs"). A run that
//! neither stopped nor is the last ended without a word.
use crate::delivery::{Deliveries, Delivery};
use crate::error::StoreError;
use crate::names::io_error;
use crate::source::{StoreAt, sources};
use mycroft_record::HostTime;
use mycroft_wire::log::{LogFile, Marks, Piece, Pieces, sync_dir};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

/// What each entry begins with.
const MARK: [u8; 4] = *b"MYCR";
const MARKS: Marks = Marks { at: 0, any_of: &[MARK] };
/// Mark, kind, time, number of the log, number of the next case.
const ENTRY_BYTES: usize = 4 + 1 + 3 * 8;
/// A file that is longer is written anew with its newest runs: 28,000 entries of 37 bytes.
const BYTES_MAX: u64 = 1 << 20;
/// Runs kept then: a restart every ten minutes for seven days, the default retention.
const RUNS_KEPT: usize = 1008;

/// A run of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Run {
    /// When it started, by its own clock.
    pub at: HostTime,
    /// Number of its first log.
    pub log: u64,
    /// The number that its first new case got.
    pub next_case: u64,
    /// When it told of a case last; `NONE`: never.
    pub told_until: HostTime,
    /// When it stopped; `NONE`: it ended without a word, or is still there.
    pub stopped_at: HostTime,
}

/// An entry.
#[derive(Clone, Copy)]
enum Entry {
    Started(Run),
    Told(HostTime),
    Stopped(HostTime),
}

impl Entry {
    fn bytes(self) -> [u8; ENTRY_BYTES] {
        let (kind, at, log, next_case) = match self {
            Entry::Started(run) => (1, run.at, run.log, run.next_case),
            Entry::Told(at) => (2, at, 0, 0),
            Entry::Stopped(at) => (3, at, 0, 0),
        };
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..4].copy_from_slice(&MARK);
        bytes[4] = kind;
        for (number, field) in [at.0, log, next_case].into_iter().zip(bytes[5..].chunks_exact_mut(8)) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// None: written by another version.
    fn read(content: &[u8]) -> Option<Entry> {
        let (&[m0, m1, m2, m3, kind], rest) = content.split_first_chunk::<5>()?;
        let mut numbers = rest.chunks_exact(8).filter_map(|field| field.try_into().ok()).map(u64::from_le_bytes);
        let at = HostTime(numbers.next().filter(|_| [m0, m1, m2, m3] == MARK)?);
        match kind {
            1 => Some(Entry::Started(Run { at, log: numbers.next()?, next_case: numbers.next()?, ..Run::default() })),
            2 => Some(Entry::Told(at)),
            3 => Some(Entry::Stopped(at)),
            _ => None,
        }
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join("runs")
}

/// Puts a piece of the file to the runs before it.
fn take(runs: &mut Vec<Run>, piece: &Piece) {
    let Piece::Entry { content, .. } = piece else { return };
    match (Entry::read(content), runs.last_mut()) {
        (Some(Entry::Started(run)), _) => runs.push(run),
        (Some(Entry::Told(at)), Some(run)) => run.told_until = at,
        (Some(Entry::Stopped(at)), Some(run)) => run.stopped_at = at,
        _ => {}
    }
}

/// The runs that a store's folder knows of, oldest first; none where an older release wrote it.
///
/// # Errors
/// When the file cannot be read.
pub fn runs(dir: &Path) -> Result<Vec<Run>, StoreError> {
    let path = path(dir);
    let mut runs = Vec::new();
    match Pieces::of_file(&path, MARKS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io_error("opening", &path)(error)),
        Ok(pieces) => pieces.for_each(|piece| take(&mut runs, &piece)),
    }
    Ok(runs)
}

/// The file as the server writes it.
#[derive(Debug)]
pub(crate) struct Runs {
    dir: PathBuf,
    log: LogFile,
}

impl Runs {
    pub(crate) fn open(dir: &Path) -> Result<Runs, StoreError> {
        let path = path(dir);
        let mut runs = Vec::new();
        let mut log =
            LogFile::open(&path, MARKS, &mut |piece| take(&mut runs, &piece)).map_err(io_error("opening", &path))?;
        if log.bytes() > BYTES_MAX {
            log =
                shortened(dir, &runs[runs.len().saturating_sub(RUNS_KEPT)..]).map_err(io_error("shortening", &path))?;
        }
        Ok(Runs { dir: dir.to_owned(), log })
    }

    fn append(&mut self, entry: Entry) -> Result<(), StoreError> {
        self.log.append(&entry.bytes()).map_err(io_error("appending to", &path(&self.dir)))
    }

    pub(crate) fn started(&mut self, at: HostTime, log: u64, next_case: u64) -> Result<(), StoreError> {
        self.append(Entry::Started(Run { at, log, next_case, ..Run::default() }))
    }

    pub(crate) fn told(&mut self, at: HostTime) -> Result<(), StoreError> {
        self.append(Entry::Told(at))
    }

    pub(crate) fn stopped(&mut self, at: HostTime) -> Result<(), StoreError> {
        self.append(Entry::Stopped(at))
    }
}

/// Writes the file anew.
fn shortened(dir: &Path, runs: &[Run]) -> io::Result<LogFile> {
    let temporary = dir.join("runs.tmp");
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut log = LogFile::open(&temporary, MARKS, &mut |_| ())?;
    for run in runs {
        log.append(&Entry::Started(*run).bytes())?;
        if run.told_until.some().is_some() {
            log.append(&Entry::Told(run.told_until).bytes())?;
        }
        if run.stopped_at.some().is_some() {
            log.append(&Entry::Stopped(run.stopped_at).bytes())?;
        }
    }
    log.sync()?;
    std::fs::rename(&temporary, path(dir))?;
    sync_dir(dir)?;
    Ok(log)
}

/// Something that happened to a server.
#[derive(Clone, PartialEq, Debug)]
pub enum Happening {
    /// It started.
    Started(Run),
    /// Something arrived.
    Delivered(Delivery),
    /// It told of a case, and ended without a word some time after that.
    ToldUntil(HostTime),
    /// It stopped.
    Stopped(HostTime),
}

/// What happened, in order; a file that cannot be read comes as an error that names it.
#[derive(Debug)]
pub struct History {
    deliveries: Deliveries,
    /// The next delivery, and the number of its log.
    next: Option<(u64, Result<Delivery, StoreError>)>,
    runs: VecDeque<Run>,
    /// The run that is on.
    on: Option<Run>,
    /// It starts next.
    starts: bool,
}

/// What happened to the servers of a store's folder. Nothing is written there.
///
/// # Errors
/// When the directory cannot be listed, its runs not be read, or the database of its records not be used.
pub fn history(at: impl Into<StoreAt>) -> Result<History, StoreError> {
    let at = at.into();
    // Before the records: a run that starts meanwhile is not known, nor what it has taken in.
    let runs = runs(&at.dir)?.into();
    let mut deliveries = Deliveries::stored(sources(&at, HostTime::NONE)?);
    let next = deliveries.next_numbered();
    Ok(History { deliveries, next, runs, on: None, starts: false })
}

/// What arrived since `from` and before a run's start.
///
/// # Errors
/// When the directory cannot be listed.
pub fn before(at: &StoreAt, run: &Run, from: HostTime) -> Result<Deliveries, StoreError> {
    let sources = sources(at, from)?.into_iter().filter(|source| source.number() < run.log).collect();
    Ok(Deliveries::stored(sources))
}

impl Iterator for History {
    type Item = Result<Happening, StoreError>;

    fn next(&mut self) -> Option<Result<Happening, StoreError>> {
        if std::mem::take(&mut self.starts)
            && let Some(run) = self.runs.pop_front()
        {
            self.on = Some(run);
            return Some(Ok(Happening::Started(run)));
        }
        let is_over = match (self.runs.front(), &self.next) {
            (Some(run), Some((number, _))) => *number >= run.log,
            (_, None) => true,
            (None, Some(_)) => false,
        };
        if is_over {
            self.starts = !self.runs.is_empty();
            let ended = self.on.take().and_then(|on| {
                let told = on.told_until.some().map(Happening::ToldUntil);
                on.stopped_at.some().map(Happening::Stopped).or(told)
            });
            return match ended {
                Some(ended) => Some(Ok(ended)),
                None if self.starts => self.next(),
                None => None,
            };
        }
        let (_, delivery) = std::mem::replace(&mut self.next, self.deliveries.next_numbered())?;
        Some(delivery.map(Happening::Delivered))
    }
}
