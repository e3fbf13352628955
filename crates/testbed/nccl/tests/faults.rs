//! Every fault of the control block does what it says, and nothing else.

mod common;

use common::*;
use mycroft_testbed_nccl::abi::{DType, Func, RedOp};
use mycroft_testbed_nccl::api::*;
use mycroft_testbed_nccl::control::{ControlFile, RankState};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

fn world(name: &str, ranks: usize, hosts: usize) -> (World, Arc<ControlFile>) {
    let path = std::env::temp_dir().join(format!("mtb-faults-{name}-{}", std::process::id()));
    let file = Arc::new(ControlFile::create(&path, hosts, ranks).unwrap());
    std::fs::remove_file(&path).unwrap();
    let mut world = World::new(ranks, hosts);
    world.control = Some(Arc::clone(&file));
    (world, file)
}

const CASE: Case = Case { func: Func::AllReduce, dtype: DType::F32, op: RedOp::Sum, count: 250_000, root: 0 };

/// Time of one all-reduce of 1 MB as rank 0 sees it, after one to warm up.
fn one(world: &World) -> Duration {
    world.run(|me| {
        let send = CASE.input(me.rank, me.ranks);
        me.collective(&CASE, &send, false);
        let start = Instant::now();
        me.collective(&CASE, &send, false);
        start.elapsed()
    })[0]
}

#[test]
fn the_link_capacity_holds_and_is_shared_with_other_traffic() {
    let (world, file) = world("link", 2, 2);
    file.host(1).link_bytes_per_sec.store(10_000_000, Relaxed);
    let limited = one(&world);
    // Each rank sends 1 MB at 10 MB/s, less one burst.
    assert!(limited > Duration::from_millis(70), "{limited:?}");
    file.host(1).background_bytes_per_sec.store(5_000_000, Relaxed);
    let shared = one(&world);
    assert!(shared > Duration::from_millis(150), "{shared:?}");
    assert!(file.host(0).tx_bytes.load(Relaxed) >= 4_000_000, "bytes are counted");
    assert_eq!(file.host(0).tx_bytes.load(Relaxed), file.host(1).rx_bytes.load(Relaxed));
}

#[test]
fn slow_copies_slow_one_rank_down_and_everybody_with_it() {
    let (world, file) = world("copy", 2, 1);
    file.rank(1).copy_bytes_per_sec.store(10_000_000, Relaxed);
    let slow = one(&world);
    assert!(slow > Duration::from_millis(90), "{slow:?}");
    assert!(file.rank(0).kernels_done.load(Relaxed) == 2 && file.rank(0).copied_bytes.load(Relaxed) > 1_000_000);
}

#[test]
fn compute_scales() {
    let (world, file) = world("compute", 1, 1);
    let compute = || {
        world.run(|me| {
            let start = Instant::now();
            // SAFETY: a live stream.
            assert_eq!(unsafe { mtbLaunchCompute(me.stream, 10_000_000) }, 0);
            me.sync();
            start.elapsed()
        })[0]
    };
    assert!(compute() >= Duration::from_millis(10));
    file.rank(0).compute_scale_milli.store(3000, Relaxed);
    assert!(compute() >= Duration::from_millis(30));
}

#[test]
fn the_proxy_falls_asleep_as_often_as_told() {
    let (world, file) = world("proxy", 2, 2);
    file.set_seed(7);
    file.rank(0).proxy_delay_ppm.store(1_000_000, Relaxed);
    file.rank(0).proxy_delay_ms.store(20, Relaxed);
    // 1 MB over 2 channels of 2 ranks: rank 1 needs 4 slices of rank 0 before it can answer, and rank 0 that answer. The
    // 4 slices after them need only be in their slots when the operation ends, so their sleeps may fall behind it.
    let slow = one(&world);
    let slept = file.rank(0).proxy_sleeps.load(Relaxed);
    assert_eq!(slept, 16, "8 slices in each of two operations");
    assert!(slow >= Duration::from_millis(4 * 20), "{slow:?}");
    assert_eq!(file.rank(1).proxy_sleeps.load(Relaxed), 0, "the other rank was not told to");
}

/// Runs an all-reduce under a fault that stalls it; `release` ends the fault, and the operation must then complete.
fn stall(world: &World, begin: impl Fn() + Sync, seen: impl Fn() -> bool + Sync, release: impl Fn() + Sync) {
    let meet = std::sync::Barrier::new(world.ranks);
    world.run(|me| {
        let (a, mut b) = (vec![1f32; 250_000], vec![0f32; 250_000]);
        me.issue(&CASE, a.as_ptr().cast(), b.as_mut_ptr().cast());
        me.sync();
        meet.wait();
        if me.rank == 0 {
            begin();
        }
        meet.wait();
        me.issue(&CASE, a.as_ptr().cast(), b.as_mut_ptr().cast());
        if me.rank == 0 {
            while !seen() {
                std::thread::yield_now();
            }
            // SAFETY: a live stream.
            assert_eq!(unsafe { mtbStreamQuery(me.stream) }, 7, "the operation is stalled");
            release();
        }
        me.sync();
        assert!(b.iter().all(|v| *v == 2.0));
    });
}

#[test]
fn a_link_that_is_down_stalls_and_recovers() {
    let (world, file) = world("down", 2, 2);
    let before = std::sync::Mutex::new((Instant::now(), 0));
    stall(
        &world,
        || {
            file.host(1).nic_down.store(1, Relaxed);
            *before.lock().unwrap() = (Instant::now(), file.host(1).rx_bytes.load(Relaxed));
        },
        || before.lock().unwrap().0.elapsed() > Duration::from_millis(100),
        || {
            assert_eq!(file.host(1).rx_bytes.load(Relaxed), before.lock().unwrap().1, "nothing came through");
            file.host(1).nic_down.store(0, Relaxed);
        },
    );
}

#[test]
fn a_device_that_stops_is_freed_by_an_abort_only() {
    let (world, file) = world("device", 2, 1);
    let meet = std::sync::Barrier::new(2);
    let mut id = mycroft_testbed_nccl::abi::UniqueId { internal: [0; 128] };
    // SAFETY: a valid place.
    assert_eq!(unsafe { ncclGetUniqueId(&mut id) }, 0);
    std::thread::scope(|s| {
        for rank in 0..2 {
            let (world, meet, file) = (&world, &meet, &file);
            s.spawn(move || {
                mycroft_testbed_nccl::env::set_thread_identity(Some(world.identity(rank)));
                let me = Rank::join(id, rank, 2);
                let (a, mut b) = (vec![1f32; 250_000], vec![0f32; 250_000]);
                me.issue(&CASE, a.as_ptr().cast(), b.as_mut_ptr().cast());
                me.sync();
                meet.wait();
                file.rank(1).device_stop.store(1, Relaxed);
                meet.wait();
                me.issue(&CASE, a.as_ptr().cast(), b.as_mut_ptr().cast());
                while file.rank(1).state.load(Relaxed) != RankState::DeviceStopped as u64 {
                    std::thread::yield_now();
                }
                // SAFETY: live handles.
                unsafe {
                    assert_eq!(mtbStreamQuery(me.stream), 7);
                    meet.wait();
                    assert_eq!(ncclCommAbort(me.comm), 0);
                }
            });
        }
    });
}

#[test]
fn a_main_thread_that_stops_never_returns_from_its_next_collective() {
    let (world, file) = world("main", 1, 1);
    file.rank(0).main_stop.store(1, Relaxed);
    let returned = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let flag = Arc::clone(&returned);
    let identity = world.identity(0);
    // Detached on purpose: this thread is lost, as the fault says.
    std::thread::spawn(move || {
        mycroft_testbed_nccl::env::set_thread_identity(Some(identity));
        let mut id = mycroft_testbed_nccl::abi::UniqueId { internal: [0; 128] };
        // SAFETY: a valid place.
        assert_eq!(unsafe { ncclGetUniqueId(&mut id) }, 0);
        let me = Rank::join(id, 0, 1);
        me.collective(&CASE, &CASE.input(0, 1), false);
        flag.store(true, Relaxed);
    });
    while file.rank(0).state.load(Relaxed) != RankState::MainStopped as u64 {
        std::thread::yield_now();
    }
    assert!(!returned.load(Relaxed));
}
