//! Which lines of the logs a ruling rests on, and which follow from what it names.
use super::fold::rank_of;
use super::told::{Cite, Told};
use super::words::in_words;
use crate::stacks::lines::{LinePart, PrintedLine};
use mycroft_record::dump::Bundle;
use mycroft_record::printed::{Kind, LogFile, LogLine, Says, Stands};
use std::collections::{BTreeMap, BTreeSet};

/// Lines that an answer holds: four of each of 1,024 ranks; with their texts below 1 MB.
const LINES_MAX: usize = 4096;
/// Characters of a line's text that are kept.
const TEXT_CHARS_MAX: usize = 200;
/// Rules that say where it began, by an event.
const BEGAN: [&str; 2] = ["log.first-failure", "log.everybody"];
/// Rules that say which way failed.
const WAY: [&str; 2] = ["log.path", "log.registration"];

/// What the rules that fired make of lines.
struct Sorter<'a> {
    told: &'a Told,
    first: BTreeSet<Cite>,
    raised: BTreeSet<Cite>,
}

/// The lines that tell something of the end, in the order of files and lines, and how many more there are. `rules`: those
/// that fired.
pub(crate) fn used(told: &Told, bundle: &Bundle, rules: &BTreeSet<&str>) -> (Vec<PrintedLine>, usize) {
    let fired = |any: &[&str]| any.iter().any(|rule| rules.contains(rule));
    let mut sorter = Sorter { told, first: BTreeSet::new(), raised: BTreeSet::new() };
    if let Some(begun) = told.begun.as_ref().filter(|_| fired(&BEGAN)) {
        sorter.first.extend(&begun.cites);
    }
    if let Some(broken) = told.broken.as_ref().filter(|_| fired(&WAY)) {
        sorter.first.extend(&broken.cites);
    }
    if fired(&["log.elsewhere"]) {
        sorter.raised.extend(told.raised.values().map(|raised| raised.cite));
    }
    let mut found: Vec<(LinePart, Cite)> = Vec::new();
    for (at, file) in bundle.logs.iter().enumerate() {
        for line in &file.lines {
            let cite = Cite { file: at, line: line.number };
            found.extend(sorter.part(line, cite).map(|part| (part, cite)));
        }
    }
    let more = keep(&mut found, bundle);
    let parts: BTreeMap<Cite, LinePart> = found.into_iter().rev().map(|(part, cite)| (cite, part)).collect();
    let lines = bundle.logs.iter().enumerate().flat_map(|(at, file)| {
        let part = |line: &LogLine| parts.get(&Cite { file: at, line: line.number }).copied();
        let mut seen = 0;
        let fresh = move |line: &&LogLine| std::mem::replace(&mut seen, line.number) != line.number;
        file.lines.iter().filter(fresh).filter_map(move |line| Some(shown(file, line, part(line)?))).collect::<Vec<_>>()
    });
    (lines.collect(), more)
}

/// Keeps the lines that matter most, of each rank first its first; says how many are left out.
fn keep(found: &mut Vec<(LinePart, Cite)>, bundle: &Bundle) -> usize {
    found.sort_unstable();
    found.dedup_by_key(|(_, cite)| *cite);
    let more = found.len().saturating_sub(LINES_MAX);
    if more == 0 {
        return 0;
    }
    let mut of_rank: BTreeMap<(LinePart, Option<u32>), usize> = BTreeMap::new();
    let mut ranked: Vec<(LinePart, usize, Cite)> = Vec::new();
    for (part, cite) in found.drain(..) {
        let file = &bundle.logs[cite.file];
        let at = file.lines.partition_point(|line| line.number < cite.line);
        let rank = file.lines.get(at).and_then(|line| rank_of(file, line)).map(|rank| rank.0);
        let nth = of_rank.entry((part, rank)).or_insert(0);
        *nth += 1;
        ranked.push((part, *nth, cite));
    }
    ranked.sort_unstable();
    found.extend(ranked.into_iter().take(LINES_MAX).map(|(part, _, cite)| (part, cite)));
    more
}

impl Sorter<'_> {
    /// What a line is; `None` for one that tells nothing of an end.
    fn part(&self, line: &LogLine, cite: Cite) -> Option<LinePart> {
        if self.first.contains(&cite) {
            return Some(LinePart::First);
        }
        let waits = if self.first.is_empty() { LinePart::Evidence } else { LinePart::Follows };
        Some(match &line.says {
            Says::Init(comm, ..) => {
                self.told.init.as_ref().filter(|(open, ..)| open == comm)?;
                waits
            }
            Says::Stands(_) | Says::NotThere(..) | Says::Fingerprint(_) | Says::Counts(_) => waits,
            Says::Event(Kind::TimedOut | Kind::CountsAgree | Kind::Mismatch, _) => waits,
            Says::Raised(..) if self.raised.contains(&cite) => LinePart::Evidence,
            Says::Event(kind, _) | Says::Raised(kind, ..) => of_event(*kind),
            Says::Path(_) if self.first.is_empty() => LinePart::Beside,
            Says::Path(_) => LinePart::Follows,
        })
    }
}

/// An event that no rule names.
fn of_event(kind: Kind) -> LinePart {
    match kind {
        Kind::PeerGone | Kind::Teardown | Kind::Ended | Kind::Cancelled | Kind::Spoke => LinePart::Follows,
        _ => LinePart::Beside,
    }
}

fn shown(file: &LogFile, line: &LogLine, part: LinePart) -> PrintedLine {
    let host = if line.host.is_empty() { file.host.clone() } else { line.host.clone() };
    let text = text(&line.says).chars().take(TEXT_CHARS_MAX).collect();
    PrintedLine {
        file: file.source.clone(),
        line: line.number,
        rank: rank_of(file, line),
        host,
        at: line.at,
        part,
        text,
    }
}

/// What a line says, in short.
fn text(says: &Says) -> String {
    match says {
        Says::Stands(stands) => stands_text(stands),
        Says::Fingerprint(print) => {
            format!("rank {} is in {} #{} of {:?} {}", print.rank, print.op.text, print.seq, print.shape, print.dtype)
        }
        Says::NotThere(what, ranks) => format!("not come to {what}: {}", crate::fact::these(ranks)),
        Says::Event(_, text) | Says::Raised(_, text, _) => text.to_string(),
        Says::Path(path) => path.text.to_string(),
        Says::Counts(counts) if counts.camps.is_empty() => {
            format!("RAS hears nothing of {}", crate::fact::these(&counts.silent))
        }
        Says::Counts(counts) => in_words(counts),
        Says::Init(comm, rank, size, done) => {
            format!("communicator {comm}: rank {rank} of {size} {}", if *done { "is done" } else { "begins" })
        }
    }
}

fn stands_text(stands: &Stands) -> String {
    let mut parts = Vec::new();
    if let Some(seq) = stands.seq {
        let op = stands.op.as_ref().map_or("operation", |op| &*op.text);
        parts.push(format!("{}in {op} #{seq}", if stands.ran_ms.is_some() { "timed out " } else { "" }));
    }
    if let Some(ran) = stands.ran_ms {
        parts.push(format!("ran for {ran} ms"));
    }
    if let Some((issued, done)) = stands.status {
        parts.push(format!("last issued {issued}, last completed {done}"));
    }
    if stands.is_told {
        parts.push("told of another rank's timeout".to_owned());
    }
    let name = if stands.desc.is_empty() { &stands.group } else { &stands.desc };
    if !name.is_empty() {
        parts.push(format!("group {name}"));
    }
    parts.join(", ")
}
