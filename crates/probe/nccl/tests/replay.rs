//! NCCL's call orders replayed through each version's table; the segment must hold exactly what happened.
mod driver;

use driver::{CollArgs, Ctx, Ev, Plugin, ProxyArgs, drain, flows, full, in_own_process, open_segment, ops};
use mycroft_record::{Algorithm, CommId, CommRank, Datatype, Direction, OpClass, OpId, OpKind, OpSeq, Protocol};
use mycroft_ring::{RawFlowDone, RawOpDone, RawRecord};
use std::ffi::c_int;

const HASH: u64 = 0x1234_5678_9abc_def0;
const STEPS: c_int = 12;
const BYTES: u64 = 524_288;

fn coll_id(seq: u64) -> OpId {
    OpId { comm: CommId(HASH), class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(seq) }
}

/// One ring all-reduce on rank 1 of 4 over two channels, as NCCL of this interface version calls it.
fn ring_all_reduce(plugin: &Plugin, context: Ctx, seq: u64, kernels: bool) {
    let coll = plugin.coll(context, &CollArgs::all_reduce(HASH, 1, seq, 2));
    plugin.stop(coll);
    let started: Vec<Ev> =
        if kernels { (0..2).map(|channel| plugin.kernel(context, coll, channel, 0)).collect() } else { Vec::new() };
    let op = |channel, peer, send| plugin.proxy_op(context, coll, 1, &ProxyArgs::own(channel, peer, STEPS, send));
    let sends = [op(0, 2, true), op(1, 2, true)];
    let recvs = [op(0, 0, false), op(1, 0, false)];
    if plugin.abi >= 4 {
        for proxy_op in sends.iter().chain(&recvs) {
            plugin.record_null(*proxy_op, driver::OP_IN_PROGRESS);
        }
        for step in 0..STEPS {
            for (&send, &recv) in sends.iter().zip(&recvs) {
                plugin.recv_step(context, recv, step, BYTES, 2);
                plugin.send_step(context, send, step, BYTES, 3);
            }
        }
    } else {
        op_states(plugin, &sends, &recvs);
    }
    for proxy_op in sends.iter().chain(&recvs) {
        plugin.stop(*proxy_op);
    }
    for kernel in started {
        plugin.kernel_stop(kernel, 0);
    }
}

/// The states of NCCL up to 2.26: cumulative steps, and a byte count that runs on from earlier operations.
fn op_states(plugin: &Plugin, sends: &[Ev], recvs: &[Ev]) {
    const EARLIER: u64 = 987_654_321;
    for step in 1..=STEPS {
        let bytes = EARLIER + step as u64 * BYTES;
        for &send in sends {
            plugin.record_op(send, driver::OP_SEND_POSTED, bytes - BYTES, step);
            for _ in 0..4 {
                plugin.record_op(send, driver::OP_SEND_REM_FIFO_WAIT, bytes - BYTES, step);
            }
            plugin.record_op(send, driver::OP_SEND_TRANSMITTED, bytes, step);
            plugin.record_op(send, driver::OP_SEND_DONE, bytes, step);
        }
        for &recv in recvs {
            plugin.record_op(recv, driver::OP_RECV_POSTED, bytes - BYTES, step);
            plugin.record_op(recv, driver::OP_RECV_RECEIVED, bytes, step);
            plugin.record_op(recv, driver::OP_RECV_TRANSMITTED, bytes, step);
            plugin.record_op(recv, driver::OP_RECV_DONE, bytes, step);
        }
    }
}

fn all_reduce_records(test: &str, abi: u32) {
    in_own_process(test, &[("MYCROFT_RANK", "5"), ("MYCROFT_JOB", "job-a")], |dir| {
        let plugin = Plugin::open(abi);
        assert!(!dir.exists(), "nothing happens at load time");
        let mut mask: c_int = 0;
        let context = plugin.init(HASH, c"DP_3", 4, 1, &mut mask);
        let kernels = abi >= 3;
        let expected = 14 + if abi >= 4 { 16 } else { 0 } + if kernels { 64 } else { 0 };
        assert_eq!(mask, expected);
        for seq in 0..2 {
            ring_all_reduce(&plugin, context, seq, kernels);
        }
        let mut reader = open_segment(dir);
        assert_eq!((reader.header().rank, reader.header().job.as_str()), (5, "job-a"));
        let state = reader.state().expect("readable");
        assert_eq!((state.profiler_abi, state.kernel_events, state.dropped_total()), (abi, kernels, 0));
        let records = drain(&mut reader);
        check_comm(&records, abi);
        check_flows(&flows(&records));
        check_ops(&ops(&records), abi, kernels);
        assert!(reader.ops().expect("readable").items.is_empty(), "nothing is left in flight");
        assert!(reader.flows().expect("readable").items.is_empty());
        plugin.finalize(context);
        let ended = drain(&mut reader);
        assert!(matches!(ended[..], [RawRecord::CommEnd(end)] if end.comm == CommId(HASH)), "{ended:?}");
    });
}

fn check_comm(records: &[RawRecord], abi: u32) {
    let RawRecord::CommBegin(comm) = records[0] else { panic!("first comes the communicator: {:?}", records[0]) };
    assert_eq!(comm.comm, CommId(HASH));
    assert_eq!(comm.comm_rank, CommRank(1));
    let (name, n_ranks) = if abi <= 3 { ("comm name", 0) } else { ("DP_3", 4) };
    assert_eq!((comm.name.as_str(), comm.n_ranks), (name, n_ranks));
}

fn check_flows(flows: &[RawFlowDone]) {
    assert_eq!(flows.len(), 8);
    for (i, done) in flows.iter().enumerate() {
        assert_eq!(done.flow.op, coll_id(i as u64 / 4));
        assert_eq!(done.counters, full(STEPS as u32), "{done:?}");
        assert_eq!(done.bytes, BYTES * STEPS as u64);
        assert_eq!(u64::from(done.flow.channel.0), i as u64 % 2);
        let send = i % 4 < 2;
        assert_eq!(done.flow.direction, if send { Direction::Send } else { Direction::Recv });
        assert_eq!(done.flow.peer, CommRank(if send { 2 } else { 0 }));
        assert_eq!(done.peer_wait_polls, if send { 3 * STEPS as u32 } else { 0 });
        assert_eq!(done.proxied_for_pid, 0);
        assert!(done.started_ticks > 0 && done.started_ticks <= done.first_ready_ticks);
        assert!(done.first_ready_ticks <= done.last_progress_ticks && done.last_progress_ticks <= done.ended_ticks);
    }
}

fn check_ops(ops: &[RawOpDone], abi: u32, kernels: bool) {
    assert_eq!(ops.len(), 2);
    for (seq, done) in ops.iter().enumerate() {
        assert_eq!(done.op.id, coll_id(seq as u64));
        assert_eq!((done.op.kind, done.op.count, done.op.datatype), (OpKind::AllReduce, 1 << 20, Datatype::Float32));
        assert_eq!((done.op.algorithm, done.op.protocol), (Algorithm::Ring, Protocol::Simple));
        assert_eq!((done.op.comm_rank, done.op.root, done.op.nccl_seq), (CommRank(1), u32::MAX, seq as u64));
        assert_eq!(done.op.n_channels, if abi >= 4 { 2 } else { 0 });
        assert_eq!((done.flows, done.observed), (4, true));
        assert!(done.op.started_ticks != 0, "told by kernels or seen in flows");
        assert_eq!(done.op.started_ticks <= done.op.started_last_ticks, kernels);
        assert!(done.op.enqueued_ticks < done.ended_first_ticks && done.ended_first_ticks <= done.ended_ticks);
    }
}

#[test]
fn all_reduce_v1() {
    all_reduce_records("all_reduce_v1", 1);
}

#[test]
fn all_reduce_v2() {
    all_reduce_records("all_reduce_v2", 2);
}

#[test]
fn all_reduce_v3() {
    all_reduce_records("all_reduce_v3", 3);
}

#[test]
fn all_reduce_v4() {
    all_reduce_records("all_reduce_v4", 4);
}

#[test]
fn all_reduce_v5() {
    all_reduce_records("all_reduce_v5", 5);
}

#[test]
fn all_reduce_v6() {
    all_reduce_records("all_reduce_v6", 6);
}

#[test]
fn all_reduce_v7() {
    all_reduce_records("all_reduce_v7", 7);
}

/// Part of an all-to-all: no event tells of its end, so it must not stay in flight.
#[test]
fn what_a_rank_sends_to_itself_is_not_observed() {
    in_own_process("what_a_rank_sends_to_itself_is_not_observed", &[], |dir| {
        let plugin = Plugin::open(4);
        let mut mask = 0;
        let context = plugin.init(HASH, c"EP", 4, 2, &mut mask);
        for send in [true, false] {
            let own = plugin.p2p(context, HASH, 2, send, 2, 1);
            plugin.stop(own);
        }
        let other = plugin.p2p(context, HASH, 2, true, 3, 1);
        plugin.stop(other);
        let mut reader = open_segment(dir);
        let live: Vec<u32> = reader.ops().expect("readable").items.iter().map(|op| op.op.id.peer.0).collect();
        assert_eq!(live, [3], "the other waits for its kernel");
        let told: Vec<_> = ops(&drain(&mut reader)).iter().map(|op| (op.op.id.peer.0, op.observed, op.flows)).collect();
        assert_eq!(told, [(2, false, 0), (2, false, 0)]);
    });
}
