//! Flows in flight: one proxy operation each, moved by steps (v4 on) or by its own states (v1 to v3).
//!
//! One proxy progress thread runs a flow, so its counters are plain stores. Whatever order events come in, each step
//! passes posted, ready, transmitted, done once and in that order, so no counter goes down or past the total.
use crate::events::{ProxyOpStart, StateArg, state};
use crate::handle::{
    DROP_HANDLE, GENERATION_MASK, Handle, HandleKind, MAX_FLOW_SLOTS, STEP_BITS, STEP_MASK, first_generation,
    next_generation,
};
use crate::lanes::{LANES, Lane, MAX_STEPS, STAGE_BITS, lane_key, stage, stage_of};
use crate::ops::Op;
use crate::pool::FreeList;
use crate::runtime::Runtime;
use mycroft_record::{ChannelId, CommId, CommRank, Direction, OpClass, OpId, OpSeq};
use mycroft_ring::pages::{Backing, Slab, Zeroed};
use mycroft_ring::{DropKind, Errno, FlowBegin, FlowCell, FlowOwner, FlowSlot, RawRecord, now_ticks};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Most steps one state of a proxy operation (v1 to v3) may advance at once; NCCL's own come by at most 8.
const MAX_ADVANCE: u64 = 1024;

/// Not in the segment: NCCL has not begun to progress it.
const PENDING: u64 = 0;
/// Will never be in the segment: no room, or its operation is over.
const UNTRACED: u64 = u64::MAX;

/// One flow.
#[repr(align(128))]
pub(crate) struct Flow {
    /// Its handle while it is in flight, else 0: whoever swaps it to 0 ends it.
    handle: AtomicU64,
    /// `FlowSlot` bits plus one, `PENDING` or `UNTRACED`.
    slot: AtomicU64,
    /// Handle of its operation, 0 for another process's.
    pub(crate) op: AtomicU64,
    /// `OpSlot` bits of its operation.
    pub(crate) op_slot: AtomicU64,
    /// Its operation's kernel start, once known.
    pub(crate) op_started: AtomicU64,
    /// Ticks of its start.
    begun: AtomicU64,
    /// Low half: total steps; bits 32 to 39: channel; bit 40: send; bit 41: counts in op states; bit 42: kernel events.
    pub(crate) shape: AtomicU64,
    /// Low half: peer; high half: process it works for, 0 for our own.
    peer_pid: AtomicU64,
    /// Rank whose operation it is, for another process's.
    foreign: AtomicU64,
    /// v1 to v3: the running byte count before this flow, plus one.
    baseline: AtomicU64,
    /// Index of the communicator, `u64::MAX` for another process's.
    comm: AtomicU64,
    generation: AtomicU64,
    lanes: [Lane; LANES],
}

// SAFETY: integers only.
unsafe impl Zeroed for Flow {}

const SEND: u64 = 1 << 40;
const COUNTS_IN_OP_STATES: u64 = 1 << 41;
/// Kernel events tell when the operation starts.
pub(crate) const KERNEL_EVENTS: u64 = 1 << 42;

/// All flows.
pub(crate) struct FlowTable {
    flows: Slab<Flow>,
    free: FreeList,
}

impl FlowTable {
    pub(crate) fn new(count: u32, nonce: u32) -> Result<FlowTable, Errno> {
        let count = count.min(MAX_FLOW_SLOTS as u32);
        let flows = Slab::<Flow>::new(count as usize, Backing::Now)?;
        for (flow, slot) in flows.iter().zip(0..) {
            flow.generation.store(first_generation(nonce, slot).into(), Relaxed);
        }
        Ok(FlowTable { flows, free: FreeList::new(count)? })
    }

    #[inline]
    fn at(&self, kind: HandleKind, generation: u32, index: u32) -> Option<(u64, &Flow)> {
        let flow = self.flows.get(index as usize)?;
        let raw = Handle { kind, generation, slot: index }.encode();
        (flow.handle.load(Acquire) == raw).then_some((raw, flow))
    }

    /// The flow in flight that a flow's handle names.
    #[inline]
    fn get(&self, raw: u64) -> Option<&Flow> {
        let handle = Handle::decode(raw).filter(|handle| handle.kind == HandleKind::Flow)?;
        self.at(HandleKind::Flow, handle.generation, handle.slot).map(|(_, flow)| flow)
    }
}

impl Flow {
    #[inline]
    fn slot(&self) -> Option<FlowSlot> {
        match self.slot.load(Acquire) {
            PENDING | UNTRACED => None,
            bits => Some(FlowSlot::from_bits(bits - 1)),
        }
    }

    #[inline]
    fn total(&self) -> u32 {
        self.shape.load(Relaxed) as u32
    }

    #[inline]
    fn is_send(&self) -> bool {
        self.shape.load(Relaxed) & SEND != 0
    }

    fn reset(&self) {
        for word in [&self.slot, &self.op, &self.op_slot, &self.op_started, &self.foreign, &self.baseline] {
            word.store(0, Relaxed);
        }
    }
}

impl Runtime {
    /// A proxy operation was appended: the handle of its flow. `parent` is looked at only for our own process's.
    pub fn flow_start(&self, parent: u64, start: &ProxyOpStart) -> u64 {
        let total = u32::try_from(start.n_steps).unwrap_or(0);
        let (Ok(peer), 1..=MAX_STEPS) = (u32::try_from(start.peer), total) else {
            self.writer().count_drop(DropKind::Other);
            return DROP_HANDLE;
        };
        let own = start.pid == self.pid();
        let op = if own { self.ops.get(parent) } else { None };
        let ended = if own && op.is_none() { self.ops.ended(parent) } else { None };
        if own && op.is_none() && ended.is_none() {
            return self.stale();
        }
        let Some(index) = self.flows.free.pop().or_else(|| self.take_oldest_flow()) else {
            self.writer().count_drop(DropKind::Flow);
            return DROP_HANDLE;
        };
        let flow = &self.flows.flows[index as usize];
        flow.reset();
        flow.begun.store(now_ticks(), Relaxed);
        let flag = |on: bool, bit: u64| if on { bit } else { 0 };
        let shape = u64::from(total)
            | u64::from(start.channel) << 32
            | flag(start.is_send, SEND)
            | flag(start.counts_in_op_states, COUNTS_IN_OP_STATES)
            | flag(op.is_some_and(Op::kernel_events), KERNEL_EVENTS);
        flow.shape.store(shape, Relaxed);
        let comm = op.map(Op::comm).or(ended.map(|(_, comm)| comm)).inspect(|comm| self.shows_flows(*comm));
        flow.comm.store(comm.map_or(u64::MAX, u64::from), Relaxed);
        flow.op.store(parent, Relaxed);
        flow.peer_pid.store(peer.into(), Relaxed);
        if let Some(op) = op {
            flow.op_slot.store(op.slot().to_bits(), Relaxed);
            op.flow_pending();
        } else if !own {
            // PXN: the operation lives in another process; its raw handle is the only name it has here.
            flow.foreign.store(u64::from(start.rank as u32), Relaxed);
            flow.peer_pid.store(u64::from(peer) | u64::from(start.pid as u32) << 32, Relaxed);
        }
        let generation = next_generation(flow.generation.load(Relaxed) as u32);
        flow.generation.store(generation.into(), Relaxed);
        let handle = Handle { kind: HandleKind::Flow, generation, slot: index }.encode();
        flow.handle.store(handle, Release);
        if start.counts_in_op_states {
            self.activate(flow);
        }
        handle
    }

    pub(crate) fn is_own(flow: &Flow) -> bool {
        flow.comm.load(Relaxed) != u64::MAX
    }

    /// NCCL progresses the flow: it becomes visible. CollNet and copy-engine proxies never get here.
    fn activate(&self, flow: &Flow) {
        if flow.slot.load(Acquire) != PENDING {
            return;
        }
        let own = Runtime::is_own(flow);
        let op_raw = flow.op.load(Relaxed);
        let peer_pid = flow.peer_pid.load(Relaxed);
        let direction = if flow.is_send() { Direction::Send } else { Direction::Recv };
        let owner = if own {
            let ended = || self.ops.ended(op_raw).map(|(id, _)| FlowOwner::Id(id));
            match self.ops.get(op_raw).map(|op| FlowOwner::Op(op.slot())).or_else(ended) {
                Some(owner) => owner,
                None => return flow.slot.store(UNTRACED, Release),
            }
        } else {
            let class = if flow.is_send() { OpClass::Send } else { OpClass::Recv };
            let rank = CommRank(flow.foreign.load(Relaxed) as u32);
            FlowOwner::Id(OpId { comm: CommId(0), class, peer: rank, seq: OpSeq(op_raw) })
        };
        let begin = FlowBegin {
            op: owner,
            channel: ChannelId((flow.shape.load(Relaxed) >> 32) as u8),
            peer: CommRank(peer_pid as u32),
            direction,
            total_chunks: flow.total(),
            at_ticks: flow.begun.load(Relaxed),
            proxied_for_pid: (peer_pid >> 32) as u32,
        };
        let slot = self.writer().flow_begin(&begin);
        flow.slot.store(slot.map_or(UNTRACED, |slot| slot.to_bits() + 1), Release);
        if !own {
            return;
        }
        if let Some(op) = self.ops.get(op_raw) {
            op.flow_settled((flow.shape.load(Relaxed) >> 32) as u8, slot.is_some());
            if let (Some(cell), true) = (self.writer().op(op.slot()), slot.is_some()) {
                cell.flow_started();
            }
        }
    }

    /// A step of a flow begins: its handle, the same for the same step however often it begins.
    #[inline]
    pub fn step_start(&self, parent: u64, step: i32) -> u64 {
        let Some(flow) = self.flows.get(parent) else { return self.stale() };
        let step = step as u32;
        if step >= flow.total() || flow.shape.load(Relaxed) & COUNTS_IN_OP_STATES != 0 {
            return DROP_HANDLE;
        }
        if flow.slot.load(Relaxed) == PENDING {
            self.activate(flow);
        }
        let lane = &flow.lanes[step as usize % LANES];
        let key = lane.key.load(Relaxed);
        let first = lane_key((parent >> 32) as u32 & GENERATION_MASK, step, stage::STARTED);
        if key >> 32 != first >> 32 || key < first {
            lane.entered.store(0, Relaxed);
            lane.key.store(first, Relaxed);
        } else if key >> STAGE_BITS > first >> STAGE_BITS {
            return DROP_HANDLE;
        }
        let index = parent as u32;
        (parent & !(0xf << 60) & !u64::from(u32::MAX))
            | (HandleKind::Step as u64) << 60
            | u64::from(index << STEP_BITS | step & STEP_MASK)
    }

    /// The flow, cell and lane of a step's handle.
    #[inline]
    fn step(&self, handle: Handle) -> Option<(&Flow, &FlowCell, &Lane)> {
        let (_, flow) = self.flows.at(HandleKind::Flow, handle.generation, handle.slot >> STEP_BITS)?;
        let step = handle.slot & STEP_MASK;
        let lane = &flow.lanes[step as usize % LANES];
        let key = lane.key.load(Relaxed);
        let current = (key as u32 >> STAGE_BITS).wrapping_sub(1) & STEP_MASK;
        if current != step || (key >> 32) as u32 != handle.generation {
            return None;
        }
        let cell = self.writer().flow(flow.slot()?)?;
        Some((flow, cell, lane))
    }

    /// Moves a step to a stage, through those it skipped; false if it was there already.
    #[inline]
    fn advance(&self, flow: &Flow, cell: &FlowCell, lane: &Lane, to: u64, now: u64) -> bool {
        let key = lane.key.load(Relaxed);
        let from = stage_of(key);
        if from >= to {
            return false;
        }
        lane.key.store(key - from + to, Relaxed);
        let is_first = match flow.is_send() {
            true => from < stage::READY && to >= stage::READY && cell.ready_count() == 0,
            false => to == stage::DONE && cell.done_count() == 0,
        };
        if is_first {
            self.first_moved(flow.op.load(Relaxed), flow.is_send(), lane.entered.load(Relaxed), now);
        }
        if from >= stage::POSTED {
            // Only the stage it was in took time; those skipped took none.
            let spent = self.cost(flow, lane.entered.load(Relaxed), now);
            cell.stage(from as usize - 1, spent);
        }
        lane.entered.store(now, Relaxed);
        for passed in from + 1..=to {
            match passed {
                stage::POSTED => cell.posted(now),
                stage::READY => cell.ready(now),
                stage::TRANSMITTED => cell.transmitted(now),
                _ => cell.done(now),
            };
        }
        true
    }

    /// A step passed a state.
    #[inline]
    pub(crate) fn step_state(&self, handle: Handle, number: i32, arg: StateArg) {
        let Some((flow, cell, lane)) = self.step(handle) else { return };
        let to = match (number, flow.is_send()) {
            (state::SEND_GPU_WAIT, true) | (state::RECV_WAIT, false) => stage::POSTED,
            (state::SEND_PEER_WAIT, true) | (state::RECV_FLUSH_WAIT, false) => stage::READY,
            (state::SEND_WAIT, true) | (state::RECV_GPU_WAIT, false) => stage::TRANSMITTED,
            _ => return,
        };
        let moved = self.advance(flow, cell, lane, to, now_ticks());
        match (number, moved) {
            // Bytes are the step's own from here on: before, the field still holds the step's before it.
            (state::SEND_WAIT | state::RECV_FLUSH_WAIT, true) => cell.add_bytes(arg.value),
            (state::SEND_PEER_WAIT, false) if stage_of(lane.key.load(Relaxed)) == stage::READY => cell.peer_wait_poll(),
            _ => {}
        }
    }

    /// A step ended; the second time nothing happens.
    #[inline]
    pub(crate) fn step_stop(&self, handle: Handle) {
        let Some((flow, cell, lane)) = self.step(handle) else { return };
        let key = lane.key.load(Relaxed);
        let at = stage_of(key);
        if at == stage::TRANSMITTED {
            self.advance(flow, cell, lane, stage::DONE, now_ticks());
        } else if at < stage::TRANSMITTED {
            lane.key.store(key - at + stage::CUT, Relaxed);
        }
    }

    /// A proxy operation passed a state: 19 (v4 on) shows it, 0 to 7 (v1 to v3) carry its counters.
    pub(crate) fn flow_state(&self, raw: u64, number: i32, arg: StateArg) {
        let Some(flow) = self.flows.get(raw) else { return };
        if number == state::OP_IN_PROGRESS {
            self.activate(flow);
            return;
        }
        let first = if flow.is_send() { state::OP_SEND_FIRST } else { state::OP_RECV_FIRST };
        let counts = flow.shape.load(Relaxed) & COUNTS_IN_OP_STATES != 0;
        if !counts || !(first..=first + 3).contains(&number) {
            return;
        }
        let Some(cell) = flow.slot().and_then(|slot| self.writer().flow(slot)) else { return };
        let now = now_ticks();
        let to = (number - first) as u64 + stage::POSTED;
        let reached = u64::from(u32::try_from(arg.steps).unwrap_or(0).min(flow.total()));
        let before = match to {
            stage::POSTED => cell.posted_count(),
            stage::READY => cell.ready_count(),
            stage::TRANSMITTED => cell.transmitted_count(),
            _ => cell.done_count(),
        };
        for step in before..reached.min(before + MAX_ADVANCE) {
            let lane = &flow.lanes[step as usize % LANES];
            let first = lane_key(flow.generation.load(Relaxed) as u32, step as u32, stage::STARTED);
            if lane.key.load(Relaxed) >> STAGE_BITS != first >> STAGE_BITS {
                lane.entered.store(now, Relaxed);
                lane.key.store(first + self.counted_stage(cell, step), Relaxed);
            }
            self.advance(flow, cell, lane, to, now);
        }
        if to == stage::READY && flow.is_send() && reached <= before && before > cell.transmitted_count() {
            cell.peer_wait_poll();
        }
        self.op_state_bytes(flow, cell, to, arg.value);
    }

    /// The stage that the counters say a step has reached, when its lane was needed by a later one.
    fn counted_stage(&self, cell: &FlowCell, step: u64) -> u64 {
        let counts = [cell.done_count(), cell.transmitted_count(), cell.ready_count(), cell.posted_count()];
        let passed = counts.iter().position(|&count| step < count);
        passed.map_or(stage::STARTED, |position| stage::DONE - position as u64)
    }

    /// v1 to v3: the byte count runs on from earlier operations; the flow's own is what came after its first state.
    fn op_state_bytes(&self, flow: &Flow, cell: &FlowCell, to: u64, running: u64) {
        let baseline = flow.baseline.load(Relaxed);
        if baseline == 0 {
            if to == stage::POSTED {
                flow.baseline.store(running.wrapping_add(1), Relaxed);
            }
            return;
        }
        // The baseline moves along, so that each difference is added once.
        let added = running.saturating_sub(baseline - 1);
        if added > 0 {
            cell.add_bytes(added);
            flow.baseline.store(running.wrapping_add(1), Relaxed);
        }
    }

    /// A proxy operation ended; the second time nothing happens.
    pub(crate) fn flow_stop(&self, raw: u64) {
        if let Some(flow) = self.flows.get(raw) {
            let (own, op) = (Runtime::is_own(flow), flow.op.load(Relaxed));
            if self.end_flow(raw, flow, true) && own {
                self.op_check_raw(op);
            }
        }
    }

    /// Takes a flow out and pushes its completion, as far as it came. True if this call ended it.
    fn end_flow(&self, raw: u64, flow: &Flow, give_back: bool) -> bool {
        if flow.handle.compare_exchange(raw, 0, AcqRel, Relaxed).is_err() {
            return false;
        }
        let now = now_ticks();
        let done = flow.slot().and_then(|slot| self.writer().flow_end(slot, now));
        let pending = flow.slot.load(Relaxed) == PENDING;
        let op_raw = flow.op.load(Relaxed);
        let own = Runtime::is_own(flow);
        if give_back {
            self.flows.free.push(raw as u32);
        }
        if let Some(done) = &done {
            self.push(&RawRecord::FlowDone(*done));
        }
        let Some(op) = own.then(|| self.ops.get(op_raw)).flatten() else { return true };
        if pending {
            op.flow_settled(0, false);
        } else if done.is_some() {
            op.ended_at(now);
            op.flow_done();
            if let Some(cell) = self.writer().op(op.slot()) {
                cell.flow_done(now);
            }
        }
        true
    }

    /// Makes room in a full table: frees all that never progressed and whose operation is over, else gives up the oldest
    /// (counted). The slot is the caller's.
    #[cold]
    fn take_oldest_flow(&self) -> Option<u32> {
        let mut oldest: Option<(u64, u64)> = None;
        for flow in self.flows.flows.iter() {
            let handle = flow.handle.load(Acquire);
            if handle == 0 {
                continue;
            }
            let shown = flow.slot().is_some();
            if !shown && (!Runtime::is_own(flow) || self.ops.get(flow.op.load(Relaxed)).is_none()) {
                self.end_flow(handle, flow, true);
            } else if oldest.is_none_or(|(begun, _)| flow.begun.load(Relaxed) < begun) {
                oldest = Some((flow.begun.load(Relaxed), handle));
            }
        }
        if let Some(index) = self.flows.free.pop() {
            return Some(index);
        }
        let (_, handle) = oldest?;
        let flow = self.flows.get(handle)?;
        self.writer().count_drop(DropKind::Flow);
        let (own, op) = (Runtime::is_own(flow), flow.op.load(Relaxed));
        if !self.end_flow(handle, flow, false) {
            return None;
        }
        if own {
            self.op_check_raw(op);
        }
        Some(handle as u32)
    }

    /// Ends everything a finalized communicator still has. That completes no operation: its end was not seen.
    pub(crate) fn flows_retire_comm(&self, comm: u32) {
        for flow in self.flows.flows.iter() {
            let handle = flow.handle.load(Acquire);
            if handle != 0 && flow.comm.load(Relaxed) == u64::from(comm) {
                self.end_flow(handle, flow, true);
            }
        }
    }

    /// An event ended, whatever it was.
    #[inline]
    pub fn stop(&self, raw: u64) {
        let Some(handle) = Handle::decode(raw) else { return };
        match handle.kind {
            HandleKind::Step => self.step_stop(handle),
            HandleKind::Flow => self.flow_stop(raw),
            HandleKind::Op => self.op_stop(raw),
            HandleKind::Kernel => self.kernel_stop(raw, now_ticks()),
            HandleKind::Call => self.call_stop(raw),
            HandleKind::Comm | HandleKind::Drop => {}
        }
    }

    /// An event passed a state, whatever it was.
    #[inline]
    pub fn state(&self, raw: u64, number: i32, arg: StateArg) {
        let Some(handle) = Handle::decode(raw) else { return };
        match handle.kind {
            HandleKind::Step => self.step_state(handle, number, arg),
            HandleKind::Flow => self.flow_state(raw, number, arg),
            HandleKind::Kernel if number == state::KERNEL_STOP => self.kernel_stop_state(raw, arg.value),
            _ => {}
        }
    }
}
