//! Series of jobs as the database keeps them: pieces of time that are over, and what is known besides. Bodies are the server's own;
//! the store does not read them.
use mycroft_record::HostTime;

/// A piece of time that is over.
#[derive(Clone, PartialEq, Debug)]
pub struct PieceRow {
    /// What it is about: `iterations`, `ranks` or `paths`.
    pub what: &'static str,
    /// Its width, seconds.
    pub width_s: u64,
    /// It is forgotten when a piece of the same width ends by so much later, nanoseconds.
    pub kept_ns: u64,
    /// When its first iteration began (of `iterations`: ended).
    pub start: HostTime,
    /// When its last one ended.
    pub end: HostTime,
    /// Its iterations.
    pub iterations: u64,
    /// How long they took together, milliseconds.
    pub sum_ms: f64,
    /// The rest.
    pub body: Vec<u8>,
}

/// A piece as it was kept.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredPiece {
    /// As in [`PieceRow`].
    pub what: String,
    /// Its width, seconds.
    pub width_s: u64,
    /// When its first iteration began (of `iterations`: ended).
    pub start: HostTime,
    /// When its last one ended.
    pub end: HostTime,
    /// Its iterations.
    pub iterations: u64,
    /// How long they took together, milliseconds.
    pub sum_ms: f64,
    /// The rest.
    pub body: Vec<u8>,
}

/// What of a job's series is to be kept.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SeriesRows {
    /// The job.
    pub job: String,
    /// Pieces that are over.
    pub pieces: Vec<PieceRow>,
    /// What is known besides, by what it is about: it takes the place of what was known before.
    pub states: Vec<(&'static str, String)>,
}

/// The series of a job as they were kept.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StoredSeries {
    /// Pieces, oldest first.
    pub pieces: Vec<StoredPiece>,
    /// What is known besides.
    pub states: Vec<(String, String)>,
}
