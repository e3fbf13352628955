//! Who started a stall: follow the wait-for graph from the waiting ranks to the rank that waits for nobody
//! (Algorithm 2, `AnalyzeFailureRootCause`, across communicators).
use crate::blame::chunk;
use crate::blame::graph::Graph;
use crate::config::Config;
use crate::fact::{Fact, OpRef};
use crate::timeline::{OpNode, RankState, Timeline};
use mycroft_record::{OpMeta, Rank};
use std::collections::{BTreeMap, BTreeSet};

/// Operations whose chunk state is looked into per analysis; a stall has a handful.
const CHUNK_OPS_MAX: usize = 256;

/// What the walk found.
#[derive(Debug, Default)]
pub(crate) struct HangFacts {
    pub facts: Vec<Fact>,
    /// Operations on the way, each with who waits in it and for whom.
    pub path: Vec<(OpRef, Vec<Rank>, Vec<Rank>)>,
}

struct Walk<'a> {
    timeline: &'a Timeline,
    graph: &'a Graph,
    config: &'a Config,
    ranks_seen: BTreeSet<Rank>,
    nodes_seen: BTreeSet<OpNode>,
    /// Rank waited for -> operation, ranks waiting in it.
    sinks: BTreeMap<Rank, (Option<OpNode>, Vec<Rank>)>,
    inside: Vec<OpNode>,
    entry_edges: BTreeMap<Rank, Vec<(OpNode, Rank)>>,
    out: HangFacts,
}

/// Follows every stalled rank to its sinks.
pub(crate) fn blame(timeline: &Timeline, graph: &Graph, config: &Config, stalled: &[Rank]) -> HangFacts {
    let mut walk = Walk {
        timeline,
        graph,
        config,
        ranks_seen: BTreeSet::new(),
        nodes_seen: BTreeSet::new(),
        sinks: BTreeMap::new(),
        inside: Vec::new(),
        entry_edges: BTreeMap::new(),
        out: HangFacts::default(),
    };
    for rank in stalled {
        walk.rank(*rank, None, &[]);
    }
    walk.mismatches();
    walk.name_sinks();
    let inside = std::mem::take(&mut walk.inside);
    for node in inside.iter().take(CHUNK_OPS_MAX) {
        walk.out.facts.extend(chunk::blame(timeline, node, config));
    }
    walk.cycle();
    walk.out
}

impl Walk<'_> {
    fn op_ref(&self, rank: Rank, node: &OpNode) -> Option<OpRef> {
        let meta = self.timeline.live(rank, node)?.meta;
        Some(OpRef { meta, label: self.timeline.label(&meta) })
    }

    fn rank(&mut self, first: Rank, via: Option<OpNode>, waiting: &[Rank]) {
        let mut open = vec![(first, via, waiting.to_vec())];
        while let Some((rank, via, waiting)) = open.pop() {
            if !self.ranks_seen.insert(rank) {
                continue;
            }
            let Some(state) = self.timeline.ranks.get(&rank) else { continue };
            let unsure = self.timeline.no_data(state, self.config.no_data_after_ns);
            let nodes = self.graph.current.get(&rank).cloned().unwrap_or_default();
            if nodes.is_empty() || state.dead() || state.stopped || unsure {
                self.sinks.insert(rank, (via, waiting));
                continue;
            }
            for node in nodes {
                open.extend(self.node(rank, node));
            }
        }
    }

    /// The ranks that `node` waits for; notes the node for the chunk analysis when everybody is in.
    fn node(&mut self, rank: Rank, node: OpNode) -> Vec<(Rank, Option<OpNode>, Vec<Rank>)> {
        let Some(waits) = self.graph.nodes.get(&node) else { return Vec::new() };
        for (missing, _) in &waits.missing {
            self.entry_edges.entry(rank).or_default().push((node, *missing));
        }
        if !self.nodes_seen.insert(node) {
            return Vec::new();
        }
        let targets: Vec<Rank> = waits.missing.iter().map(|(rank, _)| *rank).collect();
        if let Some(op) = self.op_ref(rank, &node) {
            self.out.path.push((op, waits.inside.clone(), targets.clone()));
        }
        if targets.is_empty() {
            self.inside.push(node);
            return waits.inside.iter().map(|rank| (*rank, Some(node), waits.inside.clone())).collect();
        }
        targets.into_iter().map(|rank| (rank, Some(node), waits.inside.clone())).collect()
    }

    fn name_sinks(&mut self) {
        let sinks = std::mem::take(&mut self.sinks);
        for (rank, (via, waiting)) in sinks {
            let Some(state) = self.timeline.ranks.get(&rank) else { continue };
            if let Some(fact) = self.name_sink(state, via, waiting) {
                self.out.facts.push(fact);
            }
        }
    }

    fn name_sink(&self, state: &RankState, via: Option<OpNode>, waiting: Vec<Rank>) -> Option<Fact> {
        let (rank, host) = (state.rank, state.host.clone());
        if state.dead() {
            return Some(Fact::Dead { rank, host, at: state.dead_since, in_flight: state.live.len() as u32 });
        }
        if state.stopped {
            return Some(Fact::Stopped { rank, host, since: state.stopped_since });
        }
        let gap = self.timeline.has_fresh_gap(state);
        if self.timeline.no_data(state, self.config.no_data_after_ns) || (gap && state.live.is_empty()) {
            return Some(Fact::NoData { rank, host, waiting, last_seen: state.sampled_at, gap });
        }
        // The graph is at rest: what is issued and not started has a device that does not run it.
        if let Some(op) = state.next_issued() {
            let op = OpRef { meta: op.meta, label: self.timeline.label(&op.meta) };
            let issued_at = op.meta.enqueued_at;
            return Some(Fact::NeverRan { rank, host, op, waiting, issued_at });
        }
        let node = via?;
        let op = waiting.iter().find_map(|waiter| self.op_ref(*waiter, &node))?;
        let finalized = state.finalized();
        Some(Fact::NeverIssued { rank, host, op, waiting, idle_since: state.left_at, finalized })
    }

    /// Ranks that are in operation number n of a communicator, or next in line for it, must mean the same operation.
    fn mismatches(&mut self) {
        let nodes: Vec<OpNode> = self.nodes_seen.iter().copied().collect();
        for node in nodes {
            let mut camps: BTreeMap<(u8, u64, u8), Vec<(Rank, OpMeta)>> = BTreeMap::new();
            for rank in self.timeline.members(&node) {
                let Some(id) = self.timeline.comm_rank(node.comm(), rank).and_then(|me| node.id_for(me)) else {
                    continue;
                };
                let Some(meta) = self.timeline.ranks.get(&rank).and_then(|state| state.metas.get(&id)) else {
                    continue;
                };
                let kind = if matches!(node, OpNode::Pair { .. }) { 0 } else { meta.kind.code() };
                camps.entry((kind, meta.count, meta.datatype.code())).or_default().push((rank, *meta));
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
            self.out.facts.push(Fact::Mismatch {
                op: OpRef { meta, label },
                camps: sides,
                kinds_differ: kinds.len() > 1,
            });
        }
    }

    /// A cycle of entries: each waits for the next to enter, and the last waits for the first.
    fn cycle(&mut self) {
        let accused = self
            .out
            .facts
            .iter()
            .any(|fact| !matches!(fact, Fact::Mismatch { .. } | Fact::NoData { .. } | Fact::StuckInside { .. }));
        if accused {
            return;
        }
        let Some(start) = self.entry_edges.keys().next().copied() else { return };
        let mut at: BTreeMap<Rank, usize> = BTreeMap::new();
        let mut way: Vec<(Rank, OpNode, Rank)> = Vec::new();
        let mut rank = start;
        while let Some(edges) = self.entry_edges.get(&rank) {
            if let Some(first) = at.get(&rank) {
                let edges: Vec<(Rank, OpRef, Rank)> = way[*first..]
                    .iter()
                    .filter_map(|(from, node, to)| Some((*from, self.op_ref(*from, node)?, *to)))
                    .collect();
                let hosts = edges.iter().map(|(rank, _, _)| self.timeline.host(*rank)).collect();
                self.out.facts.push(Fact::Cycle { edges, hosts });
                return;
            }
            at.insert(rank, way.len());
            let Some((node, next)) = edges.first().copied() else { return };
            way.push((rank, node, next));
            rank = next;
        }
    }
}
