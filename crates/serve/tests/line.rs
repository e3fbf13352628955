//! The line from an agent's connection to a reader's answer, with the real wire, the real store and the real engine:
//! a job of two hosts stalls, a case names the rank that did not come, the job recovers, the case closes.
//!
//! The batches are synthetic, their times lie around the real clock: the iterations before the stall are in the past,
//! those after the recovery a little in the future, as hosts' clocks are.
mod stalled;

use mycroft_record::{Batch, Category, HostTime, NANOS_PER_MS, NANOS_PER_SEC, Place, Rank, What};
use mycroft_serve::api::{CaseJson, CasesJson, HealthJson, RanksJson};
use mycroft_serve::{BookState, BookedCase, ServeConfig, Server, ServerHandle};
use mycroft_wire::{Client, ClientConfig, Endpoint, WireError};
use stalled::{HEALTHY, ITERATION, batch, done, hello, iterations, now, waiting};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const TOKEN: &str = "a-token-of-sufficient-length";

/// What is blamed first.
fn first(booked: &BookedCase) -> Option<&Place> {
    booked.case.finding.suspects.first().map(|suspect| &suspect.place)
}

fn is_slow(booked: &BookedCase) -> bool {
    booked.case.finding.what == What::Slowdown
}

fn config(dir: &std::path::Path) -> ServeConfig {
    ServeConfig {
        http: SocketAddr::from(([127, 0, 0, 1], 0)),
        wire: vec![Endpoint::Tcp("127.0.0.1:0".into()), Endpoint::Unix(dir.join("agents.sock"))],
        token: Some(TOKEN.into()),
        store_dir: Some(dir.join("store")),
        ..ServeConfig::default()
    }
}

fn connect(endpoint: &Endpoint, host: &str) -> Client {
    let config = ClientConfig { host: host.into(), token: Some(TOKEN.into()), ..ClientConfig::default() };
    Client::connect(endpoint, &config).expect("the server takes the agent")
}

/// GET with the token, answered 200.
fn get<T: serde::de::DeserializeOwned>(server: &ServerHandle, path: &str) -> T {
    let mut stream = TcpStream::connect(server.http_addr()).expect("the server accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: mycroft.example\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    serde_json::from_str(body).unwrap_or_else(|e| panic!("{path}: {e}: {body}"))
}

/// Both ranks were healthy until two seconds ago; since then rank 0 waits in the next AllReduce, which rank 1 does not
/// enter.
fn stall(clients: &mut [Client], origin: HostTime, at: HostTime) {
    for rank in 0..2u32 {
        ship(&mut clients[rank as usize], &batch(rank, origin, hello(rank, origin), 0));
    }
    stall_of_known(clients, origin, at);
}

/// The same of ranks that have told who they are.
fn stall_of_known(clients: &mut [Client], origin: HostTime, at: HostTime) {
    for rank in 0..2u32 {
        let client = &mut clients[rank as usize];
        let healthy_until = origin + HEALTHY * ITERATION;
        client.send(&batch(rank, healthy_until, iterations(rank, origin, 0, HEALTHY), 0)).expect("taken");
        let live = waiting(rank, origin, at);
        let in_flight = live.len() as u32;
        ship(client, &batch(rank, at, live, in_flight));
    }
}

/// The missing rank comes.
fn arrive(clients: &mut [Client], origin: HostTime, at: HostTime) {
    for rank in 0..2u32 {
        let entered = if rank == 0 { origin + HEALTHY * ITERATION - 20 * NANOS_PER_MS } else { at - NANOS_PER_MS };
        ship(&mut clients[rank as usize], &batch(rank, at, vec![done(rank, HEALTHY, entered, at)], 0));
    }
}

/// Ten more iterations follow.
fn go_on(clients: &mut [Client], at: HostTime) {
    let again = at - HEALTHY * ITERATION;
    for rank in 0..2u32 {
        let records = iterations(rank, again, HEALTHY + 1, HEALTHY + 11);
        ship(&mut clients[rank as usize], &batch(rank, again + (HEALTHY + 10) * ITERATION, records, 0));
    }
}

fn ship(client: &mut Client, batch: &Batch) {
    client.send(batch).expect("taken");
    client.flush(PATIENCE).expect("acknowledged");
}

#[test]
fn a_stalled_job_has_a_case_within_two_seconds_which_closes_when_it_recovers_and_outlives_the_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(config(dir.path())).expect("the server starts");
    let endpoints = server.wire_endpoints().to_vec();
    let mut clients = [connect(&endpoints[0], "host0"), connect(&endpoints[1], "host1")];

    let at = now();
    let origin = HostTime(at.0 - 2 * NANOS_PER_SEC - HEALTHY * ITERATION);
    let sent = Instant::now();
    stall(&mut clients, origin, at);
    let case = server.wait_for_case(PATIENCE, |case| case.is_settled()).expect("a settled case");
    assert!(sent.elapsed() < Duration::from_secs(2), "took {:?}", sent.elapsed());
    let finding = &case.case.finding;
    assert_eq!((&*case.job, finding.what, finding.category), ("train", What::Hang, Category::NotStarted));
    assert_eq!(finding.suspects[0].place, Place::Rank { rank: Rank(1), host: "host1".into() }, "{case:?}");
    assert!(!case.case.because.is_empty() && !case.case.do_next.is_empty(), "{case:?}");
    let open: CasesJson = get(&server, "/api/v1/cases?state=open");
    assert_eq!(open.cases.iter().map(|c| c.id).collect::<Vec<_>>(), [case.number]);
    let ranks: RanksJson = get(&server, "/api/v1/ranks?job=train");
    assert_eq!(ranks.ranks.iter().map(|r| r.rank).collect::<Vec<_>>(), [Some(0), Some(1)]);
    let health: HealthJson = get(&server, "/api/v1/health");
    assert_eq!((health.status.as_str(), health.agents_connected, health.open_cases), ("ok", 2, 1));

    let moved = now();
    arrive(&mut clients, origin, moved);
    server.wait_for_case(PATIENCE, |c| c.number == case.number && is_slow(c)).expect("it moves again");
    go_on(&mut clients, moved);
    let closed =
        server.wait_for_case(PATIENCE, |c| c.number == case.number && c.state == BookState::Closed).expect("it closes");
    assert!(!closed.case.closed_because.is_empty() && closed.case.closed_at.is_some(), "{closed:?}");
    drop(clients);
    server.stop();

    let server = Server::start(config(dir.path())).expect("the server starts again");
    let kept: CaseJson = get(&server, &format!("/api/v1/cases/{}", case.number));
    assert_eq!(kept, CaseJson::of(&closed), "the case outlives the server");
}

#[test]
fn a_stall_that_outlasts_a_restart_is_one_case_and_closes_when_it_ends() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(config(dir.path())).expect("the server starts");
    let endpoints = server.wire_endpoints().to_vec();
    let mut clients = [connect(&endpoints[0], "host0"), connect(&endpoints[1], "host1")];
    let at = now();
    let origin = HostTime(at.0 - 2 * NANOS_PER_SEC - HEALTHY * ITERATION);
    stall(&mut clients, origin, at);
    let case = server.wait_for_case(PATIENCE, |case| case.is_settled()).expect("a settled case");
    drop(clients);
    server.stop();

    let server = Server::start(config(dir.path())).expect("the server starts again");
    let held = server.case(case.number).expect("the case is kept");
    let told =
        |c: &BookedCase| (c.state, c.case.finding.what, c.case.finding.category, first(c).cloned(), c.case.opened_at);
    assert_eq!(told(&held), told(&case), "it holds before any agent is back");
    let endpoints = server.wire_endpoints().to_vec();
    let mut clients = [connect(&endpoints[0], "host0"), connect(&endpoints[1], "host1")];
    let moved = now();
    arrive(&mut clients, origin, moved);
    server.wait_for_case(PATIENCE, |c| c.number == case.number && is_slow(c)).expect("it moves again");
    go_on(&mut clients, moved);
    let closed = server.wait_for_case(PATIENCE, |c| !c.is_open()).expect("it ends");
    assert_eq!((closed.number, closed.state), (case.number, BookState::Closed));
    let all: CasesJson = get(&server, "/api/v1/cases");
    assert_eq!(all.cases.len(), 1, "{all:?}");
    drop(clients);
    server.stop();

    let server = Server::start(config(dir.path())).expect("the server starts a third time");
    assert_eq!(
        server.case(case.number).map(|c| CaseJson::of(&c)),
        Some(CaseJson::of(&closed)),
        "what is closed stays as it was"
    );
    let all: CasesJson = get(&server, "/api/v1/cases");
    assert_eq!(all.cases.len(), 1, "{all:?}");
}

#[test]
fn a_stall_of_a_job_that_began_long_ago_keeps_its_number_once_agents_tell_who_they_are() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(config(dir.path())).expect("the server starts");
    let mut clients = [0, 1].map(|rank: usize| connect(&server.wire_endpoints()[rank], &format!("host{rank}")));
    let at = now();
    let origin = HostTime(at.0 - 2 * NANOS_PER_SEC - HEALTHY * ITERATION);
    let joined = HostTime(origin.0 - 3600 * NANOS_PER_SEC);
    for rank in 0..2u32 {
        ship(&mut clients[rank as usize], &batch(rank, joined, hello(rank, joined), 0));
    }
    stall_of_known(&mut clients, origin, at);
    let case = server.wait_for_case(PATIENCE, |case| case.is_settled()).expect("a settled case");
    let suspect = Place::Rank { rank: Rank(1), host: "host1".into() };
    assert_eq!(first(&case), Some(&suspect), "{case:?}");
    drop(clients);
    server.stop();

    let server = Server::start(config(dir.path())).expect("the server starts again");
    let mut clients = [0, 1].map(|rank: usize| connect(&server.wire_endpoints()[rank], &format!("host{rank}")));
    let later = now();
    for rank in 0..2u32 {
        let mut told = hello(rank, joined);
        told.extend(waiting(rank, origin, later));
        let in_flight = u32::from(rank == 0);
        ship(&mut clients[rank as usize], &batch(rank, later, told, in_flight));
    }
    let sure = |c: &BookedCase| c.is_settled() && c.is_open() && first(c) == Some(&suspect);
    let held = server.wait_for_case(PATIENCE, sure).expect("it holds");
    let opened = (held.number, held.case.finding.what, held.case.opened_at);
    assert_eq!(opened, (case.number, What::Hang, case.case.opened_at));
    let all: CasesJson = get(&server, "/api/v1/cases");
    assert_eq!(all.cases.len(), 1, "{all:?}");
}

/// The part of a paced iteration before its AllReduce.
const COMPUTE: u64 = 100 * NANOS_PER_MS;

/// Iterations of both ranks that take `each_ns`; the first begins at `began`, all have sequence numbers from `from`.
fn paced(clients: &mut [Client], began: HostTime, from: u64, count: u64, each_ns: u64) {
    for number in 0..count {
        let end = began + (number + 1) * each_ns;
        for rank in 0..2u32 {
            let record = done(rank, from + number, end - each_ns + COMPUTE, end);
            ship(&mut clients[rank as usize], &batch(rank, end, vec![record], 0));
        }
    }
}

#[test]
fn a_slowdown_that_spans_a_restart_is_measured_against_the_time_before() {
    const SLOW: u64 = 4 * ITERATION;
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(config(dir.path())).expect("the server starts");
    let endpoints = server.wire_endpoints().to_vec();
    let mut clients = [connect(&endpoints[0], "host0"), connect(&endpoints[1], "host1")];
    // All of it lies in the past, so that the test need not wait.
    let slow_from = HostTime(now().0 - 41 * SLOW);
    let origin = HostTime(slow_from.0 - 30 * ITERATION);
    // Long before what a restart lives through.
    let joined = HostTime(origin.0 - 3600 * NANOS_PER_SEC);
    for rank in 0..2u32 {
        ship(&mut clients[rank as usize], &batch(rank, joined, hello(rank, joined), 0));
    }
    paced(&mut clients, origin, 0, 30, ITERATION);
    paced(&mut clients, slow_from, 30, 1, SLOW);
    drop(clients);
    server.stop();

    let server = Server::start(config(dir.path())).expect("the server starts again");
    let none: CasesJson = get(&server, "/api/v1/cases");
    assert_eq!(none.cases.len(), 0, "one slow iteration is no case: {none:?}");
    let endpoints = server.wire_endpoints().to_vec();
    let mut clients = [connect(&endpoints[0], "host0"), connect(&endpoints[1], "host1")];
    // Agents tell a server that may be new who they are.
    for rank in 0..2u32 {
        ship(&mut clients[rank as usize], &batch(rank, slow_from + SLOW, hello(rank, joined), 0));
    }
    paced(&mut clients, slow_from + SLOW, 31, 40, SLOW);
    let case = server.wait_for_case(PATIENCE, is_slow).expect("a case");
    assert!(case.is_open(), "{case:?}");
}

#[test]
fn an_agent_without_the_token_is_refused_and_nothing_of_it_is_taken() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(config(dir.path())).expect("the server starts");
    for token in [None, Some("another-token-of-some-length".to_owned())] {
        let config = ClientConfig { host: "host0".into(), token, ..ClientConfig::default() };
        let refused: Result<Client, WireError> = Client::connect(&server.wire_endpoints()[0], &config);
        assert!(refused.is_err());
    }
    let health: HealthJson = get(&server, "/api/v1/health");
    assert_eq!((health.batches, health.jobs), (0, 0));
}
