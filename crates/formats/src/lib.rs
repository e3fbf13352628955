//! Foreign bytes to records: Flight Recorder dumps (pickle and JSON), py-spy and faulthandler stacks.
//!
//! Pure: no file, no clock, no environment. Bytes come from anywhere and are trusted nowhere; a reader understands data
//! and refuses code.
#![forbid(unsafe_code)]

use mycroft_record::Rank;
use mycroft_record::dump::{Bundle, Dump, ProcessStacks, Unusable};

/// How a file's name tells its rank.
#[derive(Clone, Debug, Default)]
pub struct Naming {}

/// What one file held.
#[derive(Clone, PartialEq, Debug)]
pub enum Piece {
    /// A Flight Recorder dump.
    Dump(Box<Dump>),
    /// Stacks of one or more processes.
    Stacks(Vec<ProcessStacks>),
    /// Should have told something and does not.
    Unusable(Unusable),
    /// Not ours, e.g. a log file: its name and one phrase.
    Ignored(String, String),
}

/// Two different files claim to be the same dump: nothing is guessed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clash {
    /// The rank.
    pub rank: Rank,
    /// The files.
    pub sources: Vec<String>,
}

/// Reads one file; `path` is relative to the folder, with `/` between parts.
pub fn read(path: &str, _bytes: &[u8], _naming: &Naming) -> Piece {
    Piece::Ignored(path.to_owned(), "not read yet".to_owned())
}

/// Puts the pieces of a folder together, in the order of ranks and names.
///
/// # Errors
/// [`Clash`] when two files that are not the same claim one rank and one recorder.
pub fn assemble(_pieces: Vec<Piece>) -> Result<Bundle, Clash> {
    Ok(Bundle::default())
}
