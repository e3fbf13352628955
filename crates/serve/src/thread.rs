//! Starting a thread of a server.
use crate::error::ServeError;
use mycroft_wire::with_callers_subscriber;
use std::thread::{Builder, JoinHandle};

/// Starts a thread, which tells the subscriber of the thread that starts it.
pub(crate) fn spawn(name: &'static str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, ServeError> {
    let started = Builder::new().name(name.to_owned()).spawn(with_callers_subscriber(work));
    started.map_err(|source| ServeError::Thread { what: name, source })
}
