//! The script for a machine with a GPU cannot run without one; its syntax and its JSON reader can be checked anywhere.
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testbed/gpu")
}

fn run(command: &mut Command, input: &str) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn the_scripts_parse() {
    let bash = run(Command::new("bash").arg("-n").arg(dir().join("run.sh")), "");
    assert!(bash.status.success(), "{}", String::from_utf8_lossy(&bash.stderr));
    let cache = tempfile::tempdir().unwrap();
    for script in ["train.py", "named.py"] {
        let mut command = Command::new("python3");
        command.args(["-m", "py_compile"]).arg(dir().join(script)).env("PYTHONPYCACHEPREFIX", cache.path());
        let python = run(&mut command, "");
        assert!(python.status.success(), "{script}: {}", String::from_utf8_lossy(&python.stderr));
    }
}

#[test]
fn without_a_build_it_says_what_is_missing() {
    let empty = tempfile::tempdir().unwrap();
    let output = run(Command::new("bash").arg(dir().join("run.sh")).env("MYCROFT_BIN_DIR", empty.path()), "");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("not found: run 'cargo build --workspace'"), "{text}");
}

#[test]
fn a_case_names_a_rank_only_when_it_is_the_only_likeliest() {
    let named = |rank: &str, json: &str| {
        let output = run(Command::new("python3").arg(dir().join("named.py")).arg(rank), json);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let case = r#"{"cases":[{"id":7,"suspects":[{"rank":2,"confidence":0.9},{"rank":1,"confidence":0.3}]}]}"#;
    assert_eq!(named("2", case).0, Some(0));
    assert_eq!(named("1", case).0, Some(1));
    assert_eq!(named("--ids", case).1, "7");
    let tie = r#"[{"id":7,"suspects":[{"rank":2,"confidence":0.9},{"rank":1,"confidence":0.9}]}]"#;
    assert_eq!(named("2", tie).0, Some(1));
    assert_eq!(named("2", "").0, Some(1));
}
