//! The ruling: what the walk, the columns and the stacks say together. The order of the questions is the order in which an
//! answer excludes the later ones; only what is shown is blamed.
use super::doing::{Activities, Doings};
use super::frames;
use super::late::{self, Lateness};
use super::scene::{DumpOp, DumpScene};
use super::tables::NONE;
use super::verdict::{Blamed, Cause, Outcome, Role};
use super::wrong::{self, Differs, Found, GroupWrong, WrongPoint};
use super::{history, index::Index};
use crate::blame::graph::{Graph, Scene};
use crate::blame::hang::Walk;
use crate::fact::{Fact, OpRef};
use crate::timeline::Stand;
use mycroft_record::dump::{Frame, Unusable};
use mycroft_record::{Category, HostName, HostTime, NANOS_PER_MS, OpKind, Rank, What};
use std::collections::BTreeSet;
use std::sync::Arc;

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
    pub(super) suspects: Vec<Blamed>,
    /// Where it shows.
    pub(super) at: Option<DumpOp>,
    pub(super) facts: Vec<Fact>,
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
    /// Transfers are not recorded: any of these may wait in one.
    Unrecorded(Vec<Rank>),
    /// Whether the rank is stuck or slow.
    StuckOrSlow(Rank),
    /// Whether devices ever started.
    Started,
    /// Whether splits fit: only totals are recorded.
    Splits,
    /// Dumps and stacks were taken while the job went on.
    Running,
    /// Whether it is a network or a device.
    Where,
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
        at: None,
        facts: Vec::new(),
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
        Judge { index, doings: scene.doings, scene, graph, walk, wrong }
    }

    pub(super) fn rule(&self) -> Ruling {
        if self.index.bundle.dumps.is_empty() {
            return self.by_stacks().unwrap_or_else(|| ruling(Outcome::Unknown));
        }
        if self.running() {
            let mut ruling = self.silent().or_else(|| self.slow_but_done()).unwrap_or_else(|| ruling(Outcome::Healthy));
            ruling.doubts.push(Doubt::Running);
            return ruling;
        }
        if self.graph.current.is_empty() {
            let answer = self.silent().or_else(|| self.by_stacks()).or_else(|| self.slow_but_done());
            return answer.unwrap_or_else(|| ruling(Outcome::Healthy));
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
            .or_else(|| self.absent(&absent))
            .or_else(|| self.never_ran(&never_ran))
            .or_else(|| self.stuck(&stuck))
            .or_else(|| self.gone(&gone))
            .or_else(|| if sinks.is_empty() { self.none_completed() } else { None })
            .or_else(|| self.silent());
        answer.unwrap_or_else(|| self.undecided(&sinks, &gone))
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

    fn waiting_in(&self, op: &DumpOp) -> Option<Vec<Rank>> {
        self.graph.nodes.get(op).map(|waits| waits.inside.clone())
    }

    fn host(&self, rank: Rank) -> HostName {
        let dump = self.index.bundle.dumps.iter().find(|dump| dump.rank == rank);
        let stacks = || self.index.bundle.stacks.iter().find(|stacks| stacks.rank == Some(rank));
        dump.map(|dump| dump.host.clone()).or_else(|| stacks().map(|stacks| stacks.host.clone())).unwrap_or_default()
    }

    fn blame(&self, rank: Rank, confidence: f64, role: Role) -> Blamed {
        let doing = self.doings.of.get(&rank);
        Blamed {
            rank,
            host: self.host(rank),
            confidence,
            role,
            doing: doing.map_or_else(String::new, |doing| doing.text.clone()),
            at: doing.and_then(|doing| doing.at).cloned(),
        }
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
            entries.push((*rank, entry.record_id, dump.map(|dump| dump.source.clone()).unwrap_or_default()));
        }
        entries.truncate(RECORDS_MAX);
        let first = entries.first()?.0;
        Some(Fact::Records { op: self.scene.op_ref(first, op), entries })
    }

    fn op_ref(&self, ranks: &[Rank], op: &DumpOp) -> OpRef {
        self.scene.op_ref(ranks.first().copied().unwrap_or_default(), op)
    }

    // ---- not issued

    /// Ranks that have nothing in flight and are waited for: each is stuck outside.
    fn absent(&self, sinks: &[Sink]) -> Option<Ruling> {
        let named = self.nameable(sinks);
        if named.is_empty() {
            return None;
        }
        let activity = named.iter().find_map(|sink| self.doings.of.get(&sink.rank)).map(|doing| doing.activity);
        let (category, cause) = kind_of_stuck(activity);
        let mut ruling = fault(What::Hang, category, cause);
        let confidence = if named.len() == 1 { 0.95 } else { 0.9 };
        for sink in &named {
            let op = self.op_ref(&sink.waiting, &sink.op);
            ruling.suspects.push(self.blame(sink.rank, confidence, Role::Absent));
            ruling.missing.push(sink.rank);
            ruling.facts.push(Fact::NeverIssued {
                rank: sink.rank,
                host: self.host(sink.rank),
                op,
                waiting: sink.waiting.clone(),
                idle_since: HostTime::NONE,
                finalized: false,
            });
        }
        ruling.facts.extend(self.doing_facts(named.iter().map(|sink| sink.rank)));
        ruling.at = named.first().map(|sink| sink.op);
        ruling.facts.extend(named.first().and_then(|sink| self.records(&sink.op, &sink.waiting)));
        Some(ruling)
    }

    /// The sinks that the evidence allows to name. Where transfers are not recorded, or most members of a group are absent, stacks must single them out.
    fn nameable(&self, idle: &[Sink]) -> Vec<Sink> {
        if idle.len() < 2 {
            return idle.to_vec();
        }
        let seen: Vec<Sink> = idle.iter().filter(|sink| self.doings.of.contains_key(&sink.rank)).cloned().collect();
        let hidden = self.transfers_hidden();
        let most = idle.iter().any(|sink| {
            let together = idle.iter().filter(|other| other.op == sink.op).count();
            together * 2 > self.scene.members(&sink.op).len()
        });
        if hidden || most { seen } else { idle.to_vec() }
    }

    /// The recorder leaves operations out: their numbers are skipped (native Gloo records no transfers).
    fn transfers_hidden(&self) -> bool {
        self.index.groups.iter().flat_map(|group| &group.lanes).any(|lane| {
            let unsure =
                lane.dump.is_some_and(|at| self.index.tells[at].retires_only || !self.index.tells[at].completed);
            unsure && lane.slots.windows(2).any(|pair| {
                let ids = [&pair[0], &pair[1]].map(|slot| self.index.entry(lane, slot).map(|entry| entry.op_id));
                matches!(ids, [Some(a), Some(b)] if pair[1].seq == pair[0].seq + 1 && b > a + u64::from(pair[0].count))
            })
        })
    }

    /// The device never started what its host issued, and its peers are in it.
    fn never_ran(&self, sinks: &[Sink]) -> Option<Ruling> {
        let first = sinks.first()?;
        let mut ruling = fault(What::Hang, Category::Gpu, Cause::KernelHang);
        for sink in sinks {
            ruling.suspects.push(self.blame(sink.rank, 0.9, Role::Stuck));
            ruling.facts.push(Fact::NeverRan {
                rank: sink.rank,
                host: self.host(sink.rank),
                op: self.op_ref(&sink.waiting, &sink.op),
                waiting: sink.waiting.clone(),
                issued_at: HostTime::NONE,
            });
        }
        ruling.at = Some(first.op);
        ruling.facts.extend(self.records(&first.op, &[first.rank]));
        Some(ruling)
    }

    // ---- issued, not completed

    /// Operations that some members are through and others are in, and for which somebody else waits.
    fn left_behind(&self) -> Vec<(DumpOp, Vec<Rank>, Vec<Rank>)> {
        let mut out = Vec::new();
        for op in &self.walk.inside {
            let Some(waits) = self.graph.nodes.get(op) else { continue };
            let Some(seq) = op.collective_seq() else { continue };
            let group = &self.index.groups[op.group as usize];
            // An exchange is many transfers: who is through it need not have waited for everybody.
            let slots = group.lanes.iter().filter_map(|lane| lane.slot(seq));
            let symmetric = slots.clone().any(|slot| self.scene.waits_for_all(slot) && !self.scene.is_exchange(slot));
            let left = self.scene.left(op);
            if symmetric && !left.is_empty() && waits.inside.iter().any(|rank| self.is_waited_for(*rank)) {
                out.push((*op, waits.inside.clone(), left));
            }
        }
        out
    }

    /// Somebody waits for the rank to enter or to be done with something.
    fn is_waited_for(&self, rank: Rank) -> bool {
        self.graph.nodes.values().any(|waits| waits.missing.iter().any(|(missing, _)| *missing == rank))
            || self.graph.current.keys().any(|other| *other != rank)
    }

    fn stuck(&self, found: &[(DumpOp, Vec<Rank>, Vec<Rank>)]) -> Option<Ruling> {
        let few: Vec<_> =
            found.iter().filter(|(op, stuck, _)| stuck.len() * 2 <= self.scene.members(op).len()).collect();
        if few.is_empty() {
            return None;
        }
        let mut ruling = fault(What::Hang, Category::Gpu, Cause::KernelHang);
        let ranks: BTreeSet<Rank> = few.iter().flat_map(|(_, stuck, _)| stuck).copied().collect();
        for rank in &ranks {
            ruling.suspects.push(self.blame(*rank, 0.9, Role::Stuck));
        }
        // The oldest of each rank says most; the rest repeats it.
        for rank in &ranks {
            let mine = few.iter().filter(|(_, stuck, _)| stuck.contains(rank));
            let Some((op, stuck, left)) =
                mine.max_by_key(|(_, stuck, left)| (left.len(), u32::MAX - stuck.len() as u32))
            else {
                continue;
            };
            let fact = Fact::LeftBehind { op: self.op_ref(stuck, op), stuck: stuck.clone(), left: left.clone() };
            if !ruling.facts.contains(&fact) {
                ruling.facts.push(fact);
                ruling.facts.extend(self.records(op, stuck));
            }
            ruling.at = ruling.at.or(Some(*op));
        }
        Some(ruling)
    }

    /// Everybody is in it, nobody is through, and all mean the same.
    fn none_completed(&self) -> Option<Ruling> {
        let whole: Vec<(&DumpOp, &Vec<Rank>)> = self
            .walk
            .inside
            .iter()
            .filter(|op| op.collective_seq().is_some() && self.scene.left(op).is_empty())
            .filter_map(|op| Some((op, &self.graph.nodes.get(op)?.inside)))
            .filter(|(_, inside)| inside.len() > 1)
            .collect();
        let (op, inside) = whole.iter().max_by_key(|(op, inside)| (inside.len(), u64::MAX - op.seq))?;
        let group = &self.index.groups[op.group as usize];
        let started = group.lanes.iter().filter_map(|lane| lane.slot(op.seq)).all(|slot| slot.started);
        let category = if started { Category::NetworkSend } else { Category::Unknown };
        let mut ruling = fault(What::Hang, category, Cause::NoneCompleted);
        ruling.at = Some(**op);
        ruling.facts.push(Fact::NoneCompleted { op: self.op_ref(inside, op), members: inside.to_vec(), started });
        ruling.facts.extend(self.records(op, inside));
        ruling.doubts.push(if started { Doubt::Where } else { Doubt::Started });
        if group.lanes.iter().filter_map(|lane| lane.slot(op.seq)).any(|slot| self.scene.is_exchange(slot)) {
            ruling.doubts.push(Doubt::Splits);
        }
        Some(ruling)
    }

    // ---- stacks against dumps

    /// The job went on while it was looked at: a rank's stack is in a collective that its dump, taken before, does not hold
    /// open, while it holds another open that the rank must have left since.
    fn running(&self) -> bool {
        self.graph.current.iter().any(|(rank, ops)| {
            let called = self.doings.of.get(rank).and_then(|doing| doing.waits_in).and_then(family_of_call);
            let Some(called) = called else { return false };
            let open = |op: &DumpOp| {
                let slot =
                    op.collective_seq().and_then(|seq| self.index.groups[op.group as usize].lane(*rank)?.slot(seq));
                slot.and_then(|slot| self.index.tables.ops.get(slot.op as usize)).map(|op| op.kind)
            };
            let kinds: Vec<OpKind> = self.open_kinds(*rank);
            // Transfers and operations without a word of ours say nothing either way.
            ops.iter().all(|op| open(op).is_some_and(|kind| kind != OpKind::Unknown)) && !kinds.contains(&called)
        })
    }

    /// What a rank has in flight, the operations that queue behind others included.
    fn open_kinds(&self, rank: Rank) -> Vec<OpKind> {
        let groups = self.index.groups_of.get(&rank).into_iter().flatten();
        let lanes = groups.filter_map(|group| self.index.groups[*group as usize].lane(rank));
        let open = lanes.flat_map(|lane| lane.slots.iter().rev().take(OPEN_MAX).filter(|slot| !slot.done));
        let mut kinds: Vec<OpKind> =
            open.filter_map(|slot| self.index.tables.ops.get(slot.op as usize)).map(|op| op.kind).collect();
        // Native Gloo records a reduce-scatter as an all-reduce.
        if kinds.contains(&OpKind::AllReduce) {
            kinds.push(OpKind::ReduceScatter);
        }
        kinds
    }

    /// No dump holds anything in flight, yet stacks show ranks that wait for their peers: in something that is not recorded.
    /// The few that do not wait are what they wait for.
    fn by_stacks(&self) -> Option<Ruling> {
        let waits = |rank: &Rank| {
            let doing = self.doings.of.get(rank)?;
            let recorded = doing.waits_in.and_then(family_of_call).is_some() && self.index.has_dump(*rank);
            Some(doing.activity == Activities::WaitsForPeers && !recorded)
        };
        let told: Vec<(Rank, bool)> = self.index.ranks.iter().filter_map(|rank| Some((*rank, waits(rank)?))).collect();
        let waiting: Vec<Rank> = told.iter().filter(|(_, waits)| *waits).map(|(rank, _)| *rank).collect();
        let idle: Vec<Rank> =
            told.iter().map(|(rank, _)| *rank).filter(|rank| !self.doings.waits_for_peers(*rank)).collect();
        if idle.is_empty() || waiting.len() < idle.len() || told.len() < self.index.ranks.len() {
            return None;
        }
        let activity = self.doings.of.get(&idle[0]).map(|doing| doing.activity);
        let (category, cause) = kind_of_stuck(activity);
        let mut ruling = fault(What::Hang, category, cause);
        for rank in &idle {
            ruling.suspects.push(self.blame(*rank, 0.7, Role::Absent));
        }
        ruling.missing.clone_from(&idle);
        ruling.facts = self.doing_facts(idle.iter().chain(waiting.iter().take(RECORDS_MAX)).copied());
        ruling.called = self.doings.of.get(&waiting[0]).and_then(|doing| doing.waits_in).map(str::to_owned);
        let world = self.index.groups.iter().enumerate().find(|(_, group)| group.lanes.len() == self.index.ranks.len());
        let recorded = ruling.called.as_deref().and_then(family_of_call).is_some();
        ruling.at = world.filter(|_| recorded).and_then(|(id, group)| {
            let last = group.lane(idle[0])?.slots.last().map_or(0, |slot| slot.seq);
            Some(DumpOp::collective(id as u32, last + 1))
        });
        let dumps = &self.index.bundle.dumps;
        let blank = dumps.iter().any(|dump| dump.rank == idle[0] && dump.entries.is_empty());
        ruling.seq = (recorded && blank).then_some(1); // it never issued anything: its first is waited for
        Some(ruling)
    }

    /// A send and the receive that meets it do not mean the same.
    fn transfer_mismatch(&self) -> Option<Ruling> {
        let found = (0..self.index.groups.len()).find_map(|id| wrong::transfer(self.index, id as u32))?;
        let mut ruling = fault(What::Desync, Category::ArgumentMismatch, found.cause);
        let op = DumpOp::transfer(found.group, found.pair, found.seq);
        let pair = &self.index.groups[found.group as usize].pairs[found.pair as usize];
        let confidence = if found.odd.len() == 1 { 0.85 } else { 0.5 };
        for rank in &found.odd {
            ruling.suspects.push(self.blame(*rank, confidence, Role::Odd));
        }
        if found.odd.len() > 1 {
            ruling.doubts.push(Doubt::WhichOf(found.odd.clone()));
        }
        let camp = |text: &String, rank: Rank| (text.clone(), vec![(rank, self.host(rank))]);
        let camps = vec![camp(&found.sent, pair.from), camp(&found.expected, pair.to)];
        ruling.facts.push(Fact::Mismatch { op: self.op_ref(&[pair.to], &op), camps, kinds_differ: false });
        ruling.facts.extend(self.doing_facts(found.odd.iter().copied()));
        ruling.facts.extend(self.records(&op, &[pair.from, pair.to]));
        ruling.at = Some(op);
        Some(ruling)
    }

    // ---- no dump

    /// A rank without a usable dump that everybody waits for is the lead; of several, only one that stacks or files single
    /// out is named.
    fn gone(&self, sinks: &[Sink]) -> Option<Ruling> {
        let first = sinks.first()?;
        let unusable =
            |rank: Rank| self.index.bundle.unusable.iter().find(|file| file.rank == Some(rank) && wrote(file));
        let mut named: Vec<&Sink> = sinks.iter().collect();
        if named.len() > 1 {
            named.retain(|sink| unusable(sink.rank).is_none());
        }
        if named.len() > 1 {
            let told = |sink: &&Sink| self.doings.of.contains_key(&sink.rank) || self.ended(sink.rank);
            named.retain(told);
        }
        let [sink] = named.as_slice() else {
            let mut ruling = ruling(Outcome::Fault(What::Hang));
            ruling.category = Some(Category::Unknown);
            ruling.at = Some(first.op);
            ruling.facts.extend(sinks.iter().map(|sink| self.no_dump(sink)));
            ruling.missing = sinks.iter().map(|sink| sink.rank).collect();
            ruling.doubts.push(Doubt::WhichOf(sinks.iter().map(|sink| sink.rank).collect()));
            return Some(ruling);
        };
        let doing = self.doings.of.get(&sink.rank);
        let (what, category, cause, role) = match doing.map(|doing| doing.activity) {
            Some(Activities::DataLoading) => (What::Hang, Category::DataLoading, Cause::DataImbalance, Role::Absent),
            // A dump with stacks needs the interpreter's lock: who holds it in native code leaves none, and lives.
            Some(_) => (What::Hang, Category::NotStarted, Cause::Stuck, Role::Absent),
            None if unusable(sink.rank).is_some() => (What::Hang, Category::NotStarted, Cause::Stuck, Role::Gone),
            None => (What::Crash, Category::ProcessExit, Cause::ProcessGone, Role::Gone),
        };
        let mut ruling = fault(what, category, cause);
        let confidence = match (doing.is_some() || self.ended(sink.rank), sinks.len()) {
            (true, _) => 0.9,
            (false, 1) => 0.8,
            _ => 0.6,
        };
        ruling.suspects.push(self.blame(sink.rank, confidence, role));
        ruling.missing.push(sink.rank);
        ruling.at = Some(sink.op);
        ruling.facts.push(self.no_dump(sink));
        ruling.facts.extend(self.doing_facts([sink.rank].into_iter()));
        ruling.facts.extend(self.records(&sink.op, &sink.waiting));
        Some(ruling)
    }

    /// The tool that was to take its stacks found no process.
    fn ended(&self, rank: Rank) -> bool {
        self.index.bundle.unusable.iter().any(|file| file.rank == Some(rank) && !wrote(file))
    }

    fn no_dump(&self, sink: &Sink) -> Fact {
        let unusable = self.index.bundle.unusable.iter().find(|file| file.rank == Some(sink.rank));
        let why = match unusable {
            Some(file) if !wrote(file) => {
                format!("which left no dump, and whose process was gone when its stacks were taken ({})", file.source)
            }
            Some(file) => format!("which left no usable dump ({}: {})", file.source, file.why),
            None if self.doings.of.contains_key(&sink.rank) => "which left no dump although it lives".to_owned(),
            None => "which left no dump: it was killed, it exited, or it holds the interpreter's lock".to_owned(),
        };
        let op = self.op_ref(&sink.waiting, &sink.op);
        Fact::NoDump { rank: sink.rank, host: self.host(sink.rank), op, waiting: sink.waiting.clone(), why }
    }

    // ---- a cycle

    /// Everybody waits for somebody, round and round: operations of several groups in another order.
    fn cycle(
        &self,
        absent: &[Sink],
        never_ran: &[Sink],
        stuck: &[(DumpOp, Vec<Rank>, Vec<Rank>)],
        gone: &[Sink],
    ) -> Option<Ruling> {
        if !absent.is_empty() || !never_ran.is_empty() || !stuck.is_empty() {
            return None;
        }
        let edges = self.walk.cycle();
        if edges.is_none() && gone.is_empty() {
            return None;
        }
        let breakers = self.order_breakers();
        if edges.is_none() && breakers.is_empty() {
            return None;
        }
        let mut ruling = fault(What::Deadlock, Category::CodeDivergence, Cause::CrossGroupOrder);
        if let Some(edges) = &edges {
            let edges: Vec<(Rank, OpRef, Rank)> =
                edges.iter().map(|(from, op, to)| (*from, self.scene.op_ref(*from, op), *to)).collect();
            let hosts = edges.iter().map(|(rank, _, _)| self.host(*rank)).collect();
            ruling.facts.push(Fact::Cycle { edges, hosts });
        }
        let ring: Vec<Rank> = edges.as_ref().map_or_else(Vec::new, |edges| {
            let mut ranks = self.in_cycles();
            if ranks.is_empty() {
                ranks = edges.iter().map(|(rank, _, _)| *rank).collect();
            }
            ranks
        });
        if breakers.is_empty() {
            for rank in &ring {
                ruling.suspects.push(self.blame(*rank, 0.95 / ring.len() as f64, Role::InCycle));
            }
            ruling.doubts.push(Doubt::WhichOf(ring.clone()));
        }
        for (rank, entered, skipped) in &breakers {
            ruling.suspects.push(self.blame(*rank, 0.9, Role::InCycle));
            let instead_of = self.scene.label(skipped);
            ruling.facts.push(Fact::BreaksPast { rank: *rank, op: self.scene.op_ref(*rank, entered), instead_of });
        }
        let at =
            breakers.first().map(|(_, _, skipped)| *skipped).or(edges.and_then(|edges| edges.first().map(|e| e.1)));
        ruling.at = at;
        ruling.facts.extend(
            self.doing_facts(ruling.suspects.iter().map(|suspect| suspect.rank).collect::<Vec<_>>().into_iter()),
        );
        ruling.facts.extend(at.and_then(|op| self.records(&op, &self.waiting_in(&op).unwrap_or_default())));
        Some(ruling)
    }

    /// Ranks on a cycle of entries, or on a way between two: what remains when ranks that nobody waits for and ranks that
    /// wait for nobody are taken away again and again.
    fn in_cycles(&self) -> Vec<Rank> {
        let mut left: BTreeSet<Rank> = self.walk.entry_edges.keys().copied().collect();
        loop {
            let waits = |rank: &Rank| self.walk.entry_edges[rank].iter().any(|(_, to)| left.contains(to));
            let targets: BTreeSet<Rank> =
                left.iter().flat_map(|rank| &self.walk.entry_edges[rank]).map(|(_, to)| *to).collect();
            let next: BTreeSet<Rank> =
                left.iter().copied().filter(|rank| waits(rank) && targets.contains(rank)).collect();
            if next.len() == left.len() {
                return next.into_iter().collect();
            }
            left = next;
        }
    }

    /// Ranks that wait in one group although, going by their own past, it was the turn of another in which a peer waits
    /// for them: rank, what it is in, what it left out.
    fn order_breakers(&self) -> Vec<(Rank, DumpOp, DumpOp)> {
        let mut out = Vec::new();
        for (rank, ops) in &self.graph.current {
            for entered in ops.iter().filter(|op| op.collective_seq().is_some()) {
                let groups = self.index.groups_of.get(rank).into_iter().flatten();
                let others = groups.filter(|group| **group != entered.group);
                let broken = others.filter_map(|group| self.turn_of(*rank, entered, *group)).next();
                out.extend(broken.map(|skipped| (*rank, *entered, skipped)));
            }
        }
        out.dedup_by_key(|breaker| breaker.0);
        out
    }

    /// The operation of `other` that was due on `rank` before `entered`, if its past says so.
    fn turn_of(&self, rank: Rank, entered: &DumpOp, other: u32) -> Option<DumpOp> {
        let lane_of = |group: u32| self.index.groups[group as usize].lane(rank);
        let (here, there) = (lane_of(entered.group)?, lane_of(other)?);
        if here.dump != there.dump || there.slots.is_empty() {
            return None;
        }
        let next = there.slots.last().map(|slot| slot.seq + 1)?;
        let skipped = DumpOp::collective(other, next);
        // Somebody waits for it there, or might: a peer left no dump.
        let waits = self.graph.nodes.get(&skipped).is_some_and(|waits| waits.missing.iter().any(|(r, _)| *r == rank));
        let lanes = &self.index.groups[other as usize].lanes;
        if !waits && lanes.iter().all(|lane| lane.dump.is_some()) {
            return None;
        }
        let entry = here.slot(entered.seq)?.entry;
        let mut past: Vec<(u32, u32)> = here.slots.iter().map(|slot| (slot.entry, entered.group)).collect();
        past.extend(there.slots.iter().map(|slot| (slot.entry, other)));
        past.retain(|(at, _)| *at < entry);
        past.sort_unstable();
        let past: Vec<u32> = past.into_iter().map(|(_, group)| group).collect();
        (history::expected(&past) == Some(other)).then_some(skipped)
    }

    // ---- disagreement

    /// The disagreement that explains the hang, if one does: its group is stuck at it or behind it.
    fn causal_point(&self, absent: &[Sink]) -> Option<WrongPoint> {
        let mut points: Vec<(&WrongPoint, HostTime)> = Vec::new();
        for point in self.wrong.iter().filter_map(|wrong| wrong.lasting.as_ref()) {
            let group = &self.index.groups[point.group as usize];
            let open =
                group.lanes.iter().any(|lane| lane.slots.iter().rev().any(|slot| !slot.done && slot.seq >= point.seq));
            let odd = |rank: &Rank| point.odd.contains(rank);
            let here: Vec<&Sink> = absent.iter().filter(|sink| sink.op.group == point.group).collect();
            let explained = match point.differs {
                Differs::Path => {
                    let all = absent.iter().all(|sink| odd(&sink.rank));
                    let peers = here.len() == absent.len() && here.iter().all(|sink| !odd(&sink.rank));
                    (all || (peers && here.len() * 2 > group.lanes.len())) && !point.odd.is_empty()
                }
                _ => absent.iter().all(|sink| odd(&sink.rank) || sink.op.group == point.group),
            };
            if open && explained {
                let times = group.lanes.iter().filter_map(|lane| self.index.entry(lane, lane.slot(point.seq)?));
                let first = times.map(|entry| entry.created_at).min().unwrap_or_default();
                points.push((point, first));
            }
        }
        // Arguments speak louder than places in the program; of each, the earliest.
        points.sort_by_key(|(point, at)| (point.differs == Differs::Path, *at, point.group));
        points.first().map(|(point, _)| (*point).clone())
    }

    fn mismatch(&self, point: &WrongPoint) -> Ruling {
        let op = DumpOp::collective(point.group, point.seq);
        let (category, cause) = self.kind_of(point);
        let mut ruling = fault(What::Desync, category, cause);
        let confidence = match point.found {
            Found::Both => 0.97,
            Found::Majority => 0.95,
            Found::History => 0.8,
            Found::Not => 0.5,
        };
        for rank in &point.odd {
            let mut blamed = self.blame(*rank, confidence, Role::Odd);
            let slot = self.index.groups[point.group as usize].lane(*rank).and_then(|lane| lane.slot(point.seq));
            let frame: Option<&Frame> = slot.and_then(|slot| self.index.tables.own_frame(slot.stack));
            blamed.at = frame.cloned().or(blamed.at);
            ruling.suspects.push(blamed);
        }
        if point.found == Found::Not {
            let all = point.camps.iter().flat_map(|(ranks, _)| ranks).copied().collect();
            ruling.doubts.push(Doubt::WhichOf(all));
        }
        ruling.facts.push(self.mismatch_fact(point, &op));
        ruling.facts.extend(self.splits_fact(point, &op));
        ruling.facts.extend(self.parting(point, &op));
        ruling.facts.extend(self.doing_facts(point.odd.iter().copied()));
        let mut one_each: Vec<Rank> = point.camps.iter().filter_map(|(ranks, _)| ranks.first()).copied().collect();
        one_each.sort_unstable();
        ruling.facts.extend(self.records(&op, &one_each));
        ruling.at = Some(op);
        ruling.point = Some(point.clone());
        ruling
    }

    fn kind_of(&self, point: &WrongPoint) -> (Category, Cause) {
        let argument = match point.differs {
            Differs::Op | Differs::Path => None,
            Differs::Dtype => Some(Cause::Dtype),
            Differs::Size => Some(Cause::Size),
            Differs::Splits => Some(Cause::Splits),
        };
        let Some(cause) = argument.filter(|_| !point.shifted) else {
            return (Category::CodeDivergence, Cause::Divergence);
        };
        // Other arguments from another function are another branch; from the same function they are wrong arguments.
        let of = |ranks: &[Rank], odd: bool| ranks.iter().any(|rank| point.odd.contains(rank)) == odd;
        let stack = |odd: bool| point.camps.iter().find(|(ranks, _)| of(ranks, odd)).map(|(_, slot)| slot.stack);
        let function = |stack: Option<u32>| {
            let frame = stack.filter(|stack| *stack != NONE).and_then(|stack| self.index.tables.own_frame(stack));
            frame.map(|frame| (frame.name.clone(), frame.file.clone()))
        };
        match (function(stack(true)), function(stack(false))) {
            (Some(mine), Some(theirs)) if mine != theirs => (Category::CodeDivergence, Cause::Divergence),
            _ => (Category::ArgumentMismatch, cause),
        }
    }

    fn mismatch_fact(&self, point: &WrongPoint, op: &DumpOp) -> Fact {
        let host = |rank: &Rank| (*rank, self.host(*rank));
        let camps =
            point.camps.iter().map(|(ranks, slot)| (self.meaning(point, slot), ranks.iter().map(host).collect()));
        let group = &self.index.groups[point.group as usize];
        let ranks: Vec<Rank> = point.camps.iter().filter_map(|(ranks, _)| ranks.first()).copied().collect();
        let mut op = self.op_ref(&ranks, op);
        op.label = format!("operation {} of {}", point.seq, group.label());
        Fact::Mismatch {
            op,
            camps: camps.collect(),
            kinds_differ: matches!(point.differs, Differs::Op | Differs::Path),
        }
    }

    /// What a camp means by the operation: `all_reduce of [[8, 4]] Float at sync (train.py:88)`.
    fn meaning(&self, point: &WrongPoint, slot: &super::index::Slot) -> String {
        let tables = &self.index.tables;
        let name = tables.ops.get(slot.op as usize).map_or("?", |op| &*op.name);
        let mut text = name.to_owned();
        if let Some(shape) = tables.shapes.get(slot.shape as usize) {
            let dtypes = if shape.input_dtypes.is_empty() { &shape.output_dtypes } else { &shape.input_dtypes };
            let sizes = if shape.inputs.is_empty() { &shape.outputs } else { &shape.inputs };
            if !sizes.is_empty() {
                text += &format!(" of {sizes:?}");
            }
            if point.differs == Differs::Splits && !shape.outputs.is_empty() {
                text += &format!(" into {:?}", shape.outputs);
            }
            if let Some(dtype) = dtypes.first() {
                text += &format!(" {dtype}");
            }
        }
        if let Some(frame) = tables.own_frame(slot.stack) {
            text += &format!(" at {}", frames::text(frame));
        }
        text
    }

    fn splits_fact(&self, point: &WrongPoint, op: &DumpOp) -> Option<Fact> {
        if point.differs != Differs::Splits {
            return None;
        }
        let group = &self.index.groups[point.group as usize];
        let slots = group.lanes.iter().filter_map(|lane| lane.slot(point.seq));
        let sums = slots.filter_map(|slot| self.index.tables.sums.get(slot.shape as usize));
        let (mut sent, mut expected) = (0_i64, 0_i64);
        for sums in sums {
            sent = sent.saturating_add(sums.inputs.unwrap_or(0));
            expected = expected.saturating_add(sums.outputs.unwrap_or(0));
        }
        Some(Fact::SplitsDiffer { op: self.op_ref(&point.odd, op), sent, expected })
    }

    fn parting(&self, point: &WrongPoint, op: &DumpOp) -> Option<Fact> {
        let odd = |ranks: &[Rank]| ranks.iter().any(|rank| point.odd.contains(rank));
        let mine = point.camps.iter().find(|(ranks, _)| odd(ranks))?;
        let theirs = point.camps.iter().rev().find(|(ranks, _)| !odd(ranks))?;
        let (a, b) = self.index.tables.parting(mine.1.stack, theirs.1.stack)?;
        Some(Fact::PathsPart {
            op: self.op_ref(&point.odd, op),
            odd: point.odd.clone(),
            odd_at: frames::text(a),
            peers_at: frames::text(b),
        })
    }

    /// Arguments that differ although everything went on.
    fn silent(&self) -> Option<Ruling> {
        let wrongs = self.wrong.iter();
        let points = wrongs.flat_map(|wrong| [wrong.silent.as_ref(), wrong.lasting.as_ref()]).flatten();
        let argument = |point: &&WrongPoint| matches!(point.differs, Differs::Dtype | Differs::Size | Differs::Splits);
        let point = points.filter(argument).min_by_key(|point| (point.group, point.seq))?;
        let mut ruling = self.mismatch(point);
        for suspect in &mut ruling.suspects {
            suspect.doing = "went on with other arguments than its peers: what was reduced is wrong".to_owned();
        }
        Some(ruling)
    }

    // ---- slow

    fn lateness(&self) -> Vec<Lateness> {
        (0..self.index.groups.len()).flat_map(|id| late::of_group(self.index, id as u32)).collect()
    }

    /// The ranks that are waited for came late before, and the job went on each time.
    fn slow(&self, absent: &[Sink]) -> Option<Ruling> {
        if absent.is_empty() {
            return None;
        }
        let all = self.lateness();
        let mut found = Vec::new();
        for sink in absent {
            let mine = all.iter().filter(|late| late.rank == sink.rank && late.is_habit());
            let late = mine.max_by_key(|late| late.worst_ns)?;
            let waited = self.waited_ns(&sink.op, &sink.waiting);
            let activity = self.doings.of.get(&sink.rank).map(|doing| doing.activity);
            let stuck = match activity {
                Some(Activities::HoldsGil | Activities::ErrorHandling) => true,
                Some(Activities::DataLoading) => late.times < 2,
                _ => false,
            };
            if stuck || waited > BEYOND_LATE * late.worst_ns {
                return None;
            }
            found.push((sink, *late, waited));
        }
        let first = found.first()?;
        let mut ruling = ruling(Outcome::Fault(What::Slowdown));
        ruling.cause = Some(Cause::Slow);
        ruling.at = Some(first.0.op);
        for (sink, late, waited) in &found {
            ruling.facts.push(self.late_fact(&sink.op, &sink.waiting, late, *waited));
            if !self.doings.of.contains_key(&sink.rank) {
                ruling.doubts.push(Doubt::StuckOrSlow(sink.rank));
            }
        }
        ruling.facts.extend(self.doing_facts(found.iter().map(|(sink, _, _)| sink.rank)));
        Some(ruling)
    }

    fn late_fact(&self, op: &DumpOp, waiting: &[Rank], late: &Lateness, waited_ns: i64) -> Fact {
        let ms = |ns: i64| ns as f64 / NANOS_PER_MS as f64;
        let op = self.op_ref(waiting, op);
        Fact::CameLate { rank: late.rank, op, late_ms: ms(late.worst_ns), times: late.times, waited_ms: ms(waited_ns) }
    }

    /// How long the operation has waited, as far as any dump tells: up to the newest thing that any of them knows, each
    /// measured with the clock of the rank that waits.
    fn waited_ns(&self, op: &DumpOp, waiting: &[Rank]) -> i64 {
        let of = |rank: &Rank| {
            let since = self.scene.entry(*rank, op)?.created_at.some()?;
            let dump = self.index.bundle.dumps.iter().find(|dump| dump.rank == *rank)?;
            let stacks = self.index.bundle.stacks.iter().filter(|stacks| stacks.rank == Some(*rank));
            let newest = dump.entries.iter().flat_map(|entry| [entry.created_at, entry.completed_at]);
            let newest = newest.chain(stacks.map(|stacks| stacks.taken_at)).max()?;
            Some(newest.since_ns(since) as i64)
        };
        waiting.iter().filter_map(of).max().unwrap_or(0)
    }

    /// Nothing is in flight, and the job spent its time waiting for one rank.
    fn slow_but_done(&self) -> Option<Ruling> {
        let late = self.lateness().into_iter().filter(Lateness::dominates).max_by_key(|late| late.total_ns)?;
        let op = DumpOp::collective(late.group, late.seq);
        let mut ruling = ruling(Outcome::Fault(What::Slowdown));
        ruling.cause = Some(Cause::Slow);
        ruling.at = Some(op);
        ruling.facts.push(self.late_fact(&op, &[late.rank], &late, 0));
        Some(ruling)
    }

    /// Something is in flight and nothing tells why: said, and nobody is blamed.
    fn undecided(&self, absent: &[Sink], gone: &[Sink]) -> Ruling {
        let ranks: Vec<Rank> = absent.iter().chain(gone).map(|sink| sink.rank).collect();
        if ranks.is_empty() {
            return self.slow_but_done().unwrap_or_else(|| ruling(Outcome::Unknown));
        }
        let mut ruling = ruling(Outcome::Fault(What::Hang));
        ruling.category = Some(Category::Unknown);
        ruling.at = absent.first().or(gone.first()).map(|sink| sink.op);
        let hidden = self.transfers_hidden() || ranks.iter().any(|rank| self.doings.waits_for_peers(*rank));
        ruling.doubts.push(if hidden { Doubt::Unrecorded(ranks) } else { Doubt::WhichOf(ranks) });
        ruling
    }
}
