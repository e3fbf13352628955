//! Who comes to a server, goes and is refused, and what agents of any version say of their spools.
use mycroft_wire::{
    Attendance, Client, ClientConfig, Kept, Listener, ListenerHandle, Receipt, Received, Refusal, ServerConfig, Sink,
    Spooled,
};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
const TOKEN: &str = "s3cret";

/// What the sink was told.
#[derive(PartialEq, Eq, Debug)]
enum Told {
    Came(String),
    Gone(String, Option<Spooled>),
    Refused(Option<String>, Refusal),
}

struct Door(Mutex<Sender<Told>>);

impl Sink for Door {
    fn take(&self, _: Received) -> Receipt {
        Receipt::of(Kept::Yes)
    }

    fn attends(&self, who: Attendance<'_>) {
        let told = match who {
            Attendance::Came(peer) => Told::Came(peer.host.clone()),
            Attendance::Gone(peer) => Told::Gone(peer.host.clone(), peer.spooled),
            Attendance::Refused { host, from, code, text } => {
                assert!(from.is_some_and(|from| from.is_loopback()) && !text.contains(TOKEN), "{from:?} {text}");
                Told::Refused(host.map(str::to_owned), code)
            }
        };
        self.0.lock().unwrap().send(told).unwrap();
    }
}

fn serve(token: Option<&str>) -> (ListenerHandle, Receiver<Told>) {
    let (sender, told) = channel();
    let config = ServerConfig { token: token.map(str::to_owned).into(), ..ServerConfig::default() };
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), config).unwrap();
    (listener.serve_sink(Arc::new(Door(Mutex::new(sender))), Arc::new(|_, _| {})), told)
}

fn agent(handle: &ListenerHandle, host: &str, token: &str) -> Result<Client, mycroft_wire::WireError> {
    let config = ClientConfig { host: host.to_owned(), token: Some(token.to_owned()), ..ClientConfig::default() };
    Client::connect(&handle.local_endpoint(), &config)
}

#[test]
fn a_sink_is_told_who_comes_goes_and_is_refused() {
    let (handle, told) = serve(Some(TOKEN));
    let next = || told.recv_timeout(PATIENCE).unwrap();
    assert!(agent(&handle, "h0", "wrong").is_err());
    assert_eq!(next(), Told::Refused(Some("h0".to_owned()), Refusal::BadToken));
    let mut client = agent(&handle, "h1", TOKEN).unwrap();
    assert_eq!(next(), Told::Came("h1".to_owned()));
    let spooled = Spooled { records: 7, bytes: 900, dropped: 3 };
    client.say_spooled(spooled);
    let deadline = Instant::now() + PATIENCE;
    while handle.peers()[0].spooled != Some(spooled) {
        assert!(Instant::now() < deadline, "{:?}", handle.peers());
        client.poll().unwrap();
    }
    drop(client);
    assert_eq!(next(), Told::Gone("h1".to_owned(), Some(spooled)));
    // Of versions that are not spoken: the host is named where the hello has it.
    let hello = |lowest: u16, highest: u16, body: &[u8]| {
        let length = (body.len() as u32).to_le_bytes();
        [&b"MYCW"[..], &lowest.to_le_bytes(), &highest.to_le_bytes(), &length, body].concat()
    };
    say(&handle, &hello(70, 90, &body_of("h2")));
    assert_eq!(next(), Told::Refused(Some("h2".to_owned()), Refusal::TooNew));
    say(&handle, &hello(0, 0, &body_of("h3")));
    assert_eq!(next(), Told::Refused(Some("h3".to_owned()), Refusal::TooOld));
    say(&handle, b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(next(), Told::Refused(None, Refusal::OtherProtocol));
}

/// A hello's fields of version 1.
fn body_of(host: &str) -> Vec<u8> {
    let host_bytes = (host.len() as u16).to_le_bytes();
    [&5u64.to_le_bytes()[..], &[0; 2], &host_bytes, host.as_bytes(), &[0; 2]].concat()
}

fn connect(handle: &ListenerHandle) -> TcpStream {
    let socket = TcpStream::connect(handle.local_addr().unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn say(handle: &ListenerHandle, bytes: &[u8]) {
    let mut socket = connect(handle);
    socket.write_all(bytes).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    // A reset after the answer is as good as an end.
    let _ = socket.read_to_end(&mut Vec::new());
}

/// Bytes of a heartbeat as agents before this field sent them, as those of now do, and as a newer one may.
const HEARTBEATS: [(&[u8], Option<Spooled>); 3] = [
    (&[9, 0, 0, 0, 0, 0, 0, 0], None),
    (
        &[9, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0],
        Some(Spooled { records: 258, bytes: 65_536, dropped: 4 }),
    ),
    (
        &[9, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 77, 78],
        Some(Spooled { records: 3, bytes: 1, dropped: 0 }),
    ),
];

#[test]
fn heartbeats_of_older_and_newer_agents_are_answered_and_read() {
    let (handle, _told) = serve(None);
    let mut socket = connect(&handle);
    let body = body_of("h0");
    let head = [&b"MYCW"[..], &1u16.to_le_bytes(), &1u16.to_le_bytes(), &(body.len() as u32).to_le_bytes()].concat();
    socket.write_all(&[head, body].concat()).unwrap();
    socket.read_exact(&mut [0; 10 + 28]).unwrap();
    for (heartbeat, spooled) in HEARTBEATS {
        let head = [&[4][..], &(heartbeat.len() as u32).to_le_bytes()].concat();
        let crc = crc32c::crc32c_append(crc32c::crc32c(&head), heartbeat);
        socket.write_all(&[&head[..], &crc.to_le_bytes(), heartbeat].concat()).unwrap();
        let mut answer = [0; 9 + 8];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!((answer[0], &answer[9..]), (5, &9u64.to_le_bytes()[..]));
        assert_eq!(handle.peers()[0].spooled, spooled);
    }
}
