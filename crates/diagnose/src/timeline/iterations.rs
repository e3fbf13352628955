//! Iterations of one rank without user code, and what it did itself in each.
//!
//! The marker is the collective that recurs least often but regularly; the time between its ends is the iteration time.
//! The self times are free of waiting for others, so that they compare a rank with its own past and with its peers.
mod late;
mod marker;
mod outermost;
mod own;
mod period;
mod raw;
mod recurrence;
mod room;

use super::past::{Numbered, Past};
use mycroft_record::{
    Algorithm, CommId, CommRank, Datatype, Direction, FlowDone, FlowTimes, HostTime, NANOS_PER_MS, NANOS_PER_SEC,
    OpClass, OpDone, OpKind,
};
pub(crate) use raw::Local;
use raw::{NO_MARK, RING, Raw, SMALL, STARTED, Span};
use recurrence::{Recurrence, Weight};
pub(super) use room::Room;
use std::collections::VecDeque;

/// Of those whose iteration is over, so many stay: a period is looked for in them. 640 x 28 B = 17.5 KiB a rank.
const RAW_SETTLED_KEPT: usize = period::SEQUENCE_KEPT + 40;
/// Signatures kept: distinct collectives of a program.
const SIGNATURES_KEPT: usize = 256;
/// A marker with fewer ends may still turn out to be a layer.
const YOUNG_ENDS: usize = 64;
/// A collective that comes more often than this is a layer, unless it is known how many of it make an iteration.
const LAYER_NS_MAX: u64 = 30 * NANOS_PER_MS;
/// Iterations kept with their self times: 128 x 88 B = 11 KiB.
const ITERATIONS_KEPT: usize = 128;
/// A line that came so often is part of the program, and may mark iterations.
pub(crate) const MARKER_MIN: u64 = 3;
/// A collective that comes this many times as often as a small one is a layer of the iteration that the small one ends.
const LAYERS_MIN: u64 = 16;
/// Least payload of a marker: less than any gradient bucket, more than a loss, a norm or a barrier.
const MARKER_BYTES_MIN: u64 = 1024;
/// A collective that recurs less often than this marks no iterations: those of large models with many micro-batches take minutes.
const ITERATION_MAX_NS: u64 = 600 * NANOS_PER_SEC;
/// Completion records of one rank may come out of order by this.
const GRACE_NS: u64 = 120 * NANOS_PER_MS;
/// Point-to-point operations that start within this are one group.
pub(super) const GROUP_NS: u64 = NANOS_PER_MS;
/// FIFO slots of a connection: how many steps wait side by side in a stage (NCCL_STEPS).
pub(super) const FIFO_SLOTS: u32 = 8;
/// Slices of a ring are two steps each (NCCL_STEPS / 4), so half as many wait side by side.
pub(super) const RING_SLOTS: u32 = FIFO_SLOTS / 2;
/// Unit of `FlowSum::max_64us`, microseconds.
const MAX_UNIT_US: u32 = 64;
/// Bits of a moment, in nanoseconds, that [`coarse`] drops.
const COARSE_BITS: u32 = 14;
/// A moment in units of 16.4 us that wraps after 19 hours.
const fn coarse(at: HostTime) -> u32 {
    (at.0 >> COARSE_BITS) as u32
}
/// Unit of [`coarse`], microseconds.
const COARSE_US: f64 = 16.384;

/// What makes two operations the same line of the program: communicator, kind, size (point-to-point: peer), type.
pub(crate) type Signature = (CommId, OpKind, u64, Datatype);

/// One iteration of one rank.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Iteration {
    pub start: HostTime,
    pub end: HostTime,
    /// Device busy with something else than communication: start of an operation minus the later of the previous
    /// operation's end and its own issue.
    pub compute_us: f64,
    /// Longest single piece of `compute_us`.
    pub compute_max_us: f32,
    /// The beginning of an operation is known: else `compute_us` and `host_us` are not.
    pub knows_work: bool,
    /// Operations that ended in it.
    pub ops: u32,
    /// When the device began what made `compute_us` more than in the iteration before; `NONE`: it is not.
    pub computes_more_at: HostTime,
    /// Device idle because the host issued late.
    pub host_us: f32,
    /// Time the device took for copies into and out of the transport's slots.
    pub copy_us: f32,
    /// Of collectives that this rank sends out of its host and another one receives: how long slots waited for data.
    pub out: HalfCopy,
    /// Of collectives that this rank receives from another host and another one sends on: how long data waited.
    pub into: HalfCopy,
    /// Time between the delivery of slices and the moment at which this rank's proxy thread passed them on: its own only.
    pub proxy_us: f32,
    /// Collectives among ranks of its host, from when its device began each: waiting for the others is in it.
    pub local: Local,
}

/// One end of the way that a ring takes through a host. Whether the slots wait for the device or for the host's other ranks,
/// and whether the data does, shows only at both ends together.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct HalfCopy {
    /// The communicator's order counter: of several the one with most.
    pub counter: u16,
    /// Time of all slices, as if the device filled or drained one after the other; without what waited for a late rank.
    pub us: f32,
    /// The same by the first slice of each operation, which is the rank's own data and waits for its own device only, once the
    /// slots hold nothing of the operation before.
    pub first_us: f32,
}

impl Iteration {
    pub(crate) fn ns(&self) -> u64 {
        self.end.since_ns(self.start)
    }
}

/// The device's part in the flows of one operation in one direction: the least of its flows, since a device that is slow
/// itself is slow for all of them, while one that waits for one peer (the other child in a tree) lets the data of the
/// others lie.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FlowSum {
    /// Sum over its steps.
    stage_us: u32,
    /// Sum over its steps of the wait for the receiver. A proxy looks at the next slice to send only: what is filled
    /// behind it counts as being filled still.
    behind_us: u32,
    /// No flow: 0.
    pub(super) steps: u16,
    /// The longest of its steps, less the longest wait for the receiver.
    max_64us: u16,
}

impl FlowSum {
    /// Of a flow that sends, or receives.
    pub(super) fn of(times: &FlowTimes, direction: Direction, steps: u32) -> FlowSum {
        let (stage, behind) = match direction {
            Direction::Send => (0, Some(1)),
            Direction::Recv => (2, None),
        };
        let of = |sums: &[u32; 3]| (sums[stage], behind.map_or(0, |stage: usize| sums[stage]));
        let ((stage_us, behind_us), (max_us, behind_max_us)) = (of(&times.stage_us), of(&times.stage_max_us));
        FlowSum {
            stage_us,
            behind_us,
            steps: u16::try_from(steps.max(1)).unwrap_or(u16::MAX),
            max_64us: u16::try_from(max_us.saturating_sub(behind_max_us) / MAX_UNIT_US).unwrap_or(u16::MAX),
        }
    }

    /// The sum over the steps without what they waited behind another.
    fn sum_us(self, slots: u32) -> f64 {
        f64::from(self.stage_us.saturating_sub((slots - 1).saturating_mul(self.behind_us)))
    }

    fn us(self, slots: u32) -> f64 {
        wall_us(self.sum_us(slots), u32::from(self.steps), slots)
    }

    /// Takes in another flow of the operation.
    pub(super) fn add(&mut self, flow: FlowSum) {
        if !self.is_some() || flow.us(RING_SLOTS) < self.us(RING_SLOTS) {
            *self = flow;
        }
    }

    pub(super) fn is_some(self) -> bool {
        self.steps > 0
    }
}

/// The sums of one operation.
#[derive(Clone, Copy, Debug)]
struct OpSums {
    counter: u16,
    /// When the device had filled the first slot of any of its flows.
    first_ready: u32,
    seq: u32,
    send: FlowSum,
    recv: FlowSum,
    /// The longest of its flows' sums of stage 1 of receives.
    flush_us: u32,
}

/// What ends an iteration: every so many-th operation of a signature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Marker {
    signature: Signature,
    every: u64,
    /// Its rhythm was even when all was well, or the program's period is known: what comes more seldom marks something longer
    /// than an iteration (evaluation, a loss now and then).
    sure: bool,
    /// It came regularly when all was well: what makes it irregular now is a fault.
    steady: bool,
}

/// Iterations of one rank.
#[derive(Debug, Default)]
pub(crate) struct Iterations {
    pub(super) raw: VecDeque<Raw>,
    /// An operation was dropped that ended then.
    pub(super) dropped: HostTime,
    sums: VecDeque<OpSums>,
    /// By counter: the order number after the newest operation of which a flow has ended.
    summed: Vec<u32>,
    signatures: Numbered<Signature>,
    /// What is known of each signature, by its number.
    seen: Vec<Recurrence>,
    marker: Option<Marker>,
    /// Operations of a signature in one period of the program, once known.
    every: Option<(Signature, u64)>,
    /// How often the marker changed.
    generation: u64,
    oldest: HostTime,
    newest: HostTime,
    /// Records came out of order by this at most.
    late_ns: u64,
    settled: HostTime,
    pub(super) list: VecDeque<Iteration>,
    total: u64,
}

/// Sum over steps of a stage -> wall time: as many steps as there are slots wait side by side, the first of them ramp up.
/// For n <= 8 posted at once and served in turn the sum is t(1 + .. + n) for a wall time of nt.
pub(super) fn wall_us(sum_us: f64, steps: u32, slots: u32) -> f64 {
    let (n, slots) = (f64::from(steps.max(1)), f64::from(slots));
    let side_by_side = if n <= slots { (n + 1.0) / 2.0 } else { slots - slots * (slots - 1.0) / 2.0 / n };
    sum_us / side_by_side
}

impl Iterations {
    /// Takes in a completed operation; `counter` is the number of its order counter.
    pub(super) fn on_op(&mut self, counter: Option<u16>, done: &OpDone, room: Room) {
        if !done.observed {
            return;
        }
        self.late_ns = self.late_ns.max(self.newest.since_ns(done.ended_at));
        self.newest = self.newest.max(done.ended_at);
        if !self.oldest.is_some() {
            self.oldest = done.op.enqueued_at;
        }
        let weight = match done.op.id.class {
            OpClass::Collective if done.op.bytes() < MARKER_BYTES_MIN => Weight::Small,
            OpClass::Collective => Weight::Large,
            OpClass::Send | OpClass::Recv => Weight::PointToPoint,
        };
        let mut mark = self.recur(done, weight);
        mark |= if weight == Weight::Small { SMALL } else { 0 };
        mark |= if done.op.started_at.is_some() { STARTED } else { 0 };
        mark |= if done.op.algorithm == Algorithm::Ring { RING } else { 0 };
        let Some(counter) = counter else { return };
        let ended_at = done.ended_at;
        let span = |at: HostTime| Span::of(ended_at, at);
        while let Some(op) = self.raw.front() {
            let is_over = op.ended_at() <= self.settled;
            if self.raw.len() < if is_over { RAW_SETTLED_KEPT } else { room.ops() } {
                break;
            }
            self.dropped = self.dropped.max(op.ended_at());
            self.raw.pop_front();
        }
        make_room(&mut self.raw);
        self.raw.push_back(Raw {
            ended_at: [(ended_at.0 >> 32) as u32, ended_at.0 as u32],
            enqueued: span(done.op.enqueued_at),
            started: span(self.began(counter, done)),
            left: span(left_at(done)),
            seq: done.op.id.seq.0 as u32,
            counter,
            mark,
        });
    }

    /// Counts an operation and gives its signature's number. Sizes of sends may vary, their peers do not.
    fn recur(&mut self, done: &OpDone, weight: Weight) -> u16 {
        let point_to_point = weight == Weight::PointToPoint;
        let size_or_peer = if point_to_point { u64::from(done.op.id.peer.0) } else { done.op.count };
        let signature = (done.op.id.comm, done.op.kind, size_or_peer, done.op.datatype);
        let Some(number) = self.signatures.number(signature, SIGNATURES_KEPT) else { return NO_MARK };
        if usize::from(number) == self.seen.len() {
            self.seen.push(Recurrence::of(weight));
        }
        let seen = &mut self.seen[usize::from(number)];
        if seen.count == 0 || done.op.id.seq > seen.last_seq {
            seen.last_seq = done.op.id.seq;
            seen.end(done.ended_at);
        }
        number
    }

    /// Takes in a completed flow; `counter` is the number of its operation's order counter.
    pub(super) fn on_flow(&mut self, counter: Option<u16>, done: &FlowDone, room: Room) {
        let Some(counter) = counter else { return };
        let seq = done.flow.op.seq.0 as u32;
        let is_its = |sums: &OpSums| sums.counter == counter && sums.seq == seq;
        let needed = usize::from(counter) + 1;
        self.summed.resize(self.summed.len().max(needed), 0);
        let newest = &mut self.summed[usize::from(counter)];
        let is_first = seq >= *newest;
        *newest = (*newest).max(seq.saturating_add(1));
        let known = if is_first { None } else { self.sums.iter().rposition(is_its) };
        let at = match known {
            Some(at) => at,
            None => {
                if self.sums.len() >= room.sums() {
                    self.sums.pop_front();
                }
                make_room(&mut self.sums);
                let (send, recv) = (FlowSum::default(), FlowSum::default());
                self.sums.push_back(OpSums { counter, first_ready: 0, seq, send, recv, flush_us: 0 });
                self.sums.len() - 1
            }
        };
        self.sums[at].take(done);
    }

    /// Closes the iterations whose records have all come. `false`: nothing changed, and nothing will before the next
    /// completion.
    pub(crate) fn settle(&mut self, past: &Past) -> bool {
        let before = (self.marker, self.every);
        self.choose_marker(past);
        let mut is_changed = before != (self.marker, self.every);
        for (start, end) in self.due() {
            if end <= self.settled {
                continue;
            }
            // What operations of long ago cost is forgotten.
            if start >= self.dropped {
                if self.list.len() >= ITERATIONS_KEPT {
                    self.list.pop_front();
                }
                make_room(&mut self.list);
                self.list.push_back(self.measure(past, start, end));
            }
            self.settled = end;
            self.total += 1;
            is_changed = true;
        }
        is_changed
    }

    /// Begin and end of the iterations that are over and not settled.
    fn due(&self) -> Vec<(HostTime, HostTime)> {
        let seen = self.marker.and_then(|marker| Some((marker, self.known(&marker.signature)?)));
        let Some((marker, seen)) = seen else { return Vec::new() };
        let ends = seen.every(marker.every, self.settled);
        let is_due = |(_, end): &(HostTime, HostTime)| *end > self.settled && self.newest >= *end + GRACE_NS;
        ends.clone().zip(ends.skip(1)).filter(is_due).collect()
    }

    /// Whether such an operation was completed before.
    pub(crate) fn has_done(&self, signature: &Signature) -> bool {
        self.signatures.find(signature).is_some()
    }

    fn known(&self, signature: &Signature) -> Option<&Recurrence> {
        Some(&self.seen[usize::from(self.signatures.find(signature)?)])
    }

    pub(crate) fn list(&self) -> &VecDeque<Iteration> {
        &self.list
    }

    /// Median of the last iterations, milliseconds; `None` before three.
    pub(crate) fn recent_ms(&self) -> Option<f64> {
        let mut ns: Vec<u64> = self.list.iter().rev().take(9).map(Iteration::ns).collect();
        ns.sort_unstable();
        if ns.len() < 3 { None } else { Some(ns[ns.len() / 2] as f64 / 1e6) }
    }

    /// Changes when iterations before are no longer comparable.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}

/// The device's own part of a copy: a send slot waits for data that has not come, a received one for a free send slot;
/// the smaller of the two is free of both. Point-to-point needs no second condition.
///
/// In a tree a rank's other neighbours may be in its own host, unseen: of what waits, less is surely its own, and nothing
/// that one of them was late for once.
pub(super) fn copy_us(class: OpClass, ring: bool, (send, recv): (FlowSum, FlowSum), lasted_us: f64) -> f64 {
    match class {
        OpClass::Send => send.us(FIFO_SLOTS),
        OpClass::Recv => recv.us(FIFO_SLOTS),
        OpClass::Collective if !(send.is_some() && recv.is_some()) => 0.0,
        OpClass::Collective if ring => send.us(RING_SLOTS).min(recv.us(RING_SLOTS)),
        OpClass::Collective => send.unless_late_us(FIFO_SLOTS, lasted_us).min(recv.taken_us(FIFO_SLOTS, lasted_us)),
    }
}

impl HalfCopy {
    /// Adds an operation whose slots were empty, and which its device had begun, at `empty_at`.
    fn add(&mut self, sums: &OpSums, empty_at: HostTime) {
        let flow = if sums.send.is_some() { sums.send } else { sums.recv };
        self.us += flow.punctual_us(RING_SLOTS) as f32;
        // Unknown clocks may put it before the start.
        let after = sums.first_ready.wrapping_sub(coarse(empty_at));
        if sums.send.is_some() && after <= u32::MAX / 2 {
            self.first_us += (f64::from(after) * COARSE_US * f64::from(flow.steps)) as f32;
        }
    }
}

/// Room for one more, in steps: a list that doubles wastes up to half of what 100,000 ranks need.
pub(super) fn make_room<T>(list: &mut VecDeque<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact((list.len() / 2).clamp(8, 128));
    }
}

/// When the device was free again. A collective's channels may end far apart (one of them may have had nothing to do), so
/// the first end says something of the whole only where there is one channel.
fn left_at(done: &OpDone) -> HostTime {
    if done.op.n_channels == 1 && done.ended_first_at.is_some() { done.ended_first_at } else { done.ended_at }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// The comm rank of `CommRank(0)` is used for collectives' peer.
pub(crate) const NO_PEER: CommRank = CommRank(0);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// While the receiver takes nothing, the proxy sees one filled slot, and three that seem to be filled still.
        #[test]
        fn a_sender_that_waits_for_its_receiver_is_not_slow(n in 1u32..200, us in 1u32..5_000) {
            let wait = |times: u32| times * us * n;
            let times = FlowTimes { stage_us: [wait(RING_SLOTS - 1), wait(1), 0], ..FlowTimes::default() };
            prop_assert_eq!(FlowSum::of(&times, Direction::Send, n).us(RING_SLOTS), 0.0);
            let received = FlowTimes { stage_us: [0, 0, wait(1)], ..times };
            prop_assert!(FlowSum::of(&received, Direction::Recv, n).us(RING_SLOTS) > 0.0);
        }
    }

    #[test]
    fn sizes_are_what_the_limits_say() {
        assert_eq!(size_of::<OpSums>(), 40);
        assert_eq!(size_of::<Iteration>(), 88);
    }
}
