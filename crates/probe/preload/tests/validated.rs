//! `mycroft validate` on a real job whose hosts are emulated: a device or a NIC at 1.2 is named, and nobody else. Skips where
//! the command is not built (`cargo build -p mycroft-cli`; a build of the workspace has it).
mod common;

use common::{Job, Shape};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::Ordering::Relaxed;

/// Bytes a second of a healthy NIC: so slow that what it moves takes as long on a busy machine.
const NIC: u64 = 24_000_000;

/// The command, if it is built.
fn mycroft() -> Option<PathBuf> {
    let exe = std::env::current_exe().expect("a test knows its own path");
    let found = exe.parent()?.parent()?.join("mycroft");
    if !found.exists() {
        eprintln!("skipped: {} is not built", found.display());
    }
    found.exists().then_some(found)
}

fn run(job: &Job, args: &[&str]) -> Option<Output> {
    let mut command = Command::new(mycroft()?);
    command.args(args).args(["--job", "gate-test", "--agree-within", "20s"]);
    job.directories().iter().for_each(|dir| {
        command.arg("--dir").arg(dir);
    });
    Some(command.output().expect("it runs"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn shape() -> Shape {
    Shape { ranks: 5, job: "all-reduce", apart: true, controlled: true, ..Shape::default() }
}

fn slow(said: &Output) -> Vec<String> {
    text(&said.stdout).lines().filter(|line| line.starts_with("slow:")).map(str::to_owned).collect()
}

fn job() -> Job {
    let mut job = Job::start(&shape());
    (0..5).for_each(|host| job.control().host(host).link_bytes_per_sec.store(NIC, Relaxed));
    job.progress(1);
    job
}

/// It goes on, and gives what it would have given.
fn goes_on(mut job: Job) {
    job.progress(11);
    let with = job.stop();
    let bare = Job::start(&Shape { bare: true, rounds: Some(with[0].0), ..shape() }).results();
    assert_eq!(with, bare, "not a bit differs");
}

#[test]
fn a_device_at_1_2_is_named_and_nobody_else() {
    let job = job();
    let args = ["validate", "--checks", "device", "--bytes", "262144"];
    let Some(healthy) = run(&job, &args) else { return };
    assert_eq!((healthy.status.code(), slow(&healthy)), (Some(0), vec![]), "{healthy:?}");
    job.control().rank(3).compute_scale_milli.store(1_200, Relaxed);
    let said = run(&job, &args).expect("as before");
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    let slow = slow(&said);
    assert_eq!(slow.len(), 1, "{}", text(&said.stdout));
    assert!(slow[0].starts_with("slow: rank 3 on host3: device, 1."), "{slow:?}");
    assert!(text(&said.stdout).contains("the job paused for "), "{said:?}");
    let server = one_case();
    let args = ["validate", "--checks", "device", "--bytes", "262144", "--case", "12", "--url", &server];
    let said = run(&job, &args).expect("as before");
    let confirmed = "case 12: confirmed, gpu: rank 3 on host3 (9";
    assert!(text(&said.stdout).contains(confirmed), "{said:?}");
    goes_on(job);
}

/// The address of a server that answers one request, with a case on rank 3.
fn one_case() -> String {
    const CASE: &str = r#"{"id": 12, "job": "gate-test", "state": "open", "what": "slowdown", "category": "gpu",
        "settled": true, "since": null, "detected_at": null, "diagnosed_at": null, "opened_at": null, "updated_at": null,
        "closed_at": null, "closed_because": "", "revisions": 0, "revised_at": null, "said_before": [],
        "suspects": [{"kind": "rank", "rank": 3, "host": "host3", "link": null, "confidence": 0.5}], "group": null,
        "op": null, "because": [], "blast_radius": [], "do_next": [], "dumps": []}"#;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let lines = BufReader::new(stream.try_clone().expect("a copy")).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.is_empty()), "the end of the request's head");
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", CASE.len());
        stream.write_all((head + CASE).as_bytes()).expect("it listens");
    });
    address
}

#[test]
fn a_nic_at_1_2_is_named_and_nobody_else() {
    let job = job();
    let slower = NIC * 10 / 12;
    job.control().host(1).egress_bytes_per_sec.store(slower, Relaxed);
    job.control().host(1).ingress_bytes_per_sec.store(slower, Relaxed);
    let Some(said) = run(&job, &["validate", "--checks", "none", "--json"]) else { return };
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    let json = text(&said.stdout);
    let slow = json.split_once("\"slow\": [").and_then(|(_, rest)| rest.split_once("\"missing\"")).expect("a list").0;
    assert_eq!(slow.matches("\"what\"").count(), 1, "{slow}");
    assert!(slow.contains("\"ways of rank\"") && slow.contains("host1"), "{slow}");
    goes_on(job);
}

#[test]
fn a_plan_is_shown_without_holding_anybody_and_a_job_is_held_without_tests() {
    let job = job();
    let Some(dry) = run(&job, &["validate", "--dry-run"]) else { return };
    assert_eq!(dry.status.code(), Some(0), "{dry:?}");
    let plan = text(&dry.stdout);
    for part in ["ranks 5, hosts 5; nobody is held", "pass 0: device", "pass 3: ways      0-1 2-3", "expected pause"] {
        assert!(plan.contains(part), "no {part:?} in {plan}");
    }
    let held = run(&job, &["hold", "--for", "300ms"]).expect("as before");
    assert_eq!(held.status.code(), Some(0), "{held:?}");
    assert!(text(&held.stdout).starts_with("5 ranks came to one point in "), "{held:?}");
    let wrong = run(&job, &["validate", "--groups", "12"]).expect("as before");
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    goes_on(job);
}
