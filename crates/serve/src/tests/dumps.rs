//! Captures against agents made by hand: who is asked, what is kept, what a case gains, and everything that goes wrong.
use super::{NEW_YEAR, OPEN, PATIENCE, SETTLE, World, get, quick, raw};
use crate::config::ServeConfig;
use mycroft_record::{NANOS_PER_SEC, Rank};
use mycroft_wire::{CaptureKind, CaptureOrder, Captured, Client, ClientConfig, Endpoint};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

const JOB: &str = "train/7";
const DUMPS: &str = "/api/v1/jobs/train%2F7/dumps";

fn config(dir: &Path) -> ServeConfig {
    ServeConfig { wire: vec![Endpoint::Unix(dir.join("agents.sock"))], store_dir: Some(dir.join("store")), ..quick() }
}

/// An agent made by hand.
struct Agent(Client);

impl Agent {
    /// Connects, and waits until the server counts it: the handshake ends a moment before.
    fn connect(world: &World, host: &str) -> Agent {
        let config = ClientConfig { host: host.to_owned(), ..ClientConfig::default() };
        let connected = |health: &Value| health["agents_connected"].as_u64().unwrap_or(0);
        let before = connected(&world.json("/api/v1/health"));
        let client = Client::connect(&world.server.wire_endpoints()[0], &config).expect("the server takes the agent");
        world.until("/api/v1/health", |health| connected(health) > before);
        Agent(client)
    }

    /// Waits for the next order.
    fn order(&mut self) -> CaptureOrder {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.0.poll().expect("connected");
            if let Some(order) = self.0.take_orders().pop() {
                return order;
            }
            assert!(Instant::now() < deadline, "no order came");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn say(&mut self, captured: Captured) {
        self.0.send_captured(captured).expect("connected");
    }

    /// Sends the stacks of a rank that sits in `function`.
    fn stacks(&mut self, capture: u64, rank: u32, function: &str) {
        let (pid, file) = (100 + rank, format!("pyspy_pid{}_rank_{rank}.json", 100 + rank));
        let json = stacks_json(pid, function);
        let (front, rest) = json.as_bytes().split_at(json.len() / 2);
        for (offset, bytes) in [(0, front), (front.len() as u64, rest)] {
            self.say(Captured::Piece { capture, file: file.clone(), offset, bytes: bytes.to_vec() });
        }
        let text = String::new();
        self.say(Captured::Tried { capture, kind: CaptureKind::Stacks, rank: Rank(rank), pid, file, text });
    }

    fn nothing(&mut self, capture: u64, rank: u32, text: &str) {
        let (kind, rank, file) = (CaptureKind::Stacks, Rank(rank), String::new());
        self.say(Captured::Tried { capture, kind, rank, pid: 100 + rank.0, file, text: text.to_owned() });
    }

    fn end(&mut self, capture: u64, ranks: u32) {
        self.say(Captured::End { capture, ranks, text: String::new() });
    }
}

fn stacks_json(pid: u32, function: &str) -> String {
    let frame = |name: &str, line: u32| {
        format!(
            "{{\"name\":\"{name}\",\"filename\":\"/job/train.py\",\"module\":null,\"short_filename\":\"train.py\",\
             \"line\":{line},\"locals\":null,\"is_entry\":false,\"is_shim_entry\":false}}"
        )
    };
    format!(
        "[{{\"pid\":{pid},\"thread_id\":140000000000000,\"thread_name\":\"MainThread\",\"os_thread_id\":{pid},\
         \"active\":false,\"owns_gil\":false,\"frames\":[{},{}],\"process_info\":{{\"pid\":{pid},\
         \"command_line\":\"python train.py\",\"parent\":{{\"pid\":1,\"command_line\":\"torchrun\",\"parent\":null}}}}}}]",
        frame(function, 42),
        frame("main", 7)
    )
}

fn post(world: &World, path: &str, headers: &str) -> (u16, Value) {
    let address = world.server.http_addr();
    let request =
        format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n{headers}\r\n");
    let answer = raw(address, request.as_bytes()).expect("an answer");
    (answer.status, serde_json::from_str(&answer.body).unwrap_or(Value::Null))
}

/// A job that the server knows.
fn known_job(world: &World) {
    world.send(JOB, &[super::NOTHING]);
    world.until("/api/v1/jobs", |jobs| jobs["jobs"].as_array().is_some_and(|jobs| !jobs.is_empty()));
}

fn over(world: &World, id: u64) -> Value {
    world.until(&format!("{DUMPS}/{id}"), |dump| dump["state"] != "running")
}

fn rules(case: &Value) -> Vec<&str> {
    case["because"].as_array().expect("a list").iter().filter_map(|reason| reason["rule"].as_str()).collect()
}

#[test]
fn a_case_that_opens_brings_a_capture_whose_reasons_stay_with_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let world = World::start(config(dir.path()));
    let (mut one, mut two) = (Agent::connect(&world, "host0"), Agent::connect(&world, "host1"));
    world.send(JOB, &[OPEN, SETTLE]);
    let order = one.order();
    assert_eq!((order.job.as_str(), order.stacks, order.flight_recorder), (JOB, true, true));
    assert_eq!(two.order(), order, "all are told the same time");
    let ahead = NEW_YEAR + u64::from(order.in_ms) * 1_000_000;
    let ordered = ahead..=ahead + world.begun.elapsed().as_nanos() as u64;
    assert!(ordered.contains(&order.at.0), "a little ahead of the server's clock");
    one.nothing(order.id, 0, "not a Python process");
    one.end(order.id, 1);
    two.stacks(order.id, 1, "load_batch_stuck");
    two.end(order.id, 1);
    let dump = over(&world, order.id);
    assert_eq!(
        (&dump["state"], &dump["automatic"], &dump["case"]),
        (&"done".into(), &true.into(), &1.into()),
        "{dump}"
    );
    assert_eq!(dump["files"][0]["path"], "host1/pyspy_pid101_rank_1.json");
    assert_eq!(dump["tried"][0]["text"], "not a Python process");
    let case = world.until("/api/v1/cases/1", |case| case["dumps"][0]["id"] == order.id);
    let stack = case["because"].as_array().expect("a list").iter().find(|reason| reason["rule"] == "dump.stack");
    let stack = stack.expect("what the suspect was doing")["text"].as_str().expect("text");
    assert!(
        stack.contains("rank 1") && stack.contains("load_batch_stuck (train.py:42) < main (train.py:7)"),
        "{stack}"
    );
    assert_eq!(rules(&case)[0], "flow.not-delivered", "live reasons go first");
    assert_eq!(case["suspects"][0]["rank"], 1, "the live suspect stays");
    let before = rules(&case).len();

    // The engine's next version of the case knows nothing of captures.
    world.send(JOB, &[SETTLE]);
    world.pass(NANOS_PER_SEC);
    world.send(JOB, &[super::CLOSE]);
    let case = world.until("/api/v1/cases/1", |case| case["state"] == "closed");
    assert_eq!(rules(&case).len(), before, "gained once, not twice: {case}");
    let report = world.json("/api/v1/report?job=train%2F7");
    assert_eq!(rules(&report["cases"][0]).len(), before, "the report tells it, too");

    let path = format!("{DUMPS}/{}/files/host1/pyspy_pid101_rank_1.json", order.id);
    assert_eq!(get(world.server.http_addr(), &path, &[]).body, stacks_json(101, "load_batch_stuck"));
    for bad in ["host1/none", "..%2Fdump.json", "../dump.json", "host1%2F..%2F..%2Fdump.json"] {
        let path = format!("{DUMPS}/{}/files/{bad}", order.id);
        assert_eq!(get(world.server.http_addr(), &path, &[]).status, 404, "{bad}");
    }
    drop((one, two));
    world.server.stop();
    let world = World::start(config(dir.path()));
    let kept = world.json(&format!("{DUMPS}/{}", order.id));
    assert_eq!(kept, dump, "captures outlive the server");
    assert_eq!(rules(&world.json("/api/v1/cases/1")).len(), before);
    assert_eq!(world.json(DUMPS)["dumps"][0]["id"], order.id);
    assert_eq!(get(world.server.http_addr(), &path, &[]).status, 200);
}

#[test]
fn a_capture_names_suspects_only_where_the_live_verdict_has_none() {
    let dir = tempfile::tempdir().expect("a directory");
    let world = World::start(config(dir.path()));
    let mut agent = Agent::connect(&world, "host0");
    world.send(JOB, &[OPEN]);
    let order = agent.order();
    agent.stacks(order.id, 3, "save_checkpoint");
    agent.end(order.id, 1);
    over(&world, order.id);
    let case = world.until("/api/v1/cases/1", |case| case["dumps"][0]["id"] == order.id);
    assert!(case["because"].to_string().contains("save_checkpoint"), "nobody is blamed yet, so it is told: {case}");
    world.send(JOB, &[SETTLE]);
    let case = world.until("/api/v1/cases/1", |case| case["settled"] == true);
    assert_eq!((&case["suspects"][0]["rank"], &case["category"]), (&1.into(), &"network-send".into()));
}

#[test]
fn an_agent_that_vanishes_midway_costs_its_own_files_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let world = World::start(config(dir.path()));
    known_job(&world);
    let (mut one, mut two) = (Agent::connect(&world, "host0"), Agent::connect(&world, "host1"));
    let begun = Instant::now();
    let (status, dump) = post(&world, DUMPS, "");
    assert_eq!((status, &dump["state"]), (202, &"running".into()));
    let order = one.order();
    assert_eq!(two.order().id, order.id);
    one.stacks(order.id, 0, "forward");
    one.end(order.id, 1);
    two.say(Captured::Piece {
        capture: order.id,
        file: "pyspy_pid9_rank_1.json".into(),
        offset: 0,
        bytes: vec![b'['; 9],
    });
    drop(two);
    let dump = over(&world, order.id);
    assert!(begun.elapsed() < Duration::from_secs(9), "its end is seen, not waited out: {:?}", begun.elapsed());
    let states: Vec<_> =
        dump["hosts"].as_array().expect("a list").iter().map(|h| (h["host"].clone(), h["state"].clone())).collect();
    assert_eq!(states, [("host0".into(), "ok".into()), ("host1".into(), "lost".into())]);
    assert_eq!(dump["files"].as_array().expect("a list").len(), 1, "half a file is none: {dump}");
}

#[test]
fn an_agent_that_never_answers_is_given_up_in_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let world = World::start(config(dir.path()));
    known_job(&world);
    let mut agent = Agent::connect(&world, "host0");
    let begun = Instant::now();
    assert_eq!(post(&world, &format!("{DUMPS}?flight_recorder=false"), "").0, 202);
    let order = agent.order();
    assert!(order.stacks && !order.flight_recorder);
    let deadline = Instant::now() + PATIENCE;
    let path = format!("{DUMPS}/{}", order.id);
    while world.json(&path)["state"] == "running" {
        assert!(Instant::now() < deadline);
        agent.0.poll().expect("connected");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "promised within 10 s: {:?}", begun.elapsed());
    let dump = world.json(&path);
    assert_eq!((&dump["hosts"][0]["state"], &dump["autopsy"]), (&"silent".into(), &Value::Null));
    // Too late: nothing of it is taken.
    agent.stacks(order.id, 0, "late");
    agent.0.flush(PATIENCE).expect("nothing is pending");
    assert_eq!(world.json(&path), dump);
}

/// An agent that speaks version 1 only.
fn old_agent(endpoint: &Endpoint, host: &str) -> UnixStream {
    let Endpoint::Unix(path) = endpoint else { panic!("{endpoint:?}") };
    let mut stream = UnixStream::connect(path).expect("connected");
    let mut body = 77u64.to_le_bytes().to_vec();
    for text in ["", host, "mycroft 0.0.9"] {
        body.extend((text.len() as u16).to_le_bytes());
        body.extend(text.bytes());
    }
    let length = (body.len() as u32).to_le_bytes();
    let hello = [&b"MYCW"[..], &1u16.to_le_bytes(), &1u16.to_le_bytes(), &length, &body].concat();
    stream.write_all(&hello).expect("sent");
    let mut answer = [0u8; 38];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer[..6], *b"MYCW\x01\0", "welcome in its own version");
    stream
}

#[test]
fn agents_that_are_too_old_and_hosts_without_one_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let world = World::start(config(dir.path()));
    known_job(&world);
    let _old = old_agent(&world.server.wire_endpoints()[0], "host0");
    world.until("/api/v1/health", |health| health["agents_connected"] == 1);
    assert_eq!(post(&world, DUMPS, "").0, 202);
    let dump = over(&world, 1);
    assert_eq!(dump["state"], "failed");
    assert!(dump["error"].as_str().is_some_and(|error| error.contains("too old")), "{dump}");
    let mut agent = Agent::connect(&world, "host7");
    world.until("/api/v1/health", |health| health["agents_connected"] == 2);
    assert_eq!(post(&world, DUMPS, "").0, 202);
    let order = agent.order();
    agent.end(order.id, 0);
    let dump = over(&world, 2);
    let told = dump["hosts"].to_string();
    assert!(told.contains("agent of host host0 is too old") && told.contains("upgrade it"), "{told}");
    assert!(told.contains("no agent that calls itself host1 is connected"), "{told}");
    assert!(!told.contains("host7"), "an agent without ranks of the job is no host of it: {told}");
}

#[test]
fn requests_that_make_no_sense_are_refused_with_a_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let world = World::start(config(dir.path()));
    let (status, answer) = post(&world, DUMPS, "");
    assert_eq!(status, 404);
    assert!(answer["error"].as_str().is_some_and(|error| error.contains("no job \"train/7\"")), "{answer}");
    known_job(&world);
    let refused = |path: &str, headers: &str| post(&world, path, headers).0;
    assert_eq!(refused(&format!("{DUMPS}?stacks=false&flight_recorder=false"), ""), 400);
    assert_eq!(refused(&format!("{DUMPS}?stack=false"), ""), 400);
    assert_eq!(refused(DUMPS, "Origin: http://evil.example\r\n"), 403, "a page of another site");
    assert_eq!(refused("/api/v1/jobs", ""), 405);
    assert_eq!(world.json(DUMPS)["dumps"], Value::Array(Vec::new()), "nothing was begun");
    let own = format!("Origin: http://{}\r\n", world.server.http_addr());
    assert_eq!(refused(DUMPS, &own), 202, "a page of its own");
    let dump = over(&world, 1);
    assert_eq!(dump["state"], "failed");
    assert!(dump["error"].as_str().is_some_and(|error| error.contains("no agents are connected")), "{dump}");
    let mut agent = Agent::connect(&world, "host0");
    assert_eq!(refused(DUMPS, ""), 202);
    assert_eq!(refused(DUMPS, ""), 409, "one of a job at a time");
    let order = agent.order();
    agent.end(order.id, 0);
    over(&world, order.id);
    for missing in ["99", "x", "-1"] {
        assert_eq!(get(world.server.http_addr(), &format!("{DUMPS}/{missing}"), &[]).status, 404);
    }
    assert_eq!(get(world.server.http_addr(), &format!("/api/v1/jobs/other/dumps/{}", order.id), &[]).status, 404);
}

#[test]
fn cases_cause_so_many_captures_an_hour_and_none_when_it_is_switched_off() {
    let dir = tempfile::tempdir().expect("a directory");
    let world = World::start(config(dir.path()));
    let mut agent = Agent::connect(&world, "host0");
    let mut ids = Vec::new();
    for case in 1..=6u64 {
        world.send(JOB, &[OPEN]);
        let order = agent.order();
        agent.end(order.id, 0);
        assert_eq!(over(&world, order.id)["case"], case);
        ids.push(order.id);
    }
    world.send(JOB, &[OPEN]);
    world.until("/api/v1/cases", |cases| cases["cases"].as_array().is_some_and(|cases| cases.len() == 7));
    world.pass(3600 * NANOS_PER_SEC);
    world.send(JOB, &[OPEN]);
    let order = agent.order();
    assert_eq!((order.id, ids.as_slice()), (7, &[1, 2, 3, 4, 5, 6][..]), "the seventh case brought none");
    agent.end(order.id, 0);
    assert_eq!(over(&world, 7)["case"], 8);

    let dir = tempfile::tempdir().expect("a directory");
    let world = World::start(ServeConfig { dump_on_case: false, ..config(dir.path()) });
    let mut agent = Agent::connect(&world, "host0");
    world.send(JOB, &[OPEN]);
    world.until("/api/v1/cases", |cases| cases["cases"][0]["state"] == "open");
    assert_eq!(post(&world, DUMPS, "").0, 202);
    let order = agent.order();
    agent.end(order.id, 0);
    let dump = over(&world, order.id);
    assert_eq!((order.id, &dump["automatic"], &dump["case"]), (1, &false.into(), &1.into()), "the first is a person's");
}
