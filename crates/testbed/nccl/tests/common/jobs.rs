//! Small jobs whose profiler calls are traced: ranks as processes, each under the recorder, one file a rank. The first
//! fifteen are those of the traces of NCCL's own host code (`docs/formats/calls.md`).

use super::*;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// A job.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    pub name: &'static str,
    pub ranks: usize,
    pub per_host: usize,
    pub env: &'static [(&'static str, &'static str)],
}

const fn job(name: &'static str, ranks: usize) -> Job {
    Job { name, ranks, per_host: 1, env: &[] }
}

/// The jobs of NCCL's traces.
pub const JOBS: [Job; 15] = [
    job("all-gather", 3),
    job("all-reduce", 2),
    job("all-reduce-4mb", 4),
    job("all-to-all", 4),
    job("broadcast", 3),
    Job { env: &[("NCCL_ALLGATHERV_ENABLE", "0")], ..job("broadcast-switch-off", 3) },
    Job { env: &[("NCCL_MIN_NCHANNELS", "4")], ..job("four-channels", 3) },
    job("group", 3),
    job("pipeline", 3),
    job("reduce", 3),
    job("reduce-scatter", 3),
    job("send-recv", 3),
    Job { env: &[("NCCL_ALGO", "Tree")], ..job("tree", 4) },
    Job { per_host: 2, ..job("two-hosts-of-two", 4) },
    job("zero-size", 2),
];

/// All events but those of the proxy's own control, which say nothing of operations.
const MASK: u32 = 4095 & !32;
/// Set in a child: which job it runs.
const ENV_JOB: &str = "MTB_TEST";

fn spawn(job: &Job, id: &UniqueId, rank: usize, file: &Path, env: &[(&str, &str)]) -> Child {
    let exe = std::env::current_exe().unwrap();
    let recorder = exe.parent().unwrap().parent().unwrap().join("examples/librecorder.so");
    let text: String = id.internal.iter().map(|c| format!("{:02x}", *c as u8)).collect();
    let host = rank / job.per_host;
    Command::new(exe)
        .args(["child", "--exact", "--nocapture", "--test-threads=1"])
        .env(ENV_JOB, job.name)
        .env("MTB_ID", text)
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", job.ranks.to_string())
        .env("NCCL_HOSTID", format!("host{host}"))
        .env("MYCROFT_TESTBED_ADDR", format!("127.0.0.{}", 2 + host))
        .env("MYCROFT_TESTBED_NCCL_SETUP_MS", "0")
        .env("NCCL_PROFILER_PLUGIN", recorder)
        .env("RECORDER_LINES", file)
        .env("RECORDER_TEST", job.name)
        .env("RECORDER_MASK", MASK.to_string())
        .envs(env.iter().copied())
        .envs(job.env.iter().copied())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

/// Runs a job; the files of its ranks, in `dir`.
pub fn record(job: &Job, dir: &Path, env: &[(&str, &str)]) -> Vec<PathBuf> {
    std::fs::create_dir_all(dir).unwrap();
    let files: Vec<PathBuf> = (0..job.ranks).map(|rank| dir.join(format!("rank{rank}.jsonl"))).collect();
    let mut id = UniqueId { internal: [0; 128] };
    // SAFETY: a valid place.
    assert_eq!(unsafe { ncclGetUniqueId(&mut id) }, 0);
    let children: Vec<Child> = (0..job.ranks).map(|rank| spawn(job, &id, rank, &files[rank], env)).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success(), "{}", job.name);
    }
    files
}

/// What a child process runs; nothing where this process is no child.
pub fn child() {
    let Ok(name) = std::env::var(ENV_JOB) else { return };
    let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let (rank, ranks) = (number("RANK"), number("WORLD_SIZE"));
    let text = std::env::var("MTB_ID").unwrap();
    let mut id = UniqueId { internal: [0; 128] };
    for (i, slot) in id.internal.iter_mut().enumerate() {
        *slot = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap() as std::ffi::c_char;
    }
    let world = Rank::join(id, rank, ranks);
    run(&name, &world);
    world.leave();
}

fn run(name: &str, world: &Rank) {
    let twice = |func, count, root| (0..2).for_each(|_| collective(world, func, count, root));
    match name {
        "all-reduce" => twice(Func::AllReduce, 1_000, 0),
        "all-reduce-4mb" => collective(world, Func::AllReduce, 1_048_576, 0),
        "four-channels" => collective(world, Func::AllReduce, 400_000, 0),
        "tree" => collective(world, Func::AllReduce, 200_000, 0),
        "reduce-scatter" => twice(Func::ReduceScatter, 60_000, 0),
        "all-gather" => twice(Func::AllGather, 60_000, 0),
        "broadcast" | "broadcast-switch-off" => twice(Func::Broadcast, 60_000, 2),
        "reduce" => twice(Func::Reduce, 60_000, 0),
        "send-recv" => (0..2).for_each(|_| ring(world, 60_000)),
        "pipeline" => (0..2).for_each(|_| pipeline(world, 60_000)),
        "all-to-all" => (0..2).for_each(|_| all_to_all(world, 30_000)),
        "group" => (0..2).for_each(|_| group(world, &[60_000, 30_000])),
        "zero-size" => {
            collective(world, Func::AllReduce, 0, 0);
            collective(world, Func::Broadcast, 0, 0);
            collective(world, Func::AllReduce, 3, 0);
        }
        "two-hosts-of-two" => {
            collective(world, Func::AllReduce, 200_000, 0);
            collective(world, Func::AllGather, 20_000, 0);
            all_to_all(world, 20_000);
        }
        other => panic!("{other}?"),
    }
}

fn case(func: Func, count: usize, root: usize) -> Case {
    Case { func, dtype: DType::F32, op: RedOp::Sum, count, root }
}

fn collective(world: &Rank, func: Func, count: usize, root: usize) {
    let case = case(func, count, root);
    let inputs: Vec<Vec<u8>> = (0..world.ranks).map(|rank| case.input(rank, world.ranks)).collect();
    let got = world.collective(&case, &inputs[world.rank], false);
    // The same at every rank.
    if matches!(func, Func::AllReduce | Func::AllGather | Func::Broadcast) {
        verify(world.ranks, &case, &inputs, &[got]);
    }
}

/// Several in one group.
fn group(world: &Rank, counts: &[usize]) {
    let cases: Vec<Case> = counts.iter().map(|count| case(Func::AllReduce, *count, 0)).collect();
    let sends: Vec<Vec<u8>> = cases.iter().map(|c| c.input(world.rank, world.ranks)).collect();
    let mut recvs: Vec<Vec<u8>> = sends.clone();
    assert_eq!(ncclGroupStart(), 0);
    for ((case, send), recv) in cases.iter().zip(&sends).zip(&mut recvs) {
        world.issue(case, send.as_ptr().cast(), recv.as_mut_ptr().cast());
    }
    assert_eq!(ncclGroupEnd(), 0);
    world.sync();
    for (case, recv) in cases.iter().zip(recvs) {
        let inputs: Vec<Vec<u8>> = (0..world.ranks).map(|rank| case.input(rank, world.ranks)).collect();
        verify(world.ranks, case, &inputs, &[recv]);
    }
}

const FLOAT32: i32 = 7;

fn send(world: &Rank, data: &[f32], peer: usize) {
    // SAFETY: live handles, and a buffer that outlives the caller's synchronisation.
    let code = unsafe { ncclSend(data.as_ptr().cast(), data.len(), FLOAT32, peer as i32, world.comm, world.stream) };
    assert_eq!(code, 0);
}

fn recv(world: &Rank, out: &mut [f32], peer: usize) {
    // SAFETY: as for `send`.
    let code = unsafe { ncclRecv(out.as_mut_ptr().cast(), out.len(), FLOAT32, peer as i32, world.comm, world.stream) };
    assert_eq!(code, 0);
}

/// Sends to the first of each pair and receives from the second, all in one group.
fn exchange(world: &Rank, count: usize, pairs: &[(usize, usize)]) {
    let data = vec![world.rank as f32; count];
    let mut out = vec![-1f32; count * pairs.len()];
    assert_eq!(ncclGroupStart(), 0);
    for (place, (to, from)) in out.chunks_mut(count).zip(pairs) {
        send(world, &data, *to);
        recv(world, place, *from);
    }
    assert_eq!(ncclGroupEnd(), 0);
    world.sync();
    assert!(out.chunks(count).zip(pairs).all(|(got, pair)| got.iter().all(|value| *value == pair.1 as f32)));
}

fn ring(world: &Rank, count: usize) {
    let n = world.ranks;
    exchange(world, count, &[((world.rank + 1) % n, (world.rank + n - 1) % n)]);
}

fn all_to_all(world: &Rank, count: usize) {
    exchange(world, count, &(0..world.ranks).map(|peer| (peer, peer)).collect::<Vec<_>>());
}

/// From each rank to the next, outside groups.
fn pipeline(world: &Rank, count: usize) {
    let mut data = vec![7f32; count];
    if world.rank > 0 {
        data.fill(0.0);
        recv(world, &mut data, world.rank - 1);
    }
    if world.rank + 1 < world.ranks {
        send(world, &data, world.rank + 1);
    }
    world.sync();
    assert!(data.iter().all(|value| *value == 7.0));
}
