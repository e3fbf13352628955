//! Ranks as processes: the shape of the testbed's workload, and what happens when a rank is killed.

mod common;

use common::*;
use mycroft_testbed_nccl::abi::{DType, Func, RedOp, UniqueId};
use mycroft_testbed_nccl::api::*;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::ptr::null_mut;

/// Starts this test binary again as one rank that runs the (otherwise empty) test `child`.
fn spawn(role: &str, id: &UniqueId, rank: usize, ranks: usize, hosts: usize) -> Child {
    let text: String = id.internal.iter().map(|c| format!("{:02x}", *c as u8)).collect();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["child", "--exact", "--nocapture", "--test-threads=1"])
        .env("MTB_ROLE", role)
        .env("MTB_ID", text)
        .env("MTB_RANK", rank.to_string())
        .env("MTB_RANKS", ranks.to_string())
        .env("NCCL_HOSTID", format!("host{}", rank * hosts / ranks))
        .env("MYCROFT_TESTBED_ADDR", format!("127.0.0.{}", 2 + rank * hosts / ranks))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command.spawn().unwrap()
}

fn unique_id() -> UniqueId {
    let mut id = UniqueId { internal: [0; 128] };
    // SAFETY: a valid place.
    assert_eq!(unsafe { ncclGetUniqueId(&mut id) }, 0);
    id
}

fn wait_line(out: &mut BufReader<ChildStdout>, word: &str) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "the child ended before it said {word}");
        if line.contains(word) {
            return line.trim().to_owned();
        }
    }
}

/// Not a test by itself: what a child process runs.
#[test]
fn child() {
    let Ok(role) = std::env::var("MTB_ROLE") else { return };
    let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let (rank, ranks) = (number("MTB_RANK"), number("MTB_RANKS"));
    let text = std::env::var("MTB_ID").unwrap();
    let mut id = UniqueId { internal: [0; 128] };
    for (i, slot) in id.internal.iter_mut().enumerate() {
        *slot = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap() as std::ffi::c_char;
    }
    let world = Rank::join(id, rank, ranks);
    match role.as_str() {
        "workload" => workload(&world),
        "victim" => victim(&world),
        other => panic!("{other}?"),
    }
}

fn split(of: &Rank, color: usize, key: usize) -> Rank {
    let mut comm = null_mut();
    // SAFETY: valid handles and places.
    assert_eq!(unsafe { ncclCommSplit(of.comm, color as i32, key as i32, &mut comm, null_mut()) }, 0);
    let (mut rank, mut ranks) = (0, 0);
    // SAFETY: as above.
    unsafe {
        assert_eq!(ncclCommUserRank(comm, &mut rank), 0);
        assert_eq!(ncclCommCount(comm, &mut ranks), 0);
    }
    Rank { rank: rank as usize, ranks: ranks as usize, comm, stream: of.stream }
}

/// TP 8, DP 4: sixteen all-reduces of 128 KiB inside a host, one reduce-scatter of 1 MiB and one all-gather across.
fn workload(world: &Rank) {
    let tp = split(world, world.rank / 8, world.rank);
    let dp = split(world, world.rank % 8, world.rank);
    let small = Case { func: Func::AllReduce, dtype: DType::F32, op: RedOp::Sum, count: 32 * 1024, root: 0 };
    let scatter = Case { func: Func::ReduceScatter, dtype: DType::F32, op: RedOp::Sum, count: 64 * 1024, root: 0 };
    let gather = Case { func: Func::AllGather, count: 64 * 1024, ..scatter };
    let a = vec![1f32; 256 * 1024];
    let mut b = vec![0f32; 256 * 1024];
    let mut times = Vec::new();
    for _ in 0..10 {
        let start = std::time::Instant::now();
        for _ in 0..16 {
            // SAFETY: a live stream.
            assert_eq!(unsafe { mtbLaunchCompute(world.stream, 2_000_000) }, 0);
            tp.issue(&small, a.as_ptr().cast(), b.as_mut_ptr().cast());
        }
        dp.issue(&scatter, a.as_ptr().cast(), b.as_mut_ptr().cast());
        dp.issue(&gather, a.as_ptr().cast(), b.as_mut_ptr().cast());
        world.sync();
        times.push(start.elapsed().as_micros());
    }
    assert!(b.iter().all(|v| *v == 1.0));
    times.sort_unstable();
    println!("median_us {}", times[5]);
    // SAFETY: live communicators.
    unsafe {
        assert_eq!(ncclCommDestroy(tp.comm), 0);
        assert_eq!(ncclCommDestroy(dp.comm), 0);
    }
    world.leave();
}

#[test]
fn thirty_two_ranks_on_four_hosts() {
    let id = unique_id();
    let mut children: Vec<Child> = (0..32).map(|r| spawn("workload", &id, r, 32, 4)).collect();
    let mut out = BufReader::new(children[0].stdout.take().unwrap());
    println!("32 ranks: {}", wait_line(&mut out, "median_us"));
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
}

/// Issues all-reduces until the communicator reports an error, then leaves in good order.
fn victim(world: &Rank) {
    let case = Case { func: Func::AllReduce, dtype: DType::F32, op: RedOp::Sum, count: 50_000, root: 0 };
    world.collective(&case, &case.input(world.rank, world.ranks), false);
    println!("joined");
    let (a, mut b) = (vec![0f32; 50_000], vec![0f32; 50_000]);
    if world.rank != 1 {
        world.issue(&case, a.as_ptr().cast(), b.as_mut_ptr().cast());
    } else {
        let mut never = String::new();
        std::io::stdin().read_line(&mut never).unwrap();
    }
    let mut error = 0;
    while error == 0 {
        // SAFETY: a live communicator.
        assert_eq!(unsafe { ncclCommGetAsyncError(world.comm, &mut error) }, 0);
        std::thread::yield_now();
    }
    // SAFETY: as above.
    assert_eq!(unsafe { mtbStreamQuery(world.stream) }, 7, "the operation stays incomplete");
    world.leave();
    println!("left with {error}");
}

#[test]
fn a_killed_peer_is_a_remote_error_and_nobody_hangs() {
    let id = unique_id();
    let mut children: Vec<Child> = (0..2).map(|r| spawn("victim", &id, r, 2, 2)).collect();
    let mut outs: Vec<_> = children.iter_mut().map(|c| BufReader::new(c.stdout.take().unwrap())).collect();
    for out in &mut outs {
        wait_line(out, "joined");
    }
    children[1].kill().unwrap();
    children[1].wait().unwrap();
    assert_eq!(wait_line(&mut outs[0], "left with"), "left with 6");
    let mut rest = String::new();
    outs[0].read_to_string(&mut rest).unwrap();
    assert!(children[0].wait().unwrap().success());
}
