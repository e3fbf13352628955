//! Traces of profiler calls (`docs/formats/calls.md`): ranks as processes, each under the recorder, one file a rank.
//!
//! With `MYCROFT_WRITE_TRACES=DIR` the files are kept there: so were those in `crates/probe/nccl/testdata/calls` made.

mod common;

use common::jobs::{JOBS, record};
use mycroft_testbed_nccl::personality::PERSONALITIES;
use std::path::PathBuf;

/// Jobs whose traces the project keeps.
const KEPT: [&str; 5] = ["all-reduce", "all-to-all", "broadcast", "send-recv", "two-hosts-of-two"];

/// Not a test by itself: what a child process runs.
#[test]
fn child() {
    common::jobs::child();
}

/// Folder, interface version and environment: every personality, and the interface of NCCL 2.28, which none has.
fn versions() -> Vec<(&'static str, u64, (&'static str, &'static str))> {
    let mut all: Vec<_> =
        PERSONALITIES.iter().map(|row| (row.name, u64::from(row.abi), ("MYCROFT_TESTBED_NCCL", row.name))).collect();
    all.push(("abi5", 5, ("MYCROFT_TESTBED_PROFILER_ABI", "v5")));
    all
}

#[test]
fn every_rank_writes_what_its_library_called() {
    let kept = std::env::var_os("MYCROFT_WRITE_TRACES").map(PathBuf::from);
    let folder = tempfile::tempdir().unwrap();
    let root = kept.as_deref().unwrap_or(folder.path());
    for (name, abi, variable) in versions() {
        for job in JOBS.iter().filter(|job| KEPT.contains(&job.name)) {
            // Slots as large as NCCL's, so that there are few steps.
            let env = [variable, ("NCCL_BUFFSIZE", "4194304")];
            for (rank, file) in record(job, &root.join(name).join(job.name), &env).iter().enumerate() {
                well_formed(&std::fs::read_to_string(file).unwrap(), abi, job.name, rank);
            }
        }
    }
}

/// A head, and calls of which each names an event that was started before.
fn well_formed(text: &str, abi: u64, test: &str, rank: usize) {
    let mut lines = text.lines();
    let head = lines.next().unwrap();
    let begins = format!("{{\"format\":\"nccl-profiler-calls/1\",\"abi\":{abi},\"nccl\":\"testbed");
    assert!(head.starts_with(&begins) && head.contains(&format!("\"test\":\"{test}\",\"rank\":{rank},")), "{head}");
    let calls: Vec<&str> = lines.filter(|line| line.contains("\"call\"")).collect();
    let count = |what: &str| calls.iter().filter(|line| line.contains(&format!("\"call\":\"{what}\""))).count();
    assert_eq!((count("init"), count("finalize")), (1, 1), "{text}");
    assert!(count("start") > 0 && count("stop") > 0);
    assert!(!calls.iter().any(|line| line.contains("\"handle\":0")), "an event that nobody started");
}
