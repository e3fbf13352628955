//! The Python package (`python/`): its step marks find the plugin that a collective library opened as NCCL does, and its
//! own tests pass, with the system's Python and with torch.
mod driver;

use driver::{drain, open_segment, plugin_path};
use mycroft_ring::RawRecord;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Variables of a user's shell that would change what is tested.
const STRAY: &[&str] = &["MYCROFT_OFF", "MYCROFT_PROFILER_CHAIN", "RANK", "WORLD_SIZE", "LOCAL_RANK"];

fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../python")
}

/// An interpreter that finds the package; None, and why, where it is not there.
fn interpreter(path: &Path) -> Option<Command> {
    let mut command = Command::new(path);
    if !command.arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no {}", path.display());
        return None;
    }
    let mut command = Command::new(path);
    STRAY.iter().for_each(|name| {
        command.env_remove(name);
    });
    command.env("PYTHONPATH", package().join("src")).env("PYTHONDONTWRITEBYTECODE", "1");
    Some(command)
}

/// Runs the package's tests in files of a name; what is skipped, and why, stands in the output.
fn unit_tests(mut python: Command, files: &str) {
    python.args(["-m", "unittest", "discover", "--verbose", "--pattern", files, "--start-directory"]);
    let output = python.arg(package().join("tests")).output().expect("it starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{told}", String::from_utf8_lossy(&output.stdout));
    assert!(!told.contains("Ran 0 tests"), "{told}");
    eprintln!("{told}");
}

#[test]
fn the_package_passes_its_tests_with_the_standard_library() {
    let Some(python) = interpreter(Path::new("python3")) else { return };
    unit_tests(python, "test_*.py");
}

#[test]
fn the_package_passes_its_tests_with_pytorch() {
    // Where `cargo xtask torch` puts it: target/torch beside target/debug/deps.
    let target = plugin_path().ancestors().nth(3).expect("the target folder").to_owned();
    let Some(python) = interpreter(&target.join("torch/venv/bin/python")) else { return };
    unit_tests(python, "test_*.py");
}

#[test]
fn the_package_has_the_version_of_the_tracer() {
    let text = std::fs::read_to_string(package().join("pyproject.toml")).expect("readable");
    assert!(text.contains(concat!("\nversion = \"", env!("CARGO_PKG_VERSION"), "\"\n")), "python/pyproject.toml");
}

#[test]
fn marks_of_a_python_program_reach_the_tracer() {
    let Some(mut command) = interpreter(Path::new("python3")) else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let segments = dir.path().join("segments");
    let plugin = plugin_path();
    let library = plugin.with_file_name("libmycroft_testbed_nccl.so");
    command.arg(package().join("tests/marks_of_a_job.py")).arg(library);
    command.env("MYCROFT_DIR", &segments).env("MYCROFT_SEGMENT_BYTES", "8388608");
    // Under another name, as NCCL_PROFILER_PLUGIN=NAME finds a plugin: by what it is, and not by what it is called.
    let renamed = dir.path().join("libother.so");
    std::fs::copy(&plugin, &renamed).expect("copied");
    command.env("NCCL_PROFILER_PLUGIN", &renamed).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("python3 starts");
    let mut line = String::new();
    let told = BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line);
    assert!(told.is_ok() && line == "marked\n", "its error stands above: {line:?}");
    let records = drain(&mut open_segment(&segments));
    drop(child.stdin.take());
    assert!(child.wait().expect("a child").success());
    let marks = records.iter().filter_map(|record| match record {
        RawRecord::StepMark(mark) => Some(mark.step),
        _ => None,
    });
    assert_eq!(marks.collect::<Vec<_>>(), [7, 8, 1 << 63, 21, 22, 23]);
}
