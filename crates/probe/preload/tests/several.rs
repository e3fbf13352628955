//! A job on several hosts, each with an agent of its own, is held and tested through a server, and goes on whatever becomes of
//! agents, server and command. Hosts are emulated. Skips where the command is not built.
mod common;

use common::agents::{Agents, Daemon};
use common::cases::case_server;
use common::{Job, PATIENCE, Shape};
use std::net::Ipv4Addr;
use std::process::Output;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Four ranks on two hosts.
fn shape(job: &'static str) -> Shape {
    Shape { ranks: 4, job, controlled: true, ..Shape::default() }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn start(shape: &Shape) -> Option<(Job, Agents)> {
    let mut job = Job::start(shape);
    let agents = Agents::start(&job, 2)?;
    job.progress(1);
    Some((job, agents))
}

/// It goes on, and gives what it would have given.
fn goes_on(mut job: Job, shape: &Shape) {
    job.progress(11);
    let with = job.stop();
    let bare = Job::start(&Shape { bare: true, rounds: Some(with[0].0), ..shape.clone() }).results();
    assert_eq!(with, bare, "not a bit differs");
}

fn slow(said: &Output) -> Vec<String> {
    text(&said.stdout).lines().filter(|line| line.starts_with("slow:")).map(str::to_owned).collect()
}

#[test]
fn ranks_of_two_hosts_are_held_at_one_point_and_their_results_are_equal() {
    for job in ["all-reduce", "groups"] {
        let shape = shape(job);
        let Some((mut job, agents)) = start(&shape) else { return };
        for _ in 0..3 {
            let held = agents.run(&["hold", "--for", "200ms"]);
            assert_eq!(held.status.code(), Some(0), "{held:?}");
            assert!(text(&held.stdout).starts_with("4 ranks came to one point in "), "{held:?}");
            job.progress(1);
        }
        goes_on(job, &shape);
    }
}

/// Bytes a second of a healthy NIC: so slow that what it moves takes as long on a busy machine.
const NIC: u64 = 24_000_000;

#[test]
fn a_slow_device_of_another_host_is_named_and_nobody_else() {
    let shape = shape("all-reduce");
    let Some((job, agents)) = start(&shape) else { return };
    (0..2).for_each(|host| job.control().host(host).link_bytes_per_sec.store(NIC, Relaxed));
    let args = ["validate", "--checks", "device"];
    let healthy = agents.run(&args);
    assert_eq!((healthy.status.code(), slow(&healthy)), (Some(0), vec![]), "{healthy:?}");
    job.control().rank(3).compute_scale_milli.store(1_200, Relaxed);
    let said = agents.run(&args);
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    let slow = slow(&said);
    assert!(slow.len() == 1 && slow[0].starts_with("slow: rank 3 on host1: device, 1."), "{}", text(&said.stdout));
    goes_on(job, &shape);
}

/// A case of a server that knows the job, by name and by itself; and the server is told.
#[test]
fn a_case_about_another_host_is_weighed_anew_and_told() {
    let shape = shape("all-reduce");
    let Some((job, agents)) = start(&shape) else { return };
    job.control().rank(3).compute_scale_milli.store(1_300, Relaxed);
    let first = agents.run(&["hold", "--for", "10ms"]);
    assert_eq!(first.status.code(), Some(0), "{first:?}");
    let behind = agents.url.strip_prefix("http://").map(str::to_owned);
    let (server, posted) = case_server("host1", behind);
    let args = ["validate", "--checks", "device", "--tell"];
    let said = agents.command_at(&server, &[&args[..], &["--case", "12"]].concat()).output().expect("it runs");
    assert!(text(&said.stdout).contains("case 12: confirmed, gpu: rank 3 on host1 (9"), "{said:?}");
    let mut watching = Daemon::start(agents.command_at(&server, &[&args[..], &["--watch", "--above", "0"]].concat()));
    watching.line_with("case 12 asks for a test");
    for posted in [posted.recv_timeout(PATIENCE), posted.recv_timeout(PATIENCE)] {
        let posted = posted.expect("the server is told");
        for part in ["POST /api/v1/cases/12/validation", r#""outcome":"confirmed""#, "rank 3 on host1: device, 1."] {
            assert!(posted.contains(part), "no {part:?} in {posted}");
        }
    }
    watching.kill();
    goes_on(job, &shape);
}

/// From one host to another so many bytes a second.
fn path(job: &Job, from: usize, to: u8, bytes_per_sec: u64) {
    let control = job.control();
    let host = control.host(from);
    host.slow_peer_bytes_per_sec.store(bytes_per_sec, Relaxed);
    host.slow_peer.store(u64::from(u32::from(Ipv4Addr::new(127, 0, 0, 2 + to))), Relaxed);
}

#[test]
fn a_slow_way_between_hosts_is_named_and_nobody_else() {
    let shape = Shape { ranks: 5, apart: true, ..shape("all-reduce") };
    let mut job = Job::start(&shape);
    (0..5).for_each(|host| job.control().host(host).link_bytes_per_sec.store(NIC, Relaxed));
    let Some(agents) = Agents::start(&job, 5) else { return };
    job.progress(1);
    let planned = text(&agents.run(&["validate", "--dry-run", "--checks", "none"]).stdout);
    assert!(planned.contains("pass 0: ways      0-1 2-3") && planned.contains("pass 2: ways      4-0"), "{planned}");
    let args = ["validate", "--checks", "none"];
    let healthy = agents.run(&args);
    assert_eq!((healthy.status.code(), slow(&healthy)), (Some(0), vec![]), "{healthy:?}");
    let is_missing = |line: &str| line.starts_with("not measured: the way");
    assert!(!text(&healthy.stdout).lines().any(is_missing), "{healthy:?}");
    path(&job, 2, 3, NIC * 10 / 12);
    path(&job, 3, 2, NIC * 10 / 12);
    let said = agents.run(&args);
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    let slow = slow(&said);
    let way = "slow: the way between rank 2 on host2 and rank 3 on host3, 1.";
    assert!(slow.len() == 1 && slow[0].starts_with(way), "{}", text(&said.stdout));
    goes_on(job, &shape);
}

/// Nothing is waited for: the moment is random.
fn pause(time: Duration) {
    let (_keep, never) = channel::<()>();
    let _ = never.recv_timeout(time);
}

#[test]
fn whoever_is_killed_while_ways_between_hosts_are_tested_all_go_on() {
    for (number, victim) in (0..).zip([Victim::Agent, Victim::Server, Victim::Command].repeat(2)) {
        let shape = shape("groups");
        let Some((mut job, mut agents)) = start(&shape) else { return };
        let args = ["validate", "--checks", "none", "--bytes", "262144"];
        let first = agents.run(&["hold", "--for", "10ms"]);
        assert_eq!(first.status.code(), Some(0), "{first:?}");
        // A large message takes a quarter of a second.
        (0..2).for_each(|host| job.control().host(host).link_bytes_per_sec.store(1_000_000, Relaxed));
        let mut testing = Daemon::start(agents.command(&args));
        testing.line_with("holding 4 ranks");
        pause(Duration::from_millis(200 + 450 * number));
        match victim {
            Victim::Agent => agents.agents[1].kill(),
            Victim::Server => agents.server.kill(),
            Victim::Command => testing.kill(),
        }
        let killed = Instant::now();
        (0..2).for_each(|host| job.control().host(host).link_bytes_per_sec.store(NIC, Relaxed));
        job.progress(11);
        assert!(killed.elapsed() < Duration::from_secs(20), "{victim:?} {number}: {:?}", killed.elapsed());
        let ended = testing.child.wait().expect("a child");
        assert!(!ended.success(), "{victim:?} {number}: {ended}");
        goes_on(job, &shape);
    }
}

/// A command that holds the job for as long as nothing happens.
fn holding(agents: &Agents) -> Daemon {
    // Agents and ranks are known by now.
    let first = agents.run(&["hold", "--for", "10ms"]);
    assert_eq!(first.status.code(), Some(0), "{first:?}");
    let held = Daemon::start(agents.command(&["hold", "--for", "40s"]));
    held.line_with("4 ranks are held");
    held
}

/// What ends while all are held.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Agent,
    Server,
    Command,
}

#[test]
fn whoever_is_killed_while_ranks_are_held_all_go_on() {
    for victim in [Victim::Agent, Victim::Server, Victim::Command] {
        let shape = shape("groups");
        let Some((mut job, mut agents)) = start(&shape) else { return };
        let mut held = holding(&agents);
        match victim {
            Victim::Agent => agents.agents[1].kill(),
            Victim::Server => agents.server.kill(),
            Victim::Command => held.kill(),
        }
        let killed = Instant::now();
        job.progress(11);
        // Two and a half seconds at most, and what a busy machine adds; the hold would last for 40.
        assert!(killed.elapsed() < Duration::from_secs(20), "{victim:?}: {:?}", killed.elapsed());
        let ended = held.child.wait().expect("a child");
        assert!(!ended.success(), "{victim:?}: {ended}");
        goes_on(job, &shape);
    }
}

#[test]
fn an_agent_that_may_not_hold_is_told_and_nobody_waits() {
    let shape = shape("all-reduce");
    let Some((mut job, mut agents)) = start(&shape) else { return };
    agents.agents[0].kill();
    agents.agents[0] = agents.agent(&job.segments(), 0, false);
    let refused = agents.run(&["hold", "--for", "10ms"]);
    let said = text(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("host0") && said.contains("--may-hold"), "{said}");
    job.progress(1);
    goes_on(job, &shape);
}
