//! Acknowledged means stored: servers that are killed at any moment, and disks that are full.
use mycroft_record::{Batch, HostTime, NANOS_PER_SEC, ProcessKey, Rank, Record, Source, StepMark};
use mycroft_serve::api::HealthJson;
use mycroft_serve::{ServeConfig, Server, ServerHandle};
use mycroft_store::read_only;
use mycroft_wire::{Client, ClientConfig, Endpoint};
use small_disk::SmallDisk;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

mod small_disk;

const PATIENCE: Duration = Duration::from_secs(120);
/// 2025-01-01T00:00:00Z.
const NEW_YEAR: u64 = 1_735_689_600 * NANOS_PER_SEC;
/// Kills in all; four tests share them.
const KILLS: u64 = 200;

fn config(dir: &Path) -> ServeConfig {
    ServeConfig {
        http: SocketAddr::from(([127, 0, 0, 1], 0)),
        wire: vec![Endpoint::Unix(dir.join("agents.sock"))],
        store_dir: Some(dir.join("store")),
        ..ServeConfig::default()
    }
}

fn step(number: u64) -> Batch {
    let at = HostTime(NEW_YEAR + number * 1000);
    let process = Some(ProcessKey { rank: Rank(0), pid: 1, nonce: 1 });
    let source = Source { job: "train".into(), host: "host0".into(), process };
    // More than a page now and then, so that writes end anywhere.
    let records = (0..=number % 7 * 40).map(|_| Record::StepMark(StepMark { at, step: number })).collect();
    Batch { source, collected_at: at, records }
}

fn client(dir: &Path) -> Client {
    let endpoint = Endpoint::Unix(dir.join("agents.sock"));
    let config = ClientConfig { send_timeout: Duration::from_millis(50), ..ClientConfig::default() };
    let end = Instant::now() + PATIENCE;
    loop {
        match Client::connect(&endpoint, &config) {
            Ok(client) => return client,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    }
}

/// How often each step is in the store.
fn stored(dir: &Path) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    for delivery in read_only(&dir.join("store")).expect("listed") {
        // A killed writer may leave the end of a log torn, which is told.
        let Ok(delivery) = delivery else { continue };
        if let Some(Record::StepMark(mark)) = delivery.batch.records.first() {
            *found.entry(mark.step).or_insert(0) += 1;
        }
    }
    found
}

/// Not a test of its own: the server that others kill.
#[test]
fn child_that_serves_until_it_is_killed() {
    let Some(dir) = std::env::var_os("MYCROFT_TEST_SERVE_CHILD") else { return };
    let _server = Server::start(config(Path::new(&dir))).expect("the server starts");
    println!("serving");
    // Until the parent kills it, or is gone.
    let _ = std::io::stdin().read(&mut [0]);
}

fn start_child(dir: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", "child_that_serves_until_it_is_killed", "--nocapture"])
        .env("MYCROFT_TEST_SERVE_CHILD", dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the server's process starts");
    let said = BufReader::new(child.stdout.take().expect("piped")).lines();
    let ready = said.map_while(Result::ok).any(|line| line.contains("serving"));
    assert!(ready, "the server did not start");
    child
}

/// A fixed-seed generator (splitmix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 1
}

/// Kills servers of one store, again and again, each after so many acknowledgements as the seed says.
fn acknowledged_is_found(mut seed: u64) {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut next, mut acknowledged) = (0, Vec::new());
    for round in 0..KILLS / 4 {
        let mut child = start_child(dir.path());
        let mut client = client(dir.path());
        let (first, wanted) = (next, random(&mut seed) % 300);
        while client.stats().acknowledged < wanted {
            if client.send(&step(next)).is_ok() {
                next += 1;
            }
        }
        child.kill().expect("killed");
        child.wait().expect("gone");
        // What it still said is in the socket.
        while client.poll().is_ok() {}
        acknowledged.extend(first..first + client.stats().acknowledged);
        let found = stored(dir.path());
        let missing: Vec<u64> = acknowledged.iter().copied().filter(|step| !found.contains_key(step)).collect();
        assert!(missing.is_empty(), "round {round}: of {} acknowledged {missing:?} are missing", acknowledged.len());
    }
    assert!(acknowledged.len() > 1000);
}

#[test]
fn killed_servers_had_stored_what_they_acknowledged_1() {
    acknowledged_is_found(1);
}

#[test]
fn killed_servers_had_stored_what_they_acknowledged_2() {
    acknowledged_is_found(2);
}

#[test]
fn killed_servers_had_stored_what_they_acknowledged_3() {
    acknowledged_is_found(3);
}

#[test]
fn killed_servers_had_stored_what_they_acknowledged_4() {
    acknowledged_is_found(4);
}

fn health(server: &ServerHandle) -> HealthJson {
    let mut stream = TcpStream::connect(server.http_addr()).expect("the server accepts");
    let request = "GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {body}"))
}

/// Sends and polls until `done`, connecting again where the server says so.
fn drive(client: &mut Client, next: &mut u64, most: u64, done: impl Fn(&Client) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done(client) {
        assert!(Instant::now() < end, "never: {:?}", client.stats());
        if !client.is_connected() {
            let _ = client.reconnect();
        }
        if *next < most && client.send(&step(*next)).is_ok() {
            *next += 1;
        }
        let _ = client.flush(Duration::from_millis(1));
    }
}

#[test]
fn on_a_full_disk_diagnosis_goes_on_and_nothing_that_was_acknowledged_is_lost() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(disk) = SmallDisk::mount(dir.path()) else { return };
    let server = Server::start(config(&disk.0)).expect("the server starts");
    let mut client = client(&disk.0);
    let mut next = 0;
    drive(&mut client, &mut next, 100, |client| client.stats().acknowledged == 100);
    disk.fill();
    // The agent goes on far beyond its credit, and everything is diagnosed.
    drive(&mut client, &mut next, 600, |client| client.stats().taken == 600);
    let records: u64 = (0..600).map(|number| step(number).records.len() as u64).sum();
    let end = Instant::now() + PATIENCE;
    let ill = loop {
        let health = health(&server);
        // What the wire tells of the agent's clock counts as received, too.
        if health.records >= records && health.problems.iter().any(|problem| problem.contains("disk is full")) {
            break health;
        }
        assert!(Instant::now() < end, "{health:?}");
    };
    assert!(!ill.problems.iter().any(|problem| problem.contains("faster disk")), "{ill:?}");
    let acknowledged = client.stats().acknowledged;
    assert!(acknowledged < 600, "the disk was full");
    let found = stored(&disk.0);
    assert!((0..acknowledged).all(|number| found.contains_key(&number)), "acknowledged is stored");
    disk.free();
    drive(&mut client, &mut next, 700, |client| client.stats().acknowledged == 700);
    let found = stored(&disk.0);
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), (0..700).collect::<Vec<_>>());
    assert!(found.values().all(|count| *count == 1), "each once: {found:?}");
    let end = Instant::now() + PATIENCE;
    while health(&server).status != "ok" {
        assert!(Instant::now() < end, "{:?}", health(&server));
    }
    server.stop();
}

#[test]
fn a_server_starts_on_a_full_disk_and_beside_a_broken_database_and_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(disk) = SmallDisk::mount(dir.path()) else { return };
    let first = Server::start(config(&disk.0)).expect("the server starts");
    let mut agent = client(&disk.0);
    drive(&mut agent, &mut 0, 50, |client| client.stats().acknowledged == 50);
    first.stop();
    disk.fill();
    let second = Server::start(config(&disk.0)).expect("it starts all the same");
    let mut agent = client(&disk.0);
    let mut next = 50;
    drive(&mut agent, &mut next, 150, |client| client.stats().taken == 100);
    let end = Instant::now() + PATIENCE;
    while !health(&second).problems.iter().any(|problem| problem.contains("disk is full")) {
        assert!(Instant::now() < end, "{:?}", health(&second));
    }
    disk.free();
    drive(&mut agent, &mut next, 150, |client| client.stats().acknowledged == 100);
    assert_eq!(stored(&disk.0).len(), 150);
    second.stop();

    std::fs::write(disk.0.join("store/meta.sqlite"), b"a letter to a friend, long enough to be read").expect("written");
    let third = Server::start(config(&disk.0)).expect("it starts all the same");
    let end = Instant::now() + PATIENCE;
    while !health(&third).problems.iter().any(|problem| problem.contains("cases are kept in memory only")) {
        assert!(Instant::now() < end, "{:?}", health(&third));
    }
    third.stop();
}
