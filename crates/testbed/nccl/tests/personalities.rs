//! The personalities against NCCL: each job's profiler calls have the structure of those of NCCL's own host code.
//!
//! The traces of NCCL lie outside the project; without them the test says so and compares nothing.

mod common;

use common::jobs::{JOBS, Job, record};
use common::shape::{differences, shape};
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

/// Differences of one job, with the rank that has them.
fn compare(row: &Personality, job: &Job, theirs: &Path, dir: &Path) -> Vec<String> {
    let mut env = RECORDED.to_vec();
    env.push(("MYCROFT_TESTBED_NCCL", row.name));
    let files = record(job, dir, &env);
    let mut found = Vec::new();
    for (rank, ours) in files.iter().enumerate() {
        let lines = differences(&shape(&theirs.join(format!("rank{rank}.jsonl"))), &shape(ours));
        found.extend(lines.into_iter().map(|line| format!("rank {rank}: {line}")));
    }
    found
}

fn like_nccl(name: &str) {
    let row = PERSONALITIES.into_iter().find(|row| row.name == name).expect("a row");
    let traces = nccl_traces().join(row.release);
    if !traces.is_dir() {
        eprintln!("{}: no traces of NCCL here, nothing was compared", traces.display());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut found = Vec::new();
    for job in &JOBS {
        let lines = compare(&row, job, &traces.join(job.name), &dir.path().join(job.name));
        found.extend(lines.into_iter().map(|line| format!("{name} {}: {line}", job.name)));
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
