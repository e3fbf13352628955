//! Foreign bytes to records: Flight Recorder dumps (pickle and JSON), py-spy and faulthandler stacks.
//!
//! Pure: no file, no clock, no environment. Bytes come from anywhere and are trusted nowhere; a reader understands data
//! and refuses code. `docs/formats/flight-recorder.md` is the catalogue in prose.
#![forbid(unsafe_code)]

mod budget;
mod builder;
mod dump;
mod fault;
mod field;
mod index;
mod naming;
mod opname;
mod pickle;
mod value;

use builder::Builder;
use fault::Fault;
use mycroft_record::Rank;
use mycroft_record::dump::{Bundle, Dump, ProcessStacks, Unusable};
pub use naming::{BadPattern, Naming, RANK_MAX};

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
pub fn read(path: &str, bytes: &[u8], naming: &Naming) -> Piece {
    let ignored = |why: &str| Piece::Ignored(path.to_owned(), why.to_owned());
    match bytes.first() {
        Some(0x80) => match pickled(bytes) {
            Ok(Some(dump)) => placed(path, naming, dump),
            Ok(None) => {
                unusable(path, naming, "a pickle, but no dump: it has neither entries nor process groups".into())
            }
            Err(fault) => unusable(path, naming, fault.to_string()),
        },
        _ => ignored("not read yet"),
    }
}

fn pickled(bytes: &[u8]) -> Result<Option<Dump>, Fault> {
    if bytes.len() > budget::INPUT_BYTES_MAX {
        return Err(Fault::new(0, format!("{} bytes, at most {} are read", bytes.len(), budget::INPUT_BYTES_MAX)));
    }
    let mut builder = Builder::new(bytes);
    let (root, end) = pickle::read(bytes, &mut builder)?;
    let Some(mut dump) = dump::finish(builder, root)? else { return Ok(None) };
    if end < bytes.len() {
        dump.notes.push(format!("{} bytes after the end of the dump (byte {end}) were not read", bytes.len() - end));
    }
    Ok(Some(dump))
}

fn placed(path: &str, naming: &Naming, mut dump: Dump) -> Piece {
    let Some(rank) = naming.rank(path) else {
        return unusable(path, naming, "a dump, but its name tells no rank; give a rank pattern".into());
    };
    dump.rank = rank;
    dump.host = naming.host(path);
    dump.source = path.into();
    Piece::Dump(Box::new(dump))
}

fn unusable(path: &str, naming: &Naming, why: String) -> Piece {
    Piece::Unusable(Unusable { rank: naming.rank(path), source: path.into(), why })
}

/// Puts the pieces of a folder together, in the order of ranks and names.
///
/// # Errors
/// [`Clash`] when two files that are not the same claim one rank and one recorder.
pub fn assemble(pieces: Vec<Piece>) -> Result<Bundle, Clash> {
    let mut bundle = Bundle::default();
    for piece in pieces {
        match piece {
            Piece::Dump(dump) => bundle.dumps.push(*dump),
            Piece::Stacks(stacks) => bundle.stacks.extend(stacks),
            Piece::Unusable(unusable) => bundle.unusable.push(unusable),
            Piece::Ignored(path, why) => bundle.notes.push(format!("{path}: {why}")),
        }
    }
    bundle.dumps.sort_by(|a, b| (a.rank, &a.source).cmp(&(b.rank, &b.source)));
    Ok(bundle)
}
