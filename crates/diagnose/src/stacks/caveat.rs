//! What the evidence lacks, and the switch that would provide it.
use super::index::Index;
use super::judge::{Doubt, Ruling};
use super::printed::Told;
use super::tables::NONE;
use super::verdict::Outcome;
use crate::fact::these;
use crate::report::Caveat;
use mycroft_record::dump::Dump;
use mycroft_record::{NANOS_PER_SEC, Rank};
use std::collections::BTreeSet;

/// Ring size that is advised: ten times the default of torch 2.15, about 10 MB per rank.
const BUFFER_SWITCH: &str = "TORCH_FR_BUFFER_SIZE=20000";
/// Start events.
const TIMING_SWITCH: &str = "TORCH_NCCL_ENABLE_TIMING=1";
/// Call stacks in dumps; the JSON form never has them.
const STACK_SWITCH: &str = "TORCH_INCLUDE_STACK_TRACE=1";
/// Stacks of running processes.
const PYSPY_SWITCH: &str = "py-spy dump --json --pid PID > pyspy/rank_N.json";
/// Arguments of the frames of a running process.
const LOCALS_SWITCH: &str = "py-spy dump --locals --pid PID";
/// Stacks with the library's own frames.
const NATIVE_SWITCH: &str = "py-spy dump --native --pid PID";
/// NCCL 2.26 and newer: operations of several communicators are ordered on the device as the host issues them.
const ORDER_SWITCH: &str = "NCCL_LAUNCH_ORDER_IMPLICIT=1";
/// Dumps of all ranks by one signal.
const PIPE_SWITCH: &str = "TORCH_NCCL_DUMP_ON_TIMEOUT=1";
/// Clocks this far apart are not taken for one dump time.
const FAR_APART_NS: u64 = 60 * NANOS_PER_SEC;

/// Notes on files that are passed on; a folder of logs has thousands.
const NOTES_MAX: usize = 4;
/// Remarks of logs that are told; where memory ran out it did so on many ranks.
const REMARKS_MAX: usize = 4;

/// Everything a reader should know before believing the ruling.
pub(super) fn list(index: &Index<'_>, told: &Told, ruling: &Ruling) -> Vec<Caveat> {
    let mut out: Vec<Caveat> = ruling.doubts.iter().map(doubt).collect();
    out.extend(told.caveats.iter().cloned());
    out.extend(index.bundle.relabelled.iter().take(REMARKS_MAX).map(|(source, named, rank)| {
        let text = format!(
            "{source} has the label of rank {named} and holds the dump of rank {rank}, as its transfers tell: torch before \
             August 2026 mislabels dumps of processes that made another group first"
        );
        Caveat::new("wrong-label", text).about(&[*rank])
    }));
    out.extend(missing(index));
    out.extend(remarks(index));
    if ruling.outcome != Outcome::Healthy {
        out.extend(wrapped(index, ruling));
        out.extend(stackless(index));
        let blind: Vec<Rank> =
            ruling.conduct.iter().filter(|(_, conduct)| conduct.doing.is_empty()).map(|(rank, _)| *rank).collect();
        if !blind.is_empty() {
            let text = format!("no stacks of {}: what they were doing is not known", these(&blind));
            out.push(Caveat::new("no-stacks", text).about(&blind).switch(PYSPY_SWITCH));
        }
    }
    out.extend(inferred(index));
    out.extend(apart(index));
    let notes = &index.bundle.notes;
    out.extend(notes.iter().take(NOTES_MAX).map(|note| Caveat::new("files", note.as_str())));
    if notes.len() > NOTES_MAX {
        let more = notes.len() - NOTES_MAX;
        out.push(Caveat::new("files", format!("{more} more notes on how the files were read")));
    }
    out
}

fn doubt(doubt: &Doubt) -> Caveat {
    match doubt {
        Doubt::WhichOf(ranks) => {
            Caveat::new("which-of", format!("nothing tells which of {} is at fault", these(ranks)))
                .about(ranks)
                .switch(PYSPY_SWITCH)
        }
        Doubt::Unread(ranks) => Caveat::new(
            "unread-suspect",
            format!("everybody waits for {}, and what could not be read would tell why", these(ranks)),
        )
        .about(ranks),
        Doubt::Unrecorded(ranks) => {
            Caveat::new("unrecorded", format!("{} may wait in an operation of which nothing here tells", these(ranks)))
                .about(ranks)
                .switch(PYSPY_SWITCH)
        }
        Doubt::StuckOrSlow(rank) => Caveat::new(
            "stuck-or-slow",
            format!("rank {rank} was late before; without its stack it may also be stuck now"),
        )
        .about(&[*rank])
        .switch(PYSPY_SWITCH),
        Doubt::Started => Caveat::new(
            "no-start-times",
            "the recorder does not tell whether devices started the operation: network and device look alike",
        )
        .switch(TIMING_SWITCH),
        Doubt::Older(rank) => Caveat::new(
            "older-dump",
            format!(
                "the dump of rank {rank} is older than what its peers were through: dumps of one moment are needed"
            ),
        )
        .about(&[*rank])
        .switch(PIPE_SWITCH),
        Doubt::Ended => Caveat::new(
            "no-ends",
            "the recorder tells what was issued and not what ended (as with a backend in Python), and stacks show all ranks \
             waiting for their peers",
        ),
        Doubt::Running => {
            Caveat::new("still-running", "the files show different moments: the job went on while they were taken")
        }
        other => doubt_of_recorders(other),
    }
}

/// What recorders do not tell.
fn doubt_of_recorders(doubt: &Doubt) -> Caveat {
    match doubt {
        Doubt::Splits => Caveat::new(
            "no-splits",
            "the recorder tells totals of an exchange and not its splits: splits that do not fit would look like this",
        )
        .switch(LOCALS_SWITCH),
        Doubt::InCall(ranks) => Caveat::new(
            "in-call",
            format!(
                "torch raises its number when the call into the library returns: {} left the operation out or may be inside \
                 that call; stacks tell",
                these(ranks)
            ),
        )
        .about(ranks)
        .switch(NATIVE_SWITCH),
        Doubt::WhoIsSlow => Caveat::new(
            "who-is-slow",
            "an iteration's line does not tell for whom it waited: what each rank needs itself does (forward pass, input), or \
             the tracer on a job that runs",
        ),
        Doubt::LaunchOrder => Caveat::new(
            "launch-order",
            "several groups are open on every rank and nobody is through any: devices may run them in another order",
        )
        .switch(ORDER_SWITCH),
        _ => Caveat::new(
            "which-link",
            "all devices started and none is through: dumps do not tell which link or device; look at link errors and Xid \
             messages of all hosts of the group",
        ),
    }
}

fn missing(index: &Index<'_>) -> Option<Caveat> {
    let unread: BTreeSet<Rank> = index.bundle.unread.iter().filter_map(|file| file.rank).collect();
    let lacks = |rank: &Rank| !index.has_dump(*rank) && !unread.contains(rank);
    let ranks: Vec<Rank> = index.ranks.iter().copied().filter(lacks).collect();
    if ranks.is_empty() || index.bundle.dumps.iter().all(|dump| dump.printed) {
        return None;
    }
    let text = format!("no usable dump from {}", these(&ranks));
    Some(Caveat::new("no-dump", text).about(&ranks).switch(PIPE_SWITCH))
}

/// What logs say of the end of ranks is told and not weighed.
fn remarks(index: &Index<'_>) -> impl Iterator<Item = Caveat> {
    index.bundle.remarks.iter().take(REMARKS_MAX).map(|remark| {
        let ranks: Vec<Rank> = remark.rank.into_iter().collect();
        let whose = if ranks.is_empty() { String::new() } else { format!(", by its name of {}", these(&ranks)) };
        let text =
            format!("a log ({}{whose}) says {}: told here, and no part of the verdict", remark.source, remark.why);
        Caveat::new("job-log", text).about(&ranks)
    })
}

/// A ring that was full when something went wrong may hide where it began.
fn wrapped(index: &Index<'_>, ruling: &Ruling) -> Option<Caveat> {
    let at = ruling.at?;
    let group = index.groups.get(at.group as usize)?;
    let full = group.lanes.iter().filter(|lane| lane.dump.is_some_and(|dump| index.tells[dump].wrapped));
    let ranks: Vec<Rank> = full.map(|lane| lane.rank).collect();
    if ranks.is_empty() {
        return None;
    }
    let text = format!("the recorders of {} had overwritten older operations: it may have begun before", these(&ranks));
    Some(Caveat::new("overwritten", text).about(&ranks).switch(BUFFER_SWITCH))
}

fn stackless(index: &Index<'_>) -> Option<Caveat> {
    let without = |dump: &&Dump| {
        !dump.printed && !dump.entries.is_empty() && dump.entries.iter().all(|entry| entry.stack == NONE)
    };
    let mut ranks: Vec<Rank> = index.bundle.dumps.iter().filter(without).map(|dump| dump.rank).collect();
    ranks.dedup();
    if ranks.is_empty() {
        return None;
    }
    let text =
        format!("the dumps of {} have no call stacks: a branch shows only where arguments differ", these(&ranks));
    Some(Caveat::new("no-call-stacks", text).about(&ranks).switch(STACK_SWITCH))
}

fn inferred(index: &Index<'_>) -> Option<Caveat> {
    let names: BTreeSet<String> =
        index.groups.iter().filter(|group| group.inferred).map(super::index::Group::label).collect();
    if names.is_empty() {
        return None;
    }
    let names: Vec<String> = names.into_iter().collect();
    let text = format!("the dumps do not tell the members of {}: taken from who used them", names.join(", "));
    Some(Caveat::new("members-inferred", text))
}

/// Dumps written at different times show different moments.
fn apart(index: &Index<'_>) -> Option<Caveat> {
    let newest = |dump: &Dump| dump.entries.iter().map(|entry| entry.created_at.max(entry.completed_at)).max();
    let times: Vec<_> = index.bundle.dumps.iter().filter_map(newest).filter(|time| time.is_some()).collect();
    let (first, last) = (times.iter().min()?, times.iter().max()?);
    let apart = last.since_ns(*first);
    (apart > FAR_APART_NS).then(|| {
        let text = format!("the newest records of the dumps are up to {} s apart", apart / NANOS_PER_SEC);
        Caveat::new("times-apart", text)
    })
}
