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

/// A server that found a case in its store: what is said of it is shown, and what no longer fits is refused.
#[test]
fn a_note_is_said_and_shown_and_a_case_that_is_over_is_not_looked_after() {
    let dir = tempfile::tempdir().unwrap();
    let row = include_str!("../../serve/src/tests/case_row_v0_1.json");
    let at = mycroft_record::HostTime(1_735_689_600_000_000_000);
    let case = mycroft_store::meta::CaseRow {
        id: 7,
        job: "llama-70b".to_owned(),
        state: "stale".to_owned(),
        opened_at: at,
        updated_at: at,
        json: row.to_owned(),
    };
    let store = mycroft_store::Store::open(dir.path(), mycroft_store::StoreConfig::default()).unwrap();
    store.put_case(&case).unwrap();
    drop(store);
    let (_server, url) = common::serve(&["--store", &dir.path().display().to_string()]);
    let said = common::say(&["cases", "7", "--note", "it was the\u{1b}[2J optics", "--url", &url]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    let line = said.stdout.lines().find(|line| line.starts_with("  said")).expect("a line of what was said");
    assert!(line.contains(" on ") && line.contains("ago: it was the") && !line.contains('\u{1b}'), "{line}");
    assert_eq!(common::say(&["cases", "7", "--url", &url]).stdout.lines().count(), said.stdout.lines().count());
    let late = common::refusal(&["cases", "7", "--acknowledge", "--silence", "2h", "--url", &url]);
    assert!(late.contains("409") && late.contains("not open"), "{late}");
    let nothing = common::say(&["cases", "--acknowledge", "--url", &url]);
    assert!(nothing.code == Some(2) && nothing.stderr.contains("<ID>"), "{nothing:?}");
}
