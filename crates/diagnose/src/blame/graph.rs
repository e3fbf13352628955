//! The wait-for graph (design D4): which rank is in which operation, and for whom that operation waits. One graph for a
//! job that runs (`timeline`) and for one that is dead (`stacks`): both answer the questions of [`Scene`].
use crate::timeline::{OpNode, RankState, Stand, Timeline};
use mycroft_record::{HostTime, Rank};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// What the graph asks of a job, live or dead: who is in what, and who stands where.
pub(crate) trait Scene {
    /// An operation instance, the same for all its members.
    type Op: Copy + Ord + Debug;

    /// Every rank that is in an operation, ascending, with the operations it is in.
    fn in_flight(&self) -> Vec<(Rank, Vec<Self::Op>)>;

    /// The ranks that take part in `op`, ascending, as far as they are known.
    fn members(&self, op: &Self::Op) -> Vec<Rank>;

    /// Where `rank` stands with regard to `op`; `None` where it has no part in it or is known to wait for nobody in it.
    fn stand(&self, rank: Rank, op: &Self::Op) -> Option<Stand>;

    /// How a walk goes on at `rank`.
    fn turn(&self, rank: Rank) -> Turn;
}

/// How a walk along the graph goes on at a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Through the operations it is in.
    On,
    /// It ends here: gone, stopped, or nothing is known of it.
    End,
    /// The rank does not exist.
    Nowhere,
}

/// Who an operation waits for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    /// Members that are in it.
    pub inside: Vec<Rank>,
    /// Members that are not, with where they stand; if any, the operation waits for these.
    pub missing: Vec<(Rank, Stand)>,
}

/// A snapshot of the graph.
#[derive(Debug)]
pub(crate) struct Graph<O> {
    /// The operations each rank is in.
    pub current: BTreeMap<Rank, Vec<O>>,
    /// The operations that are waited in.
    pub nodes: BTreeMap<O, Waits>,
}

impl<O> Default for Graph<O> {
    fn default() -> Graph<O> {
        Graph { current: BTreeMap::new(), nodes: BTreeMap::new() }
    }
}

/// How long a rank has waited without anything moving that it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stillness {
    /// When anything last moved.
    pub since: HostTime,
    /// Up to when this is known.
    pub until: HostTime,
}

impl Stillness {
    pub(crate) fn ns(&self) -> u64 {
        self.until.since_ns(self.since)
    }
}

impl<O: Copy + Ord + Debug> Graph<O> {
    pub(crate) fn of<S: Scene<Op = O>>(scene: &S) -> Graph<O> {
        let mut graph = Graph::default();
        for (rank, nodes) in scene.in_flight() {
            for node in &nodes {
                graph.nodes.entry(*node).or_insert_with(|| waits(scene, node));
            }
            if !nodes.is_empty() {
                graph.current.insert(rank, nodes);
            }
        }
        graph
    }

    /// Whom `node` waits for: those who are missing, else all inside.
    fn targets(&self, node: &O) -> Vec<Rank> {
        match self.nodes.get(node) {
            Some(waits) if !waits.missing.is_empty() => waits.missing.iter().map(|(rank, _)| *rank).collect(),
            Some(waits) => waits.inside.clone(),
            None => Vec::new(),
        }
    }
}

impl Graph<OpNode> {
    /// For each rank with something in flight: since when nothing it waits for, directly or not, has moved.
    ///
    /// Progress flows backwards along the edges, newest first, so every rank and operation is visited once.
    pub(crate) fn stillness(&self, timeline: &Timeline, no_data_after_ns: u64) -> BTreeMap<Rank, Stillness> {
        let mut waiters: BTreeMap<Rank, Vec<OpNode>> = BTreeMap::new();
        for node in self.nodes.keys() {
            for target in self.targets(node) {
                waiters.entry(target).or_default().push(*node);
            }
        }
        let mut inside: BTreeMap<OpNode, Vec<Rank>> = BTreeMap::new();
        for (rank, nodes) in &self.current {
            for node in nodes {
                inside.entry(*node).or_default().push(*rank);
            }
        }
        let spread = |key: &dyn Fn(&RankState) -> u64, newest_first: bool| -> BTreeMap<Rank, u64> {
            let mut order: Vec<(u64, Rank)> = timeline.ranks.iter().map(|(rank, state)| (key(state), *rank)).collect();
            order.sort_unstable();
            if newest_first {
                order.reverse();
            }
            let (mut out, mut seen) = (BTreeMap::new(), BTreeSet::new());
            for (value, rank) in order {
                let mut open = vec![rank];
                while let Some(rank) = open.pop() {
                    if out.contains_key(&rank) {
                        continue;
                    }
                    out.insert(rank, value);
                    for node in waiters.get(&rank).into_iter().flatten() {
                        if seen.insert(*node) {
                            open.extend(inside.get(node).into_iter().flatten());
                        }
                    }
                }
            }
            out
        };
        let moved = spread(&|state| state.progress_at.0, true);
        let known = spread(
            &|state| {
                let unknown = state.dead_since.is_some() || timeline.no_data(state, no_data_after_ns);
                if unknown { u64::MAX } else { state.sampled_at.0 }
            },
            false,
        );
        let in_flight = timeline.ranks.iter().filter(|(_, state)| !state.live.is_empty());
        in_flight
            .filter_map(|(rank, _)| {
                let since = HostTime(*moved.get(rank)?);
                let until = HostTime(*known.get(rank)?).min(timeline.newest_sample);
                Some((*rank, Stillness { since, until }))
            })
            .collect()
    }
}

fn waits<S: Scene>(scene: &S, node: &S::Op) -> Waits {
    let mut out = Waits::default();
    for rank in scene.members(node) {
        match scene.stand(rank, node) {
            Some(Stand::Entered) => out.inside.push(rank),
            Some(stand @ (Stand::NotIssued | Stand::Issued)) => out.missing.push((rank, stand)),
            Some(Stand::Left) | None => {}
        }
    }
    out
}
