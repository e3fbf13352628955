//! What a rank did itself in an iteration, free of waiting for others.
use super::raw::{RING, Raw, STARTED};
use super::{
    COARSE_BITS, COARSE_US, FlowSum, GROUP_NS, HalfCopy, Iteration, Iterations, Local, OpSums, coarse, copy_us, us,
};
use crate::timeline::past::Past;
use mycroft_record::{Algorithm, Direction, FlowDone, HostTime, OpClass, OpDone, OpKind};
use std::collections::BTreeMap;

/// An operation ends soon after its last flow: its sums are among so many last ones.
const SUMS_LOOKED_AT: usize = 64;

impl Iteration {
    /// Keeps the half of a way through the host that took most.
    fn keep_half(&mut self, sends: bool, half: HalfCopy) {
        let most = if sends { &mut self.out } else { &mut self.into };
        if half.us > most.us {
            *most = half;
        }
    }
}

impl Iteration {
    /// Takes in what came before an operation: when the device was free, when the operation was issued, and when the device began it.
    fn take_work(&mut self, (free, issued, began): (HostTime, HostTime, HostTime), before_us: f64) {
        let ready = free.max(issued);
        let compute = us(began.since_ns(ready));
        self.knows_work = true;
        self.compute_us += compute;
        if self.compute_us > before_us && !self.computes_more_at.is_some() {
            self.computes_more_at = ready;
        }
        self.compute_max_us = self.compute_max_us.max(compute as f32);
        self.host_us += us(issued.since_ns(free)) as f32;
    }

    /// Takes in a collective of which nobody knows when the device began it: what waits at both of its ends, and at an entry into the host.
    fn take_unseen(&mut self, op: &Raw, sums: &OpSums, class: OpClass, halves: &mut BTreeMap<(bool, u16), HalfCopy>) {
        if class != OpClass::Collective {
            return;
        }
        // It lasted at least since its first slot was filled.
        let lasted_us = f64::from(coarse(op.ended_at()).wrapping_sub(sums.first_ready)) * COARSE_US;
        self.copy_us += copy_us(class, op.is(RING), (sums.send, sums.recv), lasted_us) as f32;
        if op.is(RING) && !sums.send.is_some() {
            halves.entry((false, op.counter)).or_default().add(sums, HostTime::NONE);
        }
    }
}

impl OpSums {
    /// Takes in a flow of the operation that is complete.
    pub(super) fn take(&mut self, done: &FlowDone) {
        let times = &done.times;
        let flow = FlowSum::of(times, done.flow.direction, done.counters.total_chunks);
        match done.flow.direction {
            Direction::Send => {
                let ready = coarse(times.first_ready_at);
                let is_earlier = ready.wrapping_sub(self.first_ready) > u32::MAX / 2;
                if !self.send.is_some() || is_earlier {
                    self.first_ready = ready;
                }
                self.send.add(flow);
            }
            Direction::Recv => {
                self.recv.add(flow);
                self.flush_us = self.flush_us.max(times.stage_us[1]);
            }
        }
    }
}

impl Iterations {
    /// When the device began an operation: where no kernel event tells it, when it had filled the first slot of a flow with data of
    /// its own, as it does first in a ring, in a send, and in that of two trees of which it is a leaf. `NONE`: nobody knows.
    pub(super) fn began(&self, counter: u16, done: &OpDone) -> HostTime {
        let op = &done.op;
        let is_own = match (op.kind, op.algorithm) {
            (OpKind::AllReduce | OpKind::ReduceScatter | OpKind::AllGather, Algorithm::Ring) => true,
            // NCCL lays two trees over the hosts, one in every second channel, and a host within one is a leaf of the other.
            (OpKind::AllReduce, Algorithm::Tree) => op.n_channels > 1,
            (kind, _) => kind == OpKind::Send,
        };
        if op.started_at.is_some() || !is_own {
            return op.started_at;
        }
        let is_its = |sums: &&OpSums| sums.counter == counter && sums.seq == op.id.seq.0 as u32;
        let sums = self.sums.iter().rev().take(SUMS_LOOKED_AT).find(is_its).filter(|sums| sums.send.is_some());
        let before = |sums: &OpSums| u64::from(coarse(done.ended_at).wrapping_sub(sums.first_ready)) << COARSE_BITS;
        sums.map_or(HostTime::NONE, |sums| done.ended_at - before(sums))
    }

    /// Operations that ended between two moments, in the order in which the device began them.
    fn inside(&self, past: &Past, start: HostTime, end: HostTime) -> Vec<&Raw> {
        let is_inside = |op: &&Raw| op.ended_at() > start && op.ended_at() <= end;
        // Those before one that ended so long before the start ended before the start.
        let may_be_inside = |op: &&Raw| op.ended_at() + self.late_ns > start;
        let mut ops: Vec<&Raw> = self.raw.iter().rev().take_while(may_be_inside).filter(is_inside).collect();
        ops.reverse();
        ops.sort_by_key(|op| (op.began().unwrap_or(op.ended_at()), op.ended_at(), *past.counter(op.counter), op.seq));
        ops
    }

    /// What a rank did itself in the iteration between two moments.
    pub(in crate::timeline) fn measure(&self, past: &Past, start: HostTime, end: HostTime) -> Iteration {
        let mut out = Iteration { start, end, ..Iteration::default() };
        let ops = self.inside(past, start, end);
        let has_kernels = ops.iter().any(|op| op.is(STARTED));
        out.ops = ops.len() as u32;
        let mut device_free = start;
        let mut near = self.sums.len();
        // Sends and receives of one group are served one after the other: all but the first wait for their turn.
        let mut group: Option<(HostTime, f64)> = None;
        let mut halves: BTreeMap<(bool, u16), HalfCopy> = BTreeMap::new();
        let mut locals: BTreeMap<u16, f32> = BTreeMap::new();
        // When the slots of a ring held nothing of the operation before any more.
        let mut emptied: BTreeMap<u16, HostTime> = BTreeMap::new();
        let before_us = self.list.back().map_or(f64::MAX, |before| before.compute_us);
        for op in ops {
            // Of one whose kernel nobody saw the transport's threads tell what they took.
            let Some(started_at) = op.began().filter(|_| op.is(STARTED) || !has_kernels) else {
                let sums = self.sums_of(op, &mut near);
                out.proxy_us += sums.map_or(0.0, |sums| sums.flush_us as f32);
                if !has_kernels {
                    device_free = device_free.max(op.left.at(op.ended_at()));
                    sums.iter().for_each(|sums| out.take_unseen(op, sums, past.counter(op.counter).1, &mut halves));
                }
                continue;
            };
            let enqueued_at = op.enqueued.at(op.ended_at());
            out.take_work((device_free, enqueued_at, started_at), before_us);
            device_free = device_free.max(op.left.at(op.ended_at()));
            let lasted_us = us(op.left.at(op.ended_at()).since_ns(started_at));
            let Some(sums) = self.sums_of(op, &mut near) else {
                if past.is_local(op.counter) {
                    *locals.entry(op.counter).or_default() += lasted_us as f32;
                }
                continue;
            };
            out.proxy_us += sums.flush_us as f32;
            let class = past.counter(op.counter).1;
            let own_us = copy_us(class, op.is(RING), (sums.send, sums.recv), lasted_us);
            if class == OpClass::Collective {
                out.copy_us += own_us as f32;
                if op.is(RING) && sums.send.is_some() != sums.recv.is_some() {
                    let empty_at = emptied.insert(op.counter, op.ended_at()).unwrap_or_default().max(started_at);
                    halves.entry((sums.send.is_some(), op.counter)).or_default().add(sums, empty_at);
                }
                continue;
            }
            match &mut group {
                Some((start, least)) if started_at.since_ns(*start) < GROUP_NS => *least = least.min(own_us),
                _ => out.copy_us += group.replace((started_at, own_us)).map_or(0.0, |(_, least)| least as f32),
            }
        }
        out.copy_us += group.map_or(0.0, |(_, least)| least as f32);
        out.local = locals
            .into_iter()
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(counter, us)| Local { counter, us })
            .unwrap_or_default();
        halves.into_iter().for_each(|((sends, counter), half)| out.keep_half(sends, HalfCopy { counter, ..half }));
        out
    }

    /// The sums of an operation, looked for from `near` on, where those of the operation before were found, and from there
    /// back. Many operations have no flows.
    fn sums_of(&self, op: &Raw, near: &mut usize) -> Option<&OpSums> {
        let is_its = |sums: &OpSums| sums.counter == op.counter && sums.seq == op.seq;
        if self.summed.get(usize::from(op.counter)).is_none_or(|after| op.seq.saturating_add(1) > *after) {
            return None;
        }
        let ahead = self.sums.range(*near..).position(is_its).map(|at| at + *near);
        let at = ahead.or_else(|| self.sums.range(..*near).rposition(is_its))?;
        *near = at;
        self.sums.get(at)
    }
}
