//! The built plugin in a collective library with NCCL's interface: real threads, real transport, real call orders.
mod driver;

use driver::{drain, flows, in_own_process, open_segment, ops, plugin_path};
use mycroft_record::{CommRank, Direction, OpClass, OpKind};
use mycroft_ring::{DropKind, RawFlowDone, RawOpDone};
use mycroft_testbed_nccl::abi::{Algo, UniqueId};
use mycroft_testbed_nccl::api::*;
use mycroft_testbed_nccl::env::{Identity, set_thread_identity};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::null_mut;

const RANKS: usize = 4;
const ROUNDS: usize = 25;
/// Elements of each all-reduce: 1.2 MB, so several steps on each channel.
const COUNT: usize = 300_000;
/// `ncclFloat32` and `ncclSum`.
const FLOAT32: i32 = 7;
const SUM: i32 = 0;

/// One rank of four on two hosts: all-reduces, then a ring of sends and receives.
fn rank(id: UniqueId, rank: usize, algo: Algo) {
    let mut identity = Identity::on_host(format!("host{}", rank / 2));
    (identity.algo, identity.channels, identity.buffsize) = (Some(algo), Some(2), Some(512 * 1024));
    set_thread_identity(Some(identity));
    let (mut comm, mut stream): (*mut c_void, *mut c_void) = (null_mut(), null_mut());
    let data = vec![rank as f32; COUNT];
    let mut out = vec![0f32; COUNT];
    let (next, before) = (((rank + 1) % RANKS) as i32, ((rank + RANKS - 1) % RANKS) as i32);
    // SAFETY: NCCL's calls with buffers that outlive the synchronisation.
    unsafe {
        assert_eq!(ncclCommInitRank(&mut comm, RANKS as i32, id, rank as i32), 0);
        assert_eq!(mtbStreamCreate(&mut stream), 0);
        for _ in 0..ROUNDS {
            let (from, to) = (data.as_ptr().cast(), out.as_mut_ptr().cast());
            assert_eq!(ncclAllReduce(from, to, COUNT, FLOAT32, SUM, comm, stream), 0);
        }
        assert_eq!(mtbStreamSynchronize(stream), 0);
        assert!(out.iter().all(|&sum| sum == 6.0), "0 + 1 + 2 + 3");
        assert_eq!(ncclGroupStart(), 0);
        assert_eq!(ncclSend(data.as_ptr().cast(), COUNT, FLOAT32, next, comm, stream), 0);
        assert_eq!(ncclRecv(out.as_mut_ptr().cast(), COUNT, FLOAT32, before, comm, stream), 0);
        assert_eq!(ncclGroupEnd(), 0);
        assert_eq!(mtbStreamSynchronize(stream), 0);
        assert_eq!(ncclCommDestroy(comm), 0);
        assert_eq!(mtbStreamDestroy(stream), 0);
    }
}

fn stand_in(test: &str, algo: Algo, kernel_events: &str) {
    let plugin = plugin_path();
    let variables = [
        ("NCCL_PROFILER_PLUGIN", plugin.to_str().expect("text")),
        ("MYCROFT_KERNEL_EVENTS", kernel_events),
        ("MYCROFT_SEGMENT_BYTES", "33554432"),
    ];
    in_own_process(test, &variables, |dir| {
        let mut id = UniqueId { internal: [0; 128] };
        // SAFETY: a writable id.
        assert_eq!(unsafe { ncclGetUniqueId(&mut id) }, 0);
        std::thread::scope(|scope| {
            (0..RANKS).for_each(|r| {
                scope.spawn(move || rank(id, r, algo));
            });
        });
        let mut reader = open_segment(dir);
        let state = reader.state().expect("readable");
        assert_eq!(state.profiler_abi, 6);
        assert_eq!(state.dropped[DropKind::Op as usize] + state.dropped[DropKind::Flow as usize], 0);
        assert_eq!(state.dropped[DropKind::Record as usize], 0);
        let records = drain(&mut reader);
        check(&ops(&records), &flows(&records), kernel_events == "on");
        assert!(reader.ops().expect("readable").items.is_empty() && reader.flows().expect("readable").items.is_empty());
    });
}

fn check(ops: &[RawOpDone], flows: &[RawFlowDone], kernels: bool) {
    for rank in 0..RANKS as u32 {
        let mine: Vec<_> = ops.iter().filter(|done| done.op.comm_rank == CommRank(rank)).collect();
        let seqs: Vec<u64> =
            mine.iter().filter(|done| done.op.id.class == OpClass::Collective).map(|done| done.op.id.seq.0).collect();
        assert_eq!(seqs, (0..ROUNDS as u64).collect::<Vec<_>>(), "rank {rank}: each all-reduce once, in order");
        let p2p: Vec<_> = mine.iter().filter(|done| done.op.id.class != OpClass::Collective).collect();
        assert_eq!(p2p.len(), 2, "rank {rank}: a send and a receive");
        for done in &mine {
            if kernels {
                assert!(done.observed && done.op.started_ticks > 0, "{done:?}");
                assert!(done.op.enqueued_ticks <= done.op.started_ticks, "{done:?}");
                assert!(done.op.started_ticks < done.ended_ticks && done.ended_first_ticks <= done.ended_ticks);
            } else {
                assert_eq!(done.observed, done.flows > 0, "{done:?}");
            }
        }
        assert!(mine.iter().all(|done| done.op.kind != OpKind::AllReduce || done.op.count == COUNT as u64));
    }
    assert!(!flows.is_empty(), "some neighbours are on the other host");
    let mut bytes: BTreeMap<_, [u64; 2]> = BTreeMap::new();
    for flow in flows {
        let c = flow.counters;
        assert!(c.total_chunks > 0 && c.done == c.total_chunks && c.posted == c.total_chunks, "{flow:?}");
        assert!(flow.bytes > 0 && flow.ended_ticks >= flow.last_progress_ticks, "{flow:?}");
        if flow.flow.op.class == OpClass::Collective {
            bytes.entry(flow.flow.op.seq).or_default()[usize::from(flow.flow.direction == Direction::Recv)] +=
                flow.bytes;
        }
    }
    assert!(bytes.values().all(|[sent, received]| sent == received), "what is sent arrives: {bytes:?}");
}

#[test]
fn ring_with_kernel_events() {
    stand_in("ring_with_kernel_events", Algo::Ring, "on");
}

#[test]
fn ring_without_kernel_events() {
    stand_in("ring_without_kernel_events", Algo::Ring, "off");
}

#[test]
fn tree_with_kernel_events() {
    stand_in("tree_with_kernel_events", Algo::Tree, "on");
}
