//! How the server runs: dues, failures, overflow, retirement, restart, stop.
use super::*;
use crate::api::CaseJson;
use crate::case::{BookState, BookedCase};
use crate::core::{JOB_IDLE_NS, JOBS_MAX};
use crate::job::ENGINE_PANICS_MAX;
use crate::lately::CALM_NS;
use crate::warm::{ORPHAN_NS, WARM_NS};
use mycroft_record::GapCause;
use mycroft_wire::Endpoint;
use std::net::TcpListener;

/// A case in the form in which the store keeps it.
fn json(case: Option<BookedCase>) -> CaseJson {
    CaseJson::of(&case.expect("the case is known"))
}

#[test]
fn what_is_due_is_not_left_for_the_regular_tick() {
    const TICK: Duration = Duration::from_secs(4);
    let begun = Instant::now();
    let world = World::start(ServeConfig { tick: TICK, ..quick() });
    world.send("train", &[DUE_NOW]);
    let ticks = |text: &str| {
        let count = text.lines().find_map(|line| line.strip_prefix("mycroft_tick_seconds_count "));
        count.expect("it is counted").parse::<u64>().expect("a number")
    };
    while ticks(&get(world.server.http_addr(), "/metrics", &[]).body) < 20 {
        assert!(begun.elapsed() < PATIENCE, "asked at regular ticks only");
    }
    assert!(begun.elapsed() < 20 * TICK, "regular ticks alone would have taken longer");
    world.send("train", &[OPEN]);
    world.server.wait_for_case(PATIENCE, |case| &*case.job == "train").expect("a case");
}

#[test]
fn an_engine_that_panics_takes_nobody_with_it() {
    let world = World::start(quick());
    world.send("sick", &[OPEN]);
    let sick = world.server.wait_for_case(PATIENCE, |case| &*case.job == "sick").expect("a case");
    for step in [PANIC_IN_OBSERVE, PANIC_IN_TICK] {
        world.send("sick", &[step]);
        world.meets(&Met::Step("sick".into(), step));
    }
    world.until("/api/v1/health", |v| v["engine_panics"] == 2);
    let stale = world.until(&format!("/api/v1/cases/{}", sick.number), |v| v["state"] == "stale");
    assert!(stale["closed_because"].as_str().is_some_and(|t| t.contains("failed")), "{stale}");

    world.send("well", &[OPEN]);
    world.server.wait_for_case(PATIENCE, |case| &*case.job == "well").expect("other jobs go on");
    world.send("sick", &[OPEN]);
    let again = world.server.wait_for_case(PATIENCE, |c| &*c.job == "sick" && c.is_open()).expect("a new engine");
    assert_ne!(again.number, sick.number);
    let jobs = world.json("/api/v1/jobs");
    assert_eq!(jobs["jobs"][0]["caveats"][0]["rule"], "server.engine-restarted");
    assert_eq!(jobs["jobs"][1]["caveats"], serde_json::json!([]));

    world.send("sick", &[PANIC_IN_REPORT]);
    world.meets(&Met::Step("sick".into(), PANIC_IN_REPORT));
    let report = world.json("/api/v1/report?job=sick");
    assert!(report["caveats"].as_array().is_some_and(|c| c.iter().any(|c| c["rule"] == "server.engine-restarted")));
}

#[test]
fn an_engine_that_always_panics_is_switched_off_and_says_so() {
    let world = World::start(quick());
    for _ in 0..=ENGINE_PANICS_MAX {
        world.send("sick", &[PANIC_IN_OBSERVE]);
    }
    let off = world.until("/api/v1/jobs", |v| v["jobs"][0]["engine"] == "off");
    assert_eq!(off["jobs"][0]["caveats"][0]["rule"], "server.engine-off");
    world.send("sick", &[PANIC_IN_OBSERVE]);
    world.until("/api/v1/jobs", |v| v["jobs"][0]["records"] == u64::from(ENGINE_PANICS_MAX) + 2);
    let report = world.json("/api/v1/report?job=sick");
    assert_eq!(report["caveats"][0]["rule"], "server.engine-off");
    assert_eq!(world.json("/api/v1/health")["engine_panics"], u64::from(ENGINE_PANICS_MAX) + 1);
}

#[test]
fn overflow_is_counted_told_to_the_engine_and_never_blocks_for_long() {
    let world = World::with_queue(quick(), 10);
    let gate = Arc::clone(&world.gate);
    let closed = mycroft_wire::sync::lock(&gate);
    world.send("train", &[BLOCK]);
    world.meets(&Met::Step("train".into(), BLOCK));
    // The brain is stuck: ten more fit, three batches of five do not.
    assert!(world.server.ingest(batch("train", &[NOTHING; 10])));
    let pushed = Instant::now();
    for _ in 0..3 {
        assert!(!world.server.ingest(batch("train", &[NOTHING; 5])));
    }
    assert!(pushed.elapsed() < Duration::from_secs(5), "a full queue held the wire for {:?}", pushed.elapsed());
    let health = world.json("/api/v1/health");
    assert_eq!(health["dropped"]["queue"], 15, "readers do not wait for a stuck brain");
    assert_eq!(health["queue"]["records"], 10);
    drop(closed);
    world.meets(&Met::Gap("train".into(), 15));
    let jobs = world.until("/api/v1/jobs", |v| v["jobs"][0]["caveats"][0]["rule"] == "server.queue-dropped");
    assert_eq!(jobs["jobs"][0]["lost"], 15);
    let ill = world.until("/api/v1/health", |v| v["status"] == "degraded");
    assert!(ill["problems"][0].as_str().is_some_and(|p| p.contains("could not keep up")), "{ill}");
    let metrics = get(world.server.http_addr(), "/metrics", &[]).body;
    assert!(metrics.contains("mycroft_ingest_dropped_records_total{where=\"queue\"} 15"), "{metrics}");
    world.pass(CALM_NS);
    world.until("/api/v1/health", |v| v["status"] == "ok");
}

#[test]
fn what_the_server_dropped_is_known_from_its_store() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = ServeConfig { store_dir: Some(dir.path().to_owned()), ..quick() };
    let world = World::with_queue(config, 10);
    let gate = Arc::clone(&world.gate);
    let closed = mycroft_wire::sync::lock(&gate);
    world.send("train", &[BLOCK]);
    world.meets(&Met::Step("train".into(), BLOCK));
    assert!(world.server.ingest(batch("train", &[NOTHING; 10])));
    assert!(!world.server.ingest(batch("train", &[NOTHING; 5])));
    drop(closed);
    world.meets(&Met::Gap("train".into(), 5));
    world.server.stop();
    let store = mycroft_store::Store::open(dir.path(), mycroft_store::StoreConfig::default()).expect("the store");
    let batches: Result<Vec<Batch>, _> = store.read_all().expect("listed").collect();
    let gaps: Vec<Gap> = batches
        .expect("readable")
        .iter()
        .flat_map(|b| &b.records)
        .filter_map(|r| if let Record::Gap(gap) = r { Some(*gap) } else { None })
        .collect();
    assert_eq!(gaps.iter().map(|g| (g.lost, g.cause)).collect::<Vec<_>>(), [(5, GapCause::ServerDropped)]);
}

#[test]
fn a_silent_job_is_retired_and_its_open_cases_become_stale() {
    let world = World::start(quick());
    world.send("gone", &[OPEN]);
    let case = world.server.wait_for_case(PATIENCE, |case| &*case.job == "gone").expect("a case");
    world.pass(JOB_IDLE_NS);
    world.until("/api/v1/jobs", |v| v["jobs"] == serde_json::json!([]));
    let stale = world.json(&format!("/api/v1/cases/{}", case.number));
    assert_eq!(stale["state"], "stale");
    assert!(world.server.report("gone").is_none());
}

#[test]
fn invented_job_names_are_limited_counted_and_a_problem_until_room_appears() {
    let world = World::start(quick());
    for number in 0..=JOBS_MAX {
        world.send(&format!("job{number:04}"), &[NOTHING]);
    }
    let health = world.until("/api/v1/health", |v| v["dropped"]["jobs"] == 1);
    assert_eq!(health["jobs"], JOBS_MAX);
    // The tick after the next batch keeps the problem while the table is full.
    let full = world.until("/api/v1/health", |v| v["status"] == "degraded");
    assert!(full["problems"][0].as_str().is_some_and(|p| p.contains("256 jobs")), "{full}");
    world.pass(JOB_IDLE_NS);
    world.until("/api/v1/health", |v| v["status"] == "ok" && v["jobs"] == 0);
}

#[test]
fn a_restarted_server_remembers_its_cases() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = ServeConfig { store_dir: Some(dir.path().join("store")), ..quick() };
    let first = World::start(config.clone());
    first.send("train", &[OPEN, SETTLE, CLOSE, OPEN]);
    let open = first.server.wait_for_case(PATIENCE, |case| case.number == 2).expect("two cases");
    assert!(open.is_open());
    let closed = json(first.server.case(1));
    first.server.stop();

    let second = World::start(config.clone());
    assert_eq!(json(second.server.case(1)), closed, "history is kept as it was");
    assert_eq!(second.server.case(2).map(|c| c.state), Some(BookState::Open), "what holds goes on under its number");
    let report = second.json("/api/v1/report?job=train");
    assert_eq!((&report["cases"][0]["id"], &report["cases"][1]["id"]), (&1.into(), &2.into()), "{report}");
    second.send("train", &[CLOSE, OPEN]);
    let new = second.server.wait_for_case(PATIENCE, |case| case.number == 3).expect("a new case");
    assert!(new.is_open(), "numbers are never given twice");
    assert_eq!(second.server.case(2).map(|c| c.state), Some(BookState::Closed));
    second.server.stop();

    let third = World::start(config);
    assert_eq!(json(third.server.case(1)), closed);
    assert_eq!(third.json("/api/v1/cases")["cases"].as_array().map(Vec::len), Some(3));
}

#[test]
fn an_open_case_whose_fault_does_not_show_again_after_a_restart_becomes_stale() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = ServeConfig { store_dir: Some(dir.path().join("store")), ..quick() };
    let first = World::start(config.clone());
    first.send("train", &[OPEN]);
    first.server.wait_for_case(PATIENCE, |case| case.number == 1).expect("a case");
    first.server.stop();

    // So late that the records are too old to be lived through again.
    let second = World::begun(config.clone(), 1000, NEW_YEAR + 2 * WARM_NS);
    assert_eq!(second.server.case(1).map(|c| c.state), Some(BookState::Open), "agents may still come back");
    second.pass(ORPHAN_NS);
    let stale = second.server.wait_for_case(PATIENCE, |case| case.state == BookState::Stale).expect("it ends");
    assert!(stale.number == 1 && stale.case.closed_because.contains("restarted"), "{stale:?}");
    second.server.stop();
    let third = World::begun(config, 1000, NEW_YEAR + 2 * WARM_NS);
    assert_eq!(json(third.server.case(1)), json(Some(stale)), "staleness was written");
}

#[test]
fn an_open_case_that_shows_again_only_when_agents_are_back_keeps_its_number() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = ServeConfig { store_dir: Some(dir.path().join("store")), ..quick() };
    let first = World::start(config.clone());
    first.send("train", &[OPEN, SETTLE]);
    let before = first.server.wait_for_case(PATIENCE, |case| case.is_settled()).expect("a case");
    first.server.stop();

    let second = World::begun(config, 1000, NEW_YEAR + 2 * WARM_NS);
    second.send("other", &[OPEN]);
    second.server.wait_for_case(PATIENCE, |c| &*c.job == "other" && c.number == 2).expect("another job's case is new");
    second.send("train", &[OPEN]);
    let after =
        second.server.wait_for_case(PATIENCE, |c| &*c.job == "train" && !c.is_settled()).expect("it shows again");
    assert_eq!((after.number, after.state), (before.number, before.state));
    assert_eq!(after.case.opened_at, before.case.opened_at);
    assert!(after.case.finding.since <= before.case.finding.since);
    second.send("train", &[OPEN]);
    second.server.wait_for_case(PATIENCE, |c| &*c.job == "train" && c.number == 3).expect("the next one is new");
}

#[test]
fn an_engine_that_fails_on_the_past_begins_anew_with_the_present() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = ServeConfig { store_dir: Some(dir.path().join("store")), ..quick() };
    let first = World::start(config.clone());
    for _ in 0..=ENGINE_PANICS_MAX {
        first.send("sick", &[PANIC_IN_OBSERVE]);
    }
    first.send("well", &[OPEN]);
    first.until("/api/v1/health", |v| v["engine_panics"] == u64::from(ENGINE_PANICS_MAX) + 1);
    first.server.stop();

    let second = World::start(config);
    assert_eq!(second.json("/api/v1/health")["engine_panics"], 1);
    assert_eq!(second.json("/api/v1/jobs")["jobs"][0]["name"], "well");
    second.send("sick", &[OPEN]);
    second.server.wait_for_case(PATIENCE, |c| &*c.job == "sick" && c.is_open()).expect("it is diagnosed again");
}

/// Of a thread's flags in the kernel: it has begun to end. Whoever joins it is woken after that, and before it has left `/proc`.
const PF_EXITING: u32 = 4;

/// Threads of servers in this process that have not begun to end.
fn own_threads() -> usize {
    let ours = std::fs::read_dir("/proc/self/task").expect("own threads").flatten().filter(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let (name, rest) = stat.rsplit_once(')').unwrap_or_default();
        let flags: u32 = rest.split_whitespace().nth(6).and_then(|flags| flags.parse().ok()).unwrap_or(PF_EXITING);
        name.contains("(mycroft-") && flags & PF_EXITING == 0
    });
    ours.count()
}

#[test]
fn stopping_releases_ports_sockets_and_threads() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("agents.sock");
    let config = ServeConfig {
        wire: vec![Endpoint::Unix(socket.clone()), Endpoint::Tcp("127.0.0.1:0".into())],
        store_dir: Some(dir.path().join("store")),
        ..quick()
    };
    let world = World::start(config);
    let http = world.server.http_addr();
    let endpoints = world.server.wire_endpoints().to_vec();
    assert!(socket.exists());
    assert!(own_threads() > 0);
    // Somebody who is connected and says nothing must not hold the server up.
    let idle = TcpStream::connect(http).expect("connected");
    let stopped = Instant::now();
    world.server.stop();
    assert!(stopped.elapsed() < Duration::from_secs(10), "took {:?}", stopped.elapsed());
    drop(idle);
    assert!(!socket.exists(), "the socket file is removed");
    assert!(TcpStream::connect(http).is_err(), "nobody listens on {http}");
    let Endpoint::Tcp(wire) = &endpoints[1] else { panic!("{endpoints:?}") };
    assert!(TcpStream::connect(wire).is_err(), "nobody listens on {wire}");
    assert_eq!(own_threads(), 0, "threads are joined");
}

#[test]
fn what_was_received_before_a_stop_is_diagnosed_and_stored() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = ServeConfig { store_dir: Some(dir.path().to_owned()), tick: Duration::from_secs(60), ..quick() };
    let world = World::start(config.clone());
    world.send("train", &[OPEN]);
    world.server.stop();
    let case = World::start(config).server.case(1).expect("the case of the last round");
    assert_eq!(&*case.job, "train");
}

#[test]
fn a_server_that_cannot_start_says_why_and_leaves_nothing() {
    let exposed = ServeConfig { http: "0.0.0.0:0".parse().expect("an address"), ..quick() };
    let error = crate::Server::start(exposed).expect_err("no token").to_string();
    assert!(error.contains("token") && error.contains("127.0.0.1"), "{error}");

    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("agents.sock");
    let config = ServeConfig {
        http: taken.local_addr().expect("an address"),
        wire: vec![Endpoint::Unix(socket.clone())],
        ..quick()
    };
    let error = crate::Server::start(config).expect_err("the port is taken").to_string();
    assert!(error.contains(&taken.local_addr().expect("an address").to_string()), "{error}");
    assert!(error.contains("choose another"), "{error}");
    assert!(!socket.exists(), "the socket bound before is released");
}
