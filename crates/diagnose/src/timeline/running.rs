//! The iteration that runs: what a rank has done of it so far, where it takes many times as long as those before.
use super::iterations::{Iteration, Iterations};
use super::past::Past;
use mycroft_record::HostTime;

/// So many iterations are no coincidence.
const KNOWN: usize = 8;

impl Iterations {
    /// When the iteration that runs began; `None` unless the rank has completed some operations of it and no more than in
    /// the one before: an evaluation, or another program, does more.
    pub(crate) fn running_since(&self) -> Option<HostTime> {
        let end = self.list.back()?.end;
        let (so_far, before) = self.done_since(end)?;
        (so_far > 0 && so_far <= before).then_some(end)
    }

    /// Whether the rank has not done more since `end`, the last end of what marks iterations, than in one of them, of several
    /// that are known: however long ago that was, the next one is still to come.
    pub(super) fn is_within_iteration(&self, end: Option<&HostTime>) -> bool {
        let done = end.filter(|_| self.list.len() >= KNOWN).and_then(|end| self.done_since(*end));
        done.is_some_and(|(so_far, before)| so_far <= before)
    }

    /// How many operations have ended since `end`, and how many in the last iteration that is known.
    fn done_since(&self, end: HostTime) -> Option<(usize, usize)> {
        let last = self.list.back().filter(|last| last.start >= self.dropped)?;
        let of = |from: HostTime, until: HostTime| {
            self.raw.iter().filter(|op| op.ended_at() > from && op.ended_at() <= until).count()
        };
        Some((of(end, HostTime(u64::MAX)), of(last.start, last.end)))
    }

    /// Takes the iteration that runs as one that ends at `until`: its times are what they are at least. `false`: none does.
    /// Nothing is said of computing and issuing: what the device was busy with before an operation may not have ended.
    pub(super) fn show_running(&mut self, past: &Past, until: HostTime) -> bool {
        let Some(since) = self.running_since().filter(|since| *since < until) else { return false };
        let so_far = self.measure(past, since, until);
        self.list.push_back(Iteration { compute_us: 0.0, compute_max_us: 0.0, host_us: 0.0, ..so_far });
        true
    }

    /// Undoes it.
    pub(super) fn hide_running(&mut self) {
        self.list.pop_back();
    }
}
