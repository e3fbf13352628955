//! What two ranks of a job say that stalls: rank 0 waits in an AllReduce that rank 1 does not enter.
#![allow(dead_code, reason = "each test binary uses some of it")]
use mycroft_record::{
    Algorithm, Batch, CommId, CommInit, CommRank, Datatype, HostTime, NANOS_PER_MS, OpClass, OpDone, OpId, OpKind,
    OpMeta, OpSeq, OpState, ProcessInfo, ProcessKey, Protocol, Rank, Record, Sampled, Source,
};
use std::time::{SystemTime, UNIX_EPOCH};

const COMM: CommId = CommId(0xfeed);
/// Time of one iteration.
pub(crate) const ITERATION: u64 = 200 * NANOS_PER_MS;
/// Healthy iterations before the stall.
pub(crate) const HEALTHY: u64 = 20;

pub(crate) fn now() -> HostTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is after 1970");
    HostTime(u64::try_from(since.as_nanos()).expect("before 2554"))
}

/// Rank n lives on host n.
pub(crate) fn batch(rank: u32, at: HostTime, mut records: Vec<Record>, in_flight: u32) -> Batch {
    let sampled = Sampled { at, ops_in_flight: in_flight, flows_in_flight: 0, alive: true, stopped: false };
    records.push(Record::Sampled(sampled));
    let process = ProcessKey { rank: Rank(rank), pid: 100 + rank, nonce: 7 };
    let source = Source { job: "train".into(), host: format!("host{rank}").as_str().into(), process: Some(process) };
    Batch { source, collected_at: at, records }
}

pub(crate) fn hello(rank: u32, at: HostTime) -> Vec<Record> {
    let process = ProcessInfo {
        attached_at: at,
        world_size: 2,
        local_rank: 0,
        gpu: 0,
        profiler_abi: 6,
        nccl_version: 22_803,
        kernel_events: true,
    };
    let init = CommInit { at, comm: COMM, n_ranks: 2, n_nodes: 2, comm_rank: CommRank(rank), name: "DP_0".into() };
    vec![Record::Process(process), Record::CommInit(init)]
}

pub(crate) fn op(rank: u32, seq: u64, began: HostTime) -> OpMeta {
    OpMeta {
        id: OpId { comm: COMM, class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(seq) },
        kind: OpKind::AllReduce,
        nccl_seq: seq,
        comm_rank: CommRank(rank),
        count: 1 << 20,
        datatype: Datatype::Bfloat16,
        root: u32::MAX,
        algorithm: Algorithm::Ring,
        protocol: Protocol::Simple,
        n_channels: 1,
        enqueued_at: began,
        started_at: began,
        started_last_at: began,
    }
}

pub(crate) fn done(rank: u32, seq: u64, began: HostTime, ended: HostTime) -> Record {
    let op = op(rank, seq, began);
    Record::OpDone(OpDone { op, ended_first_at: ended, ended_at: ended, flows: 0, observed: true })
}

/// Iterations `from..to` of a rank, one AllReduce each; iteration n ends at `origin + n * ITERATION`.
pub(crate) fn iterations(rank: u32, origin: HostTime, from: u64, to: u64) -> Vec<Record> {
    let end = |seq: u64| origin + seq * ITERATION;
    (from..to).map(|seq| done(rank, seq, end(seq) - 20 * NANOS_PER_MS, end(seq))).collect()
}

/// What a look at a stalled rank finds.
pub(crate) fn waiting(rank: u32, origin: HostTime, at: HostTime) -> Vec<Record> {
    let waits = OpState {
        sampled_at: at,
        op: op(0, HEALTHY, origin + HEALTHY * ITERATION - 20 * NANOS_PER_MS),
        kernels_started: 1,
        kernels_stopped: 0,
        flows_started: 0,
        flows_done: 0,
    };
    if rank == 0 { vec![Record::OpState(waits)] } else { Vec::new() }
}
