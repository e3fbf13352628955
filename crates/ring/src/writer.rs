//! The writer's side: what the probe calls in the job. After `create` nothing here locks, allocates or makes a system
//! call, except claiming and dropping a ring (once per thread).
use crate::cells::{CommSlot, FlowCell, FlowSlot, OpCell, OpSlot};
use crate::clock::Calibration;
use crate::create::{self, SegmentFile};
use crate::error::{CreateError, Errno};
use crate::layout::{
    CELL_WORDS, COMM_NAME_BYTES, DROP_KINDS, FLOW_REACH_FIRST, Geometry, HEADER_WORDS, OP_REACH_FIRST, STATE_CLEAN,
    WORD_BYTES, comm, dir, flow, header, op,
};
use crate::narrow::{at, low};
use crate::raw::{RawFlowDone, RawOpDone, RawOpMeta, RawRecord, Text, byte, flow_key, flow_words, halves, op_id};
use crate::region::Region;
use crate::sync::{AtomicU64, Ordering};
use crate::{lane, table};
use mycroft_record::{
    Algorithm, ChannelId, CommRank, Datatype, Direction, FlowCounters, FlowKey, OpId, OpKind, Protocol,
};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// How to make a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentConfig<'a> {
    /// Directory of this user's segments; made 0700 when missing, where the directory it lies in exists.
    pub dir: &'a Path,
    /// Bytes wanted; 0 for the default, this rank's share of `layout::HOST_BYTES`.
    pub size_bytes: u64,
    /// Job name.
    pub job: &'a str,
    /// Host name.
    pub host: &'a str,
    /// Global rank, `u32::MAX` if not told.
    pub rank: u32,
    /// Ranks in the job, 0 if not told.
    pub world_size: u32,
    /// Rank on its host, `u32::MAX` if not told.
    pub local_rank: u32,
    /// GPU index, -1 if not known.
    pub gpu: i32,
}

/// A communicator begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommBegin<'a> {
    /// When.
    pub at_ticks: u64,
    /// Communicator hash.
    pub comm: u64,
    /// Ranks in it.
    pub n_ranks: u32,
    /// Hosts in it, 0 if not told.
    pub n_nodes: u32,
    /// This process's rank in it.
    pub comm_rank: u32,
    /// Name the framework gave; cut at 128 bytes.
    pub name: &'a str,
}

/// An operation begins (the host enqueued it).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpBegin {
    /// The communicator's cell, where it has one.
    pub comm_slot: Option<CommSlot>,
    /// Which operation.
    pub id: OpId,
    /// What it does.
    pub kind: OpKind,
    /// NCCL's own sequence number, 0 for point-to-point.
    pub nccl_seq: u64,
    /// This process's rank in the communicator.
    pub comm_rank: CommRank,
    /// Elements.
    pub count: u64,
    /// Element type.
    pub datatype: Datatype,
    /// Root of rooted collectives, `u32::MAX` otherwise.
    pub root: u32,
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Protocol.
    pub protocol: Protocol,
    /// Channels, 0 if not told.
    pub n_channels: u8,
    /// When the host enqueued it.
    pub enqueued_ticks: u64,
}

/// Which operation a flow belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowOwner {
    /// One in this segment's table.
    Op(OpSlot),
    /// One that is not in the table: the table was full, or it is another process's (PXN).
    Id(OpId),
}

/// A flow begins (the proxy operation was appended).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowBegin {
    /// Its operation.
    pub op: FlowOwner,
    /// The channel.
    pub channel: ChannelId,
    /// The peer in the communicator.
    pub peer: CommRank,
    /// Send or receive.
    pub direction: Direction,
    /// Steps the flow will make.
    pub total_chunks: u32,
    /// When.
    pub at_ticks: u64,
    /// Process id the flow works for when not our own (PXN), else 0.
    pub proxied_for_pid: u32,
}

/// How an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpEnd {
    /// When all of it had finished.
    pub ended_ticks: u64,
    /// False: completion could not be observed, the time is of the enqueue.
    pub observed: bool,
}

/// What was dropped for want of room; one counter of the header each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DropKind {
    /// No free communicator cell.
    Comm = 0,
    /// No free operation cell.
    Op = 1,
    /// No free flow cell.
    Flow = 2,
    /// A record of a thread that has no ring.
    Record = 3,
    /// An event that referred to something over or foreign.
    Stale = 4,
    /// The probe's own reasons.
    Other = 5,
}

impl DropKind {
    /// Every kind, in counter order.
    pub const ALL: [DropKind; 6] =
        [DropKind::Comm, DropKind::Op, DropKind::Flow, DropKind::Record, DropKind::Stale, DropKind::Other];
}

const _: () = assert!(DropKind::ALL.len() <= DROP_KINDS);

/// Where cells of a table are claimed, on a cache line of its own, so that threads that begin operations do not slow
/// those that begin flows.
#[repr(align(128))]
struct Turn {
    next: AtomicU64,
    /// Cells in use by turns: they stay in the processor's caches, as a table that is gone through whole does not.
    reach: AtomicU64,
}

impl Turn {
    fn new(reach: u64) -> Turn {
        Turn { next: AtomicU64::new(0), reach: AtomicU64::new(reach) }
    }

    /// A free cell and its new generation. The place to look at rotates, so that a freed cell is not given out again at
    /// once. Where there is none near, the reach doubles, until it is all of the table; `publish` tells readers first.
    #[inline]
    fn claim(&self, directory: &[AtomicU64], publish: impl Fn(u64)) -> Option<(u64, u64)> {
        let mut reach = self.reach.load(Relaxed);
        let mut hint = self.next.fetch_add(1, Relaxed);
        loop {
            if let Some(found) = table::claim(&directory[..at(reach)], hint) {
                return Some(found);
            }
            if reach == directory.len() as u64 {
                return None;
            }
            hint = reach;
            publish(reach * 2);
            // Whoever else found the same reach too small doubles it to the same.
            reach = self.reach.fetch_max(reach * 2, Relaxed).max(reach * 2);
        }
    }
}

/// The segment of this process. All methods take `&self` and may be called from any thread.
pub struct SegmentWriter {
    region: Region,
    file: Option<SegmentFile>,
    calibration: Calibration,
    nonce: u32,
    pid: u32,
    comm_turn: Turn,
    op_turn: Turn,
    flow_turn: Turn,
}

impl SegmentWriter {
    /// Makes the segment of this process and publishes it. Shrinks to what the file system and the memory limit really
    /// have.
    ///
    /// # Errors
    /// The directory is not safely ours, there is no room for the smallest segment, or the system refused.
    pub fn create(config: &SegmentConfig<'_>) -> Result<SegmentWriter, CreateError> {
        let calibration = Calibration::measure();
        let (region, file, identity) = create::create(config, &calibration)?;
        let nonce = file.nonce();
        Ok(SegmentWriter::over(region, Some(file), calibration, nonce, identity.pid))
    }

    /// A segment on the heap, without a file: for models and miri.
    #[doc(hidden)]
    pub fn on_heap(geometry: Geometry, calibration: Calibration) -> Result<SegmentWriter, Errno> {
        Ok(SegmentWriter::over(Region::heap(geometry)?, None, calibration, 1, std::process::id()))
    }

    fn over(
        region: Region,
        file: Option<SegmentFile>,
        calibration: Calibration,
        nonce: u32,
        pid: u32,
    ) -> SegmentWriter {
        let Geometry { comms, ops, flows, .. } = region.geometry;
        let [op_reach, flow_reach] = [ops.min(OP_REACH_FIRST), flows.min(FLOW_REACH_FIRST)];
        let [comm_turn, op_turn, flow_turn] = [comms, op_reach, flow_reach].map(Turn::new);
        let writer = SegmentWriter { region, file, calibration, nonce, pid, comm_turn, op_turn, flow_turn };
        writer.reach(header::OP_REACH, op_reach);
        writer.reach(header::FLOW_REACH, flow_reach);
        writer
    }

    /// Random number drawn at attach.
    pub fn nonce(&self) -> u32 {
        self.nonce
    }

    /// The calibration in the header.
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// How large the segment became.
    pub fn geometry(&self) -> &Geometry {
        &self.region.geometry
    }

    /// The file, `None` on the heap.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(SegmentFile::path)
    }

    /// All words, for models that read without a file.
    #[doc(hidden)]
    pub fn words(&self) -> &[AtomicU64] {
        self.region.words()
    }

    fn header(&self, field: usize) -> &AtomicU64 {
        &self.region.words()[field]
    }

    /// Tells readers how far cells of a table are claimed, before the first of them is.
    #[inline]
    fn reach(&self, field: usize, cells: u64) {
        // Models of parts of a segment have no room for it, and read whole tables.
        if self.region.geometry.header_words == HEADER_WORDS as u64 {
            self.header(field).fetch_max(cells, Ordering::Release);
        }
    }

    /// Says what NCCL chose. May be called again.
    pub fn set_profiler(&self, abi: u32, nccl_version: u32, kernel_events: bool) {
        self.header(header::PROFILER_ABI).store(u64::from(abi), Relaxed);
        self.header(header::NCCL_VERSION).store(u64::from(nccl_version), Relaxed);
        self.header(header::KERNEL_EVENTS).store(u64::from(kernel_events), Relaxed);
    }

    /// Counts something dropped.
    pub fn count_drop(&self, kind: DropKind) {
        self.header(header::DROPPED + kind as usize).fetch_add(1, Relaxed);
    }

    /// Says that every communicator was finalized: what follows is an orderly end, not a crash.
    pub fn mark_clean_exit(&self) {
        if std::process::id() == self.pid {
            self.header(header::STATE).store(STATE_CLEAN, Ordering::Release);
        }
    }

    /// Removes the file; who has it open can go on reading. Does nothing in a forked child or the second time.
    pub fn remove_file(&self) {
        if let Some(file) = &self.file {
            file.remove();
        }
    }

    /// Puts a communicator into the table. `None` (and counted) when there is no free cell near.
    pub fn comm_begin(&self, begin: &CommBegin<'_>) -> Option<CommSlot> {
        let region = &self.region;
        let Some((index, generation)) = self.comm_turn.claim(region.comm_dir(), |_| {}) else {
            self.count_drop(DropKind::Comm);
            return None;
        };
        let name = Text::<COMM_NAME_BYTES>::new(begin.name);
        let mut words = [0; CELL_WORDS];
        words[comm::ID] = begin.comm;
        words[comm::RANKS_NODES] = halves(begin.n_ranks, begin.n_nodes);
        words[comm::COMM_RANK] = u64::from(begin.comm_rank);
        words[comm::BEGIN_TICKS] = begin.at_ticks;
        words[comm::NAME] = name.len() as u64;
        for i in 0..COMM_NAME_BYTES / WORD_BYTES {
            words[comm::NAME + 1 + i] = name.word(i);
        }
        fill(region.comm_cell(index), &words);
        table::publish(region.comm_dir(), index, generation);
        Some(CommSlot::new(index, generation))
    }

    /// Ends a communicator; its cell stays readable until it is needed. False if the reference was stale.
    pub fn comm_end(&self, slot: CommSlot, at_ticks: u64) -> bool {
        let region = &self.region;
        let (index, generation) = (u64::from(slot.index()), u64::from(slot.generation()));
        let ended = table::take(region.comm_dir(), index, generation);
        if ended {
            region.comm_cell(index)[comm::END_TICKS].store(at_ticks, Relaxed);
            table::retire(region.comm_dir(), index, generation, dir::ENDED);
        }
        ended
    }

    /// Puts an operation into the live table. `None` (and counted) when there is no free cell near.
    #[inline]
    pub fn op_begin(&self, begin: &OpBegin) -> Option<OpSlot> {
        let region = &self.region;
        let publish = |reach| self.reach(header::OP_REACH, reach);
        let Some((index, generation)) = self.op_turn.claim(region.op_dir(), publish) else {
            self.count_drop(DropKind::Op);
            return None;
        };
        let meta = RawOpMeta {
            id: begin.id,
            kind: begin.kind,
            nccl_seq: begin.nccl_seq,
            comm_rank: begin.comm_rank,
            count: begin.count,
            datatype: begin.datatype,
            root: begin.root,
            algorithm: begin.algorithm,
            protocol: begin.protocol,
            n_channels: begin.n_channels,
            enqueued_ticks: begin.enqueued_ticks,
            started_ticks: 0,
            started_last_ticks: 0,
        };
        let mut words = [0; CELL_WORDS];
        words[..op::ENDED_FIRST].copy_from_slice(&meta.encode());
        words[op::COMM_SLOT] = begin.comm_slot.map_or(0, CommSlot::to_bits);
        fill(region.op_cell(index).words(), &words);
        table::publish(region.op_dir(), index, generation);
        self.header(header::HEARTBEAT).store(begin.enqueued_ticks, Relaxed);
        Some(OpSlot::new(index, generation))
    }

    /// The moving part of an operation, `None` if the reference is stale. Should the operation end on another thread
    /// right after the check, a count may reach the cell's next operation (readers clamp); identities cannot be damaged.
    #[inline]
    pub fn op(&self, slot: OpSlot) -> Option<&OpCell> {
        let (index, generation) = (u64::from(slot.index()), u64::from(slot.generation()));
        table::is_active(self.region.op_dir(), index, generation).then(|| self.region.op_cell(index))
    }

    /// Takes an operation out of the live table: its completion record, for exactly one of several callers; `None` if the
    /// reference is stale.
    #[inline]
    pub fn op_end(&self, slot: OpSlot, end: OpEnd) -> Option<RawOpDone> {
        let region = &self.region;
        let (index, generation) = (u64::from(slot.index()), u64::from(slot.generation()));
        if !table::take(region.op_dir(), index, generation) {
            return None;
        }
        let mut words = copy(region.op_cell(index).words());
        table::retire(region.op_dir(), index, generation, dir::FREE);
        if words[op::KERNELS_STARTED] < u64::from(byte(words[op::SHAPE], 2)) {
            // Not all channels started: there is no last start.
            words[op::STARTED_LAST] = 0;
        }
        let ended_first = words[op::ENDED_FIRST];
        Some(RawOpDone {
            op: RawOpMeta::decode(&words),
            ended_first_ticks: if ended_first == 0 { end.ended_ticks } else { ended_first },
            ended_ticks: end.ended_ticks,
            flows: u16::try_from(words[op::FLOWS_STARTED]).unwrap_or(u16::MAX),
            observed: end.observed,
        })
    }

    /// Puts a flow into the live table. `None` (and counted) when there is no free cell near or its operation is over.
    #[inline]
    pub fn flow_begin(&self, begin: &FlowBegin) -> Option<FlowSlot> {
        let region = &self.region;
        let (op, op_bits) = match begin.op {
            FlowOwner::Id(id) => (id, 0),
            FlowOwner::Op(slot) => {
                let Some(cell) = self.op(slot) else {
                    self.count_drop(DropKind::Stale);
                    return None;
                };
                let identity: [u64; op::SEQ + 1] = std::array::from_fn(|i| cell.words()[i].load(Relaxed));
                (op_id(&identity), slot.to_bits())
            }
        };
        let publish = |reach| self.reach(header::FLOW_REACH, reach);
        let Some((index, generation)) = self.flow_turn.claim(region.flow_dir(), publish) else {
            self.count_drop(DropKind::Flow);
            return None;
        };
        let key = FlowKey { op, channel: begin.channel, peer: begin.peer, direction: begin.direction };
        let mut words = [0; CELL_WORDS];
        words[..4].copy_from_slice(&flow_words(&key, begin.total_chunks));
        words[flow::PROXIED_PID] = u64::from(begin.proxied_for_pid);
        words[flow::STARTED] = begin.at_ticks;
        words[flow::OP_SLOT] = op_bits;
        words[flow::LAST_PROGRESS] = begin.at_ticks;
        fill(region.flow_cell(index).words(), &words);
        table::publish(region.flow_dir(), index, generation);
        Some(FlowSlot::new(index, generation))
    }

    /// The moving part of a flow, `None` if the reference is stale. Only the thread that runs the flow may count in it.
    #[inline]
    pub fn flow(&self, slot: FlowSlot) -> Option<&FlowCell> {
        let (index, generation) = (u64::from(slot.index()), u64::from(slot.generation()));
        table::is_active(self.region.flow_dir(), index, generation).then(|| self.region.flow_cell(index))
    }

    /// Takes a flow out of the live table: its completion record, for exactly one of several callers; `None` if the
    /// reference is stale.
    #[inline]
    pub fn flow_end(&self, slot: FlowSlot, ended_ticks: u64) -> Option<RawFlowDone> {
        let region = &self.region;
        let (index, generation) = (u64::from(slot.index()), u64::from(slot.generation()));
        if !table::take(region.flow_dir(), index, generation) {
            return None;
        }
        let words = copy(region.flow_cell(index).words());
        table::retire(region.flow_dir(), index, generation, dir::FREE);
        let us = |first: usize| std::array::from_fn(|i| self.calibration.ticks_to_us(words[first + i]));
        Some(RawFlowDone {
            flow: flow_key(&words),
            counters: counters(&words),
            bytes: words[flow::BYTES],
            started_ticks: words[flow::STARTED],
            first_ready_ticks: words[flow::FIRST_READY],
            last_progress_ticks: words[flow::LAST_PROGRESS],
            ended_ticks,
            stage_us: us(flow::STAGE_TICKS),
            stage_max_us: us(flow::STAGE_MAX_TICKS),
            peer_wait_polls: u32::try_from(words[flow::PEER_WAIT_POLLS]).unwrap_or(u32::MAX),
            proxied_for_pid: low(words[flow::PROXIED_PID]),
        })
    }

    /// Claims a ring for the calling thread; `None` when all are taken. Dropping it gives it to a later thread, which
    /// goes on with its sequence.
    pub fn claim_ring(&self) -> Option<RingWriter> {
        let owner = thread_id();
        (0..at(self.region.geometry.rings)).find_map(|ring| {
            let head = lane::claim(self.region.ring_header(ring), owner)?;
            let slot = head % self.region.geometry.ring_slots;
            Some(RingWriter { region: self.region.clone(), ring, head, slot, pid: self.pid })
        })
    }
}

/// The kernel's id of the calling thread, never 0.
fn thread_id() -> u64 {
    // SAFETY: takes nothing, touches nothing, cannot fail; miri has no threads of the kernel's.
    if cfg!(miri) { 1 } else { u64::from(unsafe { libc::gettid() }.unsigned_abs()).max(1) }
}

#[inline]
fn fill(cell: &[AtomicU64], words: &[u64; CELL_WORDS]) {
    for (to, from) in cell.iter().zip(words) {
        to.store(*from, Relaxed);
    }
}

#[inline]
fn copy(cell: &[AtomicU64; CELL_WORDS]) -> [u64; CELL_WORDS] {
    std::array::from_fn(|i| cell[i].load(Relaxed))
}

/// Chunk counters of a flow cell as they stand.
pub(crate) fn counters(words: &[u64]) -> FlowCounters {
    let count = |i: usize| u32::try_from(words[i]).unwrap_or(u32::MAX);
    FlowCounters {
        total_chunks: crate::raw::high(words[flow::PEER_TOTAL]),
        posted: count(flow::POSTED),
        ready: count(flow::READY),
        transmitted: count(flow::TRANSMITTED),
        done: count(flow::DONE),
    }
}

impl Drop for SegmentWriter {
    fn drop(&mut self) {
        self.remove_file();
    }
}

/// One thread's ring: overwrites the oldest record when full, never waits.
pub struct RingWriter {
    region: Region,
    ring: usize,
    head: u64,
    slot: u64,
    pid: u32,
}

impl RingWriter {
    /// Writes a record. Wait-free: 18 stores.
    #[inline]
    pub fn push(&mut self, record: &RawRecord) {
        self.push_payload(&record.encode());
    }

    /// Writes a payload as it is.
    #[doc(hidden)]
    #[inline]
    pub fn push_payload(&mut self, payload: &crate::raw::Payload) {
        let region = &self.region;
        lane::store(region.ring_header(self.ring), region.ring_slot(self.ring, self.slot), self.head, payload);
        self.head += 1;
        self.slot += 1;
        if self.slot == region.geometry.ring_slots {
            self.slot = 0;
        }
    }

    /// Which ring of the segment.
    pub fn index(&self) -> usize {
        self.ring
    }
}

impl Drop for RingWriter {
    fn drop(&mut self) {
        // A forked child owns a copy of this value but not the ring.
        if std::process::id() == self.pid {
            lane::release(self.region.ring_header(self.ring));
        }
    }
}
