//! From the moments of a lane to what the tracer tells of a flow: its counters at each look of the agent, and at its end.
use crate::profile::NEVER;
use mycroft_record::FlowCounters;

/// When the agent of a host looks: every so many nanoseconds from its own beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looks {
    /// Time of some look.
    pub(crate) phase: u64,
    /// Nanoseconds between two.
    pub(crate) every: u64,
}

impl Looks {
    /// The first look at or after `at`.
    pub(crate) fn next(&self, at: u64) -> u64 {
        if at <= self.phase {
            return self.phase - (self.phase - at) / self.every * self.every;
        }
        self.phase + (at - self.phase).div_ceil(self.every).saturating_mul(self.every)
    }
}

/// A flow at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub(crate) struct Point {
    /// The moment.
    pub(crate) at: u64,
    pub(crate) counters: FlowCounters,
    pub(crate) bytes: u64,
    /// 0: no slice is ready yet.
    pub(crate) first_ready: u64,
    pub(crate) last_progress: u64,
    pub(crate) stage_us: [u32; 3],
    pub(crate) stage_max_us: [u32; 3],
}

impl Point {
    fn same_state(&self, other: &Point) -> bool {
        self.counters == other.counters && self.last_progress == other.last_progress
    }
}

/// A flow from its beginning to its end, if it has one.
#[derive(PartialEq, Debug)]
pub(crate) struct FlowTrace {
    /// [`NEVER`] if it does not end.
    pub(crate) ended: u64,
    /// What looks saw in between, where something had changed.
    pub(crate) points: Vec<Point>,
    /// What there is to see after everything that happens has happened.
    pub(crate) last: Point,
}

/// What a flow is, beside its moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) sends: bool,
    /// When the proxy begins with it.
    pub(crate) posted: u64,
    /// When the operation's kernel starts here.
    pub(crate) kernel: u64,
    pub(crate) slice_bytes: u64,
}

/// The moments of one end of a connection in one operation: four for each slice, none sooner than that of the slice
/// before.
pub(crate) trait Lane {
    /// Slices.
    fn steps(&self) -> usize;

    /// Moment 0 to 3 of a slice; [`NEVER`] if it does not come.
    fn at(&self, step: usize, moment: usize) -> u64;

    /// The end of a flow of which everything has happened, if that is quickly found. See [`Head`].
    fn whole(&self, posted: u64, kernel: u64, slice_bytes: u64) -> Option<Point>;
}

impl Lane for &[u64] {
    fn steps(&self) -> usize {
        self.len() / 4
    }

    fn at(&self, step: usize, moment: usize) -> u64 {
        self[4 * step + moment]
    }

    /// No moment need be compared with a time. Not where a stage took more than the 4.2 s that 32 bits of nanoseconds
    /// hold.
    fn whole(&self, posted: u64, kernel: u64, slice_bytes: u64) -> Option<Point> {
        let (mut sums, mut stage_max_us) = ([0u64; 3], [0u32; 3]);
        let (mut newest, mut first_ready, mut last_progress, mut longest) = (posted, NEVER, posted, 0u64);
        for step in self.chunks_exact(4) {
            for stage in 0..3 {
                let begun = step[stage].max(kernel.min(step[stage + 1]));
                let ns = step[stage + 1].wrapping_sub(begun);
                longest |= ns;
                let us = ns as u32 / 1000;
                sums[stage] += u64::from(us);
                stage_max_us[stage] = stage_max_us[stage].max(us);
            }
            newest = newest.max(step[0]).max(step[1]).max(step[2]).max(step[3]);
            first_ready = first_ready.min(step[1]);
            last_progress = last_progress.max(step[3]);
        }
        if newest == NEVER || longest > u64::from(u32::MAX) {
            return None;
        }
        let stage_us = sums.map(|us| u32::try_from(us).unwrap_or(u32::MAX));
        let counters = all_done(self.steps());
        let bytes = self.steps() as u64 * slice_bytes;
        Some(Point { at: newest, counters, bytes, first_ready, last_progress, stage_us, stage_max_us })
    }
}

/// Counters of a flow that has made all its steps.
pub(super) fn all_done(steps: usize) -> FlowCounters {
    let n = steps as u32;
    FlowCounters { total_chunks: n, posted: n, ready: n, transmitted: n, done: n }
}

/// What the tracer and the agent make of a lane.
pub(crate) fn flow(lane: &impl Lane, head: Head, looks: Looks) -> FlowTrace {
    let steps = lane.steps();
    let ended = if steps == 0 { head.posted } else { lane.at(steps - 1, 3) };
    let last = lane.whole(head.posted, head.kernel, head.slice_bytes).unwrap_or_else(|| {
        let moments = (0..steps).flat_map(|step| (0..4).map(move |moment| lane.at(step, moment)));
        point(lane, &head, moments.filter(|at| *at != NEVER).max().unwrap_or(head.posted).max(head.posted))
    });
    let mut points: Vec<Point> = Vec::new();
    let mut look = if head.posted == NEVER { NEVER } else { looks.next(head.posted) };
    while look < last.at {
        let seen = point(lane, &head, look);
        if points.last().is_none_or(|before| !before.same_state(&seen)) {
            points.reserve_exact(1); // mostly the only one
            points.push(seen);
        }
        let next = next_change(lane, &seen.counters);
        look = if next == NEVER { NEVER } else { looks.next(next) };
    }
    FlowTrace { ended, points, last }
}

/// When a counter moves that stands like this.
fn next_change(lane: &impl Lane, counters: &FlowCounters) -> u64 {
    let reached = [counters.posted, counters.ready, counters.transmitted, counters.done].map(|steps| steps as usize);
    let open = reached.into_iter().enumerate().filter(|(_, steps)| *steps < lane.steps());
    open.map(|(moment, steps)| lane.at(steps, moment)).min().unwrap_or(NEVER)
}

fn point(lane: &impl Lane, head: &Head, at: u64) -> Point {
    let mut out = Point { at, last_progress: head.posted, ..Point::default() };
    let counters = &mut out.counters;
    counters.total_chunks = lane.steps() as u32;
    for step in 0..lane.steps() {
        let step = [0, 1, 2, 3].map(|moment| lane.at(step, moment));
        if step[0] > at {
            break;
        }
        let reached = step.iter().take_while(|moment| **moment <= at).count();
        counters.posted += 1;
        counters.ready += u32::from(reached > 1);
        counters.transmitted += u32::from(reached > 2);
        counters.done += u32::from(reached > 3);
        for stage in 0..reached - 1 {
            let begun = step[stage].max(head.kernel.min(step[stage + 1]));
            let us = u32::try_from((step[stage + 1] - begun) / 1000).unwrap_or(u32::MAX);
            out.stage_us[stage] = out.stage_us[stage].saturating_add(us);
            out.stage_max_us[stage] = out.stage_max_us[stage].max(us);
        }
        if reached > 1 && (out.first_ready == 0 || step[1] < out.first_ready) {
            out.first_ready = step[1];
        }
        out.last_progress = out.last_progress.max(step[reached - 1]);
    }
    let moved = if head.sends { counters.transmitted } else { counters.ready };
    out.bytes = u64::from(moved) * head.slice_bytes;
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_on_a_grid() {
        let looks = Looks { phase: 30, every: 100 };
        assert_eq!(looks.next(0), 30);
        assert_eq!(looks.next(30), 30);
        assert_eq!(looks.next(31), 130);
        assert_eq!(looks.next(130), 130);
    }

    #[test]
    fn a_flow_that_stops_shows_where() {
        // Two slices; the second is filled and never sent.
        let lane = [10, 20, 30, 40, 10, 50, NEVER, NEVER];
        let head = Head { sends: true, posted: 10, kernel: 15, slice_bytes: 8 };
        let flow = flow(&&lane[..], head, Looks { phase: 0, every: 25 });
        assert_eq!(flow.ended, NEVER);
        let FlowCounters { total_chunks, posted, ready, transmitted, done } = flow.last.counters;
        assert_eq!((total_chunks, posted, ready, transmitted, done), (2, 2, 2, 1, 1));
        assert_eq!(flow.last.last_progress, 50);
        assert_eq!(flow.points.iter().map(|p| p.at).collect::<Vec<_>>(), [25]);
        assert_eq!(flow.points[0].counters.ready, 1);
    }
}
