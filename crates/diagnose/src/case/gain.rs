//! What a case gains from a capture: the autopsy's reasons, and what the suspects' own threads were doing. The live
//! verdict goes first: a capture adds to it, agrees or differs, and names a suspect only where there is none.
use super::{Case, Evidence, Reason};
use crate::stacks::{Autopsy, Outcome};
use mycroft_record::dump::{Bundle, ProcessStacks, StackFrame, ThreadStack};
use mycroft_record::{Category, HostTime, Place, Rank, Suspect};
use std::collections::BTreeSet;

/// Reasons that one capture adds at most: an autopsy names a handful of rules.
const REASONS_MAX: usize = 16;
/// Suspects whose stacks are told.
const STACKS_MAX: usize = 4;
/// Frames of a stack in one sentence, innermost first.
const FRAMES_MAX: usize = 4;

/// What a capture says about the case that it was taken for.
#[derive(Clone, PartialEq, Debug)]
pub struct Gain {
    /// The autopsy's own verdict.
    pub what: Outcome,
    /// Its category; `None` when nothing is wrong or nothing is told.
    pub category: Option<Category>,
    /// Whom it blames. A case's own suspects go before them.
    pub suspects: Vec<Suspect>,
    /// The reasons it adds.
    pub because: Vec<Reason>,
}

impl Gain {
    /// What is gained from a capture without files.
    pub fn nothing() -> Gain {
        Gain { what: Outcome::Unknown, category: None, suspects: Vec::new(), because: Vec::new() }
    }

    /// What `live` gains from capture number `capture`, whose files are `bundle` and what they say `autopsy`.
    pub fn of(capture: u64, live: &Case, bundle: &Bundle, autopsy: &Autopsy) -> Gain {
        let mut because: Vec<Reason> = verdict(capture, live, autopsy).into_iter().collect();
        because.extend(autopsy.because.iter().cloned());
        because.truncate(REASONS_MAX);
        because.extend(stacks(capture, live, bundle, autopsy));
        Gain { what: autopsy.outcome, category: autopsy.category, suspects: autopsy.suspects.clone(), because }
    }
}

impl Case {
    /// Adds what a capture brought. What is live goes first: a capture names a suspect and a category only where the
    /// live verdict has none.
    pub fn gain(&mut self, gain: &Gain) {
        self.because.extend(gain.because.iter().cloned());
        if self.finding.suspects.is_empty() {
            self.finding.suspects.clone_from(&gain.suspects);
        }
        if self.finding.category == Category::Unknown {
            self.finding.category = gain.category.unwrap_or(Category::Unknown);
        }
    }
}

/// The ranks that the live verdict blames, most likely first.
fn live_ranks(live: &Case) -> impl Iterator<Item = Rank> {
    live.finding.suspects.iter().filter_map(|suspect| match suspect.place {
        Place::Rank { rank, .. } => Some(rank).filter(|rank| *rank != Rank::UNKNOWN),
        Place::Host { .. } | Place::Link { .. } => None,
    })
}

/// How the capture's verdict stands to the live one.
fn verdict(capture: u64, live: &Case, autopsy: &Autopsy) -> Option<Reason> {
    let (rank, suspect, conduct) = autopsy.blamed().next()?;
    let Outcome::Fault(_) = autopsy.outcome else { return None };
    let cause = autopsy
        .cause
        .map_or("cause not told apart".to_owned(), |cause| format!("{}, {}", cause.family().as_str(), cause.as_str()));
    let doing = if conduct.doing.is_empty() { String::new() } else { format!(" ({})", conduct.doing) };
    let (role, sure) = (conduct.role.as_str(), suspect.confidence);
    let names = format!("names rank {rank}, {role}{doing}: {cause}; confidence {sure:.2}");
    let (rule, text) = match live_ranks(live).next() {
        Some(live) if live == rank => {
            ("dump.agrees", format!("capture {capture} {names}: the live verdict's first suspect"))
        }
        Some(live) => {
            let text = format!("capture {capture} {names}; the live verdict on rank {live} stands, look at both");
            ("dump.differs", text)
        }
        None => ("dump.names", format!("capture {capture} {names}")),
    };
    Some(reason(rule, text, rank, HostTime::NONE))
}

fn reason(rule: &'static str, text: String, rank: Rank, at: HostTime) -> Reason {
    let evidence = vec![Evidence { rank: Some(rank), op: None, flow: None, at }];
    Reason { rule: rule.into(), text, evidence }
}

/// What the main threads of the suspects were doing, of the live ones first.
fn stacks(capture: u64, live: &Case, bundle: &Bundle, autopsy: &Autopsy) -> Vec<Reason> {
    let mut ranks: Vec<Rank> = Vec::new();
    let mut add = |rank: Rank| {
        if !ranks.contains(&rank) {
            ranks.push(rank);
        }
    };
    live_ranks(live).chain(autopsy.blamed().map(|(rank, ..)| rank)).for_each(&mut add);
    // As long as nobody is blamed: those who are elsewhere than the others, or all of a few.
    if live.finding.suspects.is_empty() && autopsy.suspects.is_empty() {
        let odd = autopsy.stack_groups.iter().filter(|group| group.odd).flat_map(|group| &group.ranks);
        odd.copied().for_each(&mut add);
        let all: BTreeSet<Rank> = bundle.stacks.iter().filter_map(|stacks| stacks.rank).collect();
        if all.len() <= STACKS_MAX {
            all.into_iter().for_each(&mut add);
        }
    }
    let of = |rank: Rank| {
        let mine = || bundle.stacks.iter().filter(move |stacks| stacks.rank == Some(rank));
        let own = mine().find(|process| !process.is_child_of(mine()))?;
        let group = autopsy.stack_groups.iter().find(|group| group.ranks.contains(&rank));
        let doing = group.map(|group| group.doing.as_str()).filter(|doing| !doing.is_empty());
        Some(reason("dump.stack", sentence(capture, rank, own, doing)?, rank, own.taken_at))
    };
    ranks.into_iter().filter_map(of).take(STACKS_MAX).collect()
}

fn sentence(capture: u64, rank: Rank, process: &ProcessStacks, doing: Option<&str>) -> Option<String> {
    let main = process.threads.iter().find(|thread| &*thread.name == "MainThread").or(process.threads.first())?;
    let frames: Vec<String> = main.frames.iter().filter(|frame| !frame.native).take(FRAMES_MAX).map(frame).collect();
    if frames.is_empty() {
        return None;
    }
    let gil = if main.owns_gil == Some(true) { ", holding the interpreter's lock" } else { "" };
    let doing = doing.map_or(String::new(), |doing| format!(" ({doing})"));
    let name = thread_name(main);
    Some(format!("capture {capture}: {name} of rank {rank} is in {}{gil}{doing}", frames.join(" < ")))
}

fn thread_name(thread: &ThreadStack) -> String {
    if thread.name.is_empty() { "the first thread".to_owned() } else { format!("thread {}", thread.name) }
}

fn frame(frame: &StackFrame) -> String {
    let file = frame.frame.file.rsplit('/').next().unwrap_or_default();
    format!("{} ({file}:{})", frame.frame.name, frame.frame.line)
}
