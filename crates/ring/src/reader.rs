//! The reader's protocols over any source of words: draining rings and taking snapshots of tables, with every loss
//! counted. Bounded work and no panic whatever the words say.
use crate::error::ReadError;
use crate::lane::{self, HEAD_LIMIT, LaneAt};
use crate::layout::{
    CELL_WORDS, COMM_NAME_BYTES, Geometry, HEADER_WORDS, PAYLOAD_WORDS, RING_HEADER_WORDS, SLOT_WORDS, comm, dir, flow,
    header, op, ring,
};
use crate::narrow::{at, low};
use crate::raw::{Payload, RawOpMeta, RawRecord, Text, flow_key, high};
use crate::source::Source;
use crate::table::{self, Snapshot, TableAt};
use crate::writer::counters;
use mycroft_record::{CommId, CommRank, FlowCounters, FlowKey};

/// What a drain did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DrainStats {
    /// Records handed out.
    pub read: u64,
    /// Records overwritten before they could be read, since the last drain (or ever, at the first).
    pub lost: u64,
    /// Records whose slot was torn or impossible: a broken or hostile writer.
    pub damaged: u64,
    /// More records were there than `max`; drain again.
    pub more: bool,
}

/// A communicator as the table has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommSnapshot {
    /// Cell in the table; with `generation` unique within the segment.
    pub index: u16,
    /// Generation of the cell.
    pub generation: u32,
    /// The communicator.
    pub comm: CommId,
    /// Ranks in it.
    pub n_ranks: u32,
    /// Hosts in it, 0 if not told.
    pub n_nodes: u32,
    /// This process's rank in it.
    pub comm_rank: CommRank,
    /// Ticks of the init.
    pub begin_ticks: u64,
    /// Ticks of the finalize, 0 while in use.
    pub end_ticks: u64,
    /// Name the framework gave, empty if none.
    pub name: Text<COMM_NAME_BYTES>,
}

/// An operation in flight. Identity is of one moment; counters may be of slightly different ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpSnapshot {
    /// Cell in the table; with `generation` unique within the segment.
    pub index: u16,
    /// Generation of the cell.
    pub generation: u32,
    /// The operation.
    pub op: RawOpMeta,
    /// When the first channel or flow finished, 0 not yet.
    pub ended_first_ticks: u64,
    /// When the latest channel or flow finished, 0 not yet.
    pub ended_last_ticks: u64,
    /// Kernels started.
    pub kernels_started: u64,
    /// Kernels stopped.
    pub kernels_stopped: u64,
    /// Flows started.
    pub flows_started: u64,
    /// Flows done.
    pub flows_done: u64,
}

/// A flow in flight. Identity is of one moment; counters may be of slightly different ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowSnapshot {
    /// Cell in the table; with `generation` unique within the segment.
    pub index: u16,
    /// Generation of the cell.
    pub generation: u32,
    /// Which flow.
    pub flow: FlowKey,
    /// Chunk counters as they were read; `convert` puts them in order.
    pub counters: FlowCounters,
    /// Bytes moved so far.
    pub bytes: u64,
    /// Proxy operation appended.
    pub started_ticks: u64,
    /// First step became ready, 0 not yet.
    pub first_ready_ticks: u64,
    /// A counter last moved.
    pub last_progress_ticks: u64,
    /// Ticks spent in each stage, finished stages only.
    pub stage_ticks: [u64; 3],
    /// Longest ticks one step spent in each stage.
    pub stage_max_ticks: [u64; 3],
    /// Polls that found the peer without credit.
    pub peer_wait_polls: u64,
    /// Process served when not our own (PXN), else 0.
    pub proxied_for_pid: u32,
}

/// Slots copied at once: 64 KiB, well inside a second-level cache, and one system call for 512 records.
const CHUNK_SLOTS: u64 = 512;
/// Reads a segment of a known geometry. Holds the position in each ring.
pub struct Reader<S> {
    source: S,
    geometry: Geometry,
    offsets: [u64; crate::layout::SECTIONS],
    positions: Vec<u64>,
    first: usize,
    heads: Vec<u64>,
    chunk: Vec<u64>,
}

impl<S: Source> Reader<S> {
    /// A reader at the beginning of all rings.
    pub fn new(source: S, geometry: Geometry) -> Reader<S> {
        let rings = at(geometry.rings);
        Reader {
            source,
            geometry,
            offsets: geometry.offsets(),
            positions: vec![0; rings],
            first: 0,
            heads: vec![0; rings * RING_HEADER_WORDS],
            chunk: vec![0; at(CHUNK_SLOTS) * SLOT_WORDS],
        }
    }

    /// The words.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Sequence number of the next record to read, per ring: what an agent keeps to go on after a restart.
    pub fn positions(&self) -> &[u64] {
        &self.positions
    }

    /// Goes on from kept positions; those that do not fit are ignored.
    pub fn set_positions(&mut self, positions: &[u64]) {
        for (to, &from) in self.positions.iter_mut().zip(positions) {
            *to = from.min(HEAD_LIMIT);
        }
    }

    /// Looks at no more than `max` slots and appends their records to `out`, in ring order, starting with another ring each
    /// time. Slots that hold no record count, too: a damaged ring must not cost more than a whole one.
    ///
    /// # Errors
    /// The segment can no longer be read; records read before the failure are in `out`.
    pub fn drain(&mut self, max: usize, out: &mut Vec<RawRecord>) -> Result<DrainStats, ReadError> {
        let mut stats = DrainStats::default();
        self.source.read(self.offsets[6], &mut self.heads)?;
        self.source.acquire_fence();
        let rings = self.positions.len();
        let mut left = max as u64;
        for i in 0..rings {
            let ring_index = (self.first + i) % rings;
            let head = self.heads[ring_index * RING_HEADER_WORDS + ring::HEAD];
            left = self.drain_ring(ring_index, head, left, out, &mut stats)?;
        }
        self.first = (self.first + 1) % rings;
        Ok(stats)
    }

    /// Threads that wrote the rings at the last [`Reader::drain`]: the kernel's numbers as the process sees them.
    pub fn writers(&self) -> impl Iterator<Item = u32> {
        let owners = self.heads.chunks_exact(RING_HEADER_WORDS).map(|header| header[ring::OWNER]);
        owners.filter_map(|owner| u32::try_from(owner).ok()).filter(|owner| *owner != 0)
    }

    /// Gives what is left of the slots that may be looked at.
    fn drain_ring(
        &mut self,
        ring_index: usize,
        head: u64,
        mut left: u64,
        out: &mut Vec<RawRecord>,
        stats: &mut DrainStats,
    ) -> Result<u64, ReadError> {
        let slots = self.geometry.ring_slots;
        if head > HEAD_LIMIT || head < self.positions[ring_index] {
            // No writer of ours does this: heads only grow. Follow it, so that the rest can still be read.
            stats.damaged += 1;
            self.positions[ring_index] = head.min(HEAD_LIMIT);
            return Ok(left);
        }
        loop {
            let mut position = self.positions[ring_index];
            let oldest = lane::oldest_whole(head, slots);
            if position < oldest {
                stats.lost += oldest - position;
                position = oldest;
                self.positions[ring_index] = oldest;
            }
            let to_edge = slots - position % slots;
            let n = (head - position).min(CHUNK_SLOTS).min(to_edge).min(left);
            if n == 0 {
                stats.more |= position < head;
                return Ok(left);
            }
            self.copy_chunk(ring_index, position, n, head, out, stats)?;
            self.positions[ring_index] = position + n;
            left -= n;
        }
    }

    /// Copies records `position..position + n` of a ring, which do not cross its edge, and keeps the whole ones.
    fn copy_chunk(
        &mut self,
        ring_index: usize,
        position: u64,
        n: u64,
        head: u64,
        out: &mut Vec<RawRecord>,
        stats: &mut DrainStats,
    ) -> Result<(), ReadError> {
        let slots = self.geometry.ring_slots;
        let lane_at = LaneAt {
            header: self.offsets[6] + (ring_index * RING_HEADER_WORDS) as u64,
            slots_at: self.offsets[7] + ring_index as u64 * slots * SLOT_WORDS as u64,
            slots,
            slot_words: SLOT_WORDS as u64,
        };
        let chunk = &mut self.chunk[..at(n) * SLOT_WORDS];
        let oldest = lane::copy(&self.source, &lane_at, position, head, chunk)?;
        for (i, slot) in chunk.chunks_exact(SLOT_WORDS).enumerate() {
            let n = position + i as u64;
            if n < oldest {
                stats.lost += 1;
                continue;
            }
            let record = (slot[0] == lane::mark_whole(n)).then(|| decode(slot)).flatten();
            match record {
                Some(record) => {
                    out.push(record);
                    stats.read += 1;
                }
                None => stats.damaged += 1,
            }
        }
        Ok(())
    }

    /// Communicators, also those that ended as long as their cells were not needed again.
    ///
    /// # Errors
    /// The segment can no longer be read.
    pub fn comms(&self) -> Result<Snapshot<CommSnapshot>, ReadError> {
        self.snapshot(0, self.geometry.comms, None, |state| matches!(state, dir::ACTIVE | dir::ENDED), comm_snapshot)
    }

    /// Operations in flight.
    ///
    /// # Errors
    /// The segment can no longer be read.
    pub fn ops(&self) -> Result<Snapshot<OpSnapshot>, ReadError> {
        self.snapshot(2, self.geometry.ops, Some(header::OP_REACH), |state| state == dir::ACTIVE, op_snapshot)
    }

    /// Flows in flight.
    ///
    /// # Errors
    /// The segment can no longer be read.
    pub fn flows(&self) -> Result<Snapshot<FlowSnapshot>, ReadError> {
        self.snapshot(4, self.geometry.flows, Some(header::FLOW_REACH), |state| state == dir::ACTIVE, flow_snapshot)
    }

    fn snapshot<T>(
        &self,
        section: usize,
        count: u64,
        reach: Option<usize>,
        wanted: impl Fn(u64) -> bool,
        make: impl Fn(u16, u32, &[u64]) -> T,
    ) -> Result<Snapshot<T>, ReadError> {
        // Cells beyond the writer's reach were never claimed. A table that says 0 or too much is read whole.
        let mut used = [count];
        if let (Some(field), true) = (reach, self.geometry.header_words == HEADER_WORDS as u64) {
            self.source.read(field as u64, &mut used)?;
        }
        let at = TableAt {
            directory: self.offsets[section],
            cells: self.offsets[section + 1],
            count: at(if (1..=count).contains(&used[0]) { used[0] } else { count }),
            cell_words: CELL_WORDS,
        };
        table::snapshot(&self.source, &at, wanted, make)
    }
}

fn decode(slot: &[u64]) -> Option<RawRecord> {
    let mut payload: Payload = [0; PAYLOAD_WORDS];
    payload.copy_from_slice(&slot[1..SLOT_WORDS]);
    RawRecord::decode(&payload)
}

fn comm_snapshot(index: u16, generation: u32, w: &[u64]) -> CommSnapshot {
    CommSnapshot {
        index,
        generation,
        comm: CommId(w[comm::ID]),
        n_ranks: low(w[comm::RANKS_NODES]),
        n_nodes: high(w[comm::RANKS_NODES]),
        comm_rank: CommRank(low(w[comm::COMM_RANK])),
        begin_ticks: w[comm::BEGIN_TICKS],
        end_ticks: w[comm::END_TICKS],
        name: Text::from_words(w[comm::NAME], &w[comm::NAME + 1..]),
    }
}

fn op_snapshot(index: u16, generation: u32, w: &[u64]) -> OpSnapshot {
    OpSnapshot {
        index,
        generation,
        op: RawOpMeta::decode(w),
        ended_first_ticks: w[op::ENDED_FIRST],
        ended_last_ticks: w[op::ENDED_LAST],
        kernels_started: w[op::KERNELS_STARTED],
        kernels_stopped: w[op::KERNELS_STOPPED],
        flows_started: w[op::FLOWS_STARTED],
        flows_done: w[op::FLOWS_DONE],
    }
}

fn flow_snapshot(index: u16, generation: u32, w: &[u64]) -> FlowSnapshot {
    let three = |first: usize| [w[first], w[first + 1], w[first + 2]];
    FlowSnapshot {
        index,
        generation,
        flow: flow_key(w),
        counters: counters(w),
        bytes: w[flow::BYTES],
        started_ticks: w[flow::STARTED],
        first_ready_ticks: w[flow::FIRST_READY],
        last_progress_ticks: w[flow::LAST_PROGRESS],
        stage_ticks: three(flow::STAGE_TICKS),
        stage_max_ticks: three(flow::STAGE_MAX_TICKS),
        peer_wait_polls: w[flow::PEER_WAIT_POLLS],
        proxied_for_pid: low(w[flow::PROXIED_PID]),
    }
}
