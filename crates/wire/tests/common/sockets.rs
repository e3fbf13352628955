//! A server and its agents over real sockets.
use super::common;
use mycroft_record::Batch;
use mycroft_wire::{Client, ClientConfig, Endpoint, Listener, ListenerHandle, Refusal, ServerConfig, WireError};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Nothing takes so long on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn any_port() -> Endpoint {
    "127.0.0.1:0".parse().unwrap()
}

/// A server, and what its agents sent.
pub(crate) fn serve(endpoint: &Endpoint, config: ServerConfig) -> (ListenerHandle, Receiver<Batch>) {
    let (sender, receiver) = channel();
    let sender = Mutex::new(sender);
    let handler = move |frame: Vec<Batch>| {
        let sender = sender.lock().unwrap();
        common::sent(frame).into_iter().for_each(|batch| sender.send(batch).unwrap());
    };
    (Listener::bind(endpoint, config).unwrap().serve(Arc::new(handler)), receiver)
}

/// An agent of `host0`.
pub(crate) fn config() -> ClientConfig {
    ClientConfig { host: "host0".to_owned(), ..ClientConfig::default() }
}

pub(crate) fn refusal(result: Result<Client, WireError>) -> (Refusal, String) {
    match result {
        Err(WireError::Refused { code, text, .. }) => (code, text),
        other => panic!("expected a refusal, got {other:?}"),
    }
}
