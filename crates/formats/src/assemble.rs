//! From the pieces of a folder to one [`Bundle`]: what is the same twice, what belongs together, what cannot be.
use crate::{Clash, Piece, relabel};
use mycroft_record::dump::{Bundle, Dump, Entry, ProcessStacks, StackFrame, ThreadStack, Unusable};
use mycroft_record::printed::{Kind, LogFile, Says};
use mycroft_record::{HostName, HostTime, Rank};
use std::cmp::Reverse;
use std::collections::btree_map::Entry as Place;
use std::collections::{BTreeMap, BTreeSet};

/// Puts the pieces of a folder together, in the order of ranks and names.
///
/// Two dumps of one rank are the same recorder's if they share an entry (record id and time of issue, which is in
/// nanoseconds): the one that tells more is kept, and a note names the other. They are two recorders of one process if
/// they name different libraries, e.g. `gloo` and `nccl2`, and share a thread or a time. Anything else is a clash. Views of
/// one process by py-spy become one. A file is no longer unusable where another tells the same rank's dump.
///
/// # Errors
/// [`Clash`] when two files that are not the same claim one rank and one recorder.
pub fn assemble(pieces: Vec<Piece>) -> Result<Bundle, Clash> {
    let mut bundle = Bundle::default();
    let mut pieces = pieces;
    while let Some(piece) = pieces.pop() {
        match piece {
            Piece::Dump(dump) => bundle.dumps.push(*dump),
            Piece::Stacks(stacks) => bundle.stacks.extend(stacks),
            Piece::Unusable(unusable) => bundle.unusable.push(unusable),
            Piece::Unread(unread) => bundle.unread.push(unread),
            Piece::Log(log) => {
                bundle.remarks.extend(remark(&log));
                bundle.logs.push(*log);
            }
            Piece::Trace(trace) => bundle.traces.push(*trace),
            Piece::CutShort(unusable, head) => {
                bundle.unusable.push(unusable);
                bundle.heads.push(*head);
            }
            Piece::Ignored(path, why) => bundle.notes.push(format!("{path}: {why}")),
            Piece::Several(more) => pieces.extend(more),
        }
    }
    bundle.notes.sort();
    relabel::by_content(&mut bundle.dumps, &mut bundle.relabelled);
    bundle.dumps = dumps(bundle.dumps, &mut bundle.notes)?;
    bundle.stacks = stacks(bundle.stacks, &mut bundle.notes);
    bundle.logs.sort_by(|a, b| a.source.cmp(&b.source));
    bundle.logs.dedup_by(|a, b| a == b);
    numbered(&mut bundle);
    // A profiler writes one file for each cycle; the last one is the nearest to the end.
    bundle.traces.sort_by(|a, b| (a.rank, &b.source).cmp(&(b.rank, &a.source)));
    bundle.traces.dedup_by_key(|trace| trace.rank);
    for files in [&mut bundle.unusable, &mut bundle.unread, &mut bundle.remarks] {
        files.sort();
    }
    for dump in &mut bundle.dumps {
        let notes = dump.notes.iter().map(|note| format!("{}: {note}", dump.source));
        bundle.notes.extend(notes);
    }
    replaced(&mut bundle);
    Ok(bundle)
}

/// Traces that know ranks by communicators only: where two claim one rank no communicator is of the whole job, and nothing tells
/// which is which.
fn numbered(bundle: &mut Bundle) {
    let mut ranks = BTreeSet::new();
    let is_new = |rank| ranks.insert(rank);
    if bundle.traces.iter().filter(|trace| trace.is_numbered).map(|trace| trace.rank).all(is_new) {
        return;
    }
    bundle.traces.retain(|trace| !trace.is_numbered);
    let why = "lines of NCCL's Inspector: two processes have the same rank in their largest communicator, so none is of the whole job";
    bundle.notes.push(why.to_owned());
}

/// What a log says of memory that ran out.
fn remark(log: &LogFile) -> Option<Unusable> {
    let text = log.lines.iter().find_map(|line| match &line.says {
        Says::Event(Kind::DeviceMemory | Kind::HostMemory, text) | Says::Raised(Kind::DeviceMemory, text, _) => {
            Some(text)
        }
        _ => None,
    })?;
    Some(Unusable { rank: log.rank, source: log.source.clone(), why: format!("\"{text}\"") })
}

/// Files that are of no use, but whose rank another file of the same kind tells: a note, no more.
fn replaced(bundle: &mut Bundle) {
    let told: BTreeSet<Rank> = bundle.dumps.iter().map(|dump| dump.rank).collect();
    let (spare, missing) = std::mem::take(&mut bundle.unusable)
        .into_iter()
        .partition::<Vec<Unusable>, _>(|unusable| unusable.rank.is_some_and(|rank| told.contains(&rank)));
    bundle.unusable = missing;
    bundle.heads.retain(|head| !told.contains(&head.rank));
    bundle.heads.sort_by(|a, b| (a.rank, &a.source).cmp(&(b.rank, &b.source)));
    let notes = spare.iter().map(|unusable| format!("{}: of no use: {}", unusable.source, unusable.why));
    bundle.notes.extend(notes);
}

fn dumps(mut dumps: Vec<Dump>, notes: &mut Vec<String>) -> Result<Vec<Dump>, Clash> {
    dumps.sort_by(|a, b| (a.rank, &a.source).cmp(&(b.rank, &b.source)));
    let mut kept: Vec<Dump> = Vec::with_capacity(dumps.len());
    let mut of_rank = 0;
    for dump in dumps {
        if kept.get(of_rank).is_none_or(|first| first.rank != dump.rank) {
            of_rank = kept.len();
        }
        place(&mut kept, of_rank, dump, notes)?;
    }
    Ok(kept)
}

/// How two dumps of one rank belong together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Relation {
    Same,
    OtherRecorder,
    Clash,
}

/// Puts a dump beside those of its rank, which begin at `from`.
fn place(kept: &mut Vec<Dump>, from: usize, mut dump: Dump, notes: &mut Vec<String>) -> Result<(), Clash> {
    for known in &mut kept[from..] {
        match relation(known, &dump) {
            Relation::OtherRecorder => {}
            Relation::Clash => {
                let sources = vec![known.source.to_string(), dump.source.to_string()];
                return Err(Clash { rank: dump.rank, sources });
            }
            Relation::Same => {
                if richness(&dump) > richness(known) {
                    std::mem::swap(known, &mut dump);
                }
                let more = if richness(&dump) < richness(known) { ", which tells more" } else { "" };
                notes.push(format!("{}: the same dump as {}{more}", dump.source, known.source));
                return Ok(());
            }
        }
    }
    kept.push(dump);
    Ok(())
}

fn relation(a: &Dump, b: &Dump) -> Relation {
    if a.entries.is_empty() || b.entries.is_empty() {
        // A recorder without entries has nothing that could contradict; one of them may be another backend's.
        return if a.entries.is_empty() && b.entries.is_empty() || a.statuses == b.statuses {
            Relation::Same
        } else {
            Relation::OtherRecorder
        };
    }
    if !libs(a).is_disjoint(&libs(b)) {
        let key = |entry: &Entry| (entry.record_id, entry.created_at);
        let known: BTreeSet<_> = a.entries.iter().map(key).collect();
        let shared = b.entries.iter().any(|entry| known.contains(&key(entry)));
        return if shared { Relation::Same } else { Relation::Clash };
    }
    // Recorders of one process wrote for the same thread, or one while the other did. A thread id is an address: where
    // the loader randomises none, two runs may share it, so alone it shows nothing of recorders with the same library.
    let (of_a, of_b) = (threads(a), threads(b));
    let untold = of_a.is_empty() && of_b.is_empty();
    let one_process = untold || !of_a.is_disjoint(&of_b) || at_one_time(a, b);
    if one_process { Relation::OtherRecorder } else { Relation::Clash }
}

fn threads(dump: &Dump) -> BTreeSet<u64> {
    dump.threads.iter().filter_map(|thread| thread.id).collect()
}

fn at_one_time(a: &Dump, b: &Dump) -> bool {
    let span = |dump: &Dump| Some((dump.entries.first()?.created_at, dump.entries.last()?.created_at));
    span(a).zip(span(b)).is_some_and(|(a, b)| a.0 <= b.1 && b.0 <= a.1)
}

fn libs(dump: &Dump) -> BTreeSet<&str> {
    dump.ops.iter().map(|op| &*op.lib).collect()
}

/// What a dump tells: call stacks first, then how far it goes, how far back, and how many members it knows.
fn richness(dump: &Dump) -> (bool, bool, Option<u64>, usize, usize) {
    let members = dump.groups.iter().map(|group| group.ranks.len()).sum();
    let last = dump.entries.last().map(|entry| entry.record_id);
    (!dump.stacks.is_empty(), !dump.active_only, last, dump.entries.len(), members)
}

/// What one process at one time is known by.
type ProcessKey = (Option<Rank>, HostName, u64, HostTime);

fn stacks(mut all: Vec<ProcessStacks>, notes: &mut Vec<String>) -> Vec<ProcessStacks> {
    // The view with most frames comes first and takes in what the others add.
    all.sort_by_cached_key(|view| (view.rank, view.pid, Reverse(detail(view)), view.source.clone()));
    let mut merged: BTreeMap<ProcessKey, ProcessStacks> = BTreeMap::new();
    let mut out = Vec::new();
    for view in all {
        let Some(pid) = view.pid else {
            out.push(view);
            continue;
        };
        match merged.entry((view.rank, view.host.clone(), pid, view.taken_at)) {
            Place::Occupied(mut known) => {
                notes.push(format!("{}: one more view of process {pid}", view.source));
                join(known.get_mut(), view);
            }
            Place::Vacant(place) => {
                place.insert(view);
            }
        }
    }
    let pids: BTreeSet<(Option<Rank>, u64)> = merged.values().filter_map(|view| Some((view.rank, view.pid?))).collect();
    out.extend(merged.into_values());
    // By rank; the rank's own process before those that it started.
    out.sort_by_cached_key(|view| {
        let is_child = view.parent_pid.is_some_and(|parent| pids.contains(&(view.rank, parent)));
        (view.rank, view.host.clone(), is_child, view.pid, view.taken_at, view.source.clone())
    });
    out.dedup_by(|later, first| {
        later.pid.is_none() && ProcessStacks { source: first.source.clone(), ..later.clone() } == *first
    });
    out
}

/// How much a view tells: native frames, then frames.
fn detail(view: &ProcessStacks) -> (usize, usize) {
    let frames = || view.threads.iter().flat_map(|thread| &thread.frames);
    (frames().filter(|frame| frame.native).count(), frames().count())
}

/// Takes what another view of the same process adds.
fn join(known: &mut ProcessStacks, view: ProcessStacks) {
    known.parent_pid = known.parent_pid.or(view.parent_pid);
    if known.command.is_empty() {
        known.command = view.command;
    }
    for thread in view.threads {
        match known.threads.iter_mut().find(|known| is_same_thread(known, &thread)) {
            Some(known) => join_thread(known, thread),
            None => known.threads.push(thread),
        }
    }
}

fn is_same_thread(a: &ThreadStack, b: &ThreadStack) -> bool {
    let same = |a: Option<u64>, b: Option<u64>| Some(a? == b?);
    same(a.os_thread_id, b.os_thread_id)
        .or_else(|| same(a.thread_id, b.thread_id))
        .unwrap_or_else(|| !a.name.is_empty() && a.name == b.name)
}

fn join_thread(known: &mut ThreadStack, other: ThreadStack) {
    known.thread_id = known.thread_id.or(other.thread_id);
    known.os_thread_id = known.os_thread_id.or(other.os_thread_id);
    known.owns_gil = known.owns_gil.or(other.owns_gil);
    if known.name.is_empty() {
        known.name = other.name.clone();
    }
    let native = |thread: &ThreadStack| thread.frames.iter().filter(|frame| frame.native).count();
    let other = if (native(&other), other.frames.len()) > (native(known), known.frames.len()) {
        std::mem::replace(&mut known.frames, other.frames)
    } else {
        other.frames
    };
    // Python frames stand in the same order in every view of a stack that does not move.
    let mut rest = other.into_iter();
    for frame in known.frames.iter_mut().filter(|frame| !frame.native) {
        let mut ahead = rest.clone();
        if let Some(same) = ahead.find(|other| is_same_line(frame, other)) {
            rest = ahead;
            if same.frame.file.len() > frame.frame.file.len() {
                frame.frame.file = same.frame.file;
            }
            if frame.locals.is_empty() {
                frame.locals = same.locals;
            }
        }
    }
}

/// The same function and line; one of the files may be told without its folders.
fn is_same_line(a: &StackFrame, b: &StackFrame) -> bool {
    let (a, b) = (&a.frame, &b.frame);
    a.name == b.name && a.line == b.line && (a.file.ends_with(&*b.file) || b.file.ends_with(&*a.file))
}
