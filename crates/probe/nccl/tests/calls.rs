//! Traces of what NCCL calls on a profiler plugin, played into the tracer: the segment holds each operation once, with its
//! flows and their counters, ended or not, and nothing else (`docs/formats/calls.md`).
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program that plays one trace; built with the tests.
fn player() -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows its own path");
    let path = exe.parent().and_then(Path::parent).expect("target/PROFILE/deps").join("examples/calls");
    assert!(path.exists(), "{} is built with the tests", path.display());
    path
}

/// All traces below a folder.
fn traces(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(traces(&path)),
            false if path.extension().is_some_and(|extension| extension == "jsonl") => found.push(path),
            false => {}
        }
    }
    found.sort();
    found
}

/// Plays one trace in a process of its own; what it printed, and whether all was right.
fn play(trace: &Path) -> (bool, String) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new(player());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("MYCROFT_") || ["RANK", "WORLD_SIZE", "LOCAL_RANK"].contains(&name.as_ref()) {
            command.env_remove(name.as_ref());
        }
    }
    command.arg(trace).env("MYCROFT_DIR", dir.path().join("segments")).env("MYCROFT_SEGMENT_BYTES", "8388608");
    let output = command.output().expect("the player runs");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), text)
}

fn all_right(folder: &Path) -> usize {
    let traces = traces(folder);
    for trace in &traces {
        let (right, text) = play(trace);
        assert!(right, "{}:\n{text}", trace.display());
    }
    traces.len()
}

#[test]
fn what_the_cpu_library_called_is_what_the_segment_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/calls");
    assert_eq!(all_right(&folder), 96, "five personalities and one further interface, 16 ranks each");
}

#[test]
fn what_nccl_called_is_what_the_segment_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/data/nccl-calls");
    match all_right(&folder) {
        0 => eprintln!("{}: no traces of NCCL here, nothing was played", folder.display()),
        count => eprintln!("{count} traces of NCCL's own host code are right"),
    }
}

/// The comparison is not blind: a trace that lost a line, or says another count, deviates.
#[test]
fn a_trace_that_was_tampered_with_deviates() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/calls");
    let trace = folder.join("2.30/all-reduce/rank0.jsonl");
    let text = std::fs::read_to_string(&trace).expect("the trace is there");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let changed = dir.path().join("changed.jsonl");
    // A further channel is announced, so that the tracer waits for its kernel.
    let tampered = text.replace("\"channels\":2", "\"channels\":3");
    assert_ne!(tampered, text);
    std::fs::write(&changed, tampered).expect("there is room");
    let (right, output) = play(&changed);
    assert!(!right && output.contains("deviation"), "{output}");
    std::fs::write(&changed, "{\"format\":\"something-else\"}\n").expect("there is room");
    let (right, output) = play(&changed);
    assert!(!right && output.contains("no trace of profiler calls"), "{output}");
}
