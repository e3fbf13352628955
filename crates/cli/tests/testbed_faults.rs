//! The line end to end: real processes, a real fault, a server, agents, and the verdict of `mycroft testbed run --json`.
//!
//! Small shapes, so that two cores suffice: 8 ranks on 4 hosts, TP 2 inside a host, PP 2 and DP 2 across.
mod common;

use common::{Going, end, line_with, mycroft, say, traces_of, transports, until};
use serde_json::Value;

/// Runs the small job with a fault; checks the exit code and every documented field of the answer.
fn run(fault: &str, transport: &str, duration: &str) -> Value {
    let temp = tempfile::tempdir().unwrap();
    let shape = ["--hosts", "4", "--ranks-per-host", "2", "--tp", "2", "--pp", "2", "--dp", "2", "--seed", "7"];
    let rest = ["--fault", fault, "--after", "4", "--duration", duration, "--transport", transport, "--json"];
    let mut command = mycroft(&[&["testbed", "run"][..], &shape, &rest].concat());
    command.env("TMPDIR", temp.path()).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(stdout.lines().count(), 1, "one object on one line: {stdout}{stderr}");
    let said: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(said["correct"], true, "{fault} in {transport}: {said:#}\n{stderr}");
    assert_eq!(output.status.code(), Some(0), "exit 0 exactly when correct: {said:#}");
    assert_eq!(traces_of(pid, temp.path()), Vec::<String>::new(), "{fault} in {transport} left something");
    check_fields(&said, fault, transport);
    said
}

fn check_fields(said: &Value, fault: &str, transport: &str) {
    assert_eq!(said["scenario"], "command-line");
    assert_eq!(said["seed"], 7);
    assert_eq!(said["transport"], transport);
    assert!(said["why"].is_string());
    assert!(said["iterations"].as_u64().unwrap() >= 5, "{said:#}");
    assert!(said["iteration_ms_median"].as_f64().unwrap() > 10.0, "{said:#}");
    let truth = &said["truth"];
    let strings = |list: &Value| list.as_array().unwrap().iter().all(Value::is_string);
    assert!(strings(&truth["hosts"]) && truth["ranks"].is_array() && truth["at_ms"].is_u64(), "{truth}");
    if fault == "none" {
        assert_eq!((&truth["fault"], &said["detected"], &said["verdict"]), (&Value::Null, &false.into(), &Value::Null));
        assert_eq!((&said["detected_after_ms"], &said["diagnosed_after_ms"]), (&Value::Null, &Value::Null));
        assert_eq!(truth["ranks"].as_array().map(Vec::len), Some(0));
        return;
    }
    assert_eq!((&truth["fault"], &said["detected"]), (&fault.into(), &true.into()));
    assert!(said["iterations_after_fault"].is_u64(), "{said:#}");
    let ms = |field: &str| said[field].as_i64().unwrap_or_else(|| panic!("{field}: {said:#}"));
    assert!(0 <= ms("detected_after_ms") && ms("detected_after_ms") <= ms("diagnosed_after_ms"), "{said:#}");
    let verdict = &said["verdict"];
    assert!(verdict["what"].is_string() && verdict["category"].is_string(), "{verdict}");
    let because = verdict["because"].as_array().unwrap();
    assert!(!because.is_empty() && strings(&verdict["because"]), "{verdict}");
    let suspects = verdict["suspects"].as_array().unwrap();
    assert!(!suspects.is_empty(), "{verdict}");
    for suspect in suspects {
        assert!(suspect["host"].is_string() && (suspect["rank"].is_u64() || suspect["rank"].is_null()), "{suspect}");
        assert!((0.0..=1.0).contains(&suspect["confidence"].as_f64().unwrap()), "{suspect}");
    }
}

/// What was said to be wrong, the kind of fault, and the first suspect.
fn verdict(said: &Value) -> (&str, &str, Option<u64>, &str) {
    let verdict = &said["verdict"];
    let suspect = &verdict["suspects"][0];
    (
        verdict["what"].as_str().unwrap(),
        verdict["category"].as_str().unwrap(),
        suspect["rank"].as_u64(),
        suspect["host"].as_str().unwrap(),
    )
}

#[test]
fn a_device_that_stops_is_a_hang_of_its_rank() {
    let said = run("gpu-hang@host2:rank5", "loopback", "20");
    assert_eq!(verdict(&said), ("hang", "gpu", Some(5), "host2"));
}

/// SIGTERM to all ranks: the launcher collects none of them before their agents have looked.
#[test]
fn a_job_that_is_cancelled_is_no_case() {
    let temp = tempfile::tempdir().unwrap();
    let mut command =
        mycroft(&["demo", "--fault", "job-ended", "--after", "2", "--wait", "6", "--transport", "loopback"]);
    command.env("TMPDIR", temp.path());
    let said = end(command);
    assert_eq!(said.code, Some(0), "{said:?}");
    let ended = said
        .stdout
        .lines()
        .find(|line| line.starts_with("ended-from-outside at "))
        .unwrap_or_else(|| panic!("{said:?}"));
    assert!(ended.contains(": 16 ranks of 4 hosts were gone within ") && ended.contains(" ms by SIGTERM;"), "{ended}");
    assert!(said.stdout.lines().any(|line| line == "no case"), "{said:?}");
}

#[test]
fn a_killed_rank_is_a_crash() {
    let said = run("rank-crash@host3:rank6", "loopback", "20");
    assert_eq!(verdict(&said), ("crash", "process-exit", Some(6), "host3"));
}

#[test]
fn a_rank_that_computes_slower_is_a_slowdown_of_its_gpu() {
    let said = run("gpu-power@host0:rank1", "loopback", "20");
    assert_eq!(verdict(&said), ("slowdown", "gpu", Some(1), "host0"));
}

#[test]
fn a_host_that_computes_slower_is_named_as_a_host() {
    let said = run("background-compute@host3", "loopback", "20");
    let (what, category, _, host) = verdict(&said);
    assert_eq!((what, category, host), ("slowdown", "gpu", "host3"));
}

#[test]
fn a_link_that_goes_down_is_a_hang_of_its_host() {
    for transport in transports() {
        let said = run("nic-down@host1", transport, "20");
        let (what, category, _, host) = verdict(&said);
        assert_eq!((what, host), ("hang", "host1"), "{transport}");
        assert!(category.starts_with("network-"), "{transport}: {category}");
    }
}

#[test]
fn a_healthy_job_has_no_case() {
    for transport in transports() {
        run("none", transport, "10");
    }
}

/// While the demo shows its case, `cases` and `watch --once` show it too, and say so with their exit codes.
#[test]
fn readers_see_the_case_of_the_demo() {
    let temp = tempfile::tempdir().unwrap();
    let mut command =
        mycroft(&["demo", "--fault", "rank-stuck@host1:rank6", "--after", "4", "--transport", "loopback"]);
    command.env("TMPDIR", temp.path());
    let mut demo = Going::start(command);
    let pid = demo.pid();
    let api = line_with(&mut demo.stdout, "API http://");
    let url = api.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
    let listed = until("a case is open", || {
        assert!(demo.is_running(), "the demo ended");
        let said = say(&["cases", "--json", "--url", &url]);
        (said.code == Some(1)).then(|| said.json())
    });
    let case = &listed["cases"][0];
    assert_eq!((&case["state"], &case["what"]), (&"open".into(), &"hang".into()), "{case}");
    let lines = say(&["cases", "--url", &url]);
    assert!(lines.code == Some(1) && lines.stdout.contains("rank 6 on host1"), "{lines:?}");
    let id = case["id"].as_str().map_or_else(|| case["id"].to_string(), str::to_owned);
    let whole = say(&["cases", &id, "--url", &url]);
    assert_eq!(whole.code, Some(1), "{whole:?}");
    for word in ["because", "affected", "do next", "rank 6 on host1", "not-started"] {
        assert!(whole.stdout.contains(word), "{word}: {whole:?}");
    }
    let watch = say(&["watch", "--once", "--url", &url]);
    assert!(watch.code == Some(1) && watch.stdout.contains("rank 6 on host1"), "{watch:?}");
    let (status, stdout, stderr) = demo.wait();
    assert_eq!(status.code(), Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("verdict: RIGHT"), "{stdout}");
    assert_eq!(traces_of(pid, temp.path()), Vec::<String>::new());
}

/// A run that finds nothing where something is must not exit 0: here a fault too small to be seen.
#[test]
fn a_fault_that_is_not_noticed_is_not_correct() {
    let said = end(mycroft(&[
        "testbed",
        "run",
        "--hosts",
        "2",
        "--ranks-per-host",
        "1",
        "--tp",
        "1",
        "--pp",
        "1",
        "--dp",
        "2",
        "--fault",
        "proxy-delay@host0:rank0,severity=0.0001",
        "--after",
        "1",
        "--duration",
        "4",
        "--transport",
        "loopback",
        "--json",
    ]));
    assert_eq!((said.code, &said.json()["correct"]), (Some(1), &false.into()), "{said:?}");
    assert_eq!(said.json()["detected"], false, "{said:?}");
}
