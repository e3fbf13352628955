//! Who started a stall: follow the wait-for graph from the waiting ranks to the rank that waits for nobody
//! (Algorithm 2, `AnalyzeFailureRootCause`, across communicators).
use crate::blame::graph::{Graph, Scene, Turn};
use crate::blame::order::{self, Departure};
use crate::blame::{chunk, held, history, turns};
use crate::config::Config;
use crate::fact::{Fact, OpRef};
use crate::timeline::{OpNode, RankState, Stand, Timeline, device_has_left};
use mycroft_record::{
    Algorithm, CommId, CommRank, Datatype, HostTime, NANOS_PER_MS, OpClass, OpId, OpKind, OpMeta, OpSeq, Protocol, Rank,
};
use std::collections::{BTreeMap, BTreeSet};

/// Operations whose chunk state is looked into per analysis; a stall has a handful.
const CHUNK_OPS_MAX: usize = 256;
/// Hosts that vanish together are last seen by agents that look every 100 ms and ship every 100 ms.
const SILENT_TOGETHER_NS: u64 = 500 * NANOS_PER_MS;

/// An operation of which nothing is known.
pub(crate) const NO_META: OpMeta = OpMeta {
    id: OpId { comm: CommId(0), class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(0) },
    kind: OpKind::Unknown,
    nccl_seq: 0,
    comm_rank: CommRank(0),
    count: 0,
    datatype: Datatype::Unknown,
    root: u32::MAX,
    algorithm: Algorithm::Unknown,
    protocol: Protocol::Unknown,
    n_channels: 0,
    enqueued_at: HostTime::NONE,
    started_at: HostTime::NONE,
    started_last_at: HostTime::NONE,
};

/// What the walk found.
#[derive(Debug, Default)]
pub(crate) struct HangFacts {
    pub facts: Vec<Fact>,
    /// Operations on the way.
    pub path: Vec<Held>,
}

/// An operation that is waited in.
#[derive(Debug)]
pub(crate) struct Held {
    pub op: OpRef,
    /// Its members that are in it.
    pub waiting: Vec<Rank>,
    /// For whom.
    pub waits_for: Vec<Rank>,
}

/// A walk along the wait-for graph, over a live job or a dead one.
#[derive(Debug)]
pub(crate) struct Walk<O> {
    /// Ranks on the way.
    pub ranks_seen: BTreeSet<Rank>,
    /// Operations on the way.
    pub nodes_seen: BTreeSet<O>,
    /// Rank waited for that waits for nobody -> operation in which it is waited for, ranks waiting in it.
    pub sinks: BTreeMap<Rank, (Option<O>, Vec<Rank>)>,
    /// Operations that every member has entered.
    pub inside: Vec<O>,
    /// Rank -> operations it is in that wait for others to enter, and whom.
    pub entry_edges: BTreeMap<Rank, Vec<(O, Rank)>>,
    /// Operations that every member has issued, and which none is seen to have left or to be in.
    pub all_unseen: BTreeSet<O>,
    /// Operations in the order in which they were reached, each with the rank that was in it.
    pub path: Vec<(Rank, O)>,
}

impl<O: Copy + Ord + std::fmt::Debug> Walk<O> {
    /// Follows every one of `from` to its sinks.
    pub(crate) fn along<S: Scene<Op = O>>(scene: &S, graph: &Graph<O>, from: &[Rank]) -> Walk<O> {
        let mut walk = Walk {
            ranks_seen: BTreeSet::new(),
            nodes_seen: BTreeSet::new(),
            sinks: BTreeMap::new(),
            inside: Vec::new(),
            all_unseen: BTreeSet::new(),
            entry_edges: BTreeMap::new(),
            path: Vec::new(),
        };
        for rank in from {
            walk.rank(scene, graph, *rank);
        }
        walk
    }

    fn rank<S: Scene<Op = O>>(&mut self, scene: &S, graph: &Graph<O>, first: Rank) {
        let mut open: Vec<(Rank, Option<O>)> = vec![(first, None)];
        while let Some((rank, via)) = open.pop() {
            if !self.ranks_seen.insert(rank) {
                continue;
            }
            let turn = scene.turn(rank);
            if turn == Turn::Nowhere {
                continue;
            }
            let nodes = graph.current.get(&rank).map(Vec::as_slice).unwrap_or_default();
            if nodes.is_empty() && turn == Turn::On && self.unseen(scene, rank, &mut open) {
                continue;
            }
            if nodes.is_empty() || turn == Turn::End {
                let seen = via.and_then(|node| graph.nodes.get(&node)).map(|waits| waits.inside.clone());
                let waiting = seen.or_else(|| Some(Walk::waiting_unseen(scene, &via?)));
                self.sinks.insert(rank, (via, waiting.unwrap_or_default()));
                continue;
            }
            for node in nodes {
                self.node(graph, rank, *node, &mut open);
            }
        }
    }

    /// The ranks that `node` waits for; notes the node when everybody is in.
    fn node(&mut self, graph: &Graph<O>, rank: Rank, node: O, open: &mut Vec<(Rank, Option<O>)>) {
        let Some(waits) = graph.nodes.get(&node) else { return };
        for (missing, _) in &waits.missing {
            self.entry_edges.entry(rank).or_default().push((node, *missing));
        }
        if !self.nodes_seen.insert(node) {
            return;
        }
        self.path.push((rank, node));
        if waits.missing.is_empty() {
            self.inside.push(node);
            open.extend(waits.inside.iter().map(|rank| (*rank, Some(node))));
        } else {
            open.extend(waits.missing.iter().map(|(rank, _)| (*rank, Some(node))));
        }
    }

    /// A cycle of entries: each waits for the next to enter, and the last waits for the first. Depth first, so that a rank
    /// that waits for several is followed to all of them.
    pub(crate) fn cycle(&self) -> Option<Vec<(Rank, O, Rank)>> {
        let mut finished: BTreeSet<Rank> = BTreeSet::new();
        for start in self.entry_edges.keys() {
            // The ranks on the way, each with the edge it is left by.
            let mut way: Vec<(Rank, usize)> = vec![(*start, 0)];
            while let Some((rank, next)) = way.last_mut() {
                let edges = self.entry_edges.get(rank).map(Vec::as_slice).unwrap_or_default();
                let Some((_, to)) = edges.get(*next).copied().filter(|_| !finished.contains(rank)) else {
                    finished.insert(*rank);
                    way.pop();
                    if let Some((_, next)) = way.last_mut() {
                        *next += 1;
                    }
                    continue;
                };
                if let Some(first) = way.iter().position(|(on_way, _)| *on_way == to) {
                    let edge = |(rank, at): &(Rank, usize)| {
                        let (op, to) = *self.entry_edges.get(rank)?.get(*at)?;
                        Some((*rank, op, to))
                    };
                    return way[first..].iter().map(edge).collect();
                }
                way.push((to, 0));
            }
        }
        None
    }

    /// Ranks on a cycle of entries, or on a way between two: what remains when ranks that nobody waits for and ranks that
    /// wait for nobody are taken away again and again.
    pub(crate) fn in_cycles(&self) -> Vec<Rank> {
        let mut left: BTreeSet<Rank> = self.entry_edges.keys().copied().collect();
        loop {
            let waits = |rank: &Rank| self.entry_edges[rank].iter().any(|(_, to)| left.contains(to));
            let targets: BTreeSet<Rank> =
                left.iter().flat_map(|rank| &self.entry_edges[rank]).map(|(_, to)| *to).collect();
            let next: BTreeSet<Rank> =
                left.iter().copied().filter(|rank| waits(rank) && targets.contains(rank)).collect();
            if next.len() == left.len() {
                return next.into_iter().collect();
            }
            left = next;
        }
    }
}

/// Follows every stalled rank to its sinks and says what is wrong there.
pub(crate) fn blame(timeline: &Timeline, graph: &Graph<OpNode>, config: &Config, stalled: &[Rank]) -> HangFacts {
    let scene = timeline.scene(config.no_data_after_ns);
    let walk = Walk::along(&scene, graph, stalled);
    let live = Live { timeline, config };
    let mut out = HangFacts::default();
    for (rank, node) in &walk.path {
        let Some((op, waits)) = timeline.op_ref(*rank, node).zip(graph.nodes.get(node)) else { continue };
        let (waiting, waits_for) = (waits.inside.clone(), waits.missing.iter().map(|(rank, _)| *rank).collect());
        out.path.push(Held { op, waiting, waits_for });
    }
    live.mismatches(&walk, &mut out.facts);
    for (rank, (via, waiting)) in &walk.sinks {
        let state = timeline.ranks.get(rank);
        out.facts.extend(state.and_then(|state| live.name_sink(state, *via, waiting.clone())));
    }
    let mut named: BTreeSet<Rank> = BTreeSet::new();
    for (state, waiting) in live.silent_too(&walk, graph) {
        named.insert(state.rank);
        out.facts.push(live.no_data(state, waiting, false));
    }
    for node in walk.inside.iter().take(CHUNK_OPS_MAX) {
        let silent = live.silent(node);
        if silent.is_empty() {
            out.facts.extend(chunk::blame(timeline, node));
            continue;
        }
        // Whoever stopped, one of whom nothing is known may be the one: devices that idle say nothing.
        out.facts.extend(chunk::undelivered(timeline, node));
        let waiting = &graph.nodes[node].inside;
        let silent =
            silent.into_iter().filter(|state| !walk.sinks.contains_key(&state.rank) && named.insert(state.rank));
        out.facts.extend(silent.map(|state| live.no_data(state, waiting.clone(), false)));
    }
    out.facts.extend(walk.stuck_unseen(timeline));
    held::weigh(timeline, &walk.ranks_seen, |rank| walk.entry_edges.contains_key(rank), &mut out.facts);
    let cycle = live.cycle(&walk, &out.facts);
    if !cycle.is_empty() {
        out.facts.retain(|fact| !matches!(fact, Fact::NeverIssued { rank, .. } if live.may_wait_to_send(*rank)));
    }
    out.facts.extend(cycle);
    out
}

/// Operations that cannot go on without the ranks in `gone`, the nearest first: those that wait for one of them, those
/// that wait for whoever waits in these, and so on.
pub(crate) fn behind(timeline: &Timeline, gone: &[Rank]) -> Vec<Held> {
    let graph = timeline.graph();
    let mut waited_in: BTreeMap<Rank, Vec<OpNode>> = BTreeMap::new();
    for (node, waits) in &graph.nodes {
        waits.targets().for_each(|rank| waited_in.entry(rank).or_default().push(*node));
    }
    let gone: BTreeSet<Rank> = gone.iter().copied().collect();
    let is_gone = |rank: &Rank| gone.contains(rank);
    let mut held: Vec<Rank> = gone.iter().copied().collect();
    let (mut out, mut seen, mut taken) = (Vec::new(), gone.clone(), BTreeSet::new());
    while !held.is_empty() {
        let nodes: BTreeSet<OpNode> = held.iter().filter_map(|rank| waited_in.get(rank)).flatten().copied().collect();
        held.clear();
        for node in nodes.into_iter().filter(|node| taken.insert(*node)) {
            let waits = &graph.nodes[&node];
            let waiting: Vec<Rank> = waits.inside.iter().copied().filter(|rank| !is_gone(rank)).collect();
            let mut waits_for: Vec<Rank> = waits.missing.iter().map(|(rank, _)| *rank).collect();
            if waits_for.is_empty() {
                waits_for = waits.inside.iter().copied().filter(is_gone).collect();
            }
            held.extend(waiting.iter().copied().filter(|rank| seen.insert(*rank)));
            let op = waiting.iter().find_map(|rank| timeline.op_ref(*rank, &node));
            out.extend(op.map(|op| Held { op, waiting, waits_for }));
        }
    }
    out
}

/// What the records of a live job say of the places that a walk came to.
struct Live<'a> {
    timeline: &'a Timeline,
    config: &'a Config,
}

impl Live<'_> {
    fn name_sink(&self, state: &RankState, via: Option<OpNode>, waiting: Vec<Rank>) -> Option<Fact> {
        let (rank, host) = (state.rank, state.host.clone());
        if state.dead() {
            return Some(Fact::Dead {
                rank,
                host,
                at: state.dead_since,
                in_flight: state.live.len() as u32,
                status: state.status,
            });
        }
        if state.stopped {
            return Some(Fact::Stopped { rank, host, since: state.stopped_since, proxies: None });
        }
        let gap = self.timeline.has_fresh_gap(state);
        if self.timeline.no_data(state, self.config.no_data_after_ns) || (gap && state.live.is_empty()) {
            return Some(self.no_data(state, waiting, gap));
        }
        // The graph is at rest: what is issued and not started has a device that does not run it.
        if let Some(op) = state.next_issued() {
            let op = OpRef { meta: op.meta, label: self.timeline.label(&op.meta) };
            let issued_at = op.meta.enqueued_at;
            return Some(Fact::NeverRan { rank, host, op, waiting, issued_at });
        }
        let node = via?;
        let op = waiting.iter().find_map(|waiter| self.timeline.op_ref(*waiter, &node))?;
        let finalized = state.finalized();
        Some(Fact::NeverIssued { rank, host, op, waiting, idle_since: state.left_at, finalized })
    }

    /// Whether a main thread that issues nothing may wait for what it sent: the device has handed it over, and the receiver, who
    /// is in something else, has not come to it.
    fn may_wait_to_send(&self, rank: Rank) -> bool {
        let Some(state) = self.timeline.ranks.get(&rank) else { return false };
        let is_elsewhere = |to: &Rank, node: &OpNode| {
            let receiver = self.timeline.ranks.get(to).filter(|receiver| !receiver.current().is_empty());
            receiver.is_some() && matches!(self.timeline.stand(*to, node), Some(Stand::NotIssued | Stand::Issued))
        };
        state.live.values().filter(|op| op.meta.id.class == OpClass::Send && device_has_left(op)).any(|op| {
            let node = OpNode::of(&op.meta);
            self.timeline.members(&node).iter().any(|to| *to != rank && is_elsewhere(to, &node))
        })
    }

    fn no_data(&self, state: &RankState, waiting: Vec<Rank>, gap: bool) -> Fact {
        let (rank, host, last_seen) = (state.rank, state.host.clone(), state.sampled_at);
        Fact::NoData { rank, host, waiting, last_seen, gap }
    }

    /// Ranks of whom nothing is known since about the time of those that are waited for: they were in operations with
    /// others when they were last seen, but that is as long ago, and what took the ones may have taken them as well.
    fn silent_too(&self, walk: &Walk<OpNode>, graph: &Graph<OpNode>) -> Vec<(&RankState, Vec<Rank>)> {
        let state = |rank: &Rank| self.timeline.ranks.get(rank);
        let is_silent = |state: &&RankState| {
            !state.dead() && !state.stopped && self.timeline.no_data(state, self.config.no_data_after_ns)
        };
        let last_seen: Vec<HostTime> =
            walk.sinks.keys().filter_map(state).filter(is_silent).map(|state| state.sampled_at).collect();
        let together = |state: &&RankState| {
            let apart = |seen: &HostTime| seen.since_ns(state.sampled_at).max(state.sampled_at.since_ns(*seen));
            last_seen.iter().any(|seen| apart(seen) <= SILENT_TOGETHER_NS)
        };
        let mut found: BTreeMap<Rank, (&RankState, Vec<Rank>)> = BTreeMap::new();
        for waits in walk.nodes_seen.iter().filter_map(|node| graph.nodes.get(node)) {
            let others = waits.inside.iter().filter(|rank| !walk.sinks.contains_key(rank)).filter_map(state);
            for state in others.filter(is_silent).filter(together) {
                found.entry(state.rank).or_insert_with(|| (state, waits.inside.clone()));
            }
        }
        found.into_values().collect()
    }

    /// Members of an operation of whom nothing is known.
    fn silent(&self, node: &OpNode) -> Vec<&RankState> {
        let members = self.timeline.members(node).into_iter();
        let states = members.filter_map(|rank| self.timeline.ranks.get(&rank));
        states.filter(|state| self.timeline.no_data(state, self.config.no_data_after_ns)).collect()
    }

    /// Ranks that are in operation number n of a communicator, or next in line for it, must mean the same operation.
    fn mismatches(&self, walk: &Walk<OpNode>, out: &mut Vec<Fact>) {
        for node in &walk.nodes_seen {
            let mut camps: BTreeMap<(u8, u64, u8), Vec<(Rank, OpMeta)>> = BTreeMap::new();
            for rank in self.timeline.members(node) {
                let Some(me) = self.timeline.comm_rank(node.comm(), rank) else { continue };
                let Some(id) = node.id_for(me) else { continue };
                let Some(known) = self.timeline.ranks.get(&rank).and_then(|state| state.known(&id)) else {
                    continue;
                };
                let (op_kind, count, datatype) = known.shape;
                let kind = if matches!(node, OpNode::Pair { .. }) { 0 } else { op_kind.code() };
                let (comm_rank, enqueued_at) = (me, known.enqueued_at);
                let meta = OpMeta { id, kind: op_kind, comm_rank, count, datatype, enqueued_at, ..NO_META };
                camps.entry((kind, count, datatype.code())).or_default().push((rank, meta));
            }
            if camps.len() < 2 {
                continue;
            }
            let kinds: BTreeSet<u8> = camps.keys().map(|key| key.0).collect();
            let mut sides: Vec<(String, Vec<(Rank, mycroft_record::HostName)>)> = Vec::new();
            let mut any = None;
            for ranks in camps.values() {
                let meta = ranks[0].1;
                any = any.or(Some(meta));
                let text = format!("{} of {} {}", meta.kind, meta.count, meta.datatype);
                sides.push((text, ranks.iter().map(|(rank, _)| (*rank, self.timeline.host(*rank))).collect()));
            }
            sides.sort_by_key(|(text, who)| (who.len(), text.clone()));
            let Some(meta) = any else { continue };
            let label = format!("operation {} of {}", meta.id.seq, self.timeline.comm_name(meta.id.comm));
            let (op, kinds_differ) = (OpRef { meta, label }, kinds.len() > 1);
            let never_before = self.never_before(camps.values().flatten());
            let out_of_turn = self.out_of_turn(camps.values().flatten());
            out.push(Fact::Mismatch { op, camps: sides, kinds_differ, never_before, out_of_turn });
        }
    }

    /// Who has not done such an operation before, if others have: what they do now is what they always did. Only of
    /// collectives, since sizes of messages vary.
    fn never_before<'a>(&self, doing: impl Iterator<Item = &'a (Rank, OpMeta)>) -> Vec<Rank> {
        let is_new = |told: &&'a (Rank, OpMeta)| {
            let (rank, meta) = told;
            let signature = (meta.id.comm, meta.kind, meta.count, meta.datatype);
            meta.id.class == OpClass::Collective
                && self.timeline.ranks.get(rank).is_some_and(|state| !state.iterations.has_done(&signature))
        };
        let (new, old): (Vec<&(Rank, OpMeta)>, Vec<_>) = doing.partition(is_new);
        if old.is_empty() { Vec::new() } else { new.into_iter().map(|told| told.0).collect() }
    }

    /// Who does what it never did after what it did before on the communicator, if others do what they always did.
    fn out_of_turn<'a>(&self, doing: impl Iterator<Item = &'a (Rank, OpMeta)>) -> Vec<Rank> {
        let deviates = |(rank, meta): &(Rank, OpMeta)| {
            let issued = self.timeline.ranks.get(rank)?.issued();
            let (comm, class, seq) = (meta.id.comm, meta.id.class, meta.id.seq);
            let before = issued.iter().filter(|op| op.id.comm == comm && op.id.class == class && op.id.seq < seq);
            let past: Vec<OpKind> = before.map(|op| op.kind).collect();
            Some((*rank, history::deviates(&past, history::NEARBY, meta.kind)?))
        };
        let told: Vec<(Rank, bool)> = doing.map(deviates).collect::<Option<_>>().unwrap_or_default();
        let (out_of_turn, in_turn): (Vec<_>, Vec<_>) = told.into_iter().partition(|(_, deviates)| *deviates);
        if in_turn.is_empty() { Vec::new() } else { out_of_turn.into_iter().map(|(rank, _)| rank).collect() }
    }

    /// A cycle, where nothing else accuses anybody, and who of it left the order.
    fn cycle(&self, walk: &Walk<OpNode>, facts: &[Fact]) -> Vec<Fact> {
        // For whom nobody waits has not stopped those that wait for each other.
        let is_awaited = |rank: &Rank| walk.entry_edges.values().flatten().any(|(_, missing)| missing == rank);
        let accused = facts.iter().any(|fact| match fact {
            Fact::Mismatch { .. } | Fact::NoData { .. } | Fact::StuckInside { .. } => false,
            Fact::NeverRan { rank, .. } => is_awaited(rank),
            Fact::NeverIssued { rank, .. } => is_awaited(rank) && !self.may_wait_to_send(*rank),
            _ => true,
        });
        let Some(cycle) = walk.cycle().filter(|_| !accused) else { return Vec::new() };
        let edges: Vec<(Rank, OpRef, Rank)> = cycle
            .into_iter()
            .filter_map(|(from, node, to)| Some((from, self.timeline.op_ref(from, &node)?, to)))
            .collect();
        let ranks: Vec<Rank> = edges.iter().map(|(rank, _, _)| *rank).collect();
        let hosts = ranks.iter().map(|rank| self.timeline.host(*rank)).collect();
        let departures = order::departures(self.timeline, walk, &ranks);
        let left_out = !departures.is_empty() && departures.iter().all(|departure| departure.left_out);
        let mut left: Vec<_> = departures.iter().map(|of| (of.rank, self.timeline.host(of.rank))).collect();
        let waited_in: Vec<CommId> = edges.iter().map(|(_, op, _)| op.meta.id.comm).collect();
        let fewer = departures.is_empty().then(|| turns::left_out_in(self.timeline, &waited_in)).flatten();
        if let Some(Fact::LeftOut { rank, host, .. }) = &fewer {
            left.push((*rank, host.clone()));
        }
        let mut out = vec![Fact::Cycle { edges, hosts, left, left_out: left_out || fewer.is_some() }];
        out.extend(fewer);
        out.extend(departures.into_iter().map(|Departure { rank, op, instead_of, .. }| Fact::BreaksPast {
            rank,
            op,
            instead_of,
        }));
        out
    }
}
