//! Post-mortem: from what a job left behind (dumps, stacks) to one verdict, over the same wait-for graph, facts and
//! reasons as the live side. Flight Recorder paper, "How to leverage FR dumps".
//!
//! ```text
//! Bundle -> index (align) -> scene (who stands where) -> walk (who waits for whom) -> judge -> Autopsy
//!                    \-> wrong (who disagrees)   late (stuck or slow)   doing (stacks) /
//! ```
mod caveat;
mod doing;
mod frames;
mod grid;
mod index;
mod judge;
mod late;
mod lines;
mod pace;
mod pairs;
mod printed;
mod ranks;
mod scene;
mod tables;
mod traces;
mod verdict;
mod wrong;

use crate::blame::graph::Graph;
use crate::blame::hang::Walk;
use crate::case::{BlastEntry, advice};
use crate::fact::{these, these_do};
use doing::Doings;
use index::Index;
use judge::{Judge, Ruling};
use mycroft_record::Rank;
use mycroft_record::dump::Bundle;
use scene::{DumpOp, DumpScene};

pub(crate) use lines::cited;
pub use lines::{LinePart, PrintedLine};
pub use pace::PaceChange;
pub use verdict::{Autopsy, Cause, Cell, CellMark, Conduct, Family, GroupGrid, Outcome, RankRow, Role, StackGroup};

/// Arrows of the wait-for graph that are shown; a thousand groups wait alike.
const ARROWS_MAX: usize = 64;

/// What an autopsy is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Question {
    /// Fill [`Autopsy::grid`] (and its tables): costs memory in proportion to the entries.
    pub grid: bool,
}

/// Says what became of the job that left `bundle` behind.
pub fn autopsy(bundle: &Bundle, question: &Question) -> Autopsy {
    let mut told = printed::read(bundle);
    let joined;
    let bundle = if told.dumps.is_empty() {
        bundle
    } else {
        joined = told.join(bundle);
        &joined
    };
    let index = Index::of(bundle, &told.ranks);
    let doings = Doings::of(bundle);
    let scene = DumpScene { index: &index, doings: &doings, told: &told };
    let graph = Graph::of(&scene);
    let waiting: Vec<Rank> = graph.current.keys().copied().collect();
    let walk = Walk::along(&scene, &graph, &waiting);
    let mut ruling = Judge::new(&scene, &graph, &walk).rule();
    ruling.suspects.sort_by(|a, b| b.confidence.total_cmp(&a.confidence).then_with(|| a.place.cmp(&b.place)));
    let mut out = say(&index, &scene, &ruling);
    out.blast_radius = blast_radius(&scene, &graph, &walk);
    out.stack_groups = grid::stack_groups(&doings);
    let rules = out.because.iter().map(|reason| &*reason.rule).collect();
    (out.lines, out.lines_left_out) = printed::used(&told, bundle, &rules);
    if question.grid {
        grid::fill(&index, &ruling, &mut out);
    }
    out
}

/// The ruling in words.
fn say(index: &Index<'_>, scene: &DumpScene<'_, '_>, ruling: &Ruling) -> Autopsy {
    let at = ruling.at.as_ref();
    let group = at.and_then(|op| index.groups.get(op.group as usize)).map(index::Group::label);
    Autopsy {
        outcome: ruling.outcome,
        category: ruling.category,
        cause: ruling.cause,
        suspects: ruling.suspects.clone(),
        conduct: ruling.conduct.clone(),
        hosts: ruling.hosts.clone(),
        group: group.unwrap_or_default(),
        seq: at.and_then(|op| scene.seq(op)).or(ruling.seq),
        collective: ruling.called.clone().unwrap_or_else(|| at.map_or_else(String::new, |op| scene.name(op))),
        pace: scene.told.pace.changes.clone(),
        because: ruling.facts.iter().map(crate::fact::Fact::reason).chain(ruling.said.clone()).collect(),
        do_next: do_next(ruling),
        ranks: ranks(index),
        missing_dumps: missing_dumps(index),
        unread: index.bundle.unread.clone(),
        caveats: caveat::list(index, scene.told, ruling),
        traced: index.bundle.traces.len(),
        printed: index.bundle.dumps.iter().filter(|dump| dump.printed).count(),
        lines: Vec::new(),
        lines_left_out: 0,
        blast_radius: Vec::new(),
        op_names: Vec::new(),
        frames: Vec::new(),
        call_stacks: Vec::new(),
        grid: Vec::new(),
        stack_groups: Vec::new(),
    }
}

/// Every rank, with those that only left a trace.
fn ranks(index: &Index<'_>) -> Vec<Rank> {
    let mut ranks = index.ranks.clone();
    ranks.extend(index.bundle.traces.iter().map(|trace| trace.rank));
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

fn do_next(ruling: &Ruling) -> Vec<String> {
    let (Outcome::Fault(what), Some(category)) = (ruling.outcome, ruling.category) else { return Vec::new() };
    let mut steps: Vec<String> = Vec::new();
    for rank in ruling.suspects.iter().filter_map(|suspect| suspect.place.rank()) {
        if let Some(frame) = ruling.conduct.get(&rank).and_then(|conduct| conduct.at.as_ref()) {
            steps.push(format!("look at {} in {}, where rank {rank} is", frames::text(frame), frame.file));
        }
    }
    steps.extend(advice::steps(what, category, &ruling.suspects));
    steps
}

fn missing_dumps(index: &Index<'_>) -> Vec<(Rank, String)> {
    let why = |rank: &Rank| {
        let files = || index.bundle.unusable.iter().chain(&index.bundle.unread);
        let file = files().find(|file| file.rank == Some(*rank));
        let text = match file {
            Some(file) => format!("{}: {}", file.source, file.why),
            None => "no file of this rank".to_owned(),
        };
        (*rank, text)
    };
    index.ranks.iter().filter(|rank| !index.has_dump(**rank)).map(why).collect()
}

fn blast_radius(scene: &DumpScene<'_, '_>, graph: &Graph<DumpOp>, walk: &Walk<DumpOp>) -> Vec<BlastEntry> {
    let mut out = Vec::new();
    for (_, op) in &walk.path {
        let Some(waits) = graph.nodes.get(op) else { continue };
        let waits_for: Vec<Rank> = waits.missing.iter().map(|(rank, _)| *rank).collect();
        let label = scene.label(op);
        let (one, many) = if waits_for.is_empty() { ("is", "are") } else { ("waits", "wait") };
        let mut text = format!("{} in {label}", these_do(&waits.inside, one, many));
        if !waits_for.is_empty() {
            text += &format!(" for {}", these(&waits_for));
        }
        out.push(BlastEntry { waiting: waits.inside.clone(), waits_for, op: None, kind: None, text });
    }
    out.sort_by(|a, b| b.waits_for.len().min(1).cmp(&a.waits_for.len().min(1)).then_with(|| a.cmp(b)));
    out.truncate(ARROWS_MAX);
    out
}
