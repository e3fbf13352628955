//! Ranks that never issued what their peers wait in, or whose device never ran it.
use super::{Judge, Ruling, Sink, fault, kind_of_stuck};
use crate::blame::graph::Scene;
use crate::fact::Fact;
use crate::stacks::verdict::{Cause, Role};
use mycroft_record::{Category, HostTime, What};

impl Judge<'_, '_> {
    /// Ranks that have nothing in flight and are waited for: each is stuck outside.
    pub(super) fn absent(&self, sinks: &[Sink], gone: &[Sink]) -> Option<Ruling> {
        let named = self.nameable(sinks, gone.len());
        if named.is_empty() {
            return None;
        }
        let activity = named.iter().find_map(|sink| self.doings.of.get(&sink.rank)).map(|doing| doing.activity);
        let (category, cause) = kind_of_stuck(activity);
        let mut ruling = fault(What::Hang, category, cause);
        let confidence = if named.len() == 1 { 0.95 } else { 0.9 };
        for sink in &named {
            let op = self.op_ref(&sink.waiting, &sink.op);
            self.blame(&mut ruling, sink.rank, confidence, Role::Absent);
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

    /// The sinks that the evidence allows to name. Where transfers are not recorded, or half the members of a group or more
    /// are absent, stacks must single them out: ranks a moment apart in a running job look the same.
    pub(super) fn nameable(&self, idle: &[Sink], gone: usize) -> Vec<Sink> {
        // Native Gloo records no transfers: of several ranks that look idle some may wait in one.
        let blind = self.index.tells.iter().any(|tells| tells.retires_only) && idle.len() + gone > 1;
        if idle.len() < 2 && !blind {
            return idle.to_vec();
        }
        let seen: Vec<Sink> = idle.iter().filter(|sink| self.doings.of.contains_key(&sink.rank)).cloned().collect();
        let hidden = blind || self.transfers_hidden();
        let most = idle.iter().any(|sink| {
            let together = idle.iter().filter(|other| other.op == sink.op).count();
            together > 1 && together * 2 >= self.scene.members(&sink.op).len()
        });
        if hidden || most { seen } else { idle.to_vec() }
    }

    /// The recorder leaves operations out: their numbers are skipped (native Gloo records no transfers).
    pub(super) fn transfers_hidden(&self) -> bool {
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
    pub(super) fn never_ran(&self, sinks: &[Sink]) -> Option<Ruling> {
        let first = sinks.first()?;
        let mut ruling = fault(What::Hang, Category::Gpu, Cause::KernelHang);
        for sink in sinks {
            self.blame(&mut ruling, sink.rank, 0.9, Role::Stuck);
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
}
