//! Operations in flight: started by the host thread, moved by proxy and profiler threads, finished by whoever brings the
//! last piece of evidence.
//!
//! NCCL's stop of a collective means "enqueued". It is complete when every flow it started has stopped, and every
//! channel's kernel has (with kernel events) or its stop has been seen and it had a flow (without).
use crate::calls::Called;
use crate::comms::Comm;
use crate::events::{CollStart, CommTag, P2pStart};
use crate::handle::{DROP_HANDLE, Handle, HandleKind, first_generation};
use crate::runtime::Runtime;
use mycroft_record::{Algorithm, CommId, CommRank, OpClass, OpId, OpKind, OpSeq, Protocol};
use mycroft_ring::pages::{Backing, Slab, Zeroed};
use mycroft_ring::{DropKind, Errno, OpBegin, OpEnd, OpSlot, RawRecord, now_ticks};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Operations given up at once when the table is full: one in 64, so that the next claim, which looks at 64 cells,
/// finds a free one.
const GIVE_UP: usize = 64;
/// How often a full table is tried again.
const TRIES: u32 = 3;

/// What the probe keeps beside the segment's cell of the same index.
#[repr(align(128))]
pub(crate) struct Op {
    /// Its handle while it is in flight, else 0: whoever swaps it to 0 ends it.
    handle: AtomicU64,
    slot: AtomicU64,
    begun: AtomicU64,
    comm: AtomicU32,
    /// Channels whose kernels to wait for, 0 if not told.
    n_channels: AtomicU32,
    kernel_events: AtomicBool,
    collective: AtomicBool,
    /// Its proxy operations never come to progress (CollNet, NVLS): do not wait for them.
    ignores_pending: AtomicBool,
    pub(crate) stop_seen: AtomicBool,
    /// A bit for each channel whose kernel started.
    pub(crate) kernels_started: AtomicU64,
    /// A bit for each channel whose kernel stopped.
    pub(crate) kernels_stopped: AtomicU64,
    /// A bit for each channel on which a flow began.
    flow_channels: AtomicU64,
    /// Without kernel events: when the device was first seen to be in it, else 0.
    pub(crate) seen: AtomicU64,
    pub(crate) flows_pending: AtomicU32,
    pub(crate) flows_started: AtomicU32,
    flows_done: AtomicU32,
    /// When the latest piece of it ended; pieces do not come in the order of their times.
    ended: AtomicU64,
    /// Its handle once it is over, until the cell is used again: a small send's kernel may be over before NCCL's proxy
    /// begins its flow, which still belongs to it.
    last: AtomicU64,
    id_comm: AtomicU64,
    id_seq: AtomicU64,
    /// Low half: peer; above: class.
    pub(crate) id_class_peer: AtomicU64,
}

/// All operations, one for each cell of the segment.
pub(crate) struct OpTable {
    ops: Slab<Op>,
    nonce: u32,
}

// SAFETY: integers and flags only.
unsafe impl Zeroed for Op {}

impl OpTable {
    pub(crate) fn new(count: u32, nonce: u32) -> Result<OpTable, Errno> {
        Ok(OpTable { ops: Slab::new(count as usize, Backing::Now)?, nonce })
    }

    /// The operation in flight that this handle names.
    #[inline]
    pub(crate) fn get(&self, raw: u64) -> Option<&Op> {
        if raw >> 60 != HandleKind::Op as u64 {
            return None;
        }
        let op = self.ops.get(raw as u32 as usize)?;
        (op.handle.load(Acquire) == raw).then_some(op)
    }

    /// The id of an operation that is over, and its communicator's place, while its cell was not used again.
    #[cold]
    pub(crate) fn ended(&self, raw: u64) -> Option<(OpId, u32)> {
        if raw >> 60 != HandleKind::Op as u64 {
            return None;
        }
        let op = self.ops.get(raw as u32 as usize)?;
        let is_last = || op.last.load(Acquire) == raw;
        if !is_last() {
            return None;
        }
        let class_peer = op.id_class_peer.load(Acquire);
        let id = OpId {
            comm: CommId(op.id_comm.load(Acquire)),
            class: OpClass::from_code((class_peer >> 32) as u8),
            peer: CommRank(class_peer as u32),
            seq: OpSeq(op.id_seq.load(Acquire)),
        };
        let comm = op.comm();
        is_last().then_some((id, comm))
    }
}

impl Op {
    #[inline]
    pub(crate) fn slot(&self) -> OpSlot {
        OpSlot::from_bits(self.slot.load(Relaxed))
    }

    /// When it was enqueued.
    #[inline]
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Relaxed)
    }

    #[inline]
    pub(crate) fn comm(&self) -> u32 {
        self.comm.load(Relaxed)
    }

    pub(crate) fn is_collective(&self) -> bool {
        self.collective.load(Relaxed)
    }

    pub(crate) fn kernel_events(&self) -> bool {
        self.kernel_events.load(Relaxed)
    }

    /// A flow was appended but does not progress yet.
    pub(crate) fn flow_pending(&self) {
        self.flows_pending.fetch_add(1, SeqCst);
    }

    /// A flow on a channel that was appended progresses now (`progressing`) or never will.
    pub(crate) fn flow_settled(&self, channel: u8, progressing: bool) {
        if progressing {
            self.flow_channels.fetch_or(1 << (u32::from(channel) % u64::BITS), SeqCst);
            self.flows_started.fetch_add(1, SeqCst);
        }
        self.flows_pending.fetch_sub(1, SeqCst);
    }

    /// A piece of the operation ended.
    pub(crate) fn ended_at(&self, ticks: u64) {
        self.ended.fetch_max(ticks, SeqCst);
    }

    /// A flow is over.
    pub(crate) fn flow_done(&self) {
        self.flows_done.fetch_add(1, SeqCst);
    }

    /// Whether all the evidence there will be is there.
    fn is_complete(&self) -> bool {
        let started = self.flows_started.load(SeqCst);
        if self.flows_done.load(SeqCst) < started {
            return false;
        }
        if !self.kernel_events.load(Relaxed) {
            let pending = self.flows_pending.load(SeqCst) > 0 && !self.ignores_pending.load(Relaxed);
            return self.stop_seen.load(SeqCst) && started > 0 && !pending;
        }
        let stopped = self.kernels_stopped.load(SeqCst);
        match self.n_channels.load(Relaxed) {
            // Not told: those whose kernel started, and those that have a flow, since that flow's kernel is to come.
            0 => {
                let used = self.kernels_started.load(SeqCst) | self.flow_channels.load(SeqCst);
                stopped != 0 && used & !stopped == 0 && self.stop_seen.load(SeqCst)
            }
            expected => stopped.count_ones() >= expected,
        }
    }
}

/// What the two kinds of operation have in common.
struct Begin {
    id: OpId,
    nccl_seq: u64,
    kind: OpKind,
    count: u64,
    root: u32,
    datatype: mycroft_record::Datatype,
    algorithm: Algorithm,
    protocol: Protocol,
    n_channels: u8,
}

/// Whether an operation of this kind has a root.
pub(crate) fn is_rooted(kind: OpKind) -> bool {
    matches!(kind, OpKind::Broadcast | OpKind::Reduce | OpKind::Gather | OpKind::Scatter)
}

impl Runtime {
    /// A collective was enqueued: its handle. `parent` may be the handle of its call.
    pub fn coll_start(&self, context: u64, parent: u64, tag: &CommTag, coll: &CollStart) -> u64 {
        let Some((index, comm)) = self.comm(context, tag) else { return self.stale() };
        let seq = match self.calls.called(parent) {
            Called::Unknown => comm.next_coll(),
            Called::Number(seq) => seq,
            Called::Recorded => return DROP_HANDLE,
        };
        let id = OpId { comm: comm.id(), class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(seq) };
        let begin = Begin {
            id,
            nccl_seq: coll.nccl_seq,
            kind: coll.kind,
            count: coll.count,
            root: if is_rooted(coll.kind) { coll.root as u32 } else { u32::MAX },
            datatype: coll.datatype,
            algorithm: coll.algorithm,
            protocol: coll.protocol,
            n_channels: coll.n_channels,
        };
        let handle = self.op_start(index, comm, &begin);
        self.expire_unobserved(comm, handle);
        handle
    }

    /// One side of a point-to-point operation was enqueued: its handle.
    pub fn p2p_start(&self, context: u64, tag: &CommTag, p2p: &P2pStart) -> u64 {
        let Some((index, comm)) = self.comm(context, tag) else { return self.stale() };
        let is_send = p2p.kind != OpKind::Recv;
        let numbered = u32::try_from(p2p.peer).ok().and_then(|peer| Some((peer, comm.next_p2p(peer, is_send)?)));
        let Some((peer, seq)) = numbered else {
            self.writer().count_drop(DropKind::Other);
            return DROP_HANDLE;
        };
        let class = if is_send { OpClass::Send } else { OpClass::Recv };
        let begin = Begin {
            id: OpId { comm: comm.id(), class, peer: CommRank(peer), seq: OpSeq(seq) },
            nccl_seq: 0,
            kind: p2p.kind,
            count: p2p.count,
            root: u32::MAX,
            datatype: p2p.datatype,
            algorithm: Algorithm::Unknown,
            protocol: Protocol::Unknown,
            n_channels: p2p.n_channels,
        };
        let handle = self.op_start(index, comm, &begin);
        // What a rank sends to itself has neither proxy nor kernel events (2.23 to 2.30), so its end is never seen.
        match self.ops.get(handle).filter(|_| begin.id.peer == comm.rank()) {
            Some(op) => self.end_op(handle, op, None),
            None => self.expire_unobserved(comm, handle),
        }
        handle
    }

    /// An event of nothing that is in flight.
    pub(crate) fn stale(&self) -> u64 {
        self.writer().count_drop(DropKind::Stale);
        DROP_HANDLE
    }

    fn op_start(&self, comm_index: u32, comm: &Comm, begin: &Begin) -> u64 {
        let enqueued_ticks = now_ticks();
        let n_channels = if usize::from(begin.n_channels) > crate::comms::MAX_CHANNELS { 0 } else { begin.n_channels };
        let cell = OpBegin {
            comm_slot: comm.slot(),
            id: begin.id,
            kind: begin.kind,
            nccl_seq: begin.nccl_seq,
            comm_rank: comm.rank(),
            count: begin.count,
            datatype: begin.datatype,
            root: begin.root,
            algorithm: begin.algorithm,
            protocol: begin.protocol,
            n_channels,
            enqueued_ticks,
        };
        let Some(slot) = self.op_begin_or_make_room(&cell) else { return DROP_HANDLE };
        let index = u32::from(slot.index());
        let op = &self.ops.ops[index as usize];
        op.last.store(0, Relaxed);
        op.id_comm.store(begin.id.comm.0, Release);
        op.id_seq.store(begin.id.seq.0, Release);
        op.id_class_peer.store(u64::from(begin.id.class.code()) << 32 | u64::from(begin.id.peer.0), Release);
        op.slot.store(slot.to_bits(), Relaxed);
        op.begun.store(enqueued_ticks, Relaxed);
        op.comm.store(comm_index, Relaxed);
        op.n_channels.store(u32::from(n_channels), Relaxed);
        op.kernel_events.store(self.kernel_events(), Relaxed);
        op.collective.store(begin.id.class == OpClass::Collective, Relaxed);
        let ignores = matches!(
            begin.algorithm,
            Algorithm::CollnetDirect | Algorithm::CollnetChain | Algorithm::Nvls | Algorithm::NvlsTree
        );
        op.ignores_pending.store(ignores, Relaxed);
        op.stop_seen.store(false, Relaxed);
        op.kernels_started.store(0, Relaxed);
        op.kernels_stopped.store(0, Relaxed);
        op.flow_channels.store(0, Relaxed);
        op.seen.store(0, Relaxed);
        op.flows_pending.store(0, Relaxed);
        op.flows_started.store(0, Relaxed);
        op.flows_done.store(0, Relaxed);
        op.ended.store(0, Relaxed);
        let generation = first_generation(self.ops.nonce, index).wrapping_add(slot.generation());
        let handle = Handle { kind: HandleKind::Op, generation, slot: index }.encode();
        op.handle.store(handle, Release);
        handle
    }

    /// A cell of the live table; gives up the oldest operations when it is full.
    fn op_begin_or_make_room(&self, cell: &OpBegin) -> Option<OpSlot> {
        for _ in 0..TRIES {
            if let Some(slot) = self.writer().op_begin(cell) {
                return Some(slot);
            }
            self.give_up_oldest_ops();
        }
        None
    }

    #[cold]
    fn give_up_oldest_ops(&self) {
        // The oldest so far, the youngest of them first; kept sorted.
        let mut oldest = [(u64::MAX, 0u64); GIVE_UP];
        for op in self.ops.ops.iter() {
            let (handle, begun) = (op.handle.load(Acquire), op.begun());
            if handle != 0 && begun < oldest[0].0 {
                oldest[0] = (begun, handle);
                let mut at = 0;
                while at + 1 < GIVE_UP && oldest[at].0 < oldest[at + 1].0 {
                    oldest.swap(at, at + 1);
                    at += 1;
                }
            }
        }
        for (_, handle) in oldest {
            if let Some(op) = self.ops.get(handle) {
                self.end_op(handle, op, None);
            }
        }
    }

    /// NCCL has enqueued the operation entirely (its Coll or P2p stop).
    pub(crate) fn op_stop(&self, raw: u64) {
        let Some(op) = self.ops.get(raw) else { return };
        op.stop_seen.store(true, SeqCst);
        self.op_check(raw, op);
        self.expire_silent(raw, op);
    }

    /// Ends the operation if all evidence is there.
    #[inline]
    pub(crate) fn op_check(&self, raw: u64, op: &Op) {
        if op.is_complete() {
            self.end_op(raw, op, Some(op.ended.load(SeqCst)));
        }
    }

    /// As [`Runtime::op_check`], by handle; nothing where it is over.
    #[inline]
    pub(crate) fn op_check_raw(&self, raw: u64) {
        if let Some(op) = self.ops.get(raw) {
            self.op_check(raw, op);
        }
    }

    /// Takes an operation out of the table and pushes its completion. `None`: its end was not observed.
    pub(crate) fn end_op(&self, raw: u64, op: &Op, ended: Option<u64>) {
        if op.handle.compare_exchange(raw, 0, AcqRel, Relaxed).is_err() {
            return;
        }
        // Before the cell can be used again.
        op.last.store(raw, Release);
        let end = OpEnd { ended_ticks: ended.unwrap_or(op.begun()), observed: ended.is_some() };
        if let Some(mut done) = self.writer().op_end(op.slot(), end) {
            self.complete_by_flows(op, ended, &mut done);
            self.push(&RawRecord::OpDone(done));
        }
    }

    /// Ends everything a finalized communicator still has.
    pub(crate) fn ops_retire_comm(&self, comm: u32) {
        for op in self.ops.ops.iter() {
            let handle = op.handle.load(Acquire);
            if handle != 0 && op.comm() == comm {
                self.end_op(handle, op, None);
            }
        }
    }
}
