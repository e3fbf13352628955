//! `mycroft validate` on a real job whose hosts are emulated: a device or a NIC at 1.2 is named, and nobody else. Skips where
//! the command is not built (`cargo build -p mycroft-cli`; a build of the workspace has it).
mod common;

use common::cases::case_server;
use common::{Job, Shape};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
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
    let (server, posted) = case_server("host3", None);
    let folder = tempfile::tempdir().expect("a directory");
    let token = folder.path().join("act-token");
    std::fs::write(&token, "act-0123456789abcdef").expect("written");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).expect("ours");
    let token = token.to_string_lossy();
    let case = ["validate", "--checks", "device", "--bytes", "262144", "--case", "12", "--url", &server];
    let said = run(&job, &[&case[..], &["--tell", "--act-token-file", &token]].concat()).expect("as before");
    let confirmed = "case 12: confirmed, gpu: rank 3 on host3 (9";
    assert!(text(&said.stdout).contains(confirmed), "{said:?}");
    let posted = posted.recv().expect("the server was told");
    for part in [
        "POST /api/v1/cases/12/validation",
        "Bearer act-0123456789abcdef",
        r#""outcome":"confirmed""#,
        "rank 3 on host3: device, 1.",
        r#""rank":3"#,
    ] {
        assert!(posted.contains(part), "no {part:?} in {posted}");
    }
    goes_on(job);
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

/// One path at 1.2 of six hosts (an even ring) and of five (an odd one), and in a tree: that path, no other, and no end of it.
#[test]
fn a_path_at_1_2_is_named_and_no_host() {
    let path = |job: &Job, (from, to): (usize, u8)| {
        let control = job.control();
        let host = control.host(from);
        host.slow_peer_bytes_per_sec.store(NIC * 10 / 12, Relaxed);
        host.slow_peer.store(u64::from(u32::from(Ipv4Addr::new(127, 0, 0, 2 + to))), Relaxed);
    };
    for (ranks, shape, (one, other)) in [(6, "ring", (2, 3)), (5, "ring", (4, 0)), (6, "tree", (2, 3))] {
        let mut job = Job::start(&Shape { ranks, ..self::shape() });
        (0..ranks).for_each(|host| job.control().host(host).link_bytes_per_sec.store(NIC, Relaxed));
        job.progress(1);
        path(&job, (one, other));
        path(&job, (usize::from(other), u8::try_from(one).expect("few hosts")));
        let Some(said) = run(&job, &["validate", "--checks", "none", "--shape", shape]) else { return };
        let named = slow(&said);
        let (low, high) = (one.min(usize::from(other)), one.max(usize::from(other)));
        let way = format!("slow: the way between rank {low} on host{low} and rank {high} on host{high}, 1.");
        assert!(
            named.len() == 1 && named[0].starts_with(&way),
            "{shape} of {ranks}: {named:?} in {}",
            text(&said.stdout)
        );
        job.stop();
    }
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
