//! Agents with tokens of their own: whom the door lets in, and whose records they may send.
mod common;

use common::step_batch;
use mycroft_record::Batch;
use mycroft_wire::{Client, ClientConfig, Door, Doorkeeper, Listener, ServerConfig, WireError};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// Knows one token, of one host.
struct Keeper;

impl Doorkeeper for Keeper {
    fn admits(&self, token: &str, host: &str) -> Option<Result<(), String>> {
        let is_right = if host == "host0" { Ok(()) } else { Err("the token is for host0".to_owned()) };
        (token == "of-host0").then_some(is_right)
    }
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
    let config = ServerConfig { token: door, ..ServerConfig::default() };
    let handle = Listener::bind(&"127.0.0.1:0".parse().unwrap(), config).unwrap().serve(Arc::new(handler));
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
