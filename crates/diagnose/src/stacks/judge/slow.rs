//! Late, and not stuck.
use super::{BEYOND_LATE, Doubt, Judge, Ruling, Sink, ruling};
use crate::fact::Fact;
use crate::stacks::doing::Activities;
use crate::stacks::late;
use crate::stacks::late::Lateness;
use crate::stacks::scene::DumpOp;
use crate::stacks::verdict::{Cause, Outcome};
use mycroft_record::{Category, NANOS_PER_MS, Rank, What};
use std::collections::BTreeSet;

/// More ranks than this are not late together.
const LATE_RANKS_MAX: usize = 16;

impl Judge<'_, '_> {
    /// How ranks came late in these groups.
    fn lateness(&self, groups: impl Iterator<Item = u32>) -> Vec<Lateness> {
        groups.flat_map(|id| late::of_group(self.index, id)).collect()
    }

    /// The ranks that are waited for came late before, and the job went on each time.
    pub(super) fn slow(&self, absent: &[Sink]) -> Option<Ruling> {
        if absent.is_empty() || absent.len() > LATE_RANKS_MAX {
            return None;
        }
        let groups: BTreeSet<u32> =
            absent.iter().filter_map(|sink| self.index.groups_of.get(&sink.rank)).flatten().copied().collect();
        let all = self.lateness(groups.into_iter());
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

    pub(super) fn late_fact(&self, op: &DumpOp, waiting: &[Rank], late: &Lateness, waited_ns: i64) -> Fact {
        let ms = |ns: i64| ns as f64 / NANOS_PER_MS as f64;
        let op = self.op_ref(waiting, op);
        Fact::CameLate { rank: late.rank, op, late_ms: ms(late.worst_ns), times: late.times, waited_ms: ms(waited_ns) }
    }

    /// How long the operation has waited, as far as any dump tells: up to the newest thing that any of them knows, each
    /// measured with the clock of the rank that waits.
    pub(super) fn waited_ns(&self, op: &DumpOp, waiting: &[Rank]) -> i64 {
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
    pub(super) fn slow_but_done(&self) -> Option<Ruling> {
        let late = self
            .lateness(0..self.index.groups.len() as u32)
            .into_iter()
            .filter(Lateness::dominates)
            .max_by_key(|late| late.total_ns)?;
        let op = DumpOp::collective(late.group, late.seq);
        let mut ruling = ruling(Outcome::Fault(What::Slowdown));
        ruling.cause = Some(Cause::Slow);
        ruling.at = Some(op);
        ruling.facts.push(self.late_fact(&op, &[late.rank], &late, 0));
        Some(ruling)
    }

    /// Something is in flight and nothing tells why: said, and nobody is blamed.
    pub(super) fn undecided(&self, absent: &[Sink], gone: &[Sink]) -> Ruling {
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
