//! Agents with tokens of their own: whom the door lets in, whose records they may send, and whose numbers they may use.
mod common;

use common::step_batch;
use mycroft_record::Batch;
use mycroft_wire::{
    Client, ClientConfig, Door, Doorkeeper, Endpoint, Listener, ListenerHandle, Refusal, ServerConfig, WireError,
};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// Knows tokens `of-HOST` of each host, by the name HOST.
struct Keeper;

impl Doorkeeper for Keeper {
    fn admits(&self, token: &str, host: &str) -> Option<Result<String, String>> {
        let own = token.strip_prefix("of-")?;
        Some(if host == own { Ok(own.to_owned()) } else { Err(format!("the token is for {own}")) })
    }
}

fn guarded() -> Listener {
    let token = Door::from(Some("shared".to_owned())).with(Arc::new(Keeper));
    Listener::bind(&"127.0.0.1:0".parse().unwrap(), ServerConfig { token, ..ServerConfig::default() }).unwrap()
}

#[test]
fn an_agent_with_a_token_of_its_own_sends_records_of_its_host_only() {
    let (sender, received) = channel();
    let sender = Mutex::new(sender);
    let handler = move |frame: Vec<Batch>| {
        let sender = sender.lock().unwrap();
        common::sent(frame).into_iter().for_each(|batch| sender.send(batch).unwrap());
    };
    let door = Door::from(Some("shared".to_owned())).with(Arc::new(Keeper));
    assert!(!format!("{door:?}").contains("shared\""), "{door:?}");
    let handle = guarded().serve(Arc::new(handler));
    let connect = |token: &str, host: &str| {
        let config = ClientConfig { token: Some(token.to_owned()), host: host.to_owned(), ..ClientConfig::default() };
        Client::connect(&handle.local_endpoint(), &config)
    };
    let of_host = |host: &str, step: u64| {
        let mut batch = step_batch("job", 0, step);
        batch.source.host = host.into();
        batch
    };
    match connect("of-host0", "host1") {
        Err(WireError::Refused { text, .. }) => assert!(text.contains("for host0"), "{text}"),
        other => panic!("{other:?}"),
    }
    assert!(connect("nobody's", "host0").is_err());
    let mut bound = connect("of-host0", "host0").unwrap();
    bound.send(&of_host("host0", 1)).unwrap();
    bound.send(&of_host("host1", 2)).unwrap();
    bound.send(&of_host("host0", 3)).unwrap();
    bound.flush(PATIENCE).unwrap();
    assert!(bound.last_reject().is_some_and(|why| why.contains("records of host host1")), "{:?}", bound.last_reject());
    let mut free = connect("shared", "host1").unwrap();
    free.send(&of_host("host2", 4)).unwrap();
    free.flush(PATIENCE).unwrap();
    let hosts: Vec<String> = received.try_iter().map(|batch| batch.source.host.to_string()).collect();
    assert_eq!(hosts, ["host0", "host0", "host2"]);
}

/// Passes connections on to a server, and tells what agents say first, as whoever reads along on the way sees it.
struct Way {
    endpoint: Endpoint,
    to: Arc<Mutex<SocketAddr>>,
    heard: Receiver<Vec<u8>>,
}

impl Way {
    fn to(server: &ListenerHandle) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::Tcp(listener.local_addr().unwrap().to_string());
        let (sender, heard) = channel();
        let to = Arc::new(Mutex::new(server.local_addr().unwrap()));
        let target = Arc::clone(&to);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (mut near, mut far) = (near.unwrap(), TcpStream::connect(*target.lock().unwrap()).unwrap());
                let mut hello = vec![0; 12];
                near.read_exact(&mut hello).unwrap();
                let length = u32::from_le_bytes([hello[8], hello[9], hello[10], hello[11]]) as usize;
                hello.resize(12 + length, 0);
                near.read_exact(&mut hello[12..]).unwrap();
                far.write_all(&hello).unwrap();
                let _ = sender.send(hello);
                let (mut answers, mut back) = (far.try_clone().unwrap(), near.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut answers, &mut back);
                    let _ = back.shutdown(Shutdown::Both);
                });
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut near, &mut far);
                    let _ = far.shutdown(Shutdown::Both);
                });
            }
        });
        Way { endpoint, to, heard }
    }

    /// The number of the agent that came last.
    fn number(&self) -> Vec<u8> {
        self.heard.recv_timeout(PATIENCE).unwrap()[12..20].to_vec()
    }
}

/// A hello as an agent says it, with a number of somebody's choice.
fn hello(agent: &[u8], token: &str, host: &str) -> Vec<u8> {
    let mut body = agent.to_vec();
    for text in [token, host, "software"] {
        body.extend_from_slice(&(text.len() as u16).to_le_bytes());
        body.extend_from_slice(text.as_bytes());
    }
    [&b"MYCW\x01\0\x01\0"[..], &(body.len() as u32).to_le_bytes(), &body].concat()
}

/// The refusal that a hello meets: its code and words; none where it is welcome, with the connection.
fn said(server: &ListenerHandle, hello: &[u8]) -> Result<TcpStream, (u16, String)> {
    let mut socket = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(hello).unwrap();
    let mut head = [0; 10];
    socket.read_exact(&mut head).unwrap();
    let mut body = vec![0; u32::from_le_bytes([head[6], head[7], head[8], head[9]]) as usize];
    socket.read_exact(&mut body).unwrap();
    match head[4..6] {
        [0, 0] => Err((u16::from_le_bytes([body[0], body[1]]), String::from_utf8_lossy(&body[4..]).into_owned())),
        _ => Ok(socket),
    }
}

#[test]
fn who_knows_the_number_of_an_agent_cannot_take_its_connection() {
    let server = guarded().serve(Arc::new(|_| {}));
    let way = Way::to(&server);
    let config = ClientConfig { token: Some("of-host0".into()), host: "host0".into(), ..ClientConfig::default() };
    let mut owner = Client::connect(&way.endpoint, &config).unwrap();
    let number = way.number();
    for (token, host) in [("of-host1", "host1"), ("shared", "host1"), ("shared", "host0")] {
        let (code, text) = said(&server, &hello(&number, token, host)).expect_err("it is another's number");
        assert_eq!(code, 12, "{text}");
        assert!(text.contains("of host host0") && text.contains("restart"), "{text}");
    }
    for step in 1..=3 {
        owner.send(&step_batch("job", 0, step)).unwrap();
        owner.flush(PATIENCE).unwrap();
    }
    assert_eq!((owner.stats().resent, server.stats().connections), (0, 1), "it has stayed connected");
    // The owner itself comes back under its number, and so it does without any token where nobody asks for one.
    drop(said(&server, &hello(&number, "of-host0", "host0")).expect("its own"));
    let open = Listener::bind(&"127.0.0.1:0".parse().unwrap(), ServerConfig::default()).unwrap();
    let open = open.serve(Arc::new(|_| {}));
    let _first = said(&open, &hello(&number, "", "host0")).expect("nobody has used it");
    assert_eq!(said(&open, &hello(&number, "", "host1")).expect_err("another host").0, 12);
    drop(said(&open, &hello(&number, "other", "host0")).expect("the same host"));
}

#[test]
fn an_agent_whose_number_was_taken_before_it_came_takes_another() {
    let server = guarded().serve(Arc::new(|_| {}));
    let way = Way::to(&server);
    let config = ClientConfig { token: Some("of-host0".into()), host: "host0".into(), ..ClientConfig::default() };
    let mut owner = Client::connect(&way.endpoint, &config).unwrap();
    let number = way.number();
    server.stop();
    // A server that has started again knows no numbers, and another agent is there first.
    let again = guarded().serve(Arc::new(|_| {}));
    *way.to.lock().unwrap() = again.local_addr().unwrap();
    let _first = said(&again, &hello(&number, "of-host1", "host1")).expect("nobody has used it");
    match owner.reconnect() {
        Err(WireError::Refused { code: Refusal::NumberTaken, text, .. }) => assert!(text.contains("host1"), "{text}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(way.number(), number);
    owner.reconnect().unwrap();
    assert_ne!(way.number(), number);
    owner.send(&step_batch("job", 0, 1)).unwrap();
    owner.flush(PATIENCE).unwrap();
    assert_eq!(again.stats().connections, 2);
}

#[test]
fn who_connects_under_many_numbers_pushes_out_himself() {
    let server = guarded().serve(Arc::new(|_| {}));
    let mut held: Vec<TcpStream> = Vec::new();
    let full = loop {
        let number = (held.len() as u64).to_le_bytes();
        match said(&server, &hello(&number, "of-host1", "host1")) {
            Ok(socket) => held.push(socket),
            Err(why) => break why,
        }
        assert!(held.len() < 1000, "one host takes every place");
    };
    assert!(full.0 == 7 && full.1.contains("host1"), "{full:?}");
    drop(said(&server, &hello(&[9; 8], "of-host0", "host0")).expect("others have places"));
}
