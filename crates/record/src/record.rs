//! The record kinds (paper Table 2 is the field list, `docs/formats/record.md` the catalogue).
use crate::clock::ClockOffset;
use crate::exit::ExitStatus;
use crate::ids::{ChannelId, CommId, CommRank, OpId};
use crate::kind::{Algorithm, Datatype, Direction, OpKind, Protocol};
use crate::time::HostTime;
use std::sync::Arc;

/// Anything that flows along the line. The source (job, host, rank) is the batch's.
#[derive(Clone, PartialEq, Debug)]
pub enum Record {
    /// A process was found: once per attach, and again when the agent restarts.
    Process(ProcessInfo),
    /// A traced process is gone.
    ProcessExit(ProcessExit),
    /// A communicator was made.
    CommInit(CommInit),
    /// A communicator was finalized.
    CommEnd(CommEnd),
    /// An operation in flight, sampled (the paper's real-time state log, operation level).
    OpState(OpState),
    /// An operation completed (the paper's completion log).
    OpDone(OpDone),
    /// A flow in flight, sampled (real-time state log, flow and chunk level).
    FlowState(FlowState),
    /// A flow completed.
    FlowDone(FlowDone),
    /// The agent looked at this process's live tables at this time.
    Sampled(Sampled),
    /// Records were lost: unknown, never a stall.
    Gap(Gap),
    /// A network interface of the host.
    NicState(NicState),
    /// Load of the host.
    HostVitals(HostVitals),
    /// The training loop passed a mark (optional).
    StepMark(StepMark),
    /// How a host's clock stands against the server's, as the server measured it.
    ClockOffset(ClockOffset),
    /// The progress (proxy) threads of a process that has flows in flight do not run.
    ProxyHeld(ProxyHeld),
}

/// Who a traced process is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessInfo {
    /// When the probe attached.
    pub attached_at: HostTime,
    /// Ranks in the job, 0 if the launcher did not tell.
    pub world_size: u32,
    /// Rank on its host, `u32::MAX` if not told.
    pub local_rank: u32,
    /// GPU index, -1 if not known.
    pub gpu: i32,
    /// Profiler ABI that NCCL chose (1..=7), 0 before the first communicator.
    pub profiler_abi: u32,
    /// NCCL version number as `ncclGetVersion` gives it, 0 if not known.
    pub nccl_version: u32,
    /// Whether kernel-channel events are traced: if not, `started_at` of operations is what their flows show.
    pub kernel_events: bool,
}

/// The agent saw that the process of a segment is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessExit {
    /// When the agent noticed.
    pub noticed_at: HostTime,
    /// All communicators were finalized before the end (an orderly exit).
    pub clean: bool,
    /// How it ended, where the agent could read it before somebody collected the process.
    pub status: ExitStatus,
}

impl ProcessExit {
    /// One of which nobody could read how it ended.
    pub fn unread(noticed_at: HostTime, clean: bool) -> ProcessExit {
        ProcessExit { noticed_at, clean, status: ExitStatus::Unknown }
    }
}

/// One rank joined a communicator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommInit {
    /// When.
    pub at: HostTime,
    /// The communicator.
    pub comm: CommId,
    /// Ranks in it.
    pub n_ranks: u32,
    /// Hosts in it, 0 if not told.
    pub n_nodes: u32,
    /// This process's rank in it.
    pub comm_rank: CommRank,
    /// Name the framework gave (`ncclConfig_t.commName`, e.g. "DP_3"); empty if none.
    pub name: Arc<str>,
}

/// One rank left a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommEnd {
    /// When.
    pub at: HostTime,
    /// The communicator.
    pub comm: CommId,
}

/// What an operation is, and when this rank entered it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpMeta {
    /// Which operation.
    pub id: OpId,
    /// What it does.
    pub kind: OpKind,
    /// NCCL's own sequence number (per communicator and function), 0 for point-to-point.
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
    /// Channels the operation uses, 0 if not told.
    pub n_channels: u8,
    /// When the host enqueued it (Coll or P2p start). The host runs ahead of the device.
    pub enqueued_at: HostTime,
    /// When the first channel's kernel started on the device; without kernel events, of a completed operation, when the device
    /// was first seen to be in it. `NONE`: not yet, or not known.
    pub started_at: HostTime,
    /// When the last channel's kernel started; `NONE`: not all have.
    pub started_last_at: HostTime,
}

impl OpMeta {
    /// Payload bytes, count x element size.
    pub fn bytes(&self) -> u64 {
        self.count.saturating_mul(self.datatype.size_bytes())
    }
}

/// An operation in flight at a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpState {
    /// When the agent looked.
    pub sampled_at: HostTime,
    /// The operation.
    pub op: OpMeta,
    /// Channels whose kernel has started.
    pub kernels_started: u8,
    /// Channels whose kernel has stopped.
    pub kernels_stopped: u8,
    /// Flows (proxy operations) started so far.
    pub flows_started: u16,
    /// Flows completed so far.
    pub flows_done: u16,
}

/// A completed operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpDone {
    /// The operation.
    pub op: OpMeta,
    /// When the first channel finished (kernel stop, else the flow end).
    pub ended_first_at: HostTime,
    /// When all of it had finished.
    pub ended_at: HostTime,
    /// Flows it had.
    pub flows: u16,
    /// False: completion could not be observed (no kernel events, no flows), times are of the enqueue.
    pub observed: bool,
}

/// The unit of progress, a flow: one direction of one connection on one channel in one operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowKey {
    /// The operation.
    pub op: OpId,
    /// The channel.
    pub channel: ChannelId,
    /// The peer in the communicator.
    pub peer: CommRank,
    /// Send or receive.
    pub direction: Direction,
}

/// Chunk counters of a flow (paper Table 2), in steps (slices); each only grows and none exceeds `total_chunks`.
///
/// | field | send | receive |
/// |---|---|---|
/// | `posted` | slot offered to the GPU (state 8) | irecv posted (state 10) |
/// | `ready` | GPU filled the slot: `GPU_ready` (state 20) | network delivered (state 11) |
/// | `transmitted` | transport accepted: `RDMA_transmitted` (state 9) | published to the GPU (state 12) |
/// | `done` | delivered and acknowledged: `RDMA_done` (stop) | GPU consumed the slot (stop) |
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowCounters {
    /// Steps the flow will make.
    pub total_chunks: u32,
    /// See the table.
    pub posted: u32,
    /// See the table.
    pub ready: u32,
    /// See the table.
    pub transmitted: u32,
    /// See the table.
    pub done: u32,
}

/// When a flow moved, and how long its steps spent in each stage.
///
/// Stages of a send: 0 GPU (posted -> ready), 1 peer (ready -> transmitted), 2 wire (transmitted -> done).
/// Stages of a receive: 0 wire (posted -> delivered), 1 flush (delivered -> published), 2 GPU (published -> consumed).
///
/// A stage counts from the later of its begin and the operation's own kernel start on this rank (when kernel events are
/// on and the kernel has started): it is the time the step cost the running operation, not time spent enqueued.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowTimes {
    /// Proxy operation appended.
    pub started_at: HostTime,
    /// First step became ready.
    pub first_ready_at: HostTime,
    /// Any counter last moved; now minus this is the paper's `stuck_time`.
    pub last_progress_at: HostTime,
    /// Time steps spent in each stage, summed over steps, microseconds.
    pub stage_us: [u32; 3],
    /// Longest time one step spent in each stage, microseconds.
    pub stage_max_us: [u32; 3],
}

/// A flow in flight at a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowState {
    /// When the agent looked.
    pub sampled_at: HostTime,
    /// Which flow.
    pub flow: FlowKey,
    /// Chunk counters.
    pub counters: FlowCounters,
    /// Bytes moved so far.
    pub bytes: u64,
    /// Times; stage sums contain finished stages only.
    pub times: FlowTimes,
    /// How often the proxy found the receiver without credit (repeated state 20).
    pub peer_wait_polls: u32,
    /// Process id whose rank this flow serves when it is not our own (PXN), else 0.
    pub proxied_for_pid: u32,
}

/// A completed flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowDone {
    /// Which flow.
    pub flow: FlowKey,
    /// Chunk counters at the end (an aborted flow ends short).
    pub counters: FlowCounters,
    /// Bytes moved.
    pub bytes: u64,
    /// Times.
    pub times: FlowTimes,
    /// When it ended.
    pub ended_at: HostTime,
    /// See `FlowState`.
    pub peer_wait_polls: u32,
    /// See `FlowState`.
    pub proxied_for_pid: u32,
}

/// The agent looked: silence after this is silence of the process, not of the agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sampled {
    /// When.
    pub at: HostTime,
    /// Operations in flight.
    pub ops_in_flight: u32,
    /// Flows in flight.
    pub flows_in_flight: u32,
    /// The process exists (not a zombie).
    pub alive: bool,
    /// Every thread is stopped by a signal or a debugger (state T).
    pub stopped: bool,
}

/// Records were lost: what they would have shown is unknown, and their absence shows nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// When it was noticed.
    pub noticed_at: HostTime,
    /// Records lost.
    pub lost: u64,
    /// Where.
    pub cause: GapCause,
}

/// Where records were lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GapCause {
    /// The ring overwrote records before the agent read them.
    RingLapped,
    /// The probe had no free slot or ring.
    ProbeDropped,
    /// The agent's spool was full.
    SpoolDropped,
    /// A torn or impossible slot was skipped.
    Damaged,
    /// The server could not keep up, or failed on what it was sent.
    ServerDropped,
}

/// A network interface, as counted by the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NicState {
    /// When.
    pub at: HostTime,
    /// Interface or device name.
    pub nic: Arc<str>,
    /// Link is up.
    pub up: bool,
    /// Times the link changed, since boot.
    pub link_changes: u64,
    /// Nominal speed in bytes per second, 0 if not known.
    pub speed_bytes_per_sec: u64,
    /// Bytes sent since boot.
    pub tx_bytes: u64,
    /// Bytes received since boot.
    pub rx_bytes: u64,
    /// Packets dropped or in error, both ways, since boot.
    pub errors: u64,
}

/// Load of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostVitals {
    /// When.
    pub at: HostTime,
    /// CPU busy share since the last vitals, in thousandths of all cores.
    pub cpu_busy_milli: u32,
    /// Memory available, bytes.
    pub memory_available_bytes: u64,
    /// Records the agent dropped since it started.
    pub agent_dropped: u64,
    /// How long the threads of the job that the probe knows waited for a processor since the last vitals, in thousandths
    /// of the time in which they were ready to run; 0 if not known.
    pub cpu_wait_milli: u32,
}

/// NCCL's progress (proxy) threads turn without pause as long as anything is in flight. Here none of a process's ran, nor
/// waited for a processor, between two looks of the agent: somebody holds them, and not the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProxyHeld {
    /// When the agent looked.
    pub at: HostTime,
    /// The first look since which none has run.
    pub since: HostTime,
    /// How many there are; 0: they run again.
    pub threads: u32,
    /// What the kernel says of the first: its state's letter (`S` sleeps, `D` waits for a device or disk, `t` is traced); 0
    /// not read.
    pub state: u32,
}

/// The training loop passed a mark (C ABI `mycroft_step`, optional).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StepMark {
    /// When.
    pub at: HostTime,
    /// Iteration number.
    pub step: u64,
}
