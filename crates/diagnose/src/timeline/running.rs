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
        let last = self.list.back().filter(|last| last.start >= self.dropped)?;
        let of = |from: HostTime, until: HostTime| {
            self.raw.iter().filter(|op| op.ended_at() > from && op.ended_at() <= until).count()
        };
        let (before, so_far) = (of(last.start, last.end), of(last.end, HostTime(u64::MAX)));
        (so_far > 0 && so_far <= before).then_some(last.end)
    }

    /// Whether the rank has not done more since its last iteration than in that, of several that are known: however long ago
    /// it was, the next one is still to come.
    pub(super) fn is_within_iteration(&self) -> bool {
        self.list.len() >= KNOWN && self.running_since().is_some()
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
