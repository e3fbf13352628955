//! What agents and servers of earlier releases say must stay understood: job images, hosts and the server are upgraded on
//! different days. Frozen bytes of both directions per protocol version in `testdata/wire-vN`, and a spool;
//! `MYCROFT_WRITE_SAMPLES=1 cargo test -p mycroft-wire --test samples` adds those of a new version and leaves others alone.
mod common;

use common::step_batch;
use mycroft_record::{Batch, HostTime, Rank};
use mycroft_wire::spool::Spool;
use mycroft_wire::{
    CaptureKind, CaptureOrder, Captured, Client, ClientConfig, Endpoint, GateSaid, Listener, ListenerHandle,
    ServerConfig, VERSION_CAPTURE, VERSION_GATE, VERSION_HIGHEST, VERSION_LOWEST, codec,
};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes before the body.
const HELLO_HEAD: usize = 12;
const ANSWER_HEAD: usize = 10;
const MESSAGE_HEAD: usize = 9;

/// The type of a message with batches.
const BATCHES: u8 = 1;

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

fn of_version(version: u16) -> PathBuf {
    folder(&format!("wire-v{version}"))
}

fn order() -> CaptureOrder {
    let at = HostTime(1_700_000_000_000_000_000);
    CaptureOrder { id: 7, job: "train".to_owned(), at, in_ms: 500, limit_ms: 8000, stacks: true, flight_recorder: true }
}

fn gate_said() -> GateSaid {
    GateSaid { session: 7, number: 8, bytes: b"request".to_vec() }
}

fn captured() -> Vec<Captured> {
    let file = "rank_3.json".to_owned();
    let (kind, rank) = (CaptureKind::Stacks, Rank(3));
    vec![
        Captured::Piece { capture: 7, file: file.clone(), offset: 0, bytes: b"[]".to_vec() },
        Captured::Tried { capture: 7, kind, rank, pid: 41, file, text: String::new() },
        Captured::End { capture: 7, ranks: 1, text: "done".to_owned() },
    ]
}

/// A server, the batches it was given and what captures brought.
fn serve() -> (ListenerHandle, Receiver<Batch>, Receiver<Captured>) {
    let ((batches, got_batches), (pieces, got_pieces)) = (channel(), channel());
    let (batches, pieces) = (Mutex::new(batches), Mutex::new(pieces));
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), ServerConfig::default()).unwrap();
    let handle = listener.serve_with(
        Arc::new(move |frame: Vec<Batch>| {
            common::sent(frame).into_iter().for_each(|batch| batches.lock().unwrap().send(batch).unwrap());
        }),
        Arc::new(move |_, captured| pieces.lock().unwrap().send(captured).unwrap()),
    );
    (handle, got_batches, got_pieces)
}

fn address(endpoint: &Endpoint) -> String {
    endpoint.to_string()
}

/// What an agent and a server said.
type BothSides = (Vec<u8>, Vec<u8>);

/// Passes everything on between one agent and a server; gives both directions' bytes when the agent has gone.
fn recorder(server: &Endpoint, highest: u16) -> (Endpoint, JoinHandle<BothSides>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = listener.local_addr().unwrap().to_string().parse().unwrap();
    let server = address(server);
    let thread = std::thread::spawn(move || {
        let mut agent = listener.accept().unwrap().0;
        let mut up = TcpStream::connect(server).unwrap();
        let (mut back_from, mut back_to) = (up.try_clone().unwrap(), agent.try_clone().unwrap());
        let back = std::thread::spawn(move || tee(&mut back_from, &mut back_to, Vec::new()));
        // An agent of an earlier version says no higher one.
        let mut head = vec![0; HELLO_HEAD];
        agent.read_exact(&mut head).unwrap();
        head[6..8].copy_from_slice(&highest.to_le_bytes());
        up.write_all(&head).unwrap();
        let said = tee(&mut agent, &mut up, head);
        up.shutdown(Shutdown::Write).unwrap();
        (said, back.join().unwrap())
    });
    (endpoint, thread)
}

/// Copies until the end, which may be a reset.
fn tee(from: &mut TcpStream, to: &mut TcpStream, mut all: Vec<u8>) -> Vec<u8> {
    let mut part = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut part) {
        all.extend_from_slice(&part[..count]);
        if to.write_all(&part[..count]).is_err() {
            break;
        }
    }
    all
}

/// Records both directions of one session in which everything of a version is said.
fn write(version: u16) {
    let (handle, got, _pieces) = serve();
    let (endpoint, recording) = recorder(&handle.local_endpoint(), version);
    let config = ClientConfig { host: "host3".to_owned(), ..ClientConfig::default() };
    let mut client = Client::connect(&endpoint, &config).unwrap();
    client.send(&step_batch("train", 3, 1)).unwrap();
    client.flush(PATIENCE).unwrap();
    assert_eq!(got.recv_timeout(PATIENCE).unwrap(), step_batch("train", 3, 1));
    if version >= VERSION_CAPTURE {
        let peer = handle.peers().pop().expect("the agent");
        handle.order(peer.connection, &order()).unwrap();
        while client.take_orders().is_empty() {
            client.wait_until_at_most(std::time::Instant::now() + Duration::from_millis(50));
            client.poll().unwrap();
        }
        captured().into_iter().for_each(|captured| client.send_captured(captured).unwrap());
        if version >= VERSION_GATE {
            handle.ask_gate(peer.connection, gate_said()).unwrap();
            let mut asked = Vec::new();
            while asked.is_empty() {
                client.wait_until_at_most(std::time::Instant::now() + Duration::from_millis(50));
                client.poll().unwrap();
                asked = client.take_gate_requests();
            }
            client.send_gate_answer(gate_said()).unwrap();
        }
    }
    client.send(&step_batch("train", 3, 2)).unwrap();
    client.flush(PATIENCE).unwrap();
    drop(client);
    let (agent, server) = recording.join().unwrap();
    std::fs::create_dir_all(of_version(version)).unwrap();
    std::fs::write(of_version(version).join("agent.bin"), agent).unwrap();
    std::fs::write(of_version(version).join("server.bin"), server).unwrap();
}

fn write_missing() {
    if std::env::var_os("MYCROFT_WRITE_SAMPLES").is_none() {
        return;
    }
    (VERSION_LOWEST..=VERSION_HIGHEST).filter(|version| !of_version(*version).exists()).for_each(write);
}

fn sample(version: u16, side: &str) -> Vec<u8> {
    let path = of_version(version).join(side);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}: no sample of this version", path.display()))
}

/// Versions of which there are samples, also those that are no longer spoken.
fn frozen() -> Vec<u16> {
    (1..VERSION_LOWEST).filter(|version| of_version(*version).exists()).collect()
}

#[test]
fn what_an_older_agent_says_is_understood() {
    write_missing();
    for version in VERSION_LOWEST..=VERSION_HIGHEST {
        let (handle, batches, pieces) = serve();
        let (answer, answers) = channel();
        handle.hear_gates(move |_, said| answer.send(said).unwrap());
        let mut agent = TcpStream::connect(address(&handle.local_endpoint())).unwrap();
        agent.set_read_timeout(Some(PATIENCE)).unwrap();
        agent.write_all(&sample(version, "agent.bin")).unwrap();
        let mut answer = [0; ANSWER_HEAD];
        agent.read_exact(&mut answer).unwrap();
        assert_eq!((&answer[..4], u16::from_le_bytes([answer[4], answer[5]])), (b"MYCW".as_slice(), version));
        for step in [1, 2] {
            assert_eq!(batches.recv_timeout(PATIENCE).unwrap(), step_batch("train", 3, step), "version {version}");
        }
        if version >= VERSION_CAPTURE {
            for said in captured() {
                assert_eq!(pieces.recv_timeout(PATIENCE).unwrap(), said, "version {version}");
            }
        }
        if version >= VERSION_GATE {
            assert_eq!(answers.recv_timeout(PATIENCE).unwrap(), gate_said(), "version {version}");
        }
        handle.stop();
    }
}

#[test]
fn an_agent_of_a_version_that_is_no_longer_spoken_is_refused_as_too_old() {
    for version in frozen() {
        let (handle, ..) = serve();
        let mut agent = TcpStream::connect(address(&handle.local_endpoint())).unwrap();
        agent.write_all(&sample(version, "agent.bin")).unwrap();
        let mut answer = [0; ANSWER_HEAD + 2];
        agent.read_exact(&mut answer).unwrap();
        assert_eq!((&answer[4..6], &answer[ANSWER_HEAD..]), ([0, 0].as_slice(), [1, 0].as_slice()));
        handle.stop();
    }
}

#[test]
fn what_an_older_server_says_is_understood() {
    write_missing();
    for version in VERSION_LOWEST..=VERSION_HIGHEST {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint: Endpoint = listener.local_addr().unwrap().to_string().parse().unwrap();
        let said = sample(version, "server.bin");
        let server = std::thread::spawn(move || {
            let mut agent = listener.accept().unwrap().0;
            read_with_body(&mut agent, HELLO_HEAD, 8);
            let (answer, rest) = said.split_at(ANSWER_HEAD + length_at(&said, 6));
            agent.write_all(answer).unwrap();
            // An acknowledgement follows what it acknowledges.
            let mut batches = 0;
            while batches < 2 {
                batches += usize::from(read_with_body(&mut agent, MESSAGE_HEAD, 1)[0] == BATCHES);
            }
            agent.write_all(rest).unwrap();
            // Hears the agent out, so that nothing is reset.
            let _ = agent.read_to_end(&mut Vec::new());
        });
        let config = ClientConfig { host: "host3".to_owned(), ..ClientConfig::default() };
        let mut client = Client::connect(&endpoint, &config).unwrap();
        for step in [1, 2] {
            client.send(&step_batch("train", 3, step)).unwrap();
        }
        client.flush(PATIENCE).unwrap();
        assert_eq!(client.stats().acknowledged, 2, "version {version}");
        let orders = if version >= VERSION_CAPTURE { vec![order()] } else { Vec::new() };
        assert_eq!(client.take_orders(), orders, "version {version}");
        let requests = if version >= VERSION_GATE { vec![gate_said()] } else { Vec::new() };
        assert_eq!(client.take_gate_requests(), requests, "version {version}");
        drop(client);
        server.join().unwrap();
    }
}

fn length_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// Reads a head and the body whose length lies in it; gives the head.
fn read_with_body(stream: &mut TcpStream, head_bytes: usize, length: usize) -> Vec<u8> {
    let mut head = vec![0; head_bytes];
    stream.read_exact(&mut head).unwrap();
    stream.read_exact(&mut vec![0; length_at(&head, length)]).unwrap();
    head
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn a_spool_that_an_older_agent_left_is_sent() {
    let frame = |step| codec::encode(&[step_batch("train", 3, step)]).unwrap();
    if std::env::var_os("MYCROFT_WRITE_SAMPLES").is_some() && !folder("spool-v1").exists() {
        std::fs::create_dir_all(folder("spool-v1")).unwrap();
        let mut spool = Spool::open(&folder("spool-v1"), 1 << 20).unwrap();
        (0..3).for_each(|step| spool.push(&frame(step), 2).unwrap());
        assert!(spool.peek().unwrap().is_some());
        spool.pop().unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    copy(&folder("spool-v1"), dir.path());
    let mut spool = Spool::open(dir.path(), 1 << 20).unwrap();
    for step in [1, 2] {
        let frame = spool.peek().unwrap().expect("a frame");
        assert_eq!(codec::decode(&frame).unwrap().batches, [step_batch("train", 3, step)]);
        spool.pop().unwrap();
    }
    assert!(spool.is_empty());
}
