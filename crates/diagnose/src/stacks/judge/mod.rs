//! The ruling: what the walk, the columns and the stacks say together. The order of the questions is the order in which an
//! answer excludes the later ones; only what is shown is blamed.
mod absent;
mod differ;
mod gone;
mod inside;
mod moment;
mod order;
mod pace;
mod printed;
mod slow;
mod traced;

use super::doing::{Activities, Doings};
use super::index::Index;
use super::printed::{Cite, Told};
use super::scene::{DumpOp, DumpScene};
use super::traces::{self, Late};
use super::verdict::{Cause, Conduct, Outcome, Role};
use super::wrong::{self, GroupWrong, WrongPoint};
use crate::blame::graph::{Graph, Scene};
use crate::blame::hang::Walk;
use crate::case::Reason;
use crate::fact::{Fact, OpRef};
use crate::timeline::Stand;
use mycroft_record::dump::Unusable;
use mycroft_record::{Category, HostName, HostTime, NANOS_PER_SEC, OpKind, Place, Rank, Suspect, What};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Dumps of a running job are written within this; further apart they are of different occasions.
const ONE_MOMENT_NS: u64 = 60 * NANOS_PER_SEC;
/// Records that a reason refers to.
const RECORDS_MAX: usize = 8;
/// Operations at the end of a lane among which open ones are looked for; what a host runs ahead of its device.
const OPEN_MAX: usize = 256;
/// A wait this many times longer than the rank was ever late is no lateness any more.
const BEYOND_LATE: i64 = 3;

/// What was found, before it is put into words.
#[derive(Debug)]
pub(super) struct Ruling {
    pub(super) outcome: Outcome,
    pub(super) category: Option<Category>,
    pub(super) cause: Option<Cause>,
    pub(super) suspects: Vec<Suspect>,
    /// What each of them did.
    pub(super) conduct: BTreeMap<Rank, Conduct>,
    /// What each host did that is a suspect as a whole.
    pub(super) hosts: BTreeMap<HostName, Conduct>,
    /// Where it shows.
    pub(super) at: Option<DumpOp>,
    pub(super) facts: Vec<Fact>,
    /// Reasons that rest on lines of logs.
    pub(super) said: Vec<Reason>,
    /// The disagreement that was ruled on.
    pub(super) point: Option<WrongPoint>,
    /// Ranks that are waited for there.
    pub(super) missing: Vec<Rank>,
    /// Questions the evidence leaves open.
    pub(super) doubts: Vec<Doubt>,
    /// The function that ranks wait in, where only stacks tell.
    pub(super) called: Option<String>,
    /// The number to report where no group is known.
    pub(super) seq: Option<u64>,
}

/// A question that the evidence leaves open.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Doubt {
    /// Nothing tells which of these is at fault.
    WhichOf(Vec<Rank>),
    /// Their dumps could not be read: whether they are at fault.
    Unread(Vec<Rank>),
    /// Transfers are not recorded: any of these may wait in one.
    Unrecorded(Vec<Rank>),
    /// Whether the rank is stuck or slow.
    StuckOrSlow(Rank),
    /// Whether devices ever started.
    Started,
    /// Whether anything ended: recorders retire what was only issued, and all wait.
    Ended,
    /// Whether splits fit: only totals are recorded.
    Splits,
    /// Dumps and stacks were taken while the job went on.
    Running,
    /// The rank's dump is of another time than its peers'.
    Older(Rank),
    /// Whether it is a network or a device.
    Where,
    /// Whether they never issued it, or are inside the call that issues it.
    InCall(Vec<Rank>),
    /// Several groups are open on all ranks: whether it is the order in which devices run them.
    LaunchOrder,
    /// An iteration's time does not tell for whom it waited.
    WhoIsSlow,
}

/// A rank that waits for nobody in anything recorded.
#[derive(Clone, Debug)]
struct Sink {
    rank: Rank,
    op: DumpOp,
    waiting: Vec<Rank>,
}

pub(super) struct Judge<'a, 'b> {
    pub(super) index: &'b Index<'a>,
    pub(super) doings: &'b Doings<'a>,
    scene: &'b DumpScene<'a, 'b>,
    graph: &'b Graph<DumpOp>,
    walk: &'b Walk<DumpOp>,
    wrong: Vec<GroupWrong>,
    /// Who comes late in profilers' traces.
    late: Option<Late>,
    /// Ranks with a file that the reader could not read.
    unread: BTreeSet<Rank>,
}

/// An unusable file was written by the rank itself, so that it lived then; a tool's report that its process is gone says
/// the opposite.
fn wrote(file: &Unusable) -> bool {
    !GONE_WORDS.iter().any(|words| file.why.contains(words))
}

/// What py-spy says of a process that is gone.
const GONE_WORDS: &[&str] =
    &["Check that the process is running", "No such process", "No such file or directory (os error 2)"];

fn ruling(outcome: Outcome) -> Ruling {
    Ruling {
        outcome,
        category: None,
        cause: None,
        suspects: Vec::new(),
        conduct: BTreeMap::new(),
        hosts: BTreeMap::new(),
        at: None,
        facts: Vec::new(),
        said: Vec::new(),
        point: None,
        missing: Vec::new(),
        doubts: Vec::new(),
        called: None,
        seq: None,
    }
}

/// What kind of fault a rank that is stuck outside has, by what it was doing.
fn kind_of_stuck(activity: Option<Activities>) -> (Category, Cause) {
    match activity {
        Some(Activities::DataLoading) => (Category::DataLoading, Cause::DataImbalance),
        Some(Activities::ErrorHandling) => (Category::NotStarted, Cause::ErrorHandling),
        _ => (Category::NotStarted, Cause::Stuck),
    }
}

/// What a function of `torch.distributed` is recorded as; `None` for what is not recorded everywhere.
fn family_of_call(name: &str) -> Option<OpKind> {
    let name = name.trim_start_matches('_');
    let families = [
        ("all_reduce", OpKind::AllReduce),
        ("all_gather", OpKind::AllGather),
        ("reduce_scatter", OpKind::ReduceScatter),
        ("all_to_all", OpKind::AllToAll),
        ("broadcast", OpKind::Broadcast),
    ];
    families.into_iter().find(|(start, _)| name.starts_with(start)).map(|(_, kind)| kind)
}

fn fault(what: What, category: Category, cause: Cause) -> Ruling {
    Ruling { category: Some(category), cause: Some(cause), ..ruling(Outcome::Fault(what)) }
}

impl<'a, 'b> Judge<'a, 'b> {
    pub(super) fn new(scene: &'b DumpScene<'a, 'b>, graph: &'b Graph<DumpOp>, walk: &'b Walk<DumpOp>) -> Judge<'a, 'b> {
        let index = scene.index;
        let wrong = (0..index.groups.len()).map(|id| wrong::look(index, id as u32)).collect();
        let unread = index.bundle.unread.iter().filter_map(|file| file.rank).collect();
        let late = traces::read(index.bundle);
        Judge { index, doings: scene.doings, scene, graph, walk, wrong, late, unread }
    }

    pub(super) fn rule(&self) -> Ruling {
        let mut ruling = self.traced(self.timed_out(self.rule_on_files()));
        self.beside(&mut ruling);
        if ruling.outcome == Outcome::Healthy && !self.index.bundle.unread.is_empty() {
            ruling.outcome = Outcome::HealthyAsFar;
        }
        if matches!(ruling.outcome, Outcome::Healthy | Outcome::HealthyAsFar) && self.waits_behind_retired() {
            ruling.outcome = Outcome::Unknown;
            ruling.doubts.push(Doubt::Ended);
        }
        self.paced(ruling)
    }

    fn rule_on_files(&self) -> Ruling {
        if let Some(ruling) = self.begun().or_else(|| self.broken()).or_else(|| self.passed()) {
            return ruling;
        }
        if self.index.bundle.dumps.is_empty() {
            return self.hearsay().or_else(|| self.by_stacks()).unwrap_or_else(|| ruling(Outcome::Unknown));
        }
        let older = self.older_dump();
        if let Some((rank, _)) = older.filter(|(_, ns)| *ns > ONE_MOMENT_NS) {
            let mut ruling = ruling(Outcome::Unknown);
            ruling.doubts.push(Doubt::Older(rank));
            return ruling;
        }
        if older.is_some() || self.running() {
            let mut ruling = self.silent().or_else(|| self.slow_but_done()).unwrap_or_else(|| ruling(Outcome::Healthy));
            ruling.doubts.push(Doubt::Running);
            return ruling;
        }
        if self.graph.current.is_empty() {
            let answer =
                self.silent().or_else(|| self.hearsay()).or_else(|| self.by_stacks()).or_else(|| self.slow_but_done());
            // One dump may be lost on the way; of a job that lost several nobody can say that it is well.
            let lost =
                self.index.ranks.iter().filter(|rank| !self.index.has_dump(**rank) && !self.is_unread(**rank)).count();
            let silent = if lost > 1 { Outcome::Unknown } else { Outcome::Healthy };
            return answer.unwrap_or_else(|| ruling(silent));
        }
        let (sinks, never_ran, gone) = self.sinks();
        let absent: Vec<Sink> = sinks.iter().filter(|sink| !self.doings.waits_for_peers(sink.rank)).cloned().collect();
        let stuck = self.left_behind();
        let point = self.causal_point(&absent);
        let answer = point
            .map(|point| self.mismatch(&point))
            .or_else(|| self.transfer_mismatch())
            .or_else(|| self.slow(&absent))
            .or_else(|| self.cycle(&absent, &never_ran, &stuck, &gone))
            .or_else(|| self.absent(&absent, &gone).map(|ruling| self.elsewhere(ruling)))
            .or_else(|| if absent.is_empty() && gone.is_empty() { self.in_call() } else { None })
            .or_else(|| self.never_ran(&never_ran))
            .or_else(|| self.stuck(&stuck))
            .or_else(|| if absent.is_empty() { self.gone(&gone) } else { None })
            .or_else(|| if sinks.is_empty() { self.none_completed() } else { None })
            .or_else(|| self.silent())
            .or_else(|| self.hearsay());
        answer.unwrap_or_else(|| self.undecided(&sinks, &gone))
    }

    /// Whether nothing of the rank is known because the reader could not read its dump.
    pub(super) fn is_unread(&self, rank: Rank) -> bool {
        self.unread.contains(&rank) && !self.index.has_dump(rank)
    }

    /// Ranks at which the walk ended: never issued it, issued it but the device never ran it, left no dump.
    fn sinks(&self) -> (Vec<Sink>, Vec<Sink>, Vec<Sink>) {
        let (mut absent, mut never_ran, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for (rank, (via, waiting)) in &self.walk.sinks {
            let Some(op) = *via else { continue };
            let sink = Sink { rank: *rank, op: self.first_wait_for(*rank).unwrap_or(op), waiting: waiting.clone() };
            let sink = Sink { waiting: self.waiting_in(&sink.op).unwrap_or(sink.waiting), ..sink };
            if !self.index.has_dump(*rank) {
                gone.push(sink);
            } else if self.scene.stand(*rank, &op) == Some(Stand::Issued) {
                never_ran.push(sink);
            } else {
                absent.push(sink);
            }
        }
        (absent, never_ran, gone)
    }

    /// Of the operations in which a rank is waited for, the one to report: a collective rather than a transfer, then the
    /// one in which somebody has waited longest.
    fn first_wait_for(&self, rank: Rank) -> Option<DumpOp> {
        let waits =
            self.graph.nodes.iter().filter(|(_, waits)| waits.missing.iter().any(|(missing, _)| *missing == rank));
        let first =
            waits.min_by_key(|(op, waits)| (op.collective_seq().is_none(), self.issued_at(op, &waits.inside), **op));
        first.map(|(op, _)| *op)
    }

    /// When the first of `ranks` issued `op`.
    fn issued_at(&self, op: &DumpOp, ranks: &[Rank]) -> HostTime {
        let times = ranks.iter().filter_map(|rank| self.scene.entry(*rank, op)).map(|entry| entry.created_at);
        times.min().unwrap_or_default()
    }

    pub(super) fn told(&self) -> &Told {
        self.scene.told
    }

    fn waiting_in(&self, op: &DumpOp) -> Option<Vec<Rank>> {
        self.graph.nodes.get(op).map(|waits| waits.inside.clone())
    }

    fn host(&self, rank: Rank) -> HostName {
        let dump = self.index.bundle.dumps.iter().find(|dump| dump.rank == rank);
        let stacks = || self.index.bundle.stacks.iter().find(|stacks| stacks.rank == Some(rank));
        dump.map(|dump| dump.host.clone()).or_else(|| stacks().map(|stacks| stacks.host.clone())).unwrap_or_default()
    }

    /// Makes a rank a suspect; what it did is handed back, for who knows better.
    fn blame<'r>(&self, ruling: &'r mut Ruling, rank: Rank, confidence: f64, role: Role) -> &'r mut Conduct {
        ruling.suspects.push(Suspect { place: Place::Rank { rank, host: self.host(rank) }, confidence });
        let doing = self.doings.of.get(&rank);
        let conduct = Conduct {
            role,
            doing: doing.map_or_else(String::new, |doing| doing.text.clone()),
            at: doing.and_then(|doing| doing.at).cloned(),
        };
        ruling.conduct.entry(rank).insert_entry(conduct).into_mut()
    }

    fn doing_facts(&self, ranks: impl Iterator<Item = Rank>) -> Vec<Fact> {
        let doing = |rank: Rank| {
            let doing = self.doings.of.get(&rank)?;
            Some(Fact::Doing { rank, text: doing.text.clone(), source: Arc::from(doing.source) })
        };
        ranks.filter_map(doing).collect()
    }

    fn records(&self, op: &DumpOp, ranks: &[Rank]) -> Option<Fact> {
        let mut entries = Vec::new();
        for rank in ranks {
            let Some(entry) = self.scene.entry(*rank, op) else { continue };
            let dump = self.index.bundle.dumps.iter().find(|dump| dump.rank == *rank);
            let lines = self.stood(op.group, &[*rank]);
            entries.push((
                *rank,
                match dump {
                    Some(dump) if dump.printed && !lines.is_empty() => format!("({})", self.scene.told.at(&lines)),
                    Some(dump) => format!("record {} ({})", entry.record_id, dump.source),
                    None => format!("record {}", entry.record_id),
                },
            ));
        }
        entries.truncate(RECORDS_MAX);
        let first = entries.first()?.0;
        Some(Fact::Records { op: self.scene.op_ref(first, op), entries })
    }

    /// The lines that say where these ranks stand in a group.
    fn stood(&self, group: u32, ranks: &[Rank]) -> Vec<Cite> {
        let Some(group) = self.index.groups.get(group as usize) else { return Vec::new() };
        let lines = |rank: &Rank| self.scene.told.stood.get(&(group.name.clone(), *rank));
        ranks.iter().filter_map(lines).flatten().copied().collect()
    }

    fn op_ref(&self, ranks: &[Rank], op: &DumpOp) -> OpRef {
        self.scene.op_ref(ranks.first().copied().unwrap_or_default(), op)
    }
}
