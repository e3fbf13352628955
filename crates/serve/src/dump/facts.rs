//! What a case gains from a capture: the autopsy's reasons, and what the suspects' own threads were doing. The live
//! verdict goes first: a capture adds to it, agrees or differs, and names a suspect only where there is none.
use crate::api::{CaseDumpJson, CaseJson, EvidenceJson, ReasonJson, SuspectJson, TimeJson};
use mycroft_diagnose::stacks::{Autopsy, Outcome};
use mycroft_record::HostTime;
use mycroft_record::dump::{Bundle, ProcessStacks, ThreadStack};
use std::collections::BTreeSet;

/// Reasons that one capture adds at most: an autopsy names a handful of rules.
const REASONS_MAX: usize = 16;
/// Suspects whose stacks are told.
const STACKS_MAX: usize = 4;
/// Frames of a stack in one sentence, innermost first.
const FRAMES_MAX: usize = 4;

/// What the case gains; `None`: there were no files.
pub(super) fn gained(id: u64, at: HostTime, case: &CaseJson, found: Option<(&Bundle, &Autopsy)>) -> CaseDumpJson {
    let mut gained =
        CaseDumpJson { id, taken_at: TimeJson::of(at), what: "unknown".to_owned(), ..CaseDumpJson::default() };
    let Some((bundle, autopsy)) = found else { return gained };
    gained.what = autopsy.outcome.as_str().to_owned();
    gained.category = autopsy.category.map(|category| category.as_str().to_owned());
    gained.suspects = autopsy.suspects.iter().map(SuspectJson::of).collect();
    gained.because.extend(verdict(id, case, autopsy));
    gained.because.extend(autopsy.because.iter().map(ReasonJson::of));
    gained.because.truncate(REASONS_MAX);
    gained.because.extend(stacks(id, case, bundle, autopsy));
    gained
}

/// How the capture's verdict stands to the live one.
fn verdict(id: u64, case: &CaseJson, autopsy: &Autopsy) -> Option<ReasonJson> {
    let (rank, suspect, conduct) = autopsy.blamed().next()?;
    let Outcome::Fault(_) = autopsy.outcome else { return None };
    let cause = autopsy
        .cause
        .map_or("cause not told apart".to_owned(), |cause| format!("{}, {}", cause.family().as_str(), cause.as_str()));
    let doing = if conduct.doing.is_empty() { String::new() } else { format!(" ({})", conduct.doing) };
    let (rank, role, sure) = (rank.0, conduct.role.as_str(), suspect.confidence);
    let names = format!("names rank {rank}, {role}{doing}: {cause}; confidence {sure:.2}");
    let live = case.suspects.iter().filter(|suspect| suspect.kind == "rank").find_map(|suspect| suspect.rank);
    let (rule, text) = match live {
        Some(live) if live == rank => {
            ("dump.agrees", format!("capture {id} {names}: the live verdict's first suspect"))
        }
        Some(live) => {
            ("dump.differs", format!("capture {id} {names}; the live verdict on rank {live} stands, look at both"))
        }
        None => ("dump.names", format!("capture {id} {names}")),
    };
    Some(reason(rule, text, rank, HostTime::NONE))
}

fn reason(rule: &str, text: String, rank: u32, at: HostTime) -> ReasonJson {
    let evidence = vec![EvidenceJson { rank: Some(rank), op: None, flow: None, at: TimeJson::of(at) }];
    ReasonJson { rule: rule.to_owned(), text, evidence }
}

/// What the main threads of the suspects were doing, of the live ones first.
fn stacks(id: u64, case: &CaseJson, bundle: &Bundle, autopsy: &Autopsy) -> Vec<ReasonJson> {
    let live = case.suspects.iter().filter_map(|suspect| suspect.rank);
    let mut ranks: Vec<u32> = Vec::new();
    let mut add = |rank: u32| {
        if !ranks.contains(&rank) {
            ranks.push(rank);
        }
    };
    live.chain(autopsy.blamed().map(|(rank, ..)| rank.0)).for_each(&mut add);
    // As long as nobody is blamed: those who are elsewhere than the others, or all of a few.
    if case.suspects.is_empty() && autopsy.suspects.is_empty() {
        let odd = autopsy.stack_groups.iter().filter(|group| group.odd).flat_map(|group| &group.ranks);
        odd.map(|rank| rank.0).for_each(&mut add);
        let all: BTreeSet<u32> = bundle.stacks.iter().filter_map(|stacks| stacks.rank).map(|rank| rank.0).collect();
        if all.len() <= STACKS_MAX {
            all.into_iter().for_each(&mut add);
        }
    }
    let of = |rank: u32| {
        let mine = || bundle.stacks.iter().filter(move |stacks| stacks.rank.is_some_and(|r| r.0 == rank));
        let own = mine().find(|process| !process.is_child_of(mine()))?;
        let group = autopsy.stack_groups.iter().find(|group| group.ranks.iter().any(|r| r.0 == rank));
        let doing = group.map(|group| group.doing.as_str()).filter(|doing| !doing.is_empty());
        Some(reason("dump.stack", sentence(id, rank, own, doing)?, rank, own.taken_at))
    };
    ranks.into_iter().filter_map(of).take(STACKS_MAX).collect()
}

fn sentence(id: u64, rank: u32, process: &ProcessStacks, doing: Option<&str>) -> Option<String> {
    let main = process.threads.iter().find(|thread| &*thread.name == "MainThread").or(process.threads.first())?;
    let frames: Vec<String> = main.frames.iter().filter(|frame| !frame.native).take(FRAMES_MAX).map(frame).collect();
    if frames.is_empty() {
        return None;
    }
    let gil = if main.owns_gil == Some(true) { ", holding the interpreter's lock" } else { "" };
    let doing = doing.map_or(String::new(), |doing| format!(" ({doing})"));
    let name = thread_name(main);
    Some(format!("capture {id}: {name} of rank {rank} is in {}{gil}{doing}", frames.join(" < ")))
}

fn thread_name(thread: &ThreadStack) -> String {
    if thread.name.is_empty() { "the first thread".to_owned() } else { format!("thread {}", thread.name) }
}

fn frame(frame: &mycroft_record::dump::StackFrame) -> String {
    let file = frame.frame.file.rsplit('/').next().unwrap_or_default();
    format!("{} ({file}:{})", frame.frame.name, frame.frame.line)
}
