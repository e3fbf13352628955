//! Point-to-point traffic, groups, splits, streams and bad arguments.

mod common;

use common::*;
use mycroft_testbed_nccl::abi::{Algo, Config, DType, Func, RedOp, UniqueId};
use mycroft_testbed_nccl::api::*;
use proptest::prelude::*;
use std::ptr::null_mut;

/// Bytes that rank `from` sends to rank `to`; some pairs exchange nothing, some several slots.
fn bytes(from: usize, to: usize, seed: usize) -> usize {
    let mix = (from * 31 + to * 17 + seed).wrapping_mul(2_654_435_761) % 1000;
    match mix % 5 {
        0 => 0,
        1 => mix,
        2 => mix * 97,
        _ => mix * 401,
    }
}

fn content(from: usize, to: usize, i: usize) -> u8 {
    (from * 7 + to * 13 + i) as u8
}

fn all_to_all(world: &World, seed: usize) {
    world.run(|me| {
        let sends: Vec<Vec<u8>> =
            (0..me.ranks).map(|to| (0..bytes(me.rank, to, seed)).map(|i| content(me.rank, to, i)).collect()).collect();
        let mut recvs: Vec<Vec<u8>> = (0..me.ranks).map(|from| vec![0; bytes(from, me.rank, seed)]).collect();
        for _ in 0..2 {
            recvs.iter_mut().flatten().for_each(|b| *b = 0);
            assert_eq!(ncclGroupStart(), 0);
            for peer in 0..me.ranks {
                let (s, r) = (&sends[peer], &mut recvs[peer]);
                let peer = peer as i32;
                // SAFETY: both buffers outlive the synchronization below.
                unsafe {
                    assert_eq!(ncclSend(s.as_ptr().cast(), s.len(), 1, peer, me.comm, me.stream), 0);
                    assert_eq!(ncclRecv(r.as_mut_ptr().cast(), r.len(), 1, peer, me.comm, me.stream), 0);
                }
            }
            assert_eq!(ncclGroupEnd(), 0);
            me.sync();
            for (from, got) in recvs.iter().enumerate() {
                assert!(got.iter().enumerate().all(|(i, b)| *b == content(from, me.rank, i)), "{from} -> {}", me.rank);
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn uneven_all_to_all(ranks in 1usize..=9, hosts in 1usize..=3, channels in 1usize..=3, seed in 0usize..1000) {
        let mut world = World::new(ranks, hosts.min(ranks));
        world.channels = channels;
        world.buffsize = 64 * 1024;
        all_to_all(&world, seed);
    }
}

#[test]
fn pipeline_stages_pass_activations_in_order() {
    World::new(4, 2).run(|me| {
        let mut buf = vec![0u32; 50_000];
        for step in 0..5u32 {
            // SAFETY: the buffer outlives each synchronization.
            unsafe {
                if me.rank > 0 {
                    let from = me.rank as i32 - 1;
                    assert_eq!(ncclRecv(buf.as_mut_ptr().cast(), buf.len(), 3, from, me.comm, me.stream), 0);
                    me.sync();
                    assert!(buf.iter().all(|v| *v == step * 100 + me.rank as u32 - 1));
                }
                buf.fill(step * 100 + me.rank as u32);
                if me.rank + 1 < me.ranks {
                    let to = me.rank as i32 + 1;
                    assert_eq!(ncclSend(buf.as_ptr().cast(), buf.len(), 3, to, me.comm, me.stream), 0);
                    me.sync();
                }
            }
        }
    });
}

#[test]
fn a_group_mixes_collectives_and_transfers_of_two_communicators_and_two_streams() {
    World::new(4, 2).run(|me| {
        let (mut half, mut stream) = (null_mut(), null_mut());
        // SAFETY: valid handles; buffers outlive the synchronization.
        unsafe {
            assert_eq!(ncclCommSplit(me.comm, (me.rank % 2) as i32, -(me.rank as i32), &mut half, null_mut()), 0);
            assert_eq!(mtbStreamCreate(&mut stream), 0);
        }
        let (one, mut a, mut b) = (vec![1i32; 30_000], vec![0i32; 30_000], vec![0i32; 30_000]);
        let (token, mut got) = ([me.rank as u64], [0u64]);
        let (next, prev) = ((me.rank as i32 + 1) % 4, (me.rank as i32 + 3) % 4);
        // SAFETY: as above.
        unsafe {
            assert_eq!(ncclGroupStart(), 0);
            assert_eq!(ncclAllReduce(one.as_ptr().cast(), a.as_mut_ptr().cast(), 30_000, 2, 0, me.comm, me.stream), 0);
            assert_eq!(ncclSend(token.as_ptr().cast(), 1, 5, next, me.comm, stream), 0);
            assert_eq!(ncclRecv(got.as_mut_ptr().cast(), 1, 5, prev, me.comm, stream), 0);
            assert_eq!(ncclAllReduce(one.as_ptr().cast(), b.as_mut_ptr().cast(), 30_000, 2, 0, half, stream), 0);
            assert_eq!(ncclGroupEnd(), 0);
            me.sync();
            assert_eq!(mtbStreamSynchronize(stream), 0);
            assert!(a.iter().all(|v| *v == 4) && b.iter().all(|v| *v == 2));
            assert_eq!(got[0], prev as u64);
            assert_eq!(ncclCommDestroy(half), 0);
            assert_eq!(mtbStreamDestroy(stream), 0);
        }
    });
}

#[test]
fn splits_order_by_key_and_leave_out_who_has_no_color() {
    World::new(6, 3).algo(Algo::Tree).run(|me| {
        let color = if me.rank == 5 { -1 } else { (me.rank % 2) as i32 };
        let mut child = null_mut();
        // SAFETY: valid handles and places.
        unsafe {
            assert_eq!(ncclCommSplit(me.comm, color, -(me.rank as i32), &mut child, null_mut()), 0);
            assert_eq!(child.is_null(), color < 0);
            if color < 0 {
                return;
            }
            let (mut rank, mut count) = (0, 0);
            assert_eq!(ncclCommUserRank(child, &mut rank), 0);
            assert_eq!(ncclCommCount(child, &mut count), 0);
            let members: Vec<usize> = (0..5).rev().filter(|r| r % 2 == me.rank % 2).collect();
            assert_eq!(count as usize, members.len());
            assert_eq!(members[rank as usize], me.rank);
            let sub = Rank { rank: rank as usize, ranks: count as usize, comm: child, stream: me.stream };
            let case = Case { func: Func::AllGather, dtype: DType::I32, op: RedOp::Sum, count: 333, root: 0 };
            let got = sub.collective(&case, &case.input(sub.rank, sub.ranks), false);
            let want: Vec<u8> = (0..sub.ranks).flat_map(|r| case.input(r, sub.ranks)).collect();
            assert!(got == want);
            assert_eq!(ncclCommDestroy(child), 0);
        }
    });
}

#[test]
fn bad_arguments_are_named_and_harm_nothing() {
    World::new(2, 1).run(|me| {
        let (b, s, c) = (&mut [0u8; 64], me.stream, me.comm);
        let p = b.as_mut_ptr().cast::<std::ffi::c_void>();
        // SAFETY: every call here is refused before it looks at a buffer, or is valid.
        unsafe {
            assert_eq!(ncclAllReduce(p, p, 8, 99, 0, c, s), 4, "data type");
            assert_eq!(ncclAllReduce(p, p, 8, 7, 99, c, s), 4, "reduction");
            assert_eq!(ncclAllReduce(null_mut(), p, 8, 7, 0, c, s), 4, "buffer");
            assert_eq!(ncclAllReduce(p, p, usize::MAX, 7, 0, c, s), 4, "count");
            assert_eq!(ncclAllReduce(p, p, 8, 7, 0, null_mut(), s), 4, "communicator");
            assert_eq!(ncclAllReduce(p, p, 8, 7, 0, 64 as Handle, s), 4, "communicator");
            assert_eq!(ncclAllReduce(p, p, 8, 7, 0, c, 64 as Handle), 4, "stream");
            assert_eq!(ncclBroadcast(p, p, 8, 7, 2, c, s), 4, "root");
            assert_eq!(ncclSend(p, 8, 7, -1, c, s), 4, "peer");
            assert_eq!(ncclSend(p, 8, 7, me.rank as i32, c, s), 5, "to itself, nobody receives");
            assert_eq!(ncclGroupEnd(), 5);
            assert_eq!(ncclGroupStart(), 0);
            assert_eq!(ncclAllReduce(p, p, 8, 99, 0, c, s), 4);
            assert_eq!(ncclGroupEnd(), 4, "the group's end repeats the fault");
            assert_eq!(ncclAllReduce(null_mut(), null_mut(), 0, 7, 0, c, s), 0, "nothing to do");
            let text = std::ffi::CStr::from_ptr(ncclGetLastError(c)).to_str().unwrap();
            assert!(text.contains("data type 99"), "{text}");
            assert_eq!(ncclCommSplit(c, -7, 0, &mut null_mut(), null_mut()), 4);
        }
        let case = Case { func: Func::AllReduce, dtype: DType::U8, op: RedOp::Max, count: 10, root: 0 };
        me.collective(&case, &case.input(me.rank, 2), false);
    });
    let id = UniqueId { internal: [1; 128] };
    let mut comm = null_mut();
    // SAFETY: valid places.
    unsafe {
        assert_eq!(ncclCommInitRank(&mut comm, 1, id, 0), 4);
        assert_eq!(ncclCommInitRank(&mut comm, 0, id, 0), 4);
        assert_eq!(ncclCommInitRank(null_mut(), 1, id, 0), 4);
        assert_eq!(ncclCommDestroy(null_mut()), 0);
        assert_eq!(ncclCommDestroy(64 as Handle), 4);
        let mut version = 0;
        assert_eq!((ncclGetVersion(&mut version), version), (0, 23007));
    }
}

#[test]
fn configurations_are_read_as_far_as_they_reach() {
    let mut id = UniqueId { internal: [0; 128] };
    // SAFETY: all-zero bytes are a valid Config; every pointer is valid or null.
    unsafe {
        assert_eq!(ncclGetUniqueId(&mut id), 0);
        let mut config: Config = std::mem::zeroed();
        let mut comm = null_mut();
        assert_eq!(ncclCommInitRankConfig(&mut comm, 1, id, 0, &mut config), 4, "no magic");
        config.magic = 0xcafe_beef;
        config.size = 24;
        config.comm_name = std::ptr::dangling();
        assert_eq!(ncclCommInitRankConfig(&mut comm, 1, id, 0, &mut config), 0, "an older caller has no name");
        assert_eq!(ncclCommDestroy(comm), 0);
    }
}

#[test]
fn an_abort_frees_a_rank_whose_peer_never_comes() {
    let world = World::new(2, 2);
    let mut id = UniqueId { internal: [0; 128] };
    // SAFETY: a valid place.
    assert_eq!(unsafe { ncclGetUniqueId(&mut id) }, 0);
    let started = std::sync::Barrier::new(2);
    std::thread::scope(|s| {
        for rank in 0..2 {
            let (world, started) = (&world, &started);
            s.spawn(move || {
                mycroft_testbed_nccl::env::set_thread_identity(Some(world.identity(rank)));
                let me = Rank::join(id, rank, 2);
                let mut b = vec![0f32; 100_000];
                let p = b.as_mut_ptr().cast::<std::ffi::c_void>();
                if rank == 0 {
                    // SAFETY: the buffer outlives the abort, which ends the kernel.
                    unsafe {
                        assert_eq!(ncclAllReduce(p, p, 100_000, 7, 0, me.comm, me.stream), 0);
                        assert_eq!(mtbStreamQuery(me.stream), 7);
                    }
                }
                started.wait();
                // SAFETY: a live communicator.
                assert_eq!(unsafe { ncclCommAbort(me.comm) }, 0);
                me.sync();
                // SAFETY: a live stream.
                assert_eq!(unsafe { mtbStreamDestroy(me.stream) }, 0);
            });
        }
    });
}
