//! The wait-for graph: which rank is in which operation, and for whom that operation waits. One graph for a
//! job that runs (`timeline`) and for one that is dead (`stacks`): both answer the questions of [`Scene`].
use crate::timeline::{OpNode, RankState, Stand, Timeline};
use mycroft_record::{HostTime, Rank};
use std::collections::BTreeMap;
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

    /// The newest operation that `rank` is known to have issued and that may keep it, although nothing shows it in it.
    fn unseen(&self, _rank: Rank) -> Option<Self::Op> {
        None
    }
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
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Waits {
    /// Ranks that are in it now, members or not, ascending: the edges to the operation.
    pub holders: Vec<Rank>,
    /// Members that are in it.
    pub inside: Vec<Rank>,
    /// Members that are not, with where they stand; if any, the operation waits for these.
    pub missing: Vec<(Rank, Stand)>,
}

/// A snapshot of the graph.
#[derive(PartialEq, Eq, Debug)]
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
    /// The graph of everything, from nothing.
    pub(crate) fn of<S: Scene<Op = O>>(scene: &S) -> Graph<O> {
        let mut graph = Graph::default();
        for (rank, nodes) in scene.in_flight() {
            graph.put(rank, nodes);
        }
        for (node, known) in &mut graph.nodes {
            for rank in scene.members(node) {
                known.add(rank, scene.stand(rank, node));
            }
        }
        graph
    }

    /// Puts a rank into these operations and out of all others. Whom a new operation waits for is not known yet.
    pub(crate) fn put(&mut self, rank: Rank, nodes: Vec<O>) {
        let old = self.current.get(&rank).map(Vec::as_slice).unwrap_or_default();
        if old == nodes {
            return;
        }
        for left in old.iter().filter(|node| !nodes.contains(node)) {
            let Some(waits) = self.nodes.get_mut(left) else { continue };
            waits.holders.retain(|holder| *holder != rank);
            if waits.holders.is_empty() {
                self.nodes.remove(left);
            }
        }
        for node in &nodes {
            let holders = &mut self.nodes.entry(*node).or_default().holders;
            if let Err(at) = holders.binary_search(&rank) {
                holders.insert(at, rank);
            }
        }
        if nodes.is_empty() {
            self.current.remove(&rank);
        } else {
            self.current.insert(rank, nodes);
        }
    }
}

impl Waits {
    /// Takes in where a member stands.
    pub(crate) fn add(&mut self, rank: Rank, stand: Option<Stand>) {
        match stand {
            Some(Stand::Entered) => self.inside.push(rank),
            Some(stand @ (Stand::NotIssued | Stand::Issued)) => self.missing.push((rank, stand)),
            Some(Stand::Left) | None => {}
        }
    }

    /// Whom it waits for: those who are missing, else all inside.
    pub(crate) fn targets(&self) -> impl Iterator<Item = Rank> {
        let inside = if self.missing.is_empty() { &self.inside[..] } else { &[] };
        self.missing.iter().map(|(rank, _)| *rank).chain(inside.iter().copied())
    }
}

/// The graph the other way round, by slots and numbers: operations by the ranks they wait for.
struct Backwards<'a> {
    nodes: Vec<&'a Waits>,
    /// Where the list of each slot begins, and one more.
    begins: Vec<u32>,
    waiters: Vec<u32>,
}

impl Backwards<'_> {
    fn of<'a>(graph: &'a Graph<OpNode>, timeline: &Timeline) -> Backwards<'a> {
        let nodes: Vec<&Waits> = graph.nodes.values().collect();
        let mut begins = vec![0u32; timeline.ranks.len() + 1];
        let slots = |waits: &'a Waits| waits.targets().filter_map(|rank| timeline.ranks.slot(rank));
        nodes.iter().flat_map(|waits| slots(waits)).for_each(|slot| begins[slot as usize] += 1);
        let mut end = 0;
        for begin in &mut begins {
            end += *begin;
            *begin = end;
        }
        let mut waiters = vec![0u32; end as usize];
        for (number, waits) in nodes.iter().enumerate() {
            for slot in slots(waits) {
                begins[slot as usize] -= 1;
                waiters[begins[slot as usize] as usize] = number as u32;
            }
        }
        Backwards { nodes, begins, waiters }
    }

    /// Gives each slot the first of `order`'s values that reaches it against the edges.
    fn spread(&self, timeline: &Timeline, order: impl Iterator<Item = (u64, u32)>) -> Vec<u64> {
        let mut out: Vec<Option<u64>> = vec![None; timeline.ranks.len()];
        let mut seen = vec![false; self.nodes.len()];
        let mut open = Vec::new();
        for (value, slot) in order {
            open.push(slot);
            while let Some(slot) = open.pop() {
                if out[slot as usize].is_some() {
                    continue;
                }
                out[slot as usize] = Some(value);
                let list = self.begins[slot as usize] as usize..self.begins[slot as usize + 1] as usize;
                for number in &self.waiters[list] {
                    if !std::mem::replace(&mut seen[*number as usize], true) {
                        let holders = &self.nodes[*number as usize].holders;
                        open.extend(holders.iter().filter_map(|rank| timeline.ranks.slot(*rank)));
                    }
                }
            }
        }
        out.into_iter().map(Option::unwrap_or_default).collect()
    }
}

impl Graph<OpNode> {
    /// Ranks inside an operation that others have left since the last look at them, with when these did: there are ranks that
    /// have waited for long in an operation that is over by now.
    pub(crate) fn left_behind(&self, timeline: &Timeline) -> BTreeMap<Rank, HostTime> {
        let mut out = BTreeMap::new();
        for (node, waits) in self.nodes.iter().filter(|(_, waits)| waits.missing.is_empty()) {
            let others = timeline.members(node).into_iter().filter_map(|rank| timeline.ranks.get(&rank));
            let left = others.filter(|state| timeline.stand(state.rank, node) == Some(Stand::Left));
            let Some(at) = left.map(|state| state.left_at).max() else { continue };
            for rank in &waits.holders {
                if timeline.ranks.get(rank).is_some_and(|state| state.sampled_at < at) {
                    out.entry(*rank).and_modify(|known: &mut HostTime| *known = at.max(*known)).or_insert(at);
                }
            }
        }
        out
    }

    /// For each rank with something in flight, ascending: since when nothing it waits for, directly or not, has moved, where some
    /// ranks have moved later than they show.
    ///
    /// Progress flows backwards along the edges, newest first, so every rank and operation is visited once.
    pub(crate) fn stillness(
        &self,
        timeline: &Timeline,
        no_data_after_ns: u64,
        later: &BTreeMap<Rank, HostTime>,
    ) -> Vec<(Rank, Stillness)> {
        let backwards = Backwards::of(self, timeline);
        let ordered = |key: &dyn Fn(&RankState) -> u64| -> Vec<(u64, u32)> {
            let states = timeline.ranks.by_slot().iter().enumerate();
            let mut order: Vec<(u64, u32)> = states.map(|(slot, state)| (key(state), slot as u32)).collect();
            order.sort_unstable();
            order
        };
        let moved = ordered(&|state| state.progress_at.max(later.get(&state.rank).copied().unwrap_or_default()).0);
        let moved = backwards.spread(timeline, moved.into_iter().rev());
        let known = ordered(&|state| {
            let unknown = state.dead_since.is_some() || timeline.no_data(state, no_data_after_ns);
            if unknown { u64::MAX } else { state.sampled_at.0 }
        });
        let known = backwards.spread(timeline, known.into_iter());
        let in_flight = timeline.ranks.slots().filter(|slot| !timeline.ranks.at(*slot).live.is_empty());
        in_flight
            .map(|slot| {
                let since = HostTime(moved[slot as usize]);
                let until = HostTime(known[slot as usize]).min(timeline.newest_sample);
                (timeline.ranks.at(slot).rank, Stillness { since, until })
            })
            .collect()
    }
}
