//! Who reads a server or a pipe: a doctor among strangers, a reader that has seen enough.
mod common;

use common::{end, line_with, mycroft, started, url_in};
use serde_json::json;
use std::fs;
use std::io::BufReader;
use std::path::Path;
use std::process::Stdio;

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let hang =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../serve/tests/recorded/gpu-hang.frames").display().to_string();
    let mut command = mycroft(&["replay", &hang, "--records"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    assert!(line_with(&mut stdout, "kind").starts_with('{'));
    drop(stdout);
    let end = child.wait_with_output().unwrap();
    assert_eq!((end.status.code(), String::from_utf8_lossy(&end.stderr).as_ref()), (Some(0), ""));
}

/// A check of the doctor's list.
fn check<'a>(doctor: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let checks = doctor["checks"].as_array().unwrap();
    checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("no {name} in {doctor}"))
}

#[test]
fn a_doctor_tells_what_is_no_plugin_and_whom_a_server_lets_in() {
    const TOKEN: &str = "a-token-of-sufficient-length";
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("plugin.so");
    fs::write(&text, "ncclProfiler_v1 ncclProfiler_v2 ncclProfiler_v3").unwrap();
    let (_server, line) = started(&["--token", TOKEN]);
    let url = url_in(&line);
    let wire = line.rsplit(' ').next().unwrap();
    let doctor = |token: Option<&str>| {
        let mut command = mycroft(&["doctor", "--json", "--url", &url]);
        command.env("NCCL_PROFILER_PLUGIN", &text).env("MYCROFT_SERVER", wire);
        command.envs(token.map(|token| ("MYCROFT_TOKEN", token)));
        let said = end(command);
        assert_eq!(said.code, Some(1), "the plugin is none: {said:?}");
        said.json()
    };
    let stranger = doctor(None);
    let plugin = check(&stranger, "NCCL_PROFILER_PLUGIN");
    assert_eq!(plugin["grade"], "fail");
    assert!(plugin["found"].as_str().unwrap().contains("no ELF file"), "{plugin}");
    for name in ["server", "way of agents"] {
        let check = check(&stranger, name);
        assert_eq!(check["grade"], "fail", "{check}");
        assert!(check["fix"].as_str().unwrap().contains("--token-file"), "{check}");
    }
    let known = doctor(Some(TOKEN));
    assert_eq!(
        (&check(&known, "server")["grade"], &check(&known, "way of agents")["grade"]),
        (&json!("ok"), &json!("ok"))
    );
}
