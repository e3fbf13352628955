//! Foreign bytes to records: Flight Recorder dumps (pickle and JSON), py-spy and faulthandler stacks, logs of jobs.
//!
//! Pure: no file, no clock, no environment. Bytes come from anywhere and are trusted nowhere; a reader understands data
//! and refuses code. `docs/formats/flight-recorder.md` is the catalogue in prose.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used)]
#![deny(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]

mod assemble;
mod budget;
mod builder;
mod capture;
mod dump;
mod fault;
mod field;
mod index;
mod inspector;
mod json;
mod kineto;
mod lanes;
mod log;
mod naming;
mod opname;
mod pickle;
mod pyspy_json;
mod relabel;
mod text;
mod text_stacks;
mod value;

pub use assemble::assemble;
use budget::Budget;
use builder::Builder;
pub use capture::{CaptureFault, CaptureProblem, CaptureReader, CapturedPacket};
use fault::Fault;
pub use log::LogReader;
use mycroft_record::dump::{Dump, ProcessStacks, Unusable};
use mycroft_record::printed::{LogFile, LogLine};
use mycroft_record::trace::Trace;
use mycroft_record::{HostName, Rank};
use std::sync::Arc;

pub use naming::{BadPattern, Naming, RANK_MAX, is_written_by_people};

/// What one file held.
#[derive(Clone, PartialEq, Debug)]
pub enum Piece {
    /// A Flight Recorder dump.
    Dump(Box<Dump>),
    /// Stacks of one or more processes.
    Stacks(Vec<ProcessStacks>),
    /// Should have told something and does not.
    Unusable(Unusable),
    /// Could not be looked into, for a reason that lies with the reader: no evidence about its rank.
    Unread(Unusable),
    /// A log, and the lines of it that tell something.
    Log(Box<LogFile>),
    /// A profiler's trace of a rank.
    Trace(Box<Trace>),
    /// A dump that was cut short: why it is of no use, and its beginning without entries.
    CutShort(Unusable, Box<Dump>),
    /// Not ours, e.g. a log file: its name and one phrase.
    Ignored(String, String),
    /// Several of these, from a file with a section per rank.
    Several(Vec<Piece>),
}

/// Two different files claim to be the same dump: nothing is guessed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("reading dumps of rank {rank}: {} are of different runs; give a folder that holds one run", sources.join(" and "))]
pub struct Clash {
    /// The rank.
    pub rank: Rank,
    /// The files.
    pub sources: Vec<String>,
}

/// Whether a long file that begins like this is a log: a text that is neither JSON nor stacks.
pub fn looks_like_log(head: &[u8]) -> bool {
    let text = head.trim_ascii_start();
    let second = text.get(1..).and_then(|rest| rest.trim_ascii_start().first());
    let json = match text.first() {
        Some(b'{') => matches!(second, Some(b'"' | b'}')),
        Some(b'[') => matches!(second, Some(b'{' | b'[' | b']' | b'"')),
        _ => false,
    };
    let probe = &head[..head.len().min(TEXT_PROBE_BYTES)];
    let is_other = json || text.first() == Some(PICKLE_START) || probe.contains(&0);
    !is_other && !text_stacks::is_stacks(head) && text_stacks::Sections::of(head).next().is_none()
}

/// Reads one file; `path` is relative to the folder, with `/` between parts.
pub fn read(path: &str, bytes: &[u8], naming: &Naming) -> Piece {
    let file = File { path, naming, source: path.into(), host: naming.host(path) };
    if bytes.len() > budget::INPUT_BYTES_MAX {
        let why = format!("{} bytes, at most {} are read", bytes.len(), budget::INPUT_BYTES_MAX);
        return Piece::Unread(file.told(file.naming.rank(path), why));
    }
    let text = bytes.trim_ascii_start();
    match text.first() {
        None if bytes.is_empty() => file.broken("the file is empty".to_owned()),
        None => file.broken("nothing but white space".to_owned()),
        Some(PICKLE_START) => match pickled(bytes) {
            Ok(Some(dump)) => file.dump(dump),
            Ok(None) => file.broken("a pickle, but no dump: it has neither entries nor process groups".to_owned()),
            Err(fault) => match (file.broken(fault.to_string()), head(bytes).map(|head| file.dump(head))) {
                (Piece::Unusable(unusable), Some(Piece::Dump(head))) => Piece::CutShort(unusable, head),
                (broken, _) => broken,
            },
        },
        Some(b'{' | b'[') => json(&file, bytes),
        Some(GZIP_START) if bytes.starts_with(&[*GZIP_START, 0x8b]) => {
            file.broken("compressed with gzip: unpack it first".to_owned())
        }
        Some(_) => text_file(&file, bytes),
    }
}

/// Every pickle since protocol 2 begins with the opcode PROTO.
const PICKLE_START: &u8 = &0x80;
/// First byte of a gzip file.
const GZIP_START: &u8 = &0x1f;

/// Says where a file's content goes.
struct File<'a> {
    path: &'a str,
    naming: &'a Naming,
    source: Arc<str>,
    host: HostName,
}

impl File<'_> {
    fn dump(&self, mut dump: Dump) -> Piece {
        let Some(rank) = self.naming.rank(self.path) else {
            return self.unusable("a dump, but its name tells no rank; give a rank pattern".to_owned());
        };
        dump.rank = rank;
        dump.host = self.host.clone();
        dump.source = self.source.clone();
        Piece::Dump(Box::new(dump))
    }

    fn stacks(&self, mut stacks: Vec<ProcessStacks>, rank: Option<Rank>) -> Vec<ProcessStacks> {
        let taken_at = naming::taken_at(self.path);
        for process in &mut stacks {
            process.rank = rank;
            process.host = self.host.clone();
            process.source = self.source.clone();
            process.taken_at = taken_at;
        }
        stacks
    }

    fn unusable(&self, why: String) -> Piece {
        self.unusable_of(self.naming.rank(self.path), why)
    }

    fn unusable_of(&self, rank: Option<Rank>, why: String) -> Piece {
        Piece::Unusable(self.told(rank, why))
    }

    fn told(&self, rank: Option<Rank>, why: String) -> Unusable {
        Unusable { rank, source: self.source.clone(), why }
    }

    fn ignored(&self, why: &str) -> Piece {
        Piece::Ignored(self.path.to_owned(), why.to_owned())
    }

    /// Of no use, which matters only where the name promised something.
    fn broken(&self, why: String) -> Piece {
        if self.naming.promises(self.path) { self.unusable(why) } else { self.ignored(&why) }
    }
}

fn pickled(bytes: &[u8]) -> Result<Option<Dump>, Fault> {
    let mut builder = Builder::new(bytes);
    let (root, end) = pickle::read(bytes, &mut builder)?;
    let Some(mut dump) = dump::finish(builder, root)? else { return Ok(None) };
    if end < bytes.len() {
        // As Python's own reader does. A newer dump that was written over a longer one looks like this.
        dump.notes.push(format!("{} bytes after the end of the dump (byte {end}) were not read", bytes.len() - end));
    }
    Ok(Some(dump))
}

/// The groups and `pg_status` of a dump that was cut short. Entries are left out: the newest are missing, and a rank must
/// not look as if it had stopped where its file does.
fn head(bytes: &[u8]) -> Option<Dump> {
    let mut builder = Builder::new(bytes);
    let fields = pickle::read_head(bytes, &mut builder)?;
    let dump = dump::finish(builder, fields).ok()??;
    let Dump { version, comm_lib_version, groups, statuses, .. } = dump;
    (!statuses.is_empty()).then(|| Dump { version, comm_lib_version, groups, statuses, ..Dump::default() })
}

fn json(file: &File<'_>, bytes: &[u8]) -> Piece {
    if log::ras_json::is_ras(bytes) {
        return ras(file, bytes);
    }
    if kineto::is_trace(bytes) {
        return trace(file, bytes);
    }
    if inspector::is_inspector(bytes) {
        return match inspector::read(bytes) {
            Ok(trace) => Piece::Trace(Box::new(Trace { source: file.source.clone(), ..trace })),
            Err(why) => file.broken(format!("lines of NCCL's Inspector of no use: {why}")),
        };
    }
    let mut builder = Builder::new(bytes);
    let found = json::read(bytes, &mut builder)
        .and_then(|root| Ok((pyspy_json::finish(&mut builder, root)?, root)))
        .and_then(|(stacks, root)| match stacks {
            Some(stacks) => Ok((Some(stacks), None)),
            None => Ok((None, dump::finish(builder, root)?)),
        });
    match found {
        Ok((Some(stacks), _)) => Piece::Stacks(file.stacks(stacks, file.naming.rank(file.path))),
        Ok((None, Some(dump))) => file.dump(dump),
        Ok((None, None)) => file.ignored("JSON, but neither a dump nor stacks"),
        // Prefixes of launchers and times are put in brackets.
        Err(fault) => log(file, bytes).unwrap_or_else(|| file.broken(fault.to_string())),
    }
}

/// A profiler's trace; what it tells of its rank is better than its name.
fn trace(file: &File<'_>, bytes: &[u8]) -> Piece {
    let (mut trace, told) = match kineto::read(bytes) {
        Ok(read) => read,
        Err(why) => return file.broken(format!("a profiler's trace that cannot be read: {why}")),
    };
    let Some(rank) = told.or_else(|| file.naming.rank(file.path)) else {
        return file.ignored("a profiler's trace, but neither it nor its name tells a rank");
    };
    (trace.rank, trace.source) = (rank, file.source.clone());
    Piece::Trace(Box::new(trace))
}

/// What RAS told as JSON, as a log of one line.
fn ras(file: &File<'_>, bytes: &[u8]) -> Piece {
    let line = |says| LogLine { number: 1, rank: None, host: HostName::default(), at: None, says };
    let lines = log::ras_json::read(bytes).into_iter().map(line).collect();
    Piece::Log(Box::new(LogFile { source: file.source.clone(), lines, total: 1, ..LogFile::default() }))
}

/// What the first line of a text of ours says that is for people, in a package of `mycroft collect`.
pub const FOR_PEOPLE: &str = "mycroft collect: ";

fn text_file(file: &File<'_>, bytes: &[u8]) -> Piece {
    if bytes.starts_with(FOR_PEOPLE.as_bytes()) {
        return Piece::Several(Vec::new());
    }
    let mut budget = Budget::new(bytes.len());
    if text_stacks::Sections::of(bytes).next().is_some() {
        return periodic(file, bytes, &mut budget);
    }
    if !text_stacks::is_stacks(bytes) {
        if bytes.iter().take(TEXT_PROBE_BYTES).any(|byte| *byte == 0) {
            return file.broken("neither a dump nor a text".to_owned());
        }
        return no_stacks(file, bytes);
    }
    let rank = file.naming.rank(file.path);
    let (stacks, fault) = text_stacks::read(bytes, 0, &mut budget);
    let stacks = Piece::Stacks(file.stacks(stacks, rank));
    match fault {
        None => stacks,
        Some(fault) => Piece::Several(vec![stacks, file.unusable_of(rank, rest_unread(&fault))]),
    }
}

/// A text that is neither a dump nor stacks: what it says decides what it is worth.
fn no_stacks(file: &File<'_>, bytes: &[u8]) -> Piece {
    let rank = file.naming.rank(file.path);
    if let Some(log) = log(file, bytes) {
        return log;
    }
    let says = first_line(bytes);
    if file.naming.promises(file.path) && is_readers_trouble(&says) {
        return Piece::Unread(file.told(rank, format!("who was to read the rank could not: it says: {says}")));
    }
    file.broken(format!("a text, but neither a dump nor stacks; it says: {says}"))
}

/// The lines of a log that tell something, if any does.
fn log(file: &File<'_>, bytes: &[u8]) -> Option<Piece> {
    if naming::is_written_by_people(file.path) {
        return None;
    }
    let mut reader = LogReader::new(file.path, file.naming);
    reader.feed(bytes);
    reader.finish().map(|log| Piece::Log(Box::new(log)))
}

/// What a tool writes instead of stacks when it may not, or cannot, look into a process: trouble of its own, which says
/// nothing about the process.
fn is_readers_trouble(line: &str) -> bool {
    const WORDS: &[&str] = &[
        "permission denied",
        "operation not permitted",
        "input/output error",
        "too many open files",
        "no space left on device",
        "cannot allocate memory",
        "stale file handle",
    ];
    let line = line.to_ascii_lowercase();
    WORDS.iter().any(|words| line.contains(words))
}

/// How much of a file is looked at to tell text from other bytes.
const TEXT_PROBE_BYTES: usize = 1 << 10;

fn rest_unread(fault: &Fault) -> String {
    format!("the stacks from here on were not read: {fault}")
}

/// A periodic file of `torch.distributed.debug`: sections by rank.
fn periodic(file: &File<'_>, bytes: &[u8], budget: &mut Budget) -> Piece {
    let mut found = Vec::new();
    if let Err(fault) = sections(file, bytes, budget, &mut found) {
        found.push(file.unusable_of(None, rest_unread(&fault)));
    }
    match found.is_empty() {
        true => file.ignored("a periodic file of torch.distributed.debug without stacks"),
        false => Piece::Several(found),
    }
}

fn sections(file: &File<'_>, bytes: &[u8], budget: &mut Budget, found: &mut Vec<Piece>) -> Result<(), Fault> {
    for section in text_stacks::Sections::of(bytes) {
        let rank = Some(Rank(section.rank)).filter(|rank| rank.0 <= RANK_MAX);
        if text_stacks::is_stacks(section.bytes) {
            let (stacks, fault) = text_stacks::read(section.bytes, section.at, budget);
            budget.push(found, Piece::Stacks(file.stacks(stacks, rank)))?;
            if let Some(fault) = fault {
                return Err(fault);
            }
        } else if !matches!(section.bytes.trim_ascii().first(), Some(b'{' | b'[')) && naming::tells_stacks(file.path) {
            let says = first_line(section.bytes);
            let why = format!("byte {}: no stacks of rank {}: it says: {says}", section.at, section.rank);
            budget.charge(why.len())?;
            let told = file.told(rank, why);
            budget.push(found, if is_readers_trouble(&says) { Piece::Unread(told) } else { Piece::Unusable(told) })?;
        }
    }
    Ok(())
}

/// The line of a text that says what went wrong, or else its first, for a message.
fn first_line(text: &[u8]) -> String {
    let lines = || text.trim_ascii_start().split(|&byte| byte == b'\n').take(ERROR_LINES_MAX);
    let is_error = |line: &&[u8]| line.windows(5).any(|word| word.eq_ignore_ascii_case(b"error"));
    let first = lines().find(is_error).or_else(|| lines().next()).unwrap_or_default();
    quoted(first)
}

/// The beginning of a line in quotes.
fn quoted(line: &[u8]) -> String {
    match text::valid(&line[..line.len().min(ERROR_BYTES_MAX)]).trim() {
        "" => "(nothing)".to_owned(),
        line => format!("\"{line}\""),
    }
}

/// How many lines are searched for an error.
const ERROR_LINES_MAX: usize = 20;
/// How much of an error text is quoted.
const ERROR_BYTES_MAX: usize = 200;
