//! `GET /api/v1/events`: what readers that stay connected are told, and that they miss nothing.
use super::*;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;

/// A reader.
pub(super) struct Listener(BufReader<TcpStream>);

impl Listener {
    pub(super) fn open(world: &World, query: &str, headers: &str) -> Listener {
        let address = world.server.http_addr();
        let mut stream = TcpStream::connect(address).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        write!(stream, "GET /api/v1/events{query} HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n").expect("asked");
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).expect("a line") > 0, "the head ended early: {head}");
        }
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
        Listener(reader)
    }

    /// The next event: name, id, data; `None`: the server hung up.
    pub(super) fn next(&mut self) -> Option<(String, String, serde_json::Value)> {
        let (mut name, mut id, mut data) = Default::default();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end();
            match line.split_once(": ") {
                Some(("event", value)) => name = value.to_owned(),
                Some(("id", value)) => id = value.to_owned(),
                Some(("data", value)) => data = serde_json::from_str(value).expect("JSON"),
                // Each event is one chunk, and its size stands before it.
                _ if line.is_empty() && !String::is_empty(&name) => return Some((name, id, data)),
                _ => {}
            }
        }
    }

    /// The next change: its word, the case's number, the id.
    fn change(&mut self) -> (String, u64, String) {
        let (name, id, data) = self.next().expect("an event");
        assert_eq!(name, "case", "{data}");
        (data["event"].as_str().expect("a word").to_owned(), data["case"]["id"].as_u64().expect("a number"), id)
    }
}

#[test]
fn each_change_is_told_and_whoever_comes_back_misses_nothing() {
    let world = World::start(quick());
    world.send("train", &[OPEN]);
    world.server.wait_for_case(PATIENCE, |_| true).expect("a case");
    let mut listener = Listener::open(&world, "", "");
    let (name, _, data) = listener.next().expect("an event");
    assert_eq!((name.as_str(), &data["open_cases"]), ("begin", &serde_json::json!(1)));
    assert_eq!(listener.change().0, "open");
    world.send("train", &[SETTLE]);
    let (word, number, id) = listener.change();
    assert_eq!((word.as_str(), number), ("settled", 1));
    drop(listener);
    // He is away, and two things happen.
    world.send("train", &[REVISE]);
    world.until("/api/v1/cases/1", |case| case["revisions"] == 2);
    world.send("train", &[CLOSE]);
    world.until("/api/v1/cases/1", |case| case["state"] == "closed");
    let mut back = Listener::open(&world, "", &format!("Last-Event-ID: {id}\r\n"));
    assert_eq!(back.change().0, "revised");
    assert_eq!(back.change().0, "closed");
    // Ids of another run, and what is none: all begins anew.
    for foreign in ["1-3", "x", "-", "18446744073709551616-1"] {
        let mut listener = Listener::open(&world, "?job=train", &format!("Last-Event-ID: {foreign}\r\n"));
        assert_eq!(listener.next().map(|(name, _, _)| name).as_deref(), Some("begin"), "{foreign}");
    }
    // Of another job nothing is told.
    let mut other = Listener::open(&world, "?job=other", "");
    assert_eq!(other.next().map(|(name, _, _)| name).as_deref(), Some("begin"));
    world.send("third", &[OPEN]);
    world.until("/api/v1/cases?job=third", |list| list["cases"][0]["state"] == "open");
    world.send("other", &[OPEN]);
    let (word, number, _) = other.change();
    assert_eq!((word.as_str(), number), ("opened", 3));
    // A server that stops says so at once.
    let stopped = Instant::now();
    world.server.stop();
    assert!(other.next().is_none());
    assert!(stopped.elapsed() < Duration::from_secs(10), "took {:?}", stopped.elapsed());
}
