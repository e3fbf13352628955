//! Orders and what comes of them over real sockets: delivery, order of pieces, old peers, ended connections.
mod common;

use common::step_batch;
use mycroft_record::{HostTime, Rank};
use mycroft_wire::{
    CaptureKind, CaptureOrder, Captured, Client, ClientConfig, Endpoint, Listener, ListenerHandle, NotOrdered,
    PIECE_BYTES_MAX, ServerConfig,
};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

fn serve() -> (ListenerHandle, Receiver<(u64, Captured)>) {
    let (sender, receiver) = channel();
    let sender = Mutex::new(sender);
    let endpoint: Endpoint = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(&endpoint, ServerConfig::default()).unwrap();
    let captured = move |connection, captured| sender.lock().unwrap().send((connection, captured)).unwrap();
    (listener.serve_with(Arc::new(|_| {}), Arc::new(captured)), receiver)
}

fn connect(handle: &ListenerHandle, host: &str) -> Client {
    let config = ClientConfig { host: host.to_owned(), ..ClientConfig::default() };
    Client::connect(&handle.local_endpoint(), &config).unwrap()
}

fn order() -> CaptureOrder {
    let job = "job \u{e9}".to_owned();
    CaptureOrder { id: 7, job, at: HostTime(u64::MAX), in_ms: 1, limit_ms: 2, stacks: true, flight_recorder: false }
}

fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_order_reaches_a_silent_agent_and_everything_it_answers_arrives_in_order() {
    let (handle, answers) = serve();
    let mut client = connect(&handle, "host3");
    let peer = until("the agent is known", || handle.peers().pop());
    assert_eq!((peer.host.as_str(), peer.version), ("host3", 4));
    let begun = Instant::now();
    handle.order(peer.connection, &order()).unwrap();
    let got = until("the order", || {
        client.poll().unwrap();
        client.take_orders().pop()
    });
    assert_eq!(got, order());
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let file = "a".to_owned();
    let said = [
        Captured::Piece { capture: 7, file: file.clone(), offset: 5, bytes: vec![9; PIECE_BYTES_MAX] },
        Captured::Piece { capture: 7, file: String::new(), offset: u64::MAX, bytes: Vec::new() },
        Captured::Tried {
            capture: 7,
            kind: CaptureKind::ChildStacks,
            rank: Rank::UNKNOWN,
            pid: 1,
            file,
            text: "why".to_owned(),
        },
        Captured::End { capture: 7, ranks: 3, text: String::new() },
    ];
    for captured in &said {
        client.send_captured(captured.clone()).unwrap();
        client.send(&step_batch("job", 0, 1)).unwrap();
    }
    client.flush(PATIENCE).unwrap();
    for captured in said {
        assert_eq!(answers.recv_timeout(PATIENCE).unwrap(), (peer.connection, captured));
    }
}

#[test]
fn an_agent_that_is_gone_or_takes_no_orders_is_told_of() {
    let (handle, _answers) = serve();
    let client = connect(&handle, "host0");
    let connection = until("the agent is known", || handle.peers().pop()).connection;
    drop(client);
    until("it is gone", || handle.peers().is_empty().then_some(()));
    assert_eq!(handle.order(connection, &order()), Err(NotOrdered::Gone));
    assert_eq!(handle.order(99, &order()), Err(NotOrdered::Gone));
}

#[test]
fn a_captured_message_that_is_too_large_ends_the_connection() {
    let (handle, answers) = serve();
    let mut client = connect(&handle, "host0");
    let bytes = vec![0; PIECE_BYTES_MAX + 64 * 1024];
    // It may be written whole before the server has looked at its head.
    let _ = client.send_captured(Captured::Piece { capture: 1, file: String::new(), offset: 0, bytes });
    until("the refusal", || client.poll().err());
    assert!(answers.try_recv().is_err());
    assert_eq!(handle.stats().refused, 1);
}
