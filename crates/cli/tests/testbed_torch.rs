//! PyTorch over the CPU collective library: every operation gives what Gloo gives, and a data-parallel job under the tracer
//! is seen and diagnosed. `cargo xtask torch` installs torch; where it is not the tests say so and are skipped.
mod common;

use common::{PATIENCE, Said, mycroft};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest for a whole job of two ranks: torch alone takes some seconds to load on two busy cores.
const JOB_LIMIT: Duration = Duration::from_secs(180);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Beside the binary: target/debug.
fn built() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_mycroft")).parent().expect("a folder")
}

/// The interpreter that `cargo xtask torch` made.
fn python() -> Option<PathBuf> {
    let python = built().parent().expect("the target folder").join("torch/venv/bin/python");
    if !python.is_file() {
        eprintln!("skipped: no {}: `cargo xtask torch` installs it", python.display());
    }
    python.is_file().then_some(python)
}

/// Runs a command to its end.
fn run(mut command: Command, limit: Duration) -> Said {
    let dir = tempfile::tempdir().expect("a folder");
    let file = |name: &str| std::fs::File::create(dir.path().join(name)).expect("a file");
    let mut child = command.stdout(file("out")).stderr(file("err")).spawn().expect("it starts");
    let begun = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if begun.elapsed() > limit {
            child.kill().expect("it runs");
        }
        std::thread::sleep(common::LOOK);
    }
    let text = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("text");
    Said { code: child.wait().expect("it ended").code(), stdout: text("out"), stderr: text("err") }
}

#[test]
fn every_operation_gives_what_gloo_gives() {
    let Some(python) = python() else { return };
    for ranks in ["2", "4"] {
        let mut command = Command::new(&python);
        command.arg(root().join("testbed/torch/test_ops.py")).arg(ranks).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("MYCROFT_TORCH_NCCL", built().join("libmycroft_testbed_nccl.so"));
        let said = run(command, JOB_LIMIT);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.stdout.contains(&format!("operations of {ranks} ranks are right")), "{said:?}");
    }
}

#[test]
fn a_data_parallel_job_is_seen_and_its_stalled_loader_is_named() {
    if python().is_none() {
        return;
    }
    let fault = ["--fault", "rank-stuck@host1:rank1", "--after", "5", "--duration", "60"];
    let job = ["testbed", "torch", "ddp", "--ranks", "2", "--transport", "loopback", "--json"];
    let said = run(mycroft(&[&job[..], &fault[..]].concat()), JOB_LIMIT);
    assert_eq!(said.code, Some(0), "{said:?}");
    let told = said.json();
    assert_eq!(told["correct"], true, "{told}");
    assert!(told["iterations"].as_u64().expect("a number") > 10, "{told}");
    let because = |of: &Value| of["because"].to_string();
    assert!(because(&told["verdict"]).contains("AllReduce"), "the tracer saw the operations: {told}");
    assert!(because(&told["capture"]).contains("read_shard"), "the interpreter's stack was read: {told}");
}

/// The library stands before what the backend calls. A healthy job whose cores are busy may still get a case, so the verdict is not asked.
#[test]
fn a_data_parallel_job_is_held_and_tested_and_goes_on() {
    let library = built().join("libmycroft_preload.so");
    if python().is_none() || !library.exists() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let job = ["testbed", "torch", "ddp", "--ranks", "2", "--transport", "loopback", "--duration", "20", "--json"];
    let mut command = mycroft(&job);
    command.env("LD_PRELOAD", library).stdout(std::fs::File::create(&out).expect("a file"));
    let mut job = command.spawn().expect("it starts");
    // Segments of each host lie under the launcher's process number.
    let hosts = [0, 1].map(|host| format!("/dev/shm/mtb-{}-0/host{host}", job.id()));
    let run_on = |words: &[&str]| {
        let places = ["--job", "torch-ddp", "--agree-within", "20s", "--dir", &hosts[0], "--dir", &hosts[1]];
        run(mycroft(&[words, &places].concat()), PATIENCE)
    };
    let held = loop {
        let said = run_on(&["hold", "--for", "300ms"]);
        if said.stdout.starts_with("2 ranks came to one point in ") {
            break said;
        }
        assert!(job.try_wait().expect("a child").is_none(), "it ended before it was held: {said:?}");
        std::thread::sleep(common::LOOK);
    };
    assert_eq!(held.code, Some(0), "{held:?}");
    let tested = run_on(&["validate", "--checks", "device", "--bytes", "65536"]);
    assert!(matches!(tested.code, Some(0 | 1)) && tested.stdout.contains("the job paused for "), "{tested:?}");
    job.wait().expect("a child");
    let told: Value = serde_json::from_str(&std::fs::read_to_string(&out).expect("text")).expect("JSON");
    assert!(told["iterations"].as_u64().expect("a number") > 10, "{told}");
}

#[test]
fn without_torch_it_says_how_to_get_it() {
    let said = run(mycroft(&["testbed", "torch", "ddp", "--python", "/bin/false"]), PATIENCE);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("`cargo xtask torch` installs it"), "{said:?}");
    let said = run(mycroft(&["testbed", "torch", "ddp", "--ranks", "3", "--hosts", "2"]), PATIENCE);
    assert!(said.code == Some(2) && said.stderr.contains("--ranks 3 --hosts 2"), "{said:?}");
}
