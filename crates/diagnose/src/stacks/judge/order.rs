//! Cycles: operations of several groups in another order.
use super::{Doubt, Judge, Ruling, Sink, fault, ruling};
use crate::blame::history;
use crate::fact::{Fact, OpRef};
use crate::stacks::scene::DumpOp;
use crate::stacks::verdict::{Cause, Outcome, Role};
use mycroft_record::{Category, Rank, What};

impl Judge<'_, '_> {
    /// Everybody waits for somebody, round and round: operations of several groups in another order.
    pub(super) fn cycle(
        &self,
        absent: &[Sink],
        never_ran: &[Sink],
        stuck: &[(DumpOp, Vec<Rank>, Vec<Rank>)],
        gone: &[Sink],
    ) -> Option<Ruling> {
        if !absent.is_empty() || !never_ran.is_empty() || !stuck.is_empty() {
            return None;
        }
        let Some(edges) = self.walk.cycle() else { return self.perhaps_cycle(gone) };
        let mut ring = self.walk.in_cycles();
        if ring.is_empty() {
            ring = edges.iter().map(|(rank, _, _)| *rank).collect();
        }
        let mut breakers = self.order_breakers();
        breakers.retain(|breaker| ring.contains(&breaker.0));
        let mut ruling = fault(What::Deadlock, Category::CodeDivergence, Cause::CrossGroupOrder);
        let first = edges.first().map(|(_, op, _)| *op);
        let hosts = edges.iter().map(|(rank, _, _)| self.host(*rank)).collect();
        let edges: Vec<(Rank, OpRef, Rank)> =
            edges.iter().map(|(from, op, to)| (*from, self.scene.op_ref(*from, op), *to)).collect();
        ruling.facts.push(Fact::Cycle { edges, hosts, left: Vec::new(), left_out: false });
        if breakers.is_empty() {
            for rank in &ring {
                self.blame(&mut ruling, *rank, 0.95 / ring.len() as f64, Role::InCycle);
            }
            ruling.doubts.push(Doubt::WhichOf(ring.clone()));
        }
        for (rank, entered, skipped) in &breakers {
            self.blame(&mut ruling, *rank, 0.9, Role::InCycle);
            let instead_of = self.scene.label(skipped);
            ruling.facts.push(Fact::BreaksPast { rank: *rank, op: self.scene.op_ref(*rank, entered), instead_of });
        }
        let at = breakers.first().map(|(_, _, skipped)| *skipped).or(first);
        ruling.at = at;
        let blamed = ruling.suspects.iter().filter_map(|suspect| suspect.place.rank());
        ruling.facts.extend(self.doing_facts(blamed));
        ruling.facts.extend(at.and_then(|op| self.records(&op, &self.waiting_in(&op).unwrap_or_default())));
        Some(ruling)
    }

    /// Ranks left out what was their turn, and everybody ends at one that left no dump: it may close a cycle, or be the
    /// cause. Nobody is named.
    fn perhaps_cycle(&self, gone: &[Sink]) -> Option<Ruling> {
        let breakers = if gone.is_empty() { Vec::new() } else { self.order_breakers() };
        let first = gone.first().filter(|_| !breakers.is_empty())?;
        let mut ruling = ruling(Outcome::Fault(What::Hang));
        ruling.category = Some(Category::Unknown);
        ruling.at = Some(first.op);
        for (rank, entered, skipped) in &breakers {
            let instead_of = self.scene.label(skipped);
            ruling.facts.push(Fact::BreaksPast { rank: *rank, op: self.scene.op_ref(*rank, entered), instead_of });
        }
        ruling.facts.extend(gone.iter().map(|sink| self.no_dump(sink)));
        ruling.missing = gone.iter().map(|sink| sink.rank).collect();
        let mut which: Vec<Rank> = breakers.iter().map(|breaker| breaker.0).chain(ruling.missing.clone()).collect();
        which.sort_unstable();
        ruling.doubts.push(Doubt::WhichOf(which));
        Some(ruling)
    }

    /// Ranks that wait in one group although, going by their own past, it was the turn of another in which a peer waits
    /// for them: rank, what it is in, what it left out.
    pub(super) fn order_breakers(&self) -> Vec<(Rank, DumpOp, DumpOp)> {
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
    pub(super) fn turn_of(&self, rank: Rank, entered: &DumpOp, other: u32) -> Option<DumpOp> {
        let lane_of = |group: u32| self.index.groups[group as usize].lane(rank);
        let (here, there) = (lane_of(entered.group)?, lane_of(other)?);
        if here.dump != there.dump || there.slots.is_empty() {
            return None;
        }
        let next = there.slots.last().map(|slot| slot.seq + 1)?;
        let skipped = DumpOp::collective(other, next);
        // Somebody waits for it there.
        let waits = self.graph.nodes.get(&skipped)?;
        if !waits.missing.iter().any(|(missing, _)| *missing == rank) {
            return None;
        }
        let entry = here.slot(entered.seq)?.entry;
        let mut past: Vec<(u32, u32)> = here.slots.iter().map(|slot| (slot.entry, entered.group)).collect();
        past.extend(there.slots.iter().map(|slot| (slot.entry, other)));
        past.retain(|(at, _)| *at < entry);
        past.sort_unstable();
        let past: Vec<u32> = past.into_iter().map(|(_, group)| group).collect();
        (history::expected(&past, history::NEARBY) == Some(other)).then_some(skipped)
    }
}
