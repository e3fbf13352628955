//! Reading: the batches of segments and logs, with when each arrived. Nothing here writes.
use crate::error::StoreError;
#[cfg(feature = "clickhouse")]
use crate::meta::identity;
use crate::names::{self, SegmentFile, io_error};
use crate::remote::RecordsPlace;
use crate::segment::{self, Arrived};
use mycroft_record::{Batch, HostTime, NANOS_PER_SEC};
use mycroft_wire::codec;
use mycroft_wire::log::{Marks, Piece, Pieces, numbered_files};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
#[cfg(feature = "clickhouse")]
use {
    crate::remote::table::{Segment, Table},
    std::sync::Arc,
};

/// What the content of a log's entry begins with, before the time of arrival.
const ARRIVAL_MARK: [u8; 4] = *b"MYCA";
/// Mark and time.
pub(crate) const ARRIVAL_BYTES: usize = 12;
/// By which an entry is found behind a damaged one: logs of version 1 hold frames alone.
pub(crate) const MARKS: Marks = Marks { at: 0, any_of: &[ARRIVAL_MARK, codec::MAGIC] };
pub(crate) const HOUR_SECONDS: u64 = 3600;

/// What stands before the frame in an entry.
pub(crate) fn arrival_head(at: HostTime) -> [u8; ARRIVAL_BYTES] {
    let mut head = [0; ARRIVAL_BYTES];
    head[..4].copy_from_slice(&ARRIVAL_MARK);
    head[4..].copy_from_slice(&at.0.to_le_bytes());
    head
}

/// When a frame arrived (`NONE` where version 1 did not say), and the frame.
pub(crate) fn split(content: &[u8]) -> (HostTime, &[u8]) {
    match content.split_first_chunk::<ARRIVAL_BYTES>() {
        Some((&[m0, m1, m2, m3, t0, t1, t2, t3, t4, t5, t6, t7], frame)) if [m0, m1, m2, m3] == ARRIVAL_MARK => {
            (HostTime(u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7])), frame)
        }
        _ => (HostTime::NONE, content),
    }
}

/// Where a replay reads.
#[derive(Debug)]
pub(crate) enum Source {
    Segment(SegmentFile),
    Log {
        number: u64,
        path: PathBuf,
        pieces: Pieces,
    },
    /// A segment in a database.
    #[cfg(feature = "clickhouse")]
    Rows(Arc<Table>, Segment),
}

impl Source {
    /// A log up to `end`; an open handle keeps it readable when it becomes a segment meanwhile.
    pub(crate) fn log(dir: &Path, number: u64) -> Result<Source, StoreError> {
        let path = names::log_path(dir, number);
        let pieces = Pieces::of_file(&path, MARKS).map_err(io_error("opening", &path))?;
        Ok(Source::Log { number, path, pieces })
    }

    pub(crate) fn number(&self) -> u64 {
        match self {
            Source::Segment(file) => file.log,
            Source::Log { number, .. } => *number,
            #[cfg(feature = "clickhouse")]
            Source::Rows(_, segment) => segment.log,
        }
    }

    /// The next batches, and the source if it may have more.
    pub(crate) fn advance(self) -> (Option<Source>, Result<Vec<Arrived>, StoreError>) {
        match self {
            Source::Segment(file) => (None, read_segment(file)),
            #[cfg(feature = "clickhouse")]
            Source::Rows(table, segment) => (None, table.read(&segment).map_err(StoreError::from)),
            Source::Log { number, path, mut pieces } => match pieces.next() {
                None => (None, Ok(Vec::new())),
                // The one who writes is inside an entry that nobody was told to be kept.
                Some(Piece::Torn { .. }) if pieces.is_written_to() => (None, Ok(Vec::new())),
                Some(piece) => {
                    let read = read_piece(&path, piece);
                    (Some(Source::Log { number, path, pieces }), read)
                }
            },
        }
    }
}

fn read_piece(path: &Path, piece: Piece) -> Result<Vec<Arrived>, StoreError> {
    let path = path.to_owned();
    match piece {
        Piece::Entry { content, .. } => {
            let (at, frame) = split(&content);
            match codec::decode(frame) {
                Ok(decoded) => Ok(decoded.batches.into_iter().map(|batch| Arrived { at, batch }).collect()),
                Err(e) => Err(StoreError::Segment { path, reason: e.to_string() }),
            }
        }
        Piece::Damaged { offset, bytes } | Piece::Torn { offset, bytes } => {
            Err(StoreError::Damaged { path, offset, bytes })
        }
    }
}

/// The batches of a segment, none where retention was faster.
pub(crate) fn read_segment(file: SegmentFile) -> Result<Vec<Arrived>, StoreError> {
    match segment::read(&file.path, file.checksum) {
        Err(_) if !file.path.exists() => Ok(Vec::new()),
        other => other.map_err(|reason| StoreError::Segment { path: file.path, reason }),
    }
}

/// Where a store is: its folder, and where the segments are that are not in it any more.
#[derive(Clone, Debug)]
pub struct StoreAt {
    /// The folder.
    pub dir: PathBuf,
    /// Where segments are besides.
    pub records: RecordsPlace,
}

impl<P: AsRef<Path> + ?Sized> From<&P> for StoreAt {
    fn from(dir: &P) -> StoreAt {
        StoreAt { dir: dir.as_ref().to_owned(), records: RecordsPlace::Folder }
    }
}

/// As `local`, with those that are elsewhere. A segment that is in both is read where it stays.
pub(crate) fn sources(at: &StoreAt, from: HostTime) -> Result<Vec<Source>, StoreError> {
    let found = local(&at.dir, from)?;
    match &at.records {
        RecordsPlace::Folder => Ok(found),
        #[cfg(feature = "clickhouse")]
        RecordsPlace::ClickHouse(server) => {
            let store = identity::named(&at.dir)?;
            let table = Arc::new(Table::new(server, &store)?);
            let first = from.0 / NANOS_PER_SEC / HOUR_SECONDS * HOUR_SECONDS;
            let mut segments = table.segments()?;
            segments.retain(|_, segment| u64::from(segment.at) >= first);
            let logs = found.iter().filter(|source| matches!(source, Source::Log { .. })).map(Source::number);
            // A log that is still there is not over.
            for log in logs {
                segments.remove(&log);
            }
            let mut all: Vec<Source> = found.into_iter().filter(|one| !segments.contains_key(&one.number())).collect();
            all.extend(segments.into_values().map(|segment| Source::Rows(Arc::clone(&table), segment)));
            all.sort_by_key(Source::number);
            Ok(all)
        }
        #[cfg(not(feature = "clickhouse"))]
        RecordsPlace::ClickHouse(_) => Err(StoreError::Records(crate::remote::RecordsError::NotBuilt)),
    }
}

/// Everything that arrived since `from`, and what lies in the same files, by the number of the log: what a directory
/// holds now, whether or not a server uses it.
pub(crate) fn local(dir: &Path, from: HostTime) -> Result<Vec<Source>, StoreError> {
    let wal = names::wal_dir(dir);
    let numbers = match numbered_files(&wal, "log") {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        other => other.map_err(io_error("listing", &wal))?,
    };
    // Logs are opened before segments are listed: one that becomes a segment in between is read as a log.
    let mut found = Vec::new();
    for number in numbers {
        match Source::log(dir, number) {
            Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            other => found.push(other?),
        }
    }
    let logs: BTreeSet<u64> = found.iter().map(Source::number).collect();
    let first_hour = from.0 / NANOS_PER_SEC / HOUR_SECONDS;
    let listed = names::segments(dir)?.into_iter().filter(|segment| segment.hour >= first_hour);
    // Segments of a log that is still there are incomplete or about to replace it.
    found.extend(listed.filter(|segment| !logs.contains(&segment.log)).map(Source::Segment));
    // Of version 1 there are several segments of one number, in the order of their hours.
    found.sort_by_key(Source::number);
    Ok(found)
}

/// All batches of a store, oldest files first; what cannot be read comes as an error that names it, and the replay goes
/// on behind it.
#[derive(Debug)]
pub struct Replay(Arrivals);

impl Replay {
    pub(crate) fn new(sources: Vec<Source>) -> Replay {
        Replay(Arrivals::new(sources))
    }
}

impl Iterator for Replay {
    type Item = Result<Batch, StoreError>;

    fn next(&mut self) -> Option<Result<Batch, StoreError>> {
        self.0.next().map(|arrived| arrived.map(|arrived| arrived.batch))
    }
}

/// All batches of sources, one after the other, with when they arrived.
#[derive(Debug)]
pub(crate) struct Arrivals {
    sources: std::vec::IntoIter<Source>,
    current: Option<Source>,
    ready: std::vec::IntoIter<Arrived>,
    number: u64,
}

impl Arrivals {
    /// Number of the source that the last batch came from.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn new(sources: Vec<Source>) -> Arrivals {
        Arrivals { sources: sources.into_iter(), current: None, ready: Vec::new().into_iter(), number: 0 }
    }
}

impl Iterator for Arrivals {
    type Item = Result<Arrived, StoreError>;

    fn next(&mut self) -> Option<Result<Arrived, StoreError>> {
        loop {
            if let Some(arrived) = self.ready.next() {
                return Some(Ok(arrived));
            }
            let source = self.current.take().or_else(|| self.sources.next())?;
            self.number = source.number();
            let (rest, read) = source.advance();
            self.current = rest;
            match read {
                Ok(arrived) => self.ready = arrived.into_iter(),
                Err(e) => return Some(Err(e)),
            }
        }
    }
}
