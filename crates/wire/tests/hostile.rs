//! Hostile peers of both ends: floods, frames that open to far more than they are, strangers that take every place, and
//! two hosts with one name. What is measured is counted (bytes, messages, places), not timed.
mod common;
#[path = "common/heard.rs"]
mod heard;

use common::step_batch;
use heard::Heard;
use mycroft_record::{Batch, HostTime, Record, StepMark};
use mycroft_wire::budget::{Budget, Budgets};
use mycroft_wire::codec;
use mycroft_wire::descriptors::Shares;
use mycroft_wire::{
    Client, ClientConfig, Endpoint, Listener, ListenerHandle, Places, Refusal, ServerConfig, WireError,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// For waits that end as soon as what they wait for is there.
const PATIENCE: Duration = Duration::from_secs(60);
/// The promise is three seconds; the machine of a test may be busy.
const STOP: Duration = Duration::from_secs(20);

fn bound(shares: Shares) -> Listener {
    let endpoint: Endpoint = "127.0.0.1:0".parse().unwrap();
    Listener::bind(&endpoint, ServerConfig::default()).unwrap().with_places(&Arc::new(Places::new(shares)))
}

fn shares(agents: usize, strangers: usize) -> Shares {
    Shares { agents, strangers, readers: 1, visitors: 1, is_tight: false }
}

fn config(host: &str) -> ClientConfig {
    ClientConfig { host: host.to_owned(), connect_timeout: PATIENCE, ..ClientConfig::default() }
}

fn connect(handle: &ListenerHandle, host: &str) -> Result<Client, WireError> {
    Client::connect(&handle.local_endpoint(), &config(host))
}

/// Waits until something is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "never came: {what}");
        std::thread::yield_now();
    }
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let head = [&[kind][..], &(body.len() as u32).to_le_bytes()].concat();
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head), body);
    [&head[..], &crc.to_le_bytes(), body].concat()
}

/// The hello of a raw peer of version 1.
fn hello(agent: u64) -> Vec<u8> {
    let body = [&agent.to_le_bytes()[..], &[0; 6]].concat();
    [&b"MYCW"[..], &[1, 0, 1, 0], &(body.len() as u32).to_le_bytes(), &body].concat()
}

fn batches_message(sequence: u64, frame: &[u8]) -> Vec<u8> {
    message(1, &[&sequence.to_le_bytes()[..], frame].concat())
}

/// A frame of so many equal records: some hundred bytes.
fn bomb(records: usize) -> Vec<u8> {
    let mut batch = step_batch("job", 0, 1);
    batch.records = vec![Record::StepMark(StepMark { at: HostTime(1), step: 1 }); records];
    codec::encode(&[batch]).unwrap()
}

#[test]
fn frames_that_open_to_many_records_share_one_budget() {
    let frame = bomb(32 << 10);
    assert!(frame.len() < 400, "{} bytes", frame.len());
    // Two of them fit (about 15 MB each), eight come at once.
    let decoding = Arc::new(Budget::new(32 << 20));
    let budgets = Budgets { receiving: Arc::new(Budget::new(1 << 20)), decoding: Arc::clone(&decoding) };
    let (inside, most, records) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (for_most, for_records) = (Arc::clone(&most), Arc::clone(&records));
    let handler = move |batches: Vec<Batch>| {
        for_most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let sent = common::sent(batches);
        for_records.fetch_add(sent.iter().map(|b| b.records.len() as u64).sum(), Ordering::SeqCst);
        std::thread::yield_now();
        inside.fetch_sub(1, Ordering::SeqCst);
    };
    let handle = bound(shares(100, 100)).with_budgets(budgets).serve(Arc::new(handler));
    std::thread::scope(|scope| {
        for agent in 0..8 {
            let (handle, frame) = (&handle, &frame);
            scope.spawn(move || {
                let mut client = connect(handle, &format!("host{agent}")).unwrap();
                for _ in 0..4 {
                    client.send_frame(frame).unwrap();
                }
                client.flush(PATIENCE).unwrap();
            });
        }
    });
    assert_eq!(records.load(Ordering::SeqCst), 8 * 4 * (32 << 10), "everything came through");
    // An acknowledgement is on its way a moment before its memory is given back.
    until("all memory is back", || decoding.used().0 == 0);
    let (_, peak) = decoding.used();
    assert!(peak > 0 && peak <= 32 << 20, "{peak}");
    assert!(most.load(Ordering::SeqCst) <= 2, "{most:?} frames were open at once");
}

#[test]
fn a_frame_that_claims_more_than_a_share_is_rejected_with_a_reason_and_its_peer_cut_off() {
    let heard = Heard::default();
    let handler = |_: Vec<Batch>| panic!("it is never opened");
    let handle = heard.during(|| bound(shares(9, 9)).serve(Arc::new(handler)));
    let mut client = connect(&handle, "evil\x1b[2J").unwrap();
    client.send_frame(&bomb(256 << 10)).unwrap();
    let end = loop {
        if let Err(error) = client.poll() {
            break error;
        }
    };
    assert!(matches!(end, WireError::Refused { code: Refusal::Malformed, .. }), "{end}");
    assert!(client.last_reject().is_some_and(|why| why.contains("claims 262144 records")), "{client:?}");
    assert_eq!(client.take_rejected().len(), 1, "it is not sent again");
    assert_eq!(handle.stats().rejected, 1);
    let lines = heard.lines();
    assert!(lines.len() == 1 && lines[0].contains("claims 262144") && !lines[0].contains('\x1b'), "{lines:?}");
}

#[test]
fn large_frames_take_memory_as_they_arrive_and_not_as_they_are_announced() {
    let receiving = Arc::new(Budget::new(1 << 20));
    let budgets = Budgets { receiving: Arc::clone(&receiving), decoding: Arc::new(Budget::new(1 << 20)) };
    let handle = bound(shares(99, 99)).with_budgets(budgets).serve(Arc::new(|_| {}));
    let mut announcers: Vec<TcpStream> = Vec::new();
    for agent in 0..50 {
        let mut socket = TcpStream::connect(handle.local_addr().unwrap()).unwrap();
        // 16 MB are announced and a few bytes sent.
        let announced = [&[1u8][..], &(16u32 << 20).to_le_bytes(), &[0; 4], b"some bytes"].concat();
        socket.write_all(&[hello(agent), announced].concat()).unwrap();
        announcers.push(socket);
    }
    until("all are agents", || handle.stats().connections == 50);
    assert_eq!(receiving.used(), (0, 0), "nothing is set aside for what has not arrived");
    // One that really sends more than there is room for is cut off with a reason.
    let mut socket = TcpStream::connect(handle.local_addr().unwrap()).unwrap();
    socket.write_all(&[hello(99), vec![1], (4u32 << 20).to_le_bytes().to_vec(), vec![0; 4]].concat()).unwrap();
    let mut writer = socket.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&vec![7; 4 << 20]));
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    assert!(String::from_utf8_lossy(&answer).contains("it is sent again"), "{} bytes", answer.len());
    assert!(receiving.used().1 <= 1 << 20);
    let _ = writing.join();
}

#[test]
fn strangers_take_no_agents_place_and_the_oldest_goes_first() {
    let handle = bound(shares(4, 8)).serve(Arc::new(|_| {}));
    let address = handle.local_addr().unwrap();
    let mut silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    until("most are put out", || handle.stats().put_out >= 92);
    let mut agents: Vec<Client> = (0..4).map(|n| connect(&handle, &format!("host{n}")).unwrap()).collect();
    for client in &mut agents {
        client.send(&step_batch("job", 0, 1)).unwrap();
        client.flush(PATIENCE).unwrap();
    }
    let mut byte = [0];
    let first = silent[0].read(&mut byte);
    assert!(matches!(first, Ok(0) | Err(_)), "the oldest was put out");
    let why = connect(&handle, "host4").unwrap_err();
    assert!(matches!(why, WireError::Refused { code: Refusal::Full, .. }), "{why}");
    // An agent that comes back takes its own place, also while its old connection has not ended.
    let mut old = TcpStream::connect(address).unwrap();
    drop(agents.pop());
    until("a place is free", || handle.stats().connections == 3);
    old.write_all(&hello(77)).unwrap();
    until("it is an agent", || handle.stats().connections == 4);
    let mut again = TcpStream::connect(address).unwrap();
    again.write_all(&[hello(77), message(4, &9u64.to_le_bytes())].concat()).unwrap();
    let mut welcome = [0; 6];
    again.read_exact(&mut welcome).unwrap();
    assert_eq!(&welcome, b"MYCW\x01\0", "welcome");
    assert_eq!(handle.stats().connections, 4);
}

#[test]
fn refused_agents_leave_lines_a_limited_number_of_them_and_printable() {
    let heard = Heard::default();
    let config = ServerConfig { token: Some("secret".to_owned()).into(), tls: None };
    let endpoint: Endpoint = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(&endpoint, config).unwrap();
    let handle = heard.during(|| listener.serve(Arc::new(|_| {})));
    for _ in 0..30 {
        let why = connect(&handle, "host\x07").unwrap_err();
        assert!(matches!(why, WireError::Refused { code: Refusal::BadToken, .. }), "{why}");
    }
    let lines = heard.lines();
    assert!((1..=10).contains(&lines.len()), "{lines:?}");
    assert!(lines[0].contains("127.0.0.1") && lines[0].contains("wrong token"), "{lines:?}");
}

#[test]
fn two_machines_with_one_name_are_noticed_and_a_restarted_agent_is_not() {
    let heard = Heard::default();
    let handle = heard.during(|| bound(shares(9, 9)).serve(Arc::new(|_| {})));
    let connect = |machine: u64| {
        let config = ClientConfig { machine: Some(machine), ..config("node1") };
        Client::connect(&handle.local_endpoint(), &config).unwrap()
    };
    let talk = |client: &mut Client| {
        client.send(&step_batch("job", 0, 1)).unwrap();
        client.flush(PATIENCE).unwrap();
    };
    let (mut first, mut second) = (connect(7), connect(7));
    talk(&mut first);
    talk(&mut second);
    assert!(handle.shared_names().is_empty(), "two agents of one machine");
    let mut other = connect(8);
    talk(&mut other);
    assert!(heard.lines().iter().any(|line| line.contains("node1") && line.contains("--host")));
    assert!(handle.shared_names().is_empty(), "the others may be what a machine that was exchanged has left behind");
    talk(&mut first);
    assert_eq!(handle.shared_names(), ["node1"], "both go on");
    drop(other);
    until("it is gone", || handle.shared_names().is_empty());
}

/// A server that welcomes whoever comes and then sends one message without end; how many bytes it has sent.
fn flooding_server(flood: Vec<u8>) -> (Endpoint, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::Tcp(listener.local_addr().unwrap().to_string());
    let sent = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&sent);
    std::thread::spawn(move || {
        let many = flood.repeat((64 << 10) / flood.len());
        let welcome = [
            &64u32.to_le_bytes()[..],
            &(1u64 << 25).to_le_bytes(),
            &(1u32 << 24).to_le_bytes(),
            &2000u32.to_le_bytes(),
            &0u64.to_le_bytes(),
        ]
        .concat();
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let answer = [&b"MYCW"[..], &[1, 0], &(welcome.len() as u32).to_le_bytes(), &welcome].concat();
            let mut hello = [0; 12];
            if socket.read_exact(&mut hello).and_then(|()| socket.write_all(&answer)).is_err() {
                continue;
            }
            while socket.write_all(&many).is_ok() {
                counter.fetch_add(many.len() as u64, Ordering::Relaxed);
            }
        }
    });
    (endpoint, sent)
}

#[test]
fn a_server_that_floods_is_left_and_no_call_of_the_agent_goes_on_for_ever() {
    for flood in [message(5, &0u64.to_le_bytes()), message(2, &[0; 16]), message(77, b"new")] {
        let (endpoint, sent) = flooding_server(flood);
        let mut client = Client::connect(&endpoint, &config("host0")).unwrap();
        until("it floods", || sent.load(Ordering::Relaxed) > 256 << 10);
        // Each call ends; the connection does, too, long before what the server would send.
        let mut calls = 0;
        let why = loop {
            calls += 1;
            match client.poll() {
                Ok(()) => assert!(calls < 1000, "it is still connected"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(why.contains("nothing had asked for"), "{why}");
        let begun = Instant::now();
        assert!(client.flush(Duration::ZERO).is_ok(), "nothing was sent, so nothing waits");
        assert!(client.send(&step_batch("job", 0, 1)).is_err());
        assert!(begun.elapsed() < STOP);
    }
}

#[test]
fn a_server_stops_while_agents_flood_it() {
    let handle = bound(shares(99, 99)).serve(Arc::new(|_| std::thread::yield_now()));
    let address = handle.local_addr().unwrap();
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for agent in 0..4u64 {
            let stopped = &stopped;
            // Connected here: a thread that begins late would find the server stopped.
            let mut socket = TcpStream::connect(address).unwrap();
            scope.spawn(move || {
                // Answers are never read.
                let frame = bomb(100);
                let _ = socket.write_all(&hello(agent + 1));
                for sequence in 1.. {
                    let both = [batches_message(sequence, &frame), message(4, &[0; 8])].concat();
                    if stopped.load(Ordering::Relaxed) || socket.write_all(&both).is_err() {
                        break;
                    }
                }
            });
        }
        until("frames come", || handle.stats().frames > 100);
        let begun = Instant::now();
        handle.stop();
        assert!(begun.elapsed() < STOP, "{:?}", begun.elapsed());
        stopped.store(true, Ordering::Relaxed);
    });
}

#[test]
fn what_is_no_stale_socket_of_ours_is_left_where_it_lies() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| Endpoint::Unix(dir.path().join(name));
    std::fs::write(dir.path().join("file"), "precious").unwrap();
    std::os::unix::fs::symlink(dir.path().join("file"), dir.path().join("link")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("nowhere"), dir.path().join("dangling")).unwrap();
    for name in ["file", "link", "dangling"] {
        let refused = Listener::bind(&at(name), ServerConfig::default()).unwrap_err().to_string();
        assert!(refused.contains("is no socket"), "{name}: {refused}");
    }
    assert_eq!(std::fs::read_to_string(dir.path().join("file")).unwrap(), "precious");
    // A server does not take away what somebody has put in the place of its socket.
    let handle = Listener::bind(&at("sock"), ServerConfig::default()).unwrap().serve(Arc::new(|_| {}));
    std::fs::remove_file(dir.path().join("sock")).unwrap();
    std::fs::write(dir.path().join("sock"), "new").unwrap();
    handle.stop();
    assert_eq!(std::fs::read_to_string(dir.path().join("sock")).unwrap(), "new");
}
