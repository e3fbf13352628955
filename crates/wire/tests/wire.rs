//! The protocol over real sockets: delivery, refusals, reconnects, credit, hostile peers.
#[path = "common/certificates.rs"]
mod certificates;
mod common;
#[path = "common/sockets.rs"]
mod sockets;

use certificates::Certificates;
use common::step_batch;
use mycroft_record::{Batch, HostTime, Record};
use mycroft_wire::codec;
use mycroft_wire::{
    Client, ClientConfig, Endpoint, Listener, ListenerHandle, Refusal, ServerConfig, ServerLimits, WireError,
};
use sockets::{PATIENCE, any_port, config, refusal, serve};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn steps(batch: &Batch) -> u64 {
    match &batch.records[0] {
        Record::StepMark(mark) => mark.step,
        other => panic!("unexpected {other:?}"),
    }
}

#[test]
fn endpoints_are_parsed_or_named_in_the_error() {
    assert_eq!("unix:/run/m.sock".parse::<Endpoint>().unwrap(), Endpoint::Unix("/run/m.sock".into()));
    assert_eq!("[::1]:7700".parse::<Endpoint>().unwrap().to_string(), "[::1]:7700");
    for bad in ["", "unix:", "host", "host:", ":70", "host:99999", "host:http"] {
        assert!(bad.parse::<Endpoint>().unwrap_err().to_string().contains("host:port"), "{bad}");
    }
}

#[test]
fn batches_arrive_in_order_over_tcp_and_unix() {
    let dir = tempfile::tempdir().unwrap();
    for endpoint in [any_port(), Endpoint::Unix(dir.path().join("m.sock"))] {
        let (handle, received) = serve(&endpoint, ServerConfig::default());
        let mut client = Client::connect(&handle.local_endpoint(), &config()).unwrap();
        for step in 0..200 {
            client.send(&step_batch("job", 0, step)).unwrap();
        }
        client.flush(PATIENCE).unwrap();
        let got: Vec<u64> = received.try_iter().map(|b| steps(&b)).collect();
        assert_eq!(got, (0..200).collect::<Vec<_>>());
        assert_eq!((client.stats().acknowledged, client.stats().unacknowledged), (200, 0));
        handle.stop();
    }
    assert!(!dir.path().join("m.sock").exists(), "the socket file is removed");
}

#[test]
fn a_stale_unix_socket_is_replaced_a_live_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let endpoint = Endpoint::Unix(path);
    let (_handle, _received) = serve(&endpoint, ServerConfig::default());
    assert!(matches!(Listener::bind(&endpoint, ServerConfig::default()), Err(WireError::Io { .. })));
}

#[test]
fn the_token_is_checked() {
    let (handle, _received) = serve(&any_port(), ServerConfig { token: Some("secret".to_owned()).into(), tls: None });
    let connect = |token: Option<&str>| {
        Client::connect(&handle.local_endpoint(), &ClientConfig { token: token.map(str::to_owned), ..config() })
    };
    for wrong in [None, Some(""), Some("secre"), Some("secrets"), Some("Secret"), Some("secretsecret")] {
        let (code, text) = refusal(connect(wrong));
        assert_eq!(code, Refusal::BadToken, "{wrong:?}");
        assert!(text.contains("token") && !text.contains("secret"), "{text}");
    }
    assert!(connect(Some("secret")).is_ok());
}

/// Everything a raw peer gets back before the server hangs up.
fn say(handle: &ListenerHandle, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(handle.local_addr().unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(bytes).unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    // A reset after the answer is as good as an end.
    let _ = socket.read_to_end(&mut answer);
    answer
}

#[test]
fn older_and_newer_agents_and_strangers_get_a_reason() {
    let (handle, _received) = serve(&any_port(), ServerConfig::default());
    let hello = |lowest: u16, highest: u16, length: u32| {
        [&b"MYCW"[..], &lowest.to_le_bytes(), &highest.to_le_bytes(), &length.to_le_bytes()].concat()
    };
    for (bytes, code, word) in [
        (hello(0, 0, 0), 1u16, "upgrade the agent"),
        (hello(7, 9, 3), 2, "upgrade the server"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), 4, "web interface"),
        (vec![0x16, 3, 1, 0, 5, 1, 0, 0], 6, "TLS"),
        (hello(1, 1, u32::MAX), 8, "hello"),
        ([hello(1, 1, 3), vec![1, 2, 3]].concat(), 8, "too early"),
    ] {
        let answer = say(&handle, &bytes);
        assert_eq!(&answer[..6], b"MYCW\0\0", "{bytes:?}");
        assert_eq!(answer[10..12], code.to_le_bytes(), "{bytes:?}");
        assert!(String::from_utf8_lossy(&answer[14..]).contains(word), "{bytes:?}");
    }
    assert!(say(&handle, b"MY").is_empty(), "a peer that says nothing hears nothing");
    assert_eq!(handle.stats().refused, 7);
}

#[test]
fn who_has_not_said_hello_is_no_agent_that_is_connected() {
    let (handle, _received) = serve(&any_port(), ServerConfig::default());
    let _silent = TcpStream::connect(handle.local_addr().unwrap()).unwrap();
    let mut client = Client::connect(&handle.local_endpoint(), &config()).unwrap();
    client.send(&step_batch("job", 0, 1)).unwrap();
    client.flush(PATIENCE).unwrap();
    assert_eq!((handle.stats().connections, handle.peers().len()), (1, 1));
}

/// A hello of a newer agent that still speaks version 1, with fields this version does not know.
#[test]
fn a_newer_agent_that_speaks_our_version_is_welcome() {
    let (handle, _received) = serve(&any_port(), ServerConfig::default());
    let body = [&5u64.to_le_bytes()[..], &[0; 6], b"new field"].concat();
    let hello =
        [&b"MYCW"[..], &1u16.to_le_bytes(), &5u16.to_le_bytes(), &(body.len() as u32).to_le_bytes(), &body].concat();
    let unknown_message = message(77, b"something new");
    let answer = say(&handle, &[hello, unknown_message, message(4, &9u64.to_le_bytes())].concat());
    assert_eq!(&answer[..6], b"MYCW\x04\0", "the highest version that both speak");
    let (times, heartbeat) = answer[10 + 28..].split_at(9 + 24);
    assert_eq!(times[..5], [9, 24, 0, 0, 0], "the server's times");
    assert_eq!(heartbeat, message(5, &9u64.to_le_bytes()), "the heartbeat after it is answered");
}

/// An agent of version 2 as it was: frozen bytes of its hello, a heartbeat, a frame of one batch, and a captured end.
#[test]
fn an_agent_of_version_two_is_served_as_it_was() {
    let (handle, received) = serve(&any_port(), ServerConfig::default());
    let bytes = include_bytes!("v2/agent.bin");
    let answer = say(&handle, bytes);
    let frozen = include_bytes!("v2/server.bin");
    assert_eq!(answer[..10], frozen[..10], "version 2 is chosen");
    // Between lie the credits.
    assert_eq!(answer[10 + 28..], frozen[10 + 28..], "byte for byte, and no times");
    let batch = received.recv_timeout(PATIENCE).unwrap();
    assert_eq!((steps(&batch), &*batch.source.host), (7, "host0"));
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let head = [&[kind][..], &(body.len() as u32).to_le_bytes()].concat();
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head), body);
    [&head[..], &crc.to_le_bytes(), body].concat()
}

#[test]
fn garbage_after_the_hello_ends_the_connection_with_a_reason() {
    let (handle, received) = serve(&any_port(), ServerConfig::default());
    let body = [&5u64.to_le_bytes()[..], &[0; 6]].concat();
    let hello =
        [&b"MYCW"[..], &1u16.to_le_bytes(), &1u16.to_le_bytes(), &(body.len() as u32).to_le_bytes(), &body].concat();
    let mut damaged = message(1, b"12345678frame");
    damaged[12] ^= 1;
    let oversized = [&[1u8][..], &u32::MAX.to_le_bytes(), &[0; 4]].concat();
    for (bytes, word) in
        [(damaged, "checksum"), (oversized, "bytes, at most"), (message(1, b"123"), "without a sequence")]
    {
        let answer = say(&handle, &[&hello[..], &bytes].concat());
        assert_eq!(answer[38], 6, "goodbye");
        assert!(String::from_utf8_lossy(&answer[38..]).contains(word), "{word}");
    }
    assert!(received.try_recv().is_err());
}

#[test]
fn a_frame_that_comes_twice_is_handled_once() {
    let (handle, received) = serve(&any_port(), ServerConfig::default());
    let body = [&5u64.to_le_bytes()[..], &[0; 6]].concat();
    let hello =
        [&b"MYCW"[..], &1u16.to_le_bytes(), &1u16.to_le_bytes(), &(body.len() as u32).to_le_bytes(), &body].concat();
    let frame = codec::encode(&[step_batch("job", 0, 3)]).unwrap();
    let batches = message(1, &[&1u64.to_le_bytes()[..], &frame].concat());
    for _ in 0..2 {
        let answer = say(&handle, &[&hello[..], &batches, &batches].concat());
        assert_eq!(answer.len(), 38 + 2 * 25, "both are acknowledged");
    }
    assert_eq!(received.try_iter().count(), 1);
    assert_eq!((handle.stats().frames, handle.stats().duplicates), (1, 3));
}

/// A server that answers with fixed bytes.
fn impostor(answer: &'static [u8]) -> (Endpoint, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::Tcp(listener.local_addr().unwrap().to_string());
    let thread = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let _ = socket.write_all(answer);
        let _ = socket.read_to_end(&mut Vec::new());
    });
    (endpoint, thread)
}

#[test]
fn the_agent_says_what_answered_instead_of_a_server() {
    for (answer, word) in [
        (&b"HTTP/1.1 400 Bad Request\r\n"[..], "web server"),
        (b"\x15\x03\x03\x00\x02\x02\x32", "TLS"),
        (b"SSH-2.0-x\r\n", "another program"),
        (b"MYCW\x09\x00\x00\x00\x00\x00", "malformed"),
        (b"MYCW\x01\x00\xff\xff\xff\xff", "malformed"),
        (b"MYCW\x01\x00\x02\x00\x00\x00ab", "malformed"),
        (b"MYCW\x00\x00\x07\x00\x00\x00\x63\x00\x03\x00why", "reason 99): why"),
    ] {
        let (endpoint, thread) = impostor(answer);
        let error = Client::connect(&endpoint, &config()).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
        thread.join().unwrap();
    }
}

#[test]
fn nobody_and_a_mute_server_give_an_error_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::Tcp(listener.local_addr().unwrap().to_string());
    let quick = ClientConfig { connect_timeout: Duration::from_millis(200), ..config() };
    let error = Client::connect(&endpoint, &quick).unwrap_err().to_string();
    assert!(error.contains("too slow"), "{error}");
    drop(listener);
    let error = Client::connect(&endpoint, &quick).unwrap_err().to_string();
    assert!(error.contains("connecting to 127.0.0.1"), "{error}");
}

/// Passes bytes both ways until told to cut; then the connection dies without the server's last words.
struct Cutter {
    endpoint: Endpoint,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
    deaf: Arc<std::sync::atomic::AtomicBool>,
}

impl Cutter {
    fn new(to: &ListenerHandle) -> Cutter {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::Tcp(listener.local_addr().unwrap().to_string());
        let (sockets, deaf) = (Arc::new(Mutex::new(Vec::new())), Arc::new(std::sync::atomic::AtomicBool::new(false)));
        let (target, kept, mute) = (to.local_addr().unwrap(), Arc::clone(&sockets), Arc::clone(&deaf));
        std::thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let Ok(far) = TcpStream::connect(target) else { return };
                kept.lock().unwrap().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                copy(near.try_clone().unwrap(), far.try_clone().unwrap(), None);
                copy(far, near, Some(Arc::clone(&mute)));
            }
        });
        Cutter { endpoint, sockets, deaf }
    }

    fn cut(&self) {
        for socket in self.sockets.lock().unwrap().drain(..) {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, mute: Option<Arc<std::sync::atomic::AtomicBool>>) {
    std::thread::spawn(move || {
        let mut buffer = [0u8; 4096];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let muted = mute.as_ref().is_some_and(|m| m.load(std::sync::atomic::Ordering::SeqCst));
            if !muted && to.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
    });
}

#[test]
fn after_a_reconnect_nothing_is_lost_and_nothing_comes_twice() {
    let (handle, received) = serve(&any_port(), ServerConfig::default());
    let cutter = Cutter::new(&handle);
    let mut client = Client::connect(&cutter.endpoint, &config()).unwrap();
    client.send(&step_batch("job", 0, 0)).unwrap();
    client.flush(PATIENCE).unwrap();
    // The server handles these, but its acknowledgements are lost.
    cutter.deaf.store(true, std::sync::atomic::Ordering::SeqCst);
    for step in 1..=10 {
        client.send(&step_batch("job", 0, step)).unwrap();
    }
    let mut got: Vec<u64> = (0..=10).map(|_| steps(&received.recv_timeout(PATIENCE).unwrap())).collect();
    assert_eq!(client.stats().unacknowledged, 10);
    cutter.cut();
    cutter.deaf.store(false, std::sync::atomic::Ordering::SeqCst);
    let mut step = 11;
    let error = loop {
        // What `send` takes after the cut is the client's to deliver.
        match client.send(&step_batch("job", 0, step)) {
            Ok(()) => step += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(error, WireError::Disconnected { .. }), "{error}");
    assert!(matches!(client.poll(), Err(WireError::Disconnected { .. })));
    client.reconnect().unwrap();
    client.send(&step_batch("job", 0, step)).unwrap();
    client.flush(PATIENCE).unwrap();
    got.extend(received.try_iter().map(|b| steps(&b)));
    assert_eq!(got, (0..=step).collect::<Vec<_>>());
}

#[test]
fn a_restarted_server_gets_what_was_not_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::Unix(dir.path().join("m.sock"));
    let (handle, received) = serve(&endpoint, ServerConfig::default());
    let mut client = Client::connect(&endpoint, &config()).unwrap();
    client.send(&step_batch("job", 0, 0)).unwrap();
    client.flush(PATIENCE).unwrap();
    handle.stop();
    assert!(client.reconnect().is_err());
    assert!(client.send(&step_batch("job", 0, 1)).is_err());
    let (_handle, again) = serve(&endpoint, ServerConfig::default());
    client.reconnect().unwrap();
    client.send(&step_batch("job", 0, 1)).unwrap();
    client.flush(PATIENCE).unwrap();
    assert_eq!((steps(&received.recv().unwrap()), steps(&again.recv().unwrap())), (0, 1));
}

#[test]
fn a_busy_server_makes_the_agent_wait_and_keep_its_batch() {
    let (hold, held) = channel::<()>();
    let held = Mutex::new(held);
    let count = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&count);
    let handler = move |_: Vec<Batch>| {
        // An error is the test's way to let everything through.
        let _ = held.lock().unwrap().recv();
        *counted.lock().unwrap() += 1;
    };
    let handle = Listener::bind(&any_port(), ServerConfig::default()).unwrap().serve(Arc::new(handler));
    let quick = ClientConfig { send_timeout: Duration::from_millis(50), ..config() };
    let mut client = Client::connect(&handle.local_endpoint(), &quick).unwrap();
    let mut taken = 0;
    let error = loop {
        match client.send(&step_batch("job", 0, taken)) {
            Ok(()) => taken += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(error, WireError::NoCredit { .. }), "{error}");
    assert_eq!((taken, client.stats().unacknowledged), (64, 64), "the credit of one agent");
    assert!(matches!(client.flush(Duration::from_millis(10)), Err(WireError::NotAcknowledged { frames: 64, .. })));
    drop(hold);
    client.flush(PATIENCE).unwrap();
    client.send(&step_batch("job", 0, taken)).unwrap();
    client.flush(PATIENCE).unwrap();
    assert_eq!(*count.lock().unwrap(), 65);
}

#[test]
fn what_cannot_be_decoded_is_rejected_once_and_named() {
    let (handle, received) = serve(&any_port(), ServerConfig::default());
    let mut client = Client::connect(&handle.local_endpoint(), &config()).unwrap();
    let mut frame = codec::encode(&[step_batch("job", 0, 1)]).unwrap();
    frame[4] = 9;
    client.send_frame(&frame).unwrap();
    client.send(&step_batch("job", 0, 2)).unwrap();
    client.flush(PATIENCE).unwrap();
    assert_eq!(steps(&received.recv().unwrap()), 2);
    assert_eq!((client.stats().rejected, handle.stats().rejected), (1, 1));
    assert!(client.last_reject().unwrap().contains("version 9"));
    let huge = vec![0; codec::MAX_FRAME_BYTES + 1];
    assert!(matches!(client.send_frame(&huge), Err(WireError::TooLarge { .. })));
}

#[test]
fn unacknowledged_frames_go_back_to_the_spool() {
    let (handle, _received) = serve(&any_port(), ServerConfig::default());
    let cutter = Cutter::new(&handle);
    let mut client = Client::connect(&cutter.endpoint, &config()).unwrap();
    cutter.deaf.store(true, std::sync::atomic::Ordering::SeqCst);
    let batches = [step_batch("job", 0, 1), step_batch("job", 0, 2)];
    for batch in &batches {
        client.send(batch).unwrap();
    }
    let frames = client.into_unacked();
    let back: Vec<Batch> = frames.iter().flat_map(|f| codec::decode(f).unwrap().batches).collect();
    assert_eq!(back, batches);
    cutter.cut();
}

/// Drips one byte at a time, each well within any single read's patience.
fn drip(handle: &ListenerHandle, bytes: &[u8]) -> Duration {
    let mut socket = TcpStream::connect(handle.local_addr().unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let begin = std::time::Instant::now();
    for byte in bytes.iter().cycle() {
        // The read's time limit is the pause between bytes.
        let ended = match socket.write_all(&[*byte]).and_then(|()| socket.read(&mut [0; 64])) {
            Ok(count) => count == 0,
            Err(e) => !matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
        };
        if ended || begin.elapsed() > PATIENCE {
            break;
        }
    }
    begin.elapsed()
}

#[test]
fn peers_that_drip_bytes_are_dropped_in_time() {
    let certs = Certificates::new();
    let milliseconds = Duration::from_millis;
    let limits = ServerLimits { handshake: milliseconds(300), message: milliseconds(300), idle: milliseconds(300) };
    let client_hello = [&[0x16u8, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb][..], &[0; 1000]].concat();
    let hello = [&b"MYCW\x01\0\x01\0\xff\x0f\0\0"[..], &[0; 1000]].concat();
    for (config, bytes) in [(certs.server(None), client_hello), (ServerConfig::default(), hello)] {
        let handle = Listener::bind(&any_port(), config).unwrap().with_limits(limits).serve(Arc::new(|_| {}));
        let took = drip(&handle, &bytes);
        assert!(took < Duration::from_secs(5), "held the server for {took:?}");
    }
}

#[test]
fn a_silent_agent_is_dropped_and_a_heartbeat_keeps_it() {
    let limits = ServerLimits { idle: Duration::from_millis(200), ..ServerLimits::default() };
    let handle =
        Listener::bind(&any_port(), ServerConfig::default()).unwrap().with_limits(limits).serve(Arc::new(|_| {}));
    let mut client = Client::connect(&handle.local_endpoint(), &config()).unwrap();
    let begin = std::time::Instant::now();
    while client.poll().is_ok() {
        assert!(begin.elapsed() < PATIENCE, "the silent agent stays");
        std::thread::yield_now();
    }
    let keep = Listener::bind(&any_port(), ServerConfig::default()).unwrap();
    let keep = keep.with_limits(ServerLimits { idle: Duration::from_millis(3500), ..limits }).serve(Arc::new(|_| {}));
    let mut client = Client::connect(&keep.local_endpoint(), &config()).unwrap();
    let begin = std::time::Instant::now();
    // Longer than the limit: heartbeats every two seconds keep the connection.
    while begin.elapsed() < Duration::from_secs(5) {
        client.poll().unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_frame_on_which_the_handler_panics_is_tried_three_times_and_then_rejected() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let handler = move |frame: Vec<Batch>| {
        let steps: Vec<u64> = common::sent(frame).iter().map(steps).collect();
        seen.lock().unwrap().push(steps.clone());
        assert!(!steps.contains(&3), "a defect of the handler");
    };
    let handle = Listener::bind(&any_port(), ServerConfig::default()).unwrap().serve(Arc::new(handler));
    let mut client = Client::connect(&handle.local_endpoint(), &config()).unwrap();
    client.send(&step_batch("job", 0, 1)).unwrap();
    client.send_all(&[step_batch("job", 0, 2), step_batch("job", 1, 3)]).unwrap();
    client.send(&step_batch("job", 0, 4)).unwrap();
    let mut reconnects = 0;
    while let Err(error) = client.flush(PATIENCE) {
        assert!(
            matches!(error, WireError::Refused { code: Refusal::Failed, .. } | WireError::Disconnected { .. }),
            "{error}"
        );
        client.reconnect().unwrap();
        reconnects += 1;
        assert!(reconnects < 10, "it is sent again for ever");
    }
    assert_eq!(
        *calls.lock().unwrap(),
        [vec![1], vec![2, 3], vec![2, 3], vec![2, 3], vec![4]],
        "whole, and no other again"
    );
    let stats = handle.stats();
    assert_eq!((stats.handler_panics, stats.rejected, stats.frames), (3, 1, 2));
    assert_eq!((client.stats().rejected, client.stats().acknowledged), (1, 2));
    assert!(client.last_reject().is_some_and(|why| why.contains("3 times")), "{:?}", client.last_reject());
    let rejected: Vec<usize> =
        client.take_rejected().iter().map(|frame| codec::decode(frame).unwrap().batches.len()).collect();
    assert_eq!(rejected, [2]);
    assert!(client.take_rejected().is_empty(), "taken once");
}

#[test]
fn a_server_that_stops_reading_holds_a_client_no_longer_than_it_allows() {
    let dir = tempfile::tempdir().unwrap();
    let (open, gate) = channel::<()>();
    let gate = Mutex::new(gate);
    let endpoint = Endpoint::Unix(dir.path().join("m.sock"));
    let handler = move |_| {
        let _ = gate.lock().unwrap().recv();
    };
    let handle = Listener::bind(&endpoint, ServerConfig::default()).unwrap().serve(Arc::new(handler));
    // Random times do not compress: some hundred KB a frame, more than a socket holds.
    let mut random = common::Random(7);
    let mut noise = step_batch("job", 0, 1);
    let mark = |_| Record::StepMark(mycroft_record::StepMark { at: HostTime(random.next()), step: random.next() });
    noise.records = (0..30_000).map(mark).collect();
    let frame = codec::encode(&[noise]).unwrap();
    for by_deadline in [false, true] {
        let limit = if by_deadline { PATIENCE } else { Duration::from_millis(200) };
        let config = ClientConfig { write_timeout: limit, send_timeout: limit, ..config() };
        let mut client = Client::connect(&endpoint, &config).unwrap();
        if by_deadline {
            client.wait_until_at_most(Instant::now() + Duration::from_millis(200));
        }
        let begun = Instant::now();
        let mut taken = 0;
        while client.send_frame(&frame).is_ok() && client.is_connected() {
            taken += 1;
        }
        assert!(begun.elapsed() < PATIENCE / 4, "held for {:?}", begun.elapsed());
        assert!(taken > 0 && client.into_unacked().len() >= taken, "what was taken is not lost");
    }
    drop(open);
    drop(handle);
}
