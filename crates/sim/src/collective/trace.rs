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
#[derive(Clone, Debug)]
pub(crate) struct FlowTrace {
    pub(crate) channel: u8,
    /// Rank in the communicator at the other end.
    pub(crate) peer: u32,
    pub(crate) sends: bool,
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
    pub(crate) channel: u8,
    pub(crate) peer: u32,
    pub(crate) sends: bool,
    /// When the proxy begins with it.
    pub(crate) posted: u64,
    /// When the operation's kernel starts here.
    pub(crate) kernel: u64,
    pub(crate) slice_bytes: u64,
}

/// What the tracer and the agent make of a lane.
pub(crate) fn flow(lane: &[u64], head: Head, looks: Looks) -> FlowTrace {
    let last_moment = lane.iter().copied().filter(|at| *at != NEVER).max().unwrap_or(head.posted).max(head.posted);
    let ended = lane.last().copied().unwrap_or(head.posted);
    let last = point(lane, &head, last_moment);
    let mut points: Vec<Point> = Vec::new();
    let mut look = if head.posted == NEVER { NEVER } else { looks.next(head.posted) };
    // A kernel that has not started moves nothing: nothing to compare between the posts and the first slice.
    while look < last_moment {
        let seen = point(lane, &head, look);
        if points.last().is_none_or(|before| !before.same_state(&seen)) {
            points.push(seen);
        }
        look += looks.every;
    }
    FlowTrace { channel: head.channel, peer: head.peer, sends: head.sends, ended, points, last }
}

fn point(lane: &[u64], head: &Head, at: u64) -> Point {
    let mut out = Point { at, last_progress: head.posted, ..Point::default() };
    let counters = &mut out.counters;
    counters.total_chunks = (lane.len() / 4) as u32;
    for step in lane.chunks_exact(4) {
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
        let head = Head { channel: 0, peer: 1, sends: true, posted: 10, kernel: 15, slice_bytes: 8 };
        let flow = flow(&lane, head, Looks { phase: 0, every: 25 });
        assert_eq!(flow.ended, NEVER);
        let FlowCounters { total_chunks, posted, ready, transmitted, done } = flow.last.counters;
        assert_eq!((total_chunks, posted, ready, transmitted, done), (2, 2, 2, 1, 1));
        assert_eq!(flow.last.last_progress, 50);
        assert_eq!(flow.points.iter().map(|p| p.at).collect::<Vec<_>>(), [25]);
        assert_eq!(flow.points[0].counters.ready, 1);
    }
}
