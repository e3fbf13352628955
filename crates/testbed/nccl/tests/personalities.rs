//! The personalities against NCCL: each job's profiler calls have the structure of those of NCCL's own host code.
//!
//! The traces of NCCL lie outside the project; without them the test says so and compares nothing.

mod common;

use common::jobs::{JOBS, Job, record};
use common::shape::{differences, shape};
use common::{Case, World};
use mycroft_testbed_nccl::abi::{Algo, DType, Func, RedOp};
use mycroft_testbed_nccl::personality::{PERSONALITIES, Personality};
use std::path::{Path, PathBuf};

/// Settings of the recorded runs.
const RECORDED: [(&str, &str); 3] = [("NCCL_PROTO", "Simple"), ("NCCL_ALGO", "Ring"), ("NCCL_BUFFSIZE", "4194304")];

fn nccl_traces() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/data/nccl-calls")
}

/// Not a test by itself: what a child process runs.
#[test]
fn child() {
    common::jobs::child();
}

/// A job in one personality: what was compared, and what differs, with the rank that has it.
#[derive(Debug, Default)]
struct Compared {
    calling: usize,
    inside: usize,
    differences: Vec<String>,
}

fn compare(row: &Personality, job: &Job, theirs: &Path, dir: &Path) -> Compared {
    let mut env = RECORDED.to_vec();
    env.push(("MYCROFT_TESTBED_NCCL", row.name));
    let files = record(job, dir, &env);
    let mut all = Compared::default();
    for (rank, ours) in files.iter().enumerate() {
        let (theirs, ours) = (shape(&theirs.join(format!("rank{rank}.jsonl"))), shape(ours));
        all.calling += theirs.caller.len();
        all.inside += theirs.inside.len();
        all.differences.extend(differences(&theirs, &ours).into_iter().map(|line| format!("rank {rank}: {line}")));
    }
    all
}

/// Compares all jobs of a personality; with `MYCROFT_WRITE_PERSONALITIES=DIR` also writes the rows of
/// `docs/results/personalities.md` to `DIR/NAME.md`.
fn like_nccl(name: &str) {
    let row = Personality::named(name).expect("a row");
    let traces = nccl_traces().join(row.release);
    if !traces.is_dir() {
        eprintln!("{}: no traces of NCCL here, nothing was compared", traces.display());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (mut found, mut table) = (Vec::new(), String::new());
    for job in &JOBS {
        let one = compare(&row, job, &traces.join(job.name), &dir.path().join(job.name));
        let (ranks, count) = (job.ranks, one.differences.len());
        table += &format!("| {name} | {} | {ranks} | {} | {} | {count} |\n", job.name, one.calling, one.inside);
        found.extend(one.differences.into_iter().map(|line| format!("{name} {}: {line}", job.name)));
    }
    if let Some(dir) = std::env::var_os("MYCROFT_WRITE_PERSONALITIES") {
        std::fs::write(Path::new(&dir).join(format!("{name}.md")), table).expect("the table can be written");
    }
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

#[test]
fn calls_as_nccl_2_23() {
    like_nccl("2.23");
}

#[test]
fn calls_as_nccl_2_26() {
    like_nccl("2.26");
}

#[test]
fn calls_as_nccl_2_27() {
    like_nccl("2.27");
}

#[test]
fn calls_as_nccl_2_29() {
    like_nccl("2.29");
}

#[test]
fn calls_as_nccl_2_30() {
    like_nccl("2.30");
}

/// The comparison is not blind: a trace that lost a call, or has two in another order, differs.
#[test]
fn a_trace_that_was_tampered_with_differs() {
    let dir = tempfile::tempdir().unwrap();
    let job = JOBS.iter().find(|job| job.name == "send-recv").expect("a job");
    let file = record(job, dir.path(), &[("MYCROFT_TESTBED_NCCL", "2.27")]).remove(0);
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let whole = shape(&file);
    let changed = dir.path().join("changed.jsonl");
    let differs = |lines: &[&str]| {
        std::fs::write(&changed, lines.join("\n")).unwrap();
        !differences(&whole, &shape(&changed)).is_empty()
    };
    assert!(!differs(&lines));
    // What was told again while the proxy waited goes with it: such repetitions are folded.
    let told = |line: &str| {
        line.split_once("\"call\":").map(|(_, call)| call.split(",\"trans\"").next().unwrap_or("").to_owned())
    };
    let is_later = |line: &str| line.contains("\"call\":\"state\"") || line.contains("\"call\":\"stop\"");
    for line in lines.iter().filter(|line| is_later(line)) {
        let less: Vec<&str> =
            lines.iter().filter(|other| told(other).is_none() || told(other) != told(line)).copied().collect();
        assert!(differs(&less), "without {line}");
    }
    let peer_wait = lines.iter().position(|line| line.contains("\"state\":20")).expect("a send waits for its peer");
    let handle =
        lines[peer_wait].split("\"handle\":").nth(1).and_then(|rest| rest.split(',').next()).expect("a handle");
    let waits = format!("\"handle\":{handle},\"state\":9");
    let wait = lines.iter().position(|line| line.contains(&waits)).expect("and then for the network");
    let mut swapped = lines.clone();
    swapped.swap(peer_wait, wait);
    assert!(differs(&swapped));
}

/// Not a test by itself: moves data in the personality of this process.
#[test]
fn data() {
    if std::env::var_os("MTB_DATA").is_none() {
        return;
    }
    let all = [Func::AllReduce, Func::AllGather, Func::ReduceScatter, Func::Broadcast, Func::Reduce];
    for (ranks, hosts, channels) in [(4, 2, 4), (5, 5, 1), (6, 3, 3)] {
        for algo in [Algo::Ring, Algo::Tree] {
            let mut world = World::new(ranks, hosts).algo(algo);
            world.channels = channels;
            let cases = all.iter().flat_map(|func| [1usize, 1_000, 70_001].map(|count| (*func, count)));
            let cases: Vec<Case> = cases
                .map(|(func, count)| Case { func, dtype: DType::F32, op: RedOp::Sum, count, root: ranks - 1 })
                .collect();
            let outputs = world.run(|rank| {
                let run = |case: &Case| rank.collective(case, &case.input(rank.rank, rank.ranks), false);
                cases.iter().map(run).collect::<Vec<_>>()
            });
            for (i, case) in cases.iter().enumerate() {
                let inputs: Vec<Vec<u8>> = (0..ranks).map(|rank| case.input(rank, ranks)).collect();
                let got: Vec<Vec<u8>> = outputs.iter().map(|of_rank| of_rank[i].clone()).collect();
                common::verify(ranks, case, &inputs, &got);
            }
        }
    }
}

/// Every collective gives right data as NCCL cuts it, by size and in the small steps of LL. (The oldest and the newest
/// row: collectives are cut alike in all.)
#[test]
fn data_is_right_as_nccl_cuts_it() {
    for row in [PERSONALITIES[0], PERSONALITIES[4]] {
        for proto in ["", "LL", "Simple"] {
            let exe = std::env::current_exe().unwrap();
            let ended = std::process::Command::new(exe)
                .args(["data", "--exact", "--nocapture", "--test-threads=1"])
                .env("MTB_DATA", "1")
                .env("MYCROFT_TESTBED_NCCL", row.name)
                .env("NCCL_PROTO", proto)
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert!(ended.status.success(), "{} {proto}: {text}", row.name);
        }
    }
}
