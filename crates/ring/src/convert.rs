//! From a segment's words and ticks to the records every other room speaks.
//!
//! The cells of live tables are read while they move: counters that belong together may be some nanoseconds apart. What
//! comes out of here keeps the promises of the vocabulary (`done <= transmitted <= ready <= posted <= total_chunks`) by
//! raising the earlier counter, which has certainly moved by now.
use crate::clock::Calibration;
use crate::raw::{RawCommBegin, RawCommEnd, RawFlowDone, RawOpDone, RawOpMeta, RawRecord, RawStepMark};
use crate::reader::{CommSnapshot, FlowSnapshot, OpSnapshot};
use crate::segment::{SegmentHeader, SegmentState};
use mycroft_record::{
    CommEnd, CommInit, FlowCounters, FlowDone, FlowState, FlowTimes, HostTime, OpDone, OpMeta, OpState, ProcessInfo,
    ProcessKey, Rank, Record, StepMark,
};

/// Where a tick lies on the host's time. A segment's own calibration is one; a reader that has watched the clock for
/// longer knows it better.
pub trait Placement {
    /// Host time of a tick count; 0 ticks ("not yet") is `HostTime::NONE`.
    fn host_time(&self, ticks: u64) -> HostTime;
    /// Microseconds of a number of ticks, saturating.
    fn ticks_to_us(&self, ticks: u64) -> u32;
}

impl Placement for Calibration {
    fn host_time(&self, ticks: u64) -> HostTime {
        Calibration::host_time(self, ticks)
    }

    fn ticks_to_us(&self, ticks: u64) -> u32 {
        Calibration::ticks_to_us(self, ticks)
    }
}

/// The process a segment belongs to.
pub fn process_key(header: &SegmentHeader) -> ProcessKey {
    ProcessKey { rank: Rank(header.rank), pid: header.process.pid, nonce: header.nonce }
}

/// Who the process is.
pub fn process_info(header: &SegmentHeader, state: &SegmentState, clock: &impl Placement) -> ProcessInfo {
    ProcessInfo {
        attached_at: clock.host_time(header.attached_ticks),
        world_size: header.world_size,
        local_rank: header.local_rank,
        gpu: header.gpu,
        profiler_abi: state.profiler_abi,
        nccl_version: state.nccl_version,
        kernel_events: state.kernel_events,
    }
}

/// A ring record.
pub fn record(raw: &RawRecord, clock: &impl Placement) -> Record {
    match raw {
        RawRecord::OpDone(r) => Record::OpDone(op_done(r, clock)),
        RawRecord::FlowDone(r) => Record::FlowDone(flow_done(r, clock)),
        RawRecord::CommBegin(r) => Record::CommInit(comm_init(r, clock)),
        RawRecord::CommEnd(r) => Record::CommEnd(comm_end(r, clock)),
        RawRecord::StepMark(r) => Record::StepMark(step_mark(r, clock)),
    }
}

/// What an operation is.
pub fn op_meta(raw: &RawOpMeta, clock: &impl Placement) -> OpMeta {
    OpMeta {
        id: raw.id,
        kind: raw.kind,
        nccl_seq: raw.nccl_seq,
        comm_rank: raw.comm_rank,
        count: raw.count,
        datatype: raw.datatype,
        root: raw.root,
        algorithm: raw.algorithm,
        protocol: raw.protocol,
        n_channels: raw.n_channels,
        enqueued_at: clock.host_time(raw.enqueued_ticks),
        started_at: clock.host_time(raw.started_ticks),
        started_last_at: clock.host_time(raw.started_last_ticks),
    }
}

/// A completed operation.
pub fn op_done(raw: &RawOpDone, clock: &impl Placement) -> OpDone {
    OpDone {
        op: op_meta(&raw.op, clock),
        ended_first_at: clock.host_time(raw.ended_first_ticks),
        ended_at: clock.host_time(raw.ended_ticks),
        flows: raw.flows,
        observed: raw.observed,
    }
}

/// An operation in flight. `started_last_at` is only told once all channels have started.
pub fn op_state(raw: &OpSnapshot, clock: &impl Placement, sampled_at: HostTime) -> OpState {
    let mut op = op_meta(&raw.op, clock);
    if raw.kernels_started < u64::from(raw.op.n_channels) {
        op.started_last_at = HostTime::NONE;
    }
    let kernels_stopped = clamp_u8(raw.kernels_stopped);
    let flows_done = clamp_u16(raw.flows_done);
    OpState {
        sampled_at,
        op,
        kernels_started: clamp_u8(raw.kernels_started).max(kernels_stopped),
        kernels_stopped,
        flows_started: clamp_u16(raw.flows_started).max(flows_done),
        flows_done,
    }
}

/// A completed flow.
pub fn flow_done(raw: &RawFlowDone, clock: &impl Placement) -> FlowDone {
    FlowDone {
        flow: raw.flow,
        counters: in_order(raw.counters),
        bytes: raw.bytes,
        times: FlowTimes {
            started_at: clock.host_time(raw.started_ticks),
            first_ready_at: clock.host_time(raw.first_ready_ticks),
            last_progress_at: clock.host_time(raw.last_progress_ticks),
            stage_us: raw.stage_us,
            stage_max_us: raw.stage_max_us,
        },
        ended_at: clock.host_time(raw.ended_ticks),
        peer_wait_polls: raw.peer_wait_polls,
        proxied_for_pid: raw.proxied_for_pid,
    }
}

/// A flow in flight.
pub fn flow_state(raw: &FlowSnapshot, clock: &impl Placement, sampled_at: HostTime) -> FlowState {
    FlowState {
        sampled_at,
        flow: raw.flow,
        counters: in_order(raw.counters),
        bytes: raw.bytes,
        times: FlowTimes {
            started_at: clock.host_time(raw.started_ticks),
            first_ready_at: clock.host_time(raw.first_ready_ticks),
            last_progress_at: clock.host_time(raw.last_progress_ticks),
            stage_us: raw.stage_ticks.map(|ticks| clock.ticks_to_us(ticks)),
            stage_max_us: raw.stage_max_ticks.map(|ticks| clock.ticks_to_us(ticks)),
        },
        peer_wait_polls: u32::try_from(raw.peer_wait_polls).unwrap_or(u32::MAX),
        proxied_for_pid: raw.proxied_for_pid,
    }
}

/// A communicator from the ring.
pub fn comm_init(raw: &RawCommBegin, clock: &impl Placement) -> CommInit {
    CommInit {
        at: clock.host_time(raw.at_ticks),
        comm: raw.comm,
        n_ranks: raw.n_ranks,
        n_nodes: raw.n_nodes,
        comm_rank: raw.comm_rank,
        name: raw.name.as_str().into(),
    }
}

/// A communicator from the table, for a reader that came after its ring record was overwritten.
pub fn comm_init_of(raw: &CommSnapshot, clock: &impl Placement) -> CommInit {
    CommInit {
        at: clock.host_time(raw.begin_ticks),
        comm: raw.comm,
        n_ranks: raw.n_ranks,
        n_nodes: raw.n_nodes,
        comm_rank: raw.comm_rank,
        name: raw.name.as_str().into(),
    }
}

/// The end of a communicator from the ring.
pub fn comm_end(raw: &RawCommEnd, clock: &impl Placement) -> CommEnd {
    CommEnd { at: clock.host_time(raw.at_ticks), comm: raw.comm }
}

/// The end of a communicator from the table, `None` while it is in use.
pub fn comm_end_of(raw: &CommSnapshot, clock: &impl Placement) -> Option<CommEnd> {
    (raw.end_ticks != 0).then(|| CommEnd { at: clock.host_time(raw.end_ticks), comm: raw.comm })
}

/// A step mark.
pub fn step_mark(raw: &RawStepMark, clock: &impl Placement) -> StepMark {
    StepMark { at: clock.host_time(raw.at_ticks), step: raw.step }
}

fn in_order(c: FlowCounters) -> FlowCounters {
    let total_chunks = c.total_chunks;
    let done = c.done.min(total_chunks);
    let transmitted = c.transmitted.min(total_chunks).max(done);
    let ready = c.ready.min(total_chunks).max(transmitted);
    let posted = c.posted.min(total_chunks).max(ready);
    FlowCounters { total_chunks, posted, ready, transmitted, done }
}

fn clamp_u8(n: u64) -> u8 {
    u8::try_from(n).unwrap_or(u8::MAX)
}

fn clamp_u16(n: u64) -> u16 {
    u16::try_from(n).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ClockKind;
    use mycroft_record::{Algorithm, CommId, CommRank, Datatype, OpClass, OpId, OpKind, OpSeq, Protocol};

    /// One tick is 2 ns; tick 1000 is 1 s after the epoch.
    fn clock() -> Calibration {
        Calibration::from_parts(ClockKind::Tsc, 1000, 0, 1_000_000_000, 500_000_000).expect("a clock")
    }

    fn snapshot() -> OpSnapshot {
        OpSnapshot {
            index: 0,
            generation: 1,
            op: RawOpMeta {
                id: OpId { comm: CommId(1), class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(4) },
                kind: OpKind::AllReduce,
                nccl_seq: 4,
                comm_rank: CommRank(2),
                count: 8,
                datatype: Datatype::Float32,
                root: u32::MAX,
                algorithm: Algorithm::Ring,
                protocol: Protocol::Simple,
                n_channels: 2,
                enqueued_ticks: 1000,
                started_ticks: 1500,
                started_last_ticks: 1500,
            },
            ended_first_ticks: 0,
            ended_last_ticks: 0,
            kernels_started: 1,
            kernels_stopped: 0,
            flows_started: 3,
            flows_done: 4,
        }
    }

    #[test]
    fn ticks_become_host_time_and_not_yet_stays_not_yet() {
        let state = op_state(&snapshot(), &clock(), HostTime(9));
        assert_eq!(state.op.enqueued_at, HostTime(1_000_000_000));
        assert_eq!(state.op.started_at, HostTime(1_000_001_000));
        assert_eq!(state.op.started_last_at, HostTime::NONE, "one of two channels has started");
        assert_eq!((state.flows_started, state.flows_done), (4, 4), "a flow that is done was started");
        let all = OpSnapshot { kernels_started: 2, ..snapshot() };
        assert_eq!(op_state(&all, &clock(), HostTime(9)).op.started_last_at, HostTime(1_000_001_000));
    }

    #[test]
    fn counters_of_different_moments_are_put_in_order() {
        let c = |total_chunks, posted, ready, transmitted, done| FlowCounters {
            total_chunks,
            posted,
            ready,
            transmitted,
            done,
        };
        assert_eq!(in_order(c(8, 4, 3, 2, 1)), c(8, 4, 3, 2, 1));
        assert_eq!(in_order(c(8, 1, 2, 3, 4)), c(8, 4, 4, 4, 4), "done was read last");
        assert_eq!(in_order(c(8, 0, u32::MAX, 0, 1)), c(8, 8, 8, 1, 1), "no counter passes the total");
    }

    #[test]
    fn records_keep_their_numbers() {
        let raw = RawRecord::StepMark(RawStepMark { at_ticks: 1500, step: 7 });
        assert_eq!(record(&raw, &clock()), Record::StepMark(StepMark { at: HostTime(1_000_001_000), step: 7 }));
        let name = crate::raw::Text::new("TP_3");
        let raw = RawCommBegin { at_ticks: 0, comm: CommId(5), n_ranks: 8, n_nodes: 2, comm_rank: CommRank(1), name };
        let init = comm_init(&raw, &clock());
        assert_eq!((&*init.name, init.at, init.n_ranks), ("TP_3", HostTime::NONE, 8));
    }
}
