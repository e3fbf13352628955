//! The ring where nothing is wrong, which is nearly always: the arithmetic of [`super::ring`] for all members side by
//! side. Every member has come, all connections cross hosts, and no part has a profile, so no moment is missing, and
//! moments count in 32 bits from the first. A test holds it against the other way.
use super::ring::Plan;
use super::trace::{Lane, Point, all_done};
use super::{Cut, HAND_OVER_NS, LOOK_NS, Wire};

/// Nanoseconds that an operation may take: half of what 32 bits hold.
const LONGEST_NS: u64 = 1 << 31;

/// Moments of a slice on both sides of its connection: four of the send, four of the receive.
const MOMENTS: usize = 8;
const SEND: usize = 0;
const RECV: usize = 4;

/// What one member brings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// When its kernel starts.
    pub(crate) start: u64,
    /// When its proxy begins with its sends to the next member, and when the next member's with the receives.
    pub(crate) posted: [u64; 2],
    /// What chance makes of the wire to the next member.
    pub(crate) factor: f64,
}

/// The moments of one operation on one channel. Hop m is the connection from member m to the next.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// Time 0 of the moments.
    base: u64,
    members: usize,
    steps: usize,
    /// By step, moment and hop.
    at: Vec<u32>,
    /// By direction, stage and hop: sum and maximum, microseconds.
    sums: Vec<u32>,
    longest: Vec<u32>,
    posted: [Vec<u32>; 2],
    kernels: [Vec<u32>; 2],
    slice_ns: Vec<u32>,
    latency: Vec<u32>,
    device: Vec<u32>,
    busy: Vec<u32>,
    /// In place of the moments before the first slice.
    none: Vec<u32>,
}

impl Rows {
    /// Works the operation out; `false`: it might take too long for 32 bits.
    pub(crate) fn run(&mut self, plan: Plan, cut: Cut, members: &[Member], wires: &[Wire]) -> bool {
        if !self.begin(plan, cut, members, wires) {
            return false;
        }
        let copy = cut.copy_ns as u32;
        for turn in 0..plan.loops {
            let first = turn * plan.sends * plan.slices;
            for prim in 0..=plan.sends {
                for slice in 0..plan.slices {
                    let received = (prim > 0).then(|| first + (prim - 1) * plan.slices + slice);
                    let sent = (prim < plan.sends).then_some(first + prim * plan.slices + slice);
                    if let Some(step) = sent {
                        self.offer(step, cut.window, SEND);
                    }
                    self.copy(received, sent, copy);
                    if let Some(step) = received {
                        self.note(step, RECV);
                    }
                    if let Some(step) = sent {
                        self.offer(step, cut.window, RECV);
                        self.carry(step);
                        self.note(step, SEND);
                    }
                }
            }
        }
        true
    }

    fn begin(&mut self, plan: Plan, cut: Cut, members: &[Member], wires: &[Wire]) -> bool {
        let n = members.len();
        let all = |member: &Member| [member.start, member.posted[0], member.posted[1]];
        let base = members.iter().flat_map(all).min().unwrap_or(0);
        let newest = members.iter().flat_map(all).max().unwrap_or(0);
        let slice_ns = |m: usize| (cut.slice_bytes as f64 * wires[m].ns_per_byte * members[m].factor) as u64;
        let slowest = (0..n).map(slice_ns).max().unwrap_or(0);
        let farthest = wires.iter().map(|wire| wire.latency_ns).max().unwrap_or(0);
        // What needs a moment of a slice is a later moment of it or one of a later slice.
        let a_slice = 2 * cut.copy_ns + 3 * LOOK_NS + 2 * HAND_OVER_NS + slowest + 2 * farthest;
        let steps = plan.steps();
        let most = (newest - base).saturating_add(a_slice.saturating_mul(steps as u64 + 1));
        // The sums of stages count microseconds.
        if most >= LONGEST_NS || (most / 1000).saturating_mul(steps as u64) > u64::from(u32::MAX) {
            return false;
        }
        (self.base, self.members, self.steps) = (base, n, steps);
        let fill = |list: &mut Vec<u32>, of: &dyn Fn(usize) -> u64| {
            list.clear();
            list.extend((0..n).map(|m| of(m) as u32));
        };
        for side in 0..2 {
            fill(&mut self.posted[side], &|m| members[m].posted[side] - base);
            fill(&mut self.kernels[side], &|m| members[(m + side) % n].start - base);
        }
        fill(&mut self.slice_ns, &slice_ns);
        fill(&mut self.latency, &|m| wires[m].latency_ns);
        fill(&mut self.device, &|m| members[m].start - base);
        fill(&mut self.busy, &|_| 0);
        fill(&mut self.none, &|_| 0);
        // Every moment is written before it is read.
        self.at.resize(steps * MOMENTS * n, 0);
        for list in [&mut self.sums, &mut self.longest] {
            list.clear();
            list.resize(6 * n, 0);
        }
        true
    }

    /// Slots of a step, or credits: those of the slice that was done with `window` slices before.
    fn offer(&mut self, step: usize, window: usize, side: usize) {
        let n = self.members;
        let (before, own) = self.at.split_at_mut(step * MOMENTS * n);
        let from = match step.checked_sub(window) {
            Some(freed) => &before[(freed * MOMENTS + side + 3) * n..][..n],
            None => &self.posted[side / RECV][..n],
        };
        own[side * n..][..n].copy_from_slice(from);
    }

    /// The devices take slice `received` and fill slice `sent`.
    fn copy(&mut self, received: Option<usize>, sent: Option<usize>, copy: u32) {
        let n = self.members;
        let device = &mut self.device[..n];
        if let Some(step) = received {
            // Member m receives over hop m - 1.
            let there = &self.at[(step * MOMENTS + RECV + 2) * n..][..n];
            device[0] = device[0].max(there[n - 1]);
            device[1..].iter_mut().zip(there).for_each(|(device, there)| *device = (*device).max(*there));
        }
        if let Some(step) = sent {
            let offered = &self.at[(step * MOMENTS + SEND) * n..][..n];
            device.iter_mut().zip(offered).for_each(|(device, offered)| *device = (*device).max(*offered));
        }
        device.iter_mut().for_each(|device| *device += copy);
        if let Some(step) = received {
            let consumed = &mut self.at[(step * MOMENTS + RECV + 3) * n..][..n];
            consumed[n - 1] = device[0];
            consumed[..n - 1].copy_from_slice(&device[1..]);
        }
        if let Some(step) = sent {
            self.at[(step * MOMENTS + SEND + 1) * n..][..n].copy_from_slice(device);
        }
    }

    /// The proxies and the wires move slice `step`.
    fn carry(&mut self, step: usize) {
        let n = self.members;
        let (before, own) = self.at.split_at_mut(step * MOMENTS * n);
        let last = |moment: usize| match step.checked_sub(1) {
            Some(last) => &before[(last * MOMENTS + moment) * n..][..n],
            None => &self.none[..n],
        };
        let (given, acknowledged, published) = (last(SEND + 2), last(SEND + 3), last(RECV + 2));
        let (sends, receives) = own.split_at_mut(RECV * n);
        let (found, sent, done) = three(&mut sends[n..], n);
        let (credit, receives) = receives.split_at_mut(n);
        let (there, out, _) = three(receives, n);
        let (busy, slice_ns, latency) = (&mut self.busy[..n], &self.slice_ns[..n], &self.latency[..n]);
        for m in 0..n {
            let seen = found[m].max(given[m]) + LOOK_NS as u32;
            let handed = seen.max(credit[m]) + HAND_OVER_NS as u32;
            let carried = handed.max(busy[m]) + slice_ns[m];
            let delivered = carried + latency[m];
            let noticed = (delivered + LOOK_NS as u32).max(published[m]);
            (found[m], sent[m], busy[m]) = (seen, handed, carried);
            (there[m], out[m]) = (noticed, noticed + HAND_OVER_NS as u32);
            done[m] = (delivered + latency[m] + LOOK_NS as u32).max(acknowledged[m]);
        }
    }

    /// Adds the stages of one side of slice `step`, whose moments are all known, to the sums.
    fn note(&mut self, step: usize, side: usize) {
        let n = self.members;
        let kernels = &self.kernels[side / RECV][..n];
        for stage in 0..3 {
            let begun = &self.at[(step * MOMENTS + side + stage) * n..][..n];
            let ended = &self.at[(step * MOMENTS + side + stage + 1) * n..][..n];
            let place = (side / RECV * 3 + stage) * n;
            let (sums, longest) = (&mut self.sums[place..][..n], &mut self.longest[place..][..n]);
            for m in 0..n {
                let us = (ended[m] - begun[m].max(kernels[m].min(ended[m]))) / 1000;
                sums[m] += us;
                longest[m] = longest[m].max(us);
            }
        }
    }

    /// When a member's kernel ends.
    pub(crate) fn end(&self, member: usize) -> u64 {
        self.base + u64::from(self.device[member])
    }

    /// One side of a hop as a lane: what the tracer tells of it.
    pub(crate) fn lane(&self, hop: usize, sends: bool) -> RowLane<'_> {
        RowLane { rows: self, hop, side: if sends { SEND } else { RECV } }
    }
}

/// Three neighbouring moments of a step.
fn three(moments: &mut [u32], n: usize) -> (&mut [u32], &mut [u32], &mut [u32]) {
    let (first, rest) = moments.split_at_mut(n);
    let (second, third) = rest.split_at_mut(n);
    (first, second, &mut third[..n])
}

/// A lane of [`Rows`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowLane<'a> {
    rows: &'a Rows,
    hop: usize,
    side: usize,
}

impl Lane for RowLane<'_> {
    fn steps(&self) -> usize {
        self.rows.steps
    }

    fn at(&self, step: usize, moment: usize) -> u64 {
        let rows = self.rows;
        rows.base + u64::from(rows.at[(step * MOMENTS + self.side + moment) * rows.members + self.hop])
    }

    fn whole(&self, posted: u64, _kernel: u64, slice_bytes: u64) -> Option<Point> {
        let rows = self.rows;
        let of = |list: &[u32]| [0, 1, 2].map(|stage| list[(self.side / RECV * 3 + stage) * rows.members + self.hop]);
        let newest = self.at(rows.steps - 1, 3).max(posted);
        Some(Point {
            at: newest,
            counters: all_done(rows.steps),
            bytes: rows.steps as u64 * slice_bytes,
            first_ready: self.at(0, 1),
            last_progress: newest,
            stage_us: of(&rows.sums),
            stage_max_us: of(&rows.longest),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::trace::{Head, Looks, flow};
    use crate::collective::{Hop, Moments, Parts, Seat, ring};
    use proptest::prelude::*;

    prop_compose! {
        fn member()(start in 0u64..3_000_000, posted in [0u64..2_000_000, 0u64..2_000_000], factor in 0.2f64..2.0)
            -> Member
        {
            Member { start: 7_000_000_000 + start, posted: posted.map(|at| 7_000_000_000 + at), factor }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

        /// The same moments and the same flows as one member after the other.
        #[test]
        fn side_by_side_is_one_after_the_other(
            members in prop::collection::vec(member(), 2..12),
            all_reduce: bool, loops in 1usize..3, slices in 1usize..3, window in 1usize..6,
            slice_bytes in 1u64..100_000, copy_ns in 1u64..50_000, latency_ns in 0u64..60_000, phase in 0u64..400_000,
        ) {
            let n = members.len();
            let plan = Plan { sends: if all_reduce { 2 * (n - 1) } else { n - 1 }, loops, slices };
            let cut = Cut { window: window.max(slices), slice_bytes, copy_ns };
            let wire = |m: usize| Wire {
                network: true, ns_per_byte: 0.5, latency_ns: latency_ns + 100 * m as u64, profile: None,
            };
            let wires: Vec<Wire> = (0..n).map(wire).collect();
            let parts = Parts::default();
            let seat = |member: &Member| Seat { start: member.start, parts: &parts, chance: 1, asleep: (0, 0) };
            let mut seats: Vec<Seat<'_>> = members.iter().map(seat).collect();
            let mut moments = Moments::default();
            moments.post((0..n).flat_map(|m| [members[m].posted[0], members[(m + n - 1) % n].posted[1]]));
            let hops: Vec<Hop<'_>> = (0..n).map(|m| Hop::new(cut, &wires[m], members[m].factor)).collect();
            let ends = ring::run(&mut moments, plan, &mut seats, &hops);
            let mut rows = Rows::default();
            prop_assert!(rows.run(plan, cut, &members, &wires));
            prop_assert_eq!(ends, (0..n).map(|m| rows.end(m)).collect::<Vec<u64>>());
            let looks = Looks { phase, every: 400_000 };
            for hop in 0..n {
                for (sends, member, lane) in [(true, hop, 2 * hop), (false, (hop + 1) % n, 2 * ((hop + 1) % n) + 1)] {
                    let posted = members[hop].posted[usize::from(!sends)];
                    let head = Head { sends, posted, kernel: members[member].start, slice_bytes };
                    let (one, other) = (moments.lane(lane), rows.lane(hop, sends));
                    for step in 0..plan.steps() {
                        prop_assert_eq!(&one[4 * step..][..4], &[0, 1, 2, 3].map(|moment| other.at(step, moment)));
                    }
                    prop_assert_eq!(flow(&one, head, looks), flow(&other, head, looks));
                }
            }
        }
    }

    #[test]
    fn what_takes_too_long_for_32_bits_is_left_to_the_other_way() {
        let wires = vec![Wire { network: true, ns_per_byte: 1.0, latency_ns: 0, profile: None }; 2];
        let plan = Plan { sends: 1, loops: 1, slices: 1 };
        let cut = Cut { window: 1, slice_bytes: 1, copy_ns: 1 };
        let run = |late: u64| {
            let member = Member { start: 10, posted: [10, 10], factor: 1.0 };
            let members = [member, Member { start: 10 + late, ..member }];
            Rows::default().run(plan, cut, &members, &wires)
        };
        assert!(run(1 << 30));
        assert!(!run(1 << 31));
    }
}
