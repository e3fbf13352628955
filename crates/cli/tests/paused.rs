//! How long `mycroft validate --agents` holds a job of 1,024 ranks: a server, the command, and 128 simulated agents of eight
//! ranks each, which need as long for each test as the command says in advance.
//!
//! `MYCROFT_PAUSE_RANKS` plays a job of another size; `cargo xtask bench pause` reads what is printed.
mod common;
#[path = "paused/fleet.rs"]
mod fleet;
#[path = "paused/host.rs"]
mod host;
#[path = "paused/job.rs"]
mod job;

use common::{Said, end, line_with, mycroft, started, url_in};
use fleet::Fleet;
use host::Host;
use job::Job;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

const JOB: &str = "paused";
const TOKEN: &str = "act-0123456789abcdef";
/// What a job of 1,024 ranks may be paused for, seconds.
const PAUSE_S: f64 = 5.0;
/// Four checks, and the ways of a ring; and those of a device and of a way again, until what stands out is named.
const PASSES: usize = 6;
const AGAIN: usize = 3;

/// The command over a job's agents, what it said, and what became of the hosts.
fn validated(job: Job) -> (Said, Vec<Host>) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let token = path("act-token");
    std::fs::write(&token, TOKEN).unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (store, act) = (path("store"), path("act"));
    let (_server, line) = started(&["--store", &store, "--act-dir", &act, "--act-token-file", &token]);
    let wire = line.split_once("agents at ").unwrap().1.trim();
    let fleet = Fleet::start(job, JOB, wire);
    let checks = ["--checks", "device,copy,processor,host", "--json"];
    let there = ["--agents", "--url", &url_in(&line), "--act-token-file", &token];
    let said = end(mycroft(&[&["validate", "--job", JOB][..], &checks, &there].concat()));
    (said, fleet.stop())
}

/// What is told before anybody is held, usually and where somebody stands out: `holding 8 ranks for 6 passes: about 1.0 s, up to
/// 3.9 s where ...`.
fn told_s(said: &Said) -> [f64; 2] {
    let line = line_with(&mut said.stderr.as_bytes(), "holding ");
    ["passes: about ", "up to "].map(|before| {
        let (_, told) = line.split_once(before).unwrap();
        told.split_once(" s").unwrap().0.parse().unwrap()
    })
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
}

/// What is slow: `rank`, `ways of rank` or `way`, who, and how much by the middle of others.
fn slow(told: &Value) -> Vec<(&str, Vec<u64>, f64)> {
    let all = told["slow"].as_array().unwrap().iter();
    all.map(|slow| (slow["what"].as_str().unwrap(), numbers(&slow["ranks"]), slow["ratio"].as_f64().unwrap())).collect()
}

/// Plays a job, and checks what is said of it.
fn plays(job: Job) {
    let (said, hosts) = validated(job);
    assert_eq!(said.code, Some(i32::from(job.has_slow)), "{}", said.stderr);
    let told = said.json();
    let found = slow(&told);
    if job.has_slow {
        let (one, other) = job.slow_way();
        let [device, way] = &found[..] else { panic!("a device and a way: {found:?}") };
        assert_eq!((device.0, &device.1), ("rank", &vec![u64::from(job.slow_device())]));
        assert_eq!((way.0, &way.1), ("way", &vec![u64::from(one), u64::from(other)]));
        assert!((1.25..1.36).contains(&device.2) && (1.45..1.57).contains(&way.2), "{found:?}");
    } else {
        assert_eq!(found, []);
    }
    assert_eq!((&told["missing"], &told["ranks"]), (&Value::Array(Vec::new()), &Value::from(job.ranks)));
    for host in &hosts {
        assert!(!host.holds() && host.ended().is_none(), "all were let go, and nobody went on before");
        assert_eq!(host.holds_count, 1);
    }
    // Ranks that do something in each pass do so at the same time.
    let of_pass = |pass: usize| hosts.iter().flat_map(Host::tests_ns).filter_map(|of| of.get(pass)).max().copied();
    let passes_ns: Vec<u64> = (0..).map_while(of_pass).collect();
    assert_eq!(passes_ns.len(), if job.has_slow { PASSES + 2 * AGAIN } else { PASSES });
    let [usual_s, again_s] = told_s(&said);
    assert!(usual_s <= again_s && again_s <= PAUSE_S, "{usual_s} s and {again_s} s are told in advance");
    let name = format!("{} ranks, {}", job.ranks, if job.has_slow { "two slow" } else { "nobody slow" });
    let (paused_s, tests_ns) = (told["paused_s"].as_f64().unwrap(), passes_ns.iter().sum::<u64>());
    // A line of its own, whatever the test runner has said on this one.
    println!("\n{:.0} ns  told, {name}", if job.has_slow { again_s } else { usual_s } * 1e9);
    println!("{:.0} ns  measured, {name}", paused_s * 1e9);
    println!("{:.0} ns  beside tests, {name}", paused_s * 1e9 - tests_ns as f64);
}

fn ranks() -> u32 {
    std::env::var("MYCROFT_PAUSE_RANKS").map_or(1_024, |ranks| ranks.parse().expect("a number of ranks"))
}

#[test]
fn a_slow_device_and_a_slow_way_of_1024_ranks_are_named_and_five_seconds_told_at_most() {
    plays(Job { ranks: ranks(), has_slow: true });
}

#[test]
fn nobody_of_1024_healthy_ranks_is_named() {
    plays(Job { ranks: ranks(), has_slow: false });
}
