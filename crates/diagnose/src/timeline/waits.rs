//! The wait-for graph of a live job, kept from look to look: only ranks and communicators that changed are worked out
//! anew.
use super::ranks::Slot;
use super::{OpNode, Timeline};
use crate::blame::graph::{Graph, Waits};
use mycroft_record::{CommId, CommRank, Rank};

/// The graph as of the last update.
#[derive(Debug, Default)]
pub(super) struct LiveGraph {
    graph: Graph<OpNode>,
}

/// The operations of a communicator, as two ranges in the order of nodes.
fn of_comm(comm: CommId) -> [std::ops::RangeInclusive<OpNode>; 2] {
    let pair = |member: u32, seq| {
        let (from, to) = (CommRank(member), CommRank(member));
        OpNode::Pair { comm, from, to, seq }
    };
    [
        OpNode::Collective { comm, seq: 0 }..=OpNode::Collective { comm, seq: u64::MAX },
        pair(0, 0)..=pair(u32::MAX, u64::MAX),
    ]
}

impl LiveGraph {
    pub(super) fn graph(&self) -> &Graph<OpNode> {
        &self.graph
    }

    /// Takes in what ranks and communicators changed.
    pub(super) fn update(&mut self, timeline: &Timeline, ranks: &[Slot], comms: &[CommId]) {
        for slot in ranks {
            let state = timeline.ranks.at(*slot);
            let nodes = state.current().iter().map(|op| OpNode::of(&op.meta)).collect();
            self.graph.put(state.rank, nodes);
        }
        for comm in comms {
            for range in of_comm(*comm) {
                for (node, known) in self.graph.nodes.range_mut(range) {
                    let holders = std::mem::take(&mut known.holders);
                    *known = waits(timeline, node, holders);
                }
            }
        }
    }
}

/// Whom `node` waits for; `holders` are the ranks that are in it.
fn waits(timeline: &Timeline, node: &OpNode, holders: Vec<Rank>) -> Waits {
    let mut out = Waits { holders, ..Waits::default() };
    let Some(comm) = timeline.comms.get(&node.comm()) else { return out };
    let stand = |rank: Rank, me: CommRank| Some(timeline.ranks.get(&rank)?.stand(&node.id_for(me)?));
    match node {
        OpNode::Collective { .. } => comm.ranks.iter().for_each(|(rank, me)| out.add(*rank, stand(*rank, *me))),
        OpNode::Pair { .. } => {
            timeline.members(node).into_iter().for_each(|rank| out.add(rank, timeline.stand(rank, node)));
        }
    }
    out
}
