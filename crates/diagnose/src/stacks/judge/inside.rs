//! Operations that everybody issued: some are left behind in it, or nobody is through.
use super::{Doubt, Judge, Ruling, fault};
use crate::blame::graph::Scene;
use crate::fact::Fact;
use crate::stacks::scene::DumpOp;
use crate::stacks::verdict::{Cause, Role};
use mycroft_record::{Category, Rank, What};
use std::collections::BTreeSet;

impl Judge<'_, '_> {
    /// Operations that some members are through and others are in, and for which somebody else waits.
    pub(super) fn left_behind(&self) -> Vec<(DumpOp, Vec<Rank>, Vec<Rank>)> {
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
    pub(super) fn is_waited_for(&self, rank: Rank) -> bool {
        self.graph.nodes.values().any(|waits| waits.missing.iter().any(|(missing, _)| *missing == rank))
            || self.graph.current.keys().any(|other| *other != rank)
    }

    pub(super) fn stuck(&self, found: &[(DumpOp, Vec<Rank>, Vec<Rank>)]) -> Option<Ruling> {
        let few: Vec<_> =
            found.iter().filter(|(op, stuck, _)| stuck.len() * 2 <= self.scene.members(op).len()).collect();
        if few.is_empty() {
            return None;
        }
        let mut ruling = fault(What::Hang, Category::Gpu, Cause::KernelHang);
        let ranks: BTreeSet<Rank> = few.iter().flat_map(|(_, stuck, _)| stuck).copied().collect();
        for rank in &ranks {
            self.blame(&mut ruling, *rank, 0.9, Role::Stuck);
        }
        // The oldest of each rank says most; the rest repeats it.
        for rank in &ranks {
            let mine = few.iter().filter(|(_, stuck, _)| stuck.contains(rank));
            let Some((op, stuck, left)) = mine.min_by_key(|(op, _, _)| (self.issued_at(op, &[*rank]), *op)) else {
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
    pub(super) fn none_completed(&self) -> Option<Ruling> {
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
        if whole.iter().filter(|(_, others)| others == inside).count() > 1 {
            ruling.doubts.push(Doubt::LaunchOrder);
        }
        if group.lanes.iter().filter_map(|lane| lane.slot(op.seq)).any(|slot| self.scene.is_exchange(slot)) {
            ruling.doubts.push(Doubt::Splits);
        }
        Some(ruling)
    }
}
