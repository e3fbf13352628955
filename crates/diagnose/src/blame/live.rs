//! The timeline as the wait-for graph asks for it, with operations that are known to be issued and not seen to run: NCCL tells of
//! some by their calls only. Nobody waits for such an operation to end, and a rank that issued nothing that ran after it may be
//! in it.
use crate::blame::graph::{Scene, Turn};
use crate::blame::hang::Walk;
use crate::fact::Fact;
use crate::timeline::{LiveScene, OpNode, RankState, Stand, Timeline};
use mycroft_record::{HostTime, Rank};
use std::fmt::Debug;

impl Scene for LiveScene<'_> {
    type Op = OpNode;

    fn in_flight(&self) -> Vec<(Rank, Vec<OpNode>)> {
        let nodes = |state: &RankState| state.current().iter().map(|op| OpNode::of(&op.meta)).collect();
        self.timeline.ranks.iter().map(|(rank, state)| (rank, nodes(state))).collect()
    }

    fn members(&self, op: &OpNode) -> Vec<Rank> {
        self.timeline.members(op)
    }

    fn stand(&self, rank: Rank, op: &OpNode) -> Option<Stand> {
        self.timeline.stand(rank, op)
    }

    fn turn(&self, rank: Rank) -> Turn {
        match self.timeline.ranks.get(&rank) {
            None => Turn::Nowhere,
            Some(state) if state.dead() || state.stopped => Turn::End,
            Some(state) if self.timeline.no_data(state, self.no_data_after_ns) => Turn::End,
            Some(_) => Turn::On,
        }
    }

    fn unseen(&self, rank: Rank) -> Option<OpNode> {
        self.timeline.ranks.get(&rank)?.unseen().map(OpNode::of)
    }
}

impl<O: Copy + Ord + Debug> Walk<O> {
    /// Whether a rank that is in nothing may be in what was issued and is not seen; goes on to whom it waits for there.
    pub(super) fn unseen<S: Scene<Op = O>>(
        &mut self,
        scene: &S,
        rank: Rank,
        open: &mut Vec<(Rank, Option<O>)>,
    ) -> bool {
        let Some(node) = scene.unseen(rank) else { return false };
        let members = scene.members(&node);
        let missing = |member: &Rank| matches!(scene.stand(*member, &node), Some(Stand::NotIssued));
        let missing: Vec<Rank> = members.iter().copied().filter(missing).collect();
        let all_in = || members.len() > 1 && members.iter().all(|member| scene.unseen(*member) == Some(node));
        if missing.is_empty() && !all_in() {
            return false; // others are through it
        }
        self.nodes_seen.insert(node);
        self.all_unseen.extend(missing.is_empty().then_some(node));
        self.entry_edges.entry(rank).or_default().extend(missing.iter().map(|missing| (node, *missing)));
        open.extend(missing.into_iter().map(|missing| (missing, Some(node))));
        true
    }

    /// The ranks that may be in an operation that is not seen.
    pub(super) fn waiting_unseen<S: Scene<Op = O>>(scene: &S, node: &O) -> Vec<Rank> {
        scene.members(node).into_iter().filter(|member| scene.unseen(*member) == Some(*node)).collect()
    }
}

impl Walk<OpNode> {
    /// Operations that all have issued, where what comes after them does not start.
    pub(super) fn stuck_unseen(&self, timeline: &Timeline) -> Vec<Fact> {
        let stuck = |node: &OpNode| {
            let members = timeline.members(node);
            let op = members.iter().find_map(|rank| timeline.op_ref(*rank, node))?;
            let states = members.iter().filter_map(|rank| timeline.ranks.get(rank));
            let issued_at = |state: &RankState| state.unseen().map_or(HostTime::NONE, |op| op.enqueued_at);
            let members = states.map(|state| (state.rank, state.host.clone(), issued_at(state))).collect();
            Some(Fact::StuckInside { op, members })
        };
        self.all_unseen.iter().filter_map(stuck).collect()
    }
}
