//! What a log shows before the first timeout, and what therefore the timeouts follow from.
//!
//! An exception, memory that ran out, a device error, a failed port or somebody's interrupt may be where it began, if it
//! came before the first timeout was reported and its rank did not go on into an operation that timed out. What a launcher
//! calls a root cause is the end that it noticed first, and no cause.
use super::fold::{Folded, rank_of};
use super::told::{Begun, Broken, Cite, Told};
use mycroft_record::dump::Bundle;
use mycroft_record::printed::{Kind, LogFile, LogLine, Path, Says};
use mycroft_record::{HostName, NANOS_PER_SEC, Rank};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Events that are this close are one occasion: exceptions of ranks of one operation, and hosts' clocks within a second.
const TOGETHER_NS: u64 = 5 * NANOS_PER_SEC;

/// Completion states of InfiniBand (`ibv_wc_status`): nothing came back from the other end, or it was not ready.
const UNREACHED: [u32; 2] = [12, 13];
/// Memory that may not be read or written: of this end, or the other's.
const MEMORY: [u32; 3] = [4, 9, 10];

struct Candidate<'a> {
    kind: Kind,
    text: &'a Arc<str>,
    rank: Option<Rank>,
    host: HostName,
    at: Option<u64>,
    cite: Cite,
}

/// When the first timeout was reported: the time, and the line in each file.
#[derive(Default)]
struct First {
    at: Option<u64>,
    lines: BTreeMap<usize, u64>,
}

fn first_timeout(bundle: &Bundle) -> First {
    let mut first = First::default();
    for (at, file) in bundle.logs.iter().enumerate() {
        let report = |line: &&LogLine| matches!(line.says, Says::Stands(_) | Says::Event(Kind::TimedOut, _));
        for line in file.lines.iter().filter(report) {
            first.lines.entry(at).or_insert(line.number);
            first.at = match (first.at, line.at) {
                (Some(known), Some(time)) => Some(known.min(time)),
                (known, time) => known.or(time),
            };
        }
    }
    first
}

fn event(says: &Says) -> Option<(Kind, &Arc<str>)> {
    match says {
        Says::Event(kind, text) | Says::Raised(kind, text, _) if kind.may_begin() => Some((*kind, text)),
        _ => None,
    }
}

fn host_of(file: &LogFile, line: &LogLine) -> HostName {
    if line.host.is_empty() { file.host.clone() } else { line.host.clone() }
}

/// Where it began, if the lines show it.
pub(super) fn begun(bundle: &Bundle, folded: &Folded, told: &Told) -> Option<Begun> {
    let first = first_timeout(bundle);
    let went_on: BTreeSet<Rank> = folded
        .groups
        .values()
        .flat_map(|group| group.stands.iter())
        .filter(|(_, stand)| stand.open.is_some() && !stand.is_told)
        .map(|(rank, _)| *rank)
        .collect();
    let mut all: Vec<Candidate<'_>> = Vec::new();
    for (at, file) in bundle.logs.iter().enumerate() {
        for line in &file.lines {
            let Some((kind, text)) = event(&line.says) else { continue };
            let cite = Cite { file: at, line: line.number };
            let rank = rank_of(file, line);
            let found = Candidate { kind, text, rank, host: host_of(file, line), at: line.at, cite };
            if precedes(&found, &first, &went_on) {
                all.push(found);
            }
        }
    }
    interrupts(&mut all, bundle, &first);
    // A handled exception of a rank that nobody can name, in a log that goes on, is no lead.
    all.retain(|found| first.lines.is_empty() || found.rank.is_some() || !found.host.is_empty());
    let earliest = earliest(&all)?;
    Some(together(earliest, &all, told))
}

fn precedes(found: &Candidate<'_>, first: &First, went_on: &BTreeSet<Rank>) -> bool {
    let is_rank = !matches!(found.kind, Kind::Device | Kind::Port | Kind::HostMemory | Kind::Interrupt);
    if is_rank && found.rank.is_some_and(|rank| went_on.contains(&rank)) {
        return false;
    }
    if let (Some(at), Some(timeout)) = (found.at, first.at) {
        return at <= timeout;
    }
    match first.lines.get(&found.cite.file) {
        Some(line) => found.cite.line < *line,
        None => true,
    }
}

/// An interrupt of everybody ends a job that hangs already. One of a part of the job, where another part then timed out,
/// is where it began.
fn interrupts(all: &mut Vec<Candidate<'_>>, bundle: &Bundle, first: &First) {
    let files: BTreeSet<usize> =
        all.iter().filter(|found| found.kind == Kind::Interrupt).map(|found| found.cite.file).collect();
    let elsewhere = first.lines.keys().any(|file| !files.contains(file));
    if !elsewhere || files.len() * 2 > bundle.logs.len() {
        all.retain(|found| found.kind != Kind::Interrupt);
    }
}

/// The earliest: by time where times tell, else by file and line.
fn earliest<'a, 'b>(all: &'b [Candidate<'a>]) -> Option<&'b Candidate<'a>> {
    all.iter().min_by_key(|found| (found.at.is_none(), found.at, found.cite.file, found.cite.line))
}

/// What began as the earliest did: the same kind of event, at the same time or at one not told.
fn together(earliest: &Candidate<'_>, all: &[Candidate<'_>], told: &Told) -> Begun {
    let near = |found: &&Candidate<'_>| {
        found.kind == earliest.kind && found.at.zip(earliest.at).is_none_or(|(a, b)| a.abs_diff(b) <= TOGETHER_NS)
    };
    let same: Vec<&Candidate<'_>> = all.iter().filter(near).collect();
    let ranks: BTreeSet<Rank> = same.iter().filter_map(|found| found.rank).collect();
    let hosts: BTreeSet<HostName> = same
        .iter()
        .filter(|found| found.rank.is_none())
        .map(|found| found.host.clone())
        .filter(|host| !host.is_empty())
        .collect();
    let is_everybody = ranks.len() > 1 && ranks.len() * 2 > told.world.size as usize;
    let cites: Vec<Cite> = same.iter().map(|found| found.cite).collect();
    Begun {
        kind: earliest.kind,
        ranks: ranks.into_iter().collect(),
        hosts: hosts.into_iter().collect(),
        text: earliest.text.clone(),
        cites,
        is_everybody,
    }
}

/// The first way that failed; what was flushed after it follows from it.
pub(super) fn broken(bundle: &Bundle) -> Option<Broken> {
    let mut found: Vec<(Option<u64>, Cite, &Path, HostName)> = Vec::new();
    for (at, file) in bundle.logs.iter().enumerate() {
        for line in &file.lines {
            if let Says::Path(path) = &line.says
                && (UNREACHED.contains(&path.status) || MEMORY.contains(&path.status))
            {
                found.push((line.at, Cite { file: at, line: line.number }, path, host_of(file, line)));
            }
        }
    }
    let first = found.iter().min_by_key(|(at, cite, ..)| (at.is_none(), *at, cite.file, cite.line))?;
    let (_, _, path, host) = first;
    let end = |path: &Path| if path.remote.is_empty() { path.peer.clone() } else { path.remote.clone() };
    let same: Vec<_> =
        found.iter().filter(|other| other.2.status == path.status && end(other.2) == end(path)).collect();
    let hosts: BTreeSet<&HostName> = same.iter().map(|(_, _, _, host)| host).filter(|host| !host.is_empty()).collect();
    Some(Broken {
        path: (*path).clone(),
        host: host.clone(),
        cites: same.iter().map(|(_, cite, ..)| *cite).collect(),
        is_shared: hosts.len() > 1,
        is_memory: MEMORY.contains(&path.status),
    })
}
