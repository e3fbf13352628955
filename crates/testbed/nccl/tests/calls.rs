//! Traces of profiler calls (`docs/formats/calls.md`): ranks as processes, each under the recorder, one file a rank.
//!
//! With `MYCROFT_WRITE_TRACES=DIR` the files are kept there: so were those in `crates/probe/nccl/testdata/calls` made.

mod common;

use common::*;
use mycroft_testbed_nccl::abi::{DType, Func, RedOp, UniqueId};
use mycroft_testbed_nccl::api::*;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// What is traced: name and ranks, one rank a host unless a name says otherwise.
const TESTS: &[(&str, usize)] = &[("all-reduce", 2), ("send-recv", 3), ("all-to-all", 4), ("two-hosts-of-two", 4)];
/// Interface versions that NCCL 2.23, 2.26, 2.27, 2.28 and 2.29 take.
const VERSIONS: &[u64] = &[1, 3, 4, 5, 6];
/// All events but those of the proxy's own control, which say nothing of operations.
const MASK: u32 = 4095 & !32;

fn spawn(test: &str, version: u64, id: &UniqueId, rank: usize, ranks: usize, file: &Path) -> Child {
    let exe = std::env::current_exe().unwrap();
    let recorder = exe.parent().unwrap().parent().unwrap().join("examples/librecorder.so");
    let text: String = id.internal.iter().map(|c| format!("{:02x}", *c as u8)).collect();
    let host = if test == "two-hosts-of-two" { rank / 2 } else { rank };
    Command::new(exe)
        .args(["child", "--exact", "--nocapture", "--test-threads=1"])
        .env("MTB_TEST", test)
        .env("MTB_ID", text)
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", ranks.to_string())
        .env("NCCL_HOSTID", format!("host{host}"))
        .env("MYCROFT_TESTBED_ADDR", format!("127.0.0.{}", 2 + host))
        .env("MYCROFT_TESTBED_PROFILER_ABI", format!("v{version}"))
        .env("NCCL_PROFILER_PLUGIN", recorder)
        .env("RECORDER_LINES", file)
        .env("RECORDER_TEST", test)
        .env("RECORDER_MASK", MASK.to_string())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

/// Not a test by itself: what a child process runs.
#[test]
fn child() {
    let Ok(test) = std::env::var("MTB_TEST") else { return };
    let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let (rank, ranks) = (number("RANK"), number("WORLD_SIZE"));
    let text = std::env::var("MTB_ID").unwrap();
    let mut id = UniqueId { internal: [0; 128] };
    for (i, slot) in id.internal.iter_mut().enumerate() {
        *slot = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap() as std::ffi::c_char;
    }
    let world = Rank::join(id, rank, ranks);
    match test.as_str() {
        "all-reduce" => collective(&world, 1_000, 2),
        "two-hosts-of-two" => {
            collective(&world, 80_000, 1);
            all_to_all(&world, 20_000, 1);
        }
        "send-recv" => ring(&world, 60_000, 2),
        "all-to-all" => all_to_all(&world, 30_000, 2),
        other => panic!("{other}?"),
    }
    world.leave();
}

fn collective(world: &Rank, count: usize, times: usize) {
    let case = Case { func: Func::AllReduce, dtype: DType::F32, op: RedOp::Sum, count, root: 0 };
    let send = case.input(world.rank, world.ranks);
    (0..times).for_each(|_| drop(world.collective(&case, &send, false)));
}

/// Sends to some peers and receives from others in one group, `times` over.
fn exchange(world: &Rank, count: usize, times: usize, to: &[usize], from: &[usize]) {
    const FLOAT32: i32 = 7;
    let data = vec![world.rank as f32; count];
    let mut out = vec![0f32; count * from.len()];
    for _ in 0..times {
        // SAFETY: live handles, and buffers that outlive the synchronisation.
        unsafe {
            assert_eq!(ncclGroupStart(), 0);
            for &peer in to {
                assert_eq!(ncclSend(data.as_ptr().cast(), count, FLOAT32, peer as i32, world.comm, world.stream), 0);
            }
            for (place, &peer) in out.chunks_mut(count).zip(from) {
                let place = place.as_mut_ptr().cast();
                assert_eq!(ncclRecv(place, count, FLOAT32, peer as i32, world.comm, world.stream), 0);
            }
            assert_eq!(ncclGroupEnd(), 0);
        }
        world.sync();
    }
    assert!(out.chunks(count).zip(from).all(|(got, &peer)| got.iter().all(|value| *value == peer as f32)));
}

fn ring(world: &Rank, count: usize, times: usize) {
    let (next, before) = ((world.rank + 1) % world.ranks, (world.rank + world.ranks - 1) % world.ranks);
    exchange(world, count, times, &[next], &[before]);
}

fn all_to_all(world: &Rank, count: usize, times: usize) {
    let others: Vec<usize> = (0..world.ranks).filter(|peer| *peer != world.rank).collect();
    exchange(world, count, times, &others, &others);
}

#[test]
fn every_rank_writes_what_its_library_called() {
    let kept = std::env::var_os("MYCROFT_WRITE_TRACES").map(PathBuf::from);
    let folder = tempfile::tempdir().unwrap();
    let root = kept.as_deref().unwrap_or(folder.path());
    for &version in VERSIONS {
        for &(test, ranks) in TESTS {
            let dir = root.join(format!("abi{version}")).join(test);
            std::fs::create_dir_all(&dir).unwrap();
            let file = |rank: usize| dir.join(format!("rank{rank}.jsonl"));
            let mut id = UniqueId { internal: [0; 128] };
            // SAFETY: a valid place.
            assert_eq!(unsafe { ncclGetUniqueId(&mut id) }, 0);
            let children: Vec<Child> =
                (0..ranks).map(|rank| spawn(test, version, &id, rank, ranks, &file(rank))).collect();
            for mut child in children {
                assert!(child.wait().unwrap().success());
            }
            for rank in 0..ranks {
                well_formed(&std::fs::read_to_string(file(rank)).unwrap(), version, test, rank);
            }
        }
    }
}

/// A head, and calls of which each names an event that was started before.
fn well_formed(text: &str, version: u64, test: &str, rank: usize) {
    let mut lines = text.lines();
    let head = lines.next().unwrap();
    let begins =
        format!("{{\"format\":\"nccl-profiler-calls/1\",\"abi\":{version},\"nccl\":\"testbed\",\"test\":\"{test}\"");
    assert!(head.starts_with(&begins) && head.contains(&format!("\"rank\":{rank},")), "{head}");
    let calls: Vec<&str> = lines.filter(|line| line.contains("\"call\"")).collect();
    let count = |what: &str| calls.iter().filter(|line| line.contains(&format!("\"call\":\"{what}\""))).count();
    assert_eq!((count("init"), count("finalize")), (1, 1), "{text}");
    assert!(count("start") > 0 && count("state") > 0 && count("stop") > 0);
    assert!(!calls.iter().any(|line| line.contains("\"handle\":0")), "an event that nobody started");
}
