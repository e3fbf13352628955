//! The iteration that runs: what a rank has done of it so far, where it takes many times as long as those before.
use super::Timeline;
use super::iterations::{FlowSum, GROUP_NS, HalfCopy, Iteration, Iterations, RING_SLOTS, copy_us};
use super::live::Live;
use super::past::Past;
use super::rank::{FlowSlot, LiveFlow, LiveOp, RankState};
use super::ranks::Slot;
use mycroft_record::{Algorithm, Direction, HostTime, OpClass};

/// So many iterations are no coincidence.
const KNOWN: usize = 8;

impl RankState {
    /// When the iteration that runs began, also where the rank waits in the first operations of the next one for those that are
    /// still in this.
    pub(crate) fn runs_since(&self) -> Option<HostTime> {
        let is_inside = || self.live.values().any(|op| op.meta.started_at.is_some());
        self.iterations.running_since().or_else(|| self.iterations.begun().filter(|_| is_inside()))
    }
}

impl Timeline {
    /// Lets `look` see the iteration that runs as one that ends at `until`. Of a rank that was not looked at lately nobody knows whether it still runs.
    pub(crate) fn with_running<T>(
        &mut self,
        until: HostTime,
        no_data_after_ns: u64,
        look: impl FnOnce(&Timeline) -> T,
    ) -> T {
        let mut shown = Vec::new();
        let is_known = |slot: &Slot| !self.no_data(self.ranks.at(*slot), no_data_after_ns);
        for slot in self.ranks.slots().filter(is_known).collect::<Vec<Slot>>() {
            let state = self.ranks.at_mut(slot);
            if state.iterations.show_running(&state.past, &state.live, until) {
                shown.push(slot);
            }
        }
        let out = look(self);
        shown.into_iter().for_each(|slot| self.ranks.at_mut(slot).iterations.hide_running());
        out
    }
}

impl Iterations {
    /// When the last iteration ended of which the rank has done less than two since.
    fn begun(&self) -> Option<HostTime> {
        let end = self.list.back()?.end;
        self.done_since(end).filter(|(so_far, before)| *so_far < 2 * before).map(|_| end)
    }

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

    /// Takes the iteration that runs as one that ends at `until`: its times are what they are at least, of operations in
    /// flight those of their finished steps. `false`: none does.
    /// Nothing is said of computing and issuing: what the device was busy with before an operation may not have ended.
    pub(super) fn show_running(&mut self, past: &Past, live: &Live, until: HostTime) -> bool {
        let Some(since) = self.running_since().filter(|since| *since < until) else { return false };
        let mut so_far = self.measure(past, since, until);
        let emptied = |counter: u16| {
            let before = self.raw.iter().rev().find(|op| op.counter == counter && op.ended_at() <= until);
            before.map_or(HostTime::NONE, |op| op.ended_at())
        };
        so_far.take_in_flight(past, live, emptied);
        self.list.push_back(Iteration {
            compute_us: 0.0,
            compute_max_us: 0.0,
            ops: 0,
            computes_more_at: HostTime::NONE,
            host_us: 0.0,
            ..so_far
        });
        true
    }

    /// Undoes it.
    pub(super) fn hide_running(&mut self) {
        self.list.pop_back();
    }
}

impl Iteration {
    /// Adds the device's part in operations in flight: in one that takes minutes nothing else shows it. `emptied` is when the
    /// slots of a communicator held nothing of the operation before any more.
    fn take_in_flight(&mut self, past: &Past, live: &Live, emptied: impl Fn(u16) -> HostTime) {
        let mut ops: Vec<&LiveOp> = live.values().filter(|op| op.meta.started_at.is_some()).collect();
        ops.sort_by_key(|op| (op.meta.started_at, op.meta.id));
        let mut group: Option<(HostTime, f64)> = None;
        for op in ops {
            let [send, recv] = [Direction::Send, Direction::Recv].map(|direction| so_far(op, direction));
            let (class, ring) = (op.meta.id.class, op.meta.algorithm == Algorithm::Ring);
            let lasted_us = op.seen_at.since_ns(op.meta.started_at) as f64 / 1e3;
            let own_us = copy_us(class, ring, (send, recv), lasted_us);
            if class == OpClass::Collective {
                self.copy_us += own_us as f32;
                if ring && send.is_some() != recv.is_some() {
                    self.take_half(past, op, (send, recv), &emptied);
                }
                continue;
            }
            match &mut group {
                Some((start, least)) if op.meta.started_at.since_ns(*start) < GROUP_NS => *least = least.min(own_us),
                _ => self.copy_us += group.replace((op.meta.started_at, own_us)).map_or(0.0, |(_, least)| least as f32),
            }
        }
        self.copy_us += group.map_or(0.0, |(_, least)| least as f32);
    }

    /// Adds the end of a ring's way through the host that an operation in flight is.
    fn take_half(
        &mut self,
        past: &Past,
        op: &LiveOp,
        (send, recv): (FlowSum, FlowSum),
        emptied: impl Fn(u16) -> HostTime,
    ) {
        let Some(counter) = past.number_of(&op.meta.id) else { return };
        let empty_at = emptied(counter).max(op.meta.started_at);
        let flow = if send.is_some() { send } else { recv };
        // A device that is slow itself is slow with the first slice of all its flows.
        let of = |((_, _, direction), flow): (&FlowSlot, &LiveFlow)| {
            let at = Some(flow.times.first_ready_at).filter(|at| *direction == Direction::Send && at.is_some());
            at.map(|at| at.since_ns(empty_at))
        };
        let first = op.flows.iter().filter_map(of).min().unwrap_or(0);
        let half = if send.is_some() { &mut self.out } else { &mut self.into };
        let us = flow.punctual_us(RING_SLOTS) as f32;
        if half.counter != counter && us <= half.us {
            return;
        }
        if half.counter != counter {
            *half = HalfCopy { counter, ..HalfCopy::default() };
        }
        half.us += us;
        half.first_us += (first as f64 / 1e3 * f64::from(flow.steps)) as f32;
    }
}

/// The device's part in the flows of an operation in flight, by the steps of which it is known.
fn so_far(op: &LiveOp, direction: Direction) -> FlowSum {
    let mut sum = FlowSum::default();
    let steps = |flow: &LiveFlow| match direction {
        Direction::Send => flow.counters.ready,
        Direction::Recv => flow.counters.done,
    };
    for (_, flow) in op.flows.iter().filter(|((_, _, of), _)| *of == direction) {
        sum.add(FlowSum::of(&flow.times, direction, steps(flow)));
    }
    sum
}
