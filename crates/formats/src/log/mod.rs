//! Job logs: one pass over the lines, of which few tell something; those are taken apart.
//!
//! A log may be of the whole job, of a host or of a rank, and as long as a disk. The reader is fed in pieces, holds no more
//! than what it found and the line that a piece ends in, and what it holds is bounded by what it has read.
mod columns;
mod head;
mod meters;
mod nccl;
mod progress;
mod ras;
pub(crate) mod ras_json;
mod search;
mod table;
mod torch;
mod traceback;
mod words;

use crate::budget::{MEMORY_FLOOR, MEMORY_PER_BYTE};
use crate::naming::Naming;
use columns::Columns;
use head::Head;
use meters::Meters;
use mycroft_record::dump::Frame;
use mycroft_record::printed::{LogFile, LogLine, Says};
use ras::Ras;
use search::{Bars, Search};
use std::borrow::Cow;
use traceback::Tracebacks;

/// Longest line that is read whole; of a longer one the beginning is. A line of torch has up to 2 KB.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Lines that a wrapped message has at most: 2 KB at 80 columns is 25, and its numbers are in the first few.
const WRAPPED_MAX: u32 = 6;
/// What one log may hold in memory at most: 100,000 ranks x 4 lines x 400 bytes are 160 MB, and half of that suffices to see
/// who is missing.
const HELD_BYTES_MAX: usize = 96 << 20;
/// What a line costs beside its texts.
const LINE_COST: usize = size_of::<LogLine>() + 192;

/// Words of a line of a training loop that another message follows: bars end without a line's end.
const NEWS: &[&str] = &["Watchdog", "Traceback", "Error", "WARN", "rror: "];

/// Reads one log.
pub struct LogReader {
    search: Search,
    file: LogFile,
    tracebacks: Tracebacks,
    ras: Ras,
    meters: Meters,
    /// Where the first line names columns: which are what.
    columns: Option<Columns>,
    /// A wrapped line, its number, and how many lines it has.
    cut: Option<(u64, String, u32)>,
    /// The line that the last piece ended in.
    rest: Vec<u8>,
    fed: usize,
    held: usize,
}

impl LogReader {
    /// A reader for the file at `path`, relative to the folder, with `/` between parts.
    pub fn new(path: &str, naming: &Naming) -> LogReader {
        let file = LogFile {
            source: path.into(),
            rank: naming.rank_of_log(path),
            host: naming.host_of_log(path),
            ..LogFile::default()
        };
        LogReader {
            search: Search::new(),
            file,
            tracebacks: Tracebacks::default(),
            ras: Ras::default(),
            meters: Meters::default(),
            columns: None,
            cut: None,
            rest: Vec::new(),
            fed: 0,
            held: 0,
        }
    }

    /// Reads on.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        self.fed = self.fed.saturating_add(bytes.len());
        if self.rest.last() == Some(&b'\r') && !bytes.is_empty() {
            if let Some(tail) = bytes.strip_prefix(b"\n") {
                self.rest.push(b'\n');
                bytes = tail;
            }
            let line = std::mem::take(&mut self.rest);
            self.lines(&line);
        }
        if !self.rest.is_empty() {
            let end = end_of(bytes);
            let (head, tail) = bytes.split_at(end.unwrap_or(bytes.len()));
            let room = LINE_BYTES_MAX.saturating_sub(self.rest.len());
            self.rest.extend_from_slice(&head[..head.len().min(room)]);
            if end.is_none() {
                return;
            }
            if head.len() > room && head.ends_with(b"\n") {
                self.rest.push(b'\n');
            }
            let line = std::mem::take(&mut self.rest);
            self.lines(&line);
            bytes = tail;
        }
        // A carriage return at the very end may be half of a line's end.
        let known = bytes.len() - usize::from(bytes.last() == Some(&b'\r'));
        let end = bytes[..known].iter().rposition(is_end).map_or(0, |at| at + 1);
        let (lines, rest) = bytes.split_at(end);
        self.lines(lines);
        self.rest.extend_from_slice(&rest[..rest.len().min(LINE_BYTES_MAX)]);
    }

    /// What was found, at the end of the file; `None` where no line tells anything.
    pub fn finish(mut self) -> Option<LogFile> {
        let rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() {
            self.lines(&rest);
            self.file.total += 1;
        }
        if let Some((number, cut, _)) = self.cut.take() {
            self.other(number, &head::head(&cut), &cut, false);
        }
        for (line, says) in self.ras.finish() {
            self.keep(line, &Head::default(), says);
        }
        self.file.lines.sort_by_key(|line| line.number);
        self.file.meters = self.meters.finish();
        (!self.file.lines.is_empty() || !self.file.meters.is_empty()).then_some(self.file)
    }

    /// Whole lines. What a carriage return ends is overwritten on a terminal: a line of its own with the same number.
    fn lines(&mut self, bytes: &[u8]) {
        let mut at = 0;
        let mut bars = Bars::new(bytes);
        while at < bytes.len() {
            let mut start = at;
            if !self.is_open() {
                let hit = self.search.find(&bytes[at..]).map(|hit| at + hit);
                let Some(hit) = hit.into_iter().chain(bars.next(at)).min() else {
                    self.file.total += count_lines(&bytes[at..]);
                    return;
                };
                start = bytes[at..hit].iter().rposition(is_end).map_or(at, |back| at + back + 1);
                self.file.total += count_lines(&bytes[at..start]);
            }
            let end = end_of(&bytes[start..]).map_or(bytes.len(), |len| start + len);
            self.line(&bytes[start..end]);
            self.file.total += u64::from(bytes[..end].ends_with(b"\n"));
            at = end;
        }
    }

    /// Whether the next line is looked at whatever it holds: the first one, rows of a table, the rest of what has begun.
    fn is_open(&self) -> bool {
        let within = self.cut.is_some() || self.tracebacks.is_open() || self.ras.is_open();
        within || self.columns.is_some() || self.file.total == 0
    }

    fn line(&mut self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LINE_BYTES_MAX)]);
        let text = text.trim_end_matches(['\n', '\r']);
        let cleaned;
        let text = if text.contains('\u{1b}') {
            cleaned = words::clean(text, LINE_BYTES_MAX);
            cleaned.as_str()
        } else {
            text
        };
        let number = self.file.total + 1;
        if self.step(number, text) {
            return;
        }
        let Some((number, text)) = self.unwrap(number, text) else { return };
        let text = text.as_ref();
        let head = head::head(text);
        self.ras.line(number, text);
        let body = traceback::body(text);
        if let Some((kind, said, frames)) = self.tracebacks.line(head.rank, body) {
            self.keep(number, &head, Says::Raised(kind, said, frames));
            // An exception may say more than that it was raised.
            self.other(number, &head, body, true);
            return;
        }
        if !self.tracebacks.is_inside(head.rank) {
            self.other(number, &head, text, false);
        }
    }

    /// Takes a line as one of a training loop; `true` where it tells nothing else.
    fn step(&mut self, number: u64, text: &str) -> bool {
        if number == 1 {
            self.columns = Columns::of(text);
        }
        let row = self.columns.as_ref().and_then(|columns| columns.row(text));
        let (rank, at, told) = match row {
            Some((rank, told)) => (rank, None, told),
            None => match progress::read(text) {
                Some(told) => {
                    let (rank, at) = head::rank_and_time(text);
                    (rank, at, told)
                }
                None => return false,
            },
        };
        let rank = rank.or(self.file.rank);
        if !self.has_room(self.meters.cost(rank, &told)) || !self.meters.push(rank, number, at, told) {
            self.file.beyond += 1;
        }
        !NEWS.iter().any(|word| text.contains(word))
    }

    /// Joins a message that is wrapped over lines; `None` while it goes on.
    fn unwrap<'a>(&mut self, number: u64, text: &'a str) -> Option<(u64, Cow<'a, str>)> {
        let starts_anew = text.trim_start().starts_with(['[', '(']);
        let (number, text, lines) = match self.cut.take() {
            Some((first, cut, lines)) if !starts_anew => {
                (first, Cow::Owned(format!("{cut} {}", text.trim())), lines + 1)
            }
            // What was cut stays as it is: its end is missing.
            Some((first, cut, _)) => {
                self.other(first, &head::head(&cut), &cut, false);
                (number, Cow::Borrowed(text), 1)
            }
            None => (number, Cow::Borrowed(text), 1),
        };
        if lines < WRAPPED_MAX && text.len() < LINE_BYTES_MAX && torch::is_cut(&text) {
            self.cut = Some((number, text.into_owned(), lines));
            return None;
        }
        Some((number, text))
    }

    /// A line that is not part of a traceback; `raised`: it is the last one of one.
    fn other(&mut self, number: u64, head: &Head, text: &str, raised: bool) {
        for fingerprint in torch::fingerprints(text) {
            self.keep(number, head, Says::Fingerprint(Box::new(fingerprint)));
        }
        if let Some(says) = torch::says(text) {
            if let Says::Stands(stands) = &says
                && stands.status.is_some_and(|(issued, done)| {
                    done > issued || stands.seq.is_some_and(|seq| i64::try_from(seq).is_ok_and(|seq| seq > issued))
                })
            {
                self.file.nonsense += 1;
                return;
            }
            return self.keep(number, head, says);
        }
        if raised {
            return;
        }
        if let Some(says) = nccl::killed(text).or_else(|| nccl::says(text)) {
            return self.keep(number, head, says);
        }
        if let Some((words, kind)) = table::LINES.iter().find(|(words, _)| text.contains(words)) {
            self.keep(number, head, Says::Event(*kind, nccl::text(text, event_start(text, words))));
        }
    }

    /// Whether so many bytes more may be held; they are counted twice, since a list that grows is there twice.
    fn has_room(&mut self, cost: usize) -> bool {
        let share = self.fed.saturating_mul(MEMORY_PER_BYTE).saturating_add(MEMORY_FLOOR / 2).min(HELD_BYTES_MAX);
        let has = self.held + 2 * cost <= share;
        self.held += if has { 2 * cost } else { 0 };
        has
    }

    fn keep(&mut self, number: u64, head: &Head, says: Says) {
        let cost = LINE_COST + says_bytes(&says);
        if !self.has_room(cost) {
            self.file.beyond += 1;
            return;
        }
        self.file.lines.push(LogLine { number, rank: head.rank, host: head.host.clone(), at: head.at, says });
    }
}

/// The words from which an event's text is kept: the message, not its prefixes.
fn event_start<'a>(text: &'a str, words: &'a str) -> &'a str {
    // The name of an exception stands before its words.
    let at = text.find(words).unwrap_or(0);
    let start = text[..at].rfind("]: ").map_or(0, |end| end + 3);
    text.get(start..).filter(|rest| rest.len() < 400).unwrap_or(words)
}

fn is_end(byte: &u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// How long the first line is, with its end; `None` where its end is not there.
fn end_of(bytes: &[u8]) -> Option<usize> {
    let at = bytes.iter().position(is_end)?;
    match (bytes[at], bytes.get(at + 1)) {
        (b'\r', None) => None,
        (b'\r', Some(b'\n')) => Some(at + 2),
        _ => Some(at + 1),
    }
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// What the texts of a line cost.
fn says_bytes(says: &Says) -> usize {
    let frames = |frames: &[Frame]| {
        frames.iter().map(|frame| frame.name.len() + frame.file.len() + 2 * size_of::<Frame>() + 64).sum::<usize>()
    };
    match says {
        Says::Stands(stands) => size_of_val(&**stands) + stands.desc.len() + 128,
        Says::Fingerprint(print) => size_of_val(&**print) + print.shape.len() * 8 + 128,
        Says::NotThere(_, ranks) => ranks.len() * 4 + 64,
        Says::Event(_, text) => text.len() + 32,
        Says::Path(path) => size_of_val(&**path) + path.text.len() * 2 + 160,
        Says::Raised(_, text, list) => text.len() + frames(list) + 64,
        Says::Counts(counts) => {
            size_of_val(&**counts)
                + counts.silent.len() * 4
                + counts.camps.iter().map(|camp| 48 + camp.2.len() * 4).sum::<usize>()
        }
        Says::Init(..) => 96,
    }
}
