//! Jobs on NCCL's own host code (device emulated), recorded elsewhere: what their replay says today. Skips where the recordings
//! are not at hand.
mod common;

use common::mycroft;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Recording, and the verdict: what, category, first suspect's host, its rank.
type Said = (&'static str, &'static str, &'static str, Option<u64>);

/// What was done to the job is found: the right place and the right kind.
const RIGHT: &[(&str, Said)] = &[
    ("2.27.5-slow40", ("slowdown", "gpu", "h2", Some(5))),
    ("2.27.5-sigstop", ("hang", "host-thread", "h3", Some(6))),
    ("2.29.7-sigstop", ("hang", "host-thread", "h3", Some(6))),
    ("2.29.7-kill9", ("crash", "process-exit", "h1", Some(2))),
    ("2.27.5-never-issues", ("hang", "not-started", "h3", Some(7))),
    ("2.27.5-link-down", ("hang", "network-send", "h2", None)),
    // Two devices of one host are in an operation of their own, and nothing but the order of their entry tells them apart: the
    // host is sure, rank 3 most likely in one of the two.
    ("2.27.5-stall", ("hang", "gpu", "h1", None)),
    ("2.29.7-stall", ("hang", "gpu", "h1", None)),
];

/// A host's NIC is slowed and nobody is named: a socket takes data for sent once the kernel holds it, so no stage of the slow
/// host is longer than its peers'. An explanation that predicts who waits for whom has to find it.
const UNKNOWN: &[&str] = &["2.27.5-slow-nic", "2.29.7-slow-nic"];

fn folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/nccl-recordings");
    if !folder.is_dir() {
        println!("skipped: no recordings at {}", folder.display());
        return None;
    }
    Some(folder)
}

/// The cases of a recording, replayed from a copy: nothing may write beside the recording.
fn cases(folder: &Path, name: &str) -> Vec<Value> {
    let temp = tempfile::tempdir().unwrap();
    let (from, to) = (folder.join(name).join("store"), temp.path().join("store"));
    std::fs::create_dir_all(to.join("wal")).unwrap();
    for file in ["meta.sqlite", "wal/0000000001.log"] {
        std::fs::copy(from.join(file), to.join(file)).unwrap();
    }
    let output = mycroft(&["replay", to.to_str().unwrap(), "--json"]).output().unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{name}: {error}: {}", String::from_utf8_lossy(&output.stderr));
    });
    said["reports"][0]["cases"].as_array().unwrap_or_else(|| panic!("{name}: {said:#}")).clone()
}

#[test]
fn what_was_done_to_a_job_on_nccls_host_code_is_found() {
    let Some(folder) = folder() else { return };
    for (name, (what, category, host, rank)) in RIGHT {
        let cases = cases(&folder, name);
        let case = cases.first().unwrap_or_else(|| panic!("{name}: no case"));
        let first = &case["suspects"][0];
        assert_eq!(
            (case["what"].as_str(), case["category"].as_str(), first["host"].as_str(), first["rank"].as_u64()),
            (Some(*what), Some(*category), Some(*host), *rank),
            "{name}: {case:#}"
        );
    }
}

#[test]
fn a_healthy_job_on_nccls_host_code_has_no_case() {
    let Some(folder) = folder() else { return };
    assert_eq!(cases(&folder, "2.27.5-healthy"), Vec::<Value>::new());
}

/// Nobody innocent is named with any confidence either.
#[test]
fn a_slow_nic_under_sockets_is_seen_and_nobody_is_named() {
    let Some(folder) = folder() else { return };
    for name in UNKNOWN {
        let cases = cases(&folder, name);
        let first = cases.first().unwrap_or_else(|| panic!("{name}: the slowdown is seen"));
        let named = first["suspects"].as_array().map_or(0, Vec::len);
        assert_eq!(
            (first["what"].as_str(), first["category"].as_str(), named),
            (Some("slowdown"), Some("unknown"), 0),
            "{name}"
        );
        for suspect in cases.iter().flat_map(|case| case["suspects"].as_array().into_iter().flatten()) {
            assert!(suspect["confidence"].as_f64().unwrap() <= 0.5, "{name}: {suspect}");
        }
    }
}
