//! The way of an agent's frames to whoever takes them: a server's wire, or something else that promises the same.
use crate::capture::{CaptureOrder, Captured};
use crate::client::Client;
use crate::gate::GateSaid;
use crate::spooled::Spooled;
use crate::{ClientConfig, Endpoint, WireError};
use std::fmt;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Carries frames, keeps each until it is acknowledged, and sends it again after a reconnect. What only a server asks for comes by a
/// server's wire alone.
pub trait Carrier: Send {
    /// As [`Client::send_frame`].
    ///
    /// # Errors
    /// As [`Client::send_frame`].
    fn send_frame(&mut self, frame: &[u8]) -> Result<(), WireError>;

    /// As [`Client::poll`].
    ///
    /// # Errors
    /// As [`Client::poll`].
    fn poll(&mut self) -> Result<(), WireError>;

    /// As [`Client::flush`].
    ///
    /// # Errors
    /// As [`Client::flush`].
    fn flush(&mut self, timeout: Duration) -> Result<(), WireError>;

    /// As [`Client::reconnect`].
    ///
    /// # Errors
    /// As [`Client::reconnect`].
    fn reconnect(&mut self) -> Result<(), WireError>;

    /// As [`Client::unacknowledged`].
    fn unacknowledged(&self) -> Range<u64>;

    /// As [`Client::into_unacked`].
    fn into_unacked(self: Box<Self>) -> Vec<Vec<u8>>;

    /// As [`Client::take_rejected`].
    fn take_rejected(&mut self) -> Vec<Vec<u8>>;

    /// As [`Client::last_reject`].
    fn last_reject(&self) -> Option<&str>;

    /// As [`Client::wait_until_at_most`].
    fn wait_until_at_most(&mut self, by: Instant);

    /// As [`Client::say_spooled`].
    fn say_spooled(&mut self, _spooled: Spooled) {}

    /// As [`Client::take_orders`].
    fn take_orders(&mut self) -> Vec<CaptureOrder> {
        Vec::new()
    }

    /// As [`Client::send_captured`].
    ///
    /// # Errors
    /// As [`Client::send_captured`].
    fn send_captured(&mut self, _captured: Captured) -> Result<(), WireError> {
        Ok(())
    }

    /// As [`Client::take_gate_requests`].
    fn take_gate_requests(&mut self) -> Vec<GateSaid> {
        Vec::new()
    }

    /// As [`Client::send_gate_answer`].
    ///
    /// # Errors
    /// As [`Client::send_gate_answer`].
    fn send_gate_answer(&mut self, _said: GateSaid) -> Result<(), WireError> {
        Ok(())
    }

    /// As [`Client::local_address`].
    fn local_address(&self) -> Option<IpAddr> {
        None
    }
}

type Connect = dyn Fn(&ClientConfig) -> Result<Box<dyn Carrier>, WireError> + Send + Sync;

/// Where an agent's frames go, and how.
#[derive(Clone)]
pub struct Way {
    shown: String,
    connect: Arc<Connect>,
    anew_every: Option<Duration>,
}

impl Way {
    /// A way that `connect` makes; `shown` names it in messages.
    pub fn new(
        shown: String,
        connect: impl Fn(&ClientConfig) -> Result<Box<dyn Carrier>, WireError> + Send + Sync + 'static,
    ) -> Way {
        Way { shown, connect: Arc::new(connect), anew_every: None }
    }

    /// Says that nobody tells the agent when another server takes over, which knows no process yet: all are told anew so often.
    #[must_use]
    pub fn telling_anew(mut self, every: Duration) -> Way {
        self.anew_every = Some(every);
        self
    }

    /// How often processes are told anew on a connection that stands; `None`: never.
    pub fn anew_every(&self) -> Option<Duration> {
        self.anew_every
    }

    /// Connects.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect(&self, config: &ClientConfig) -> Result<Box<dyn Carrier>, WireError> {
        (self.connect)(config)
    }
}

impl From<Endpoint> for Way {
    /// The wire of the server there.
    fn from(endpoint: Endpoint) -> Way {
        Way::new(endpoint.to_string(), move |config| Ok(Box::new(Client::connect(&endpoint, config)?)))
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Way").field(&self.shown).finish()
    }
}

impl Carrier for Client {
    fn send_frame(&mut self, frame: &[u8]) -> Result<(), WireError> {
        Client::send_frame(self, frame)
    }

    fn poll(&mut self) -> Result<(), WireError> {
        Client::poll(self)
    }

    fn flush(&mut self, timeout: Duration) -> Result<(), WireError> {
        Client::flush(self, timeout)
    }

    fn reconnect(&mut self) -> Result<(), WireError> {
        Client::reconnect(self)
    }

    fn unacknowledged(&self) -> Range<u64> {
        Client::unacknowledged(self)
    }

    fn into_unacked(self: Box<Self>) -> Vec<Vec<u8>> {
        Client::into_unacked(*self)
    }

    fn take_rejected(&mut self) -> Vec<Vec<u8>> {
        Client::take_rejected(self)
    }

    fn last_reject(&self) -> Option<&str> {
        Client::last_reject(self)
    }

    fn wait_until_at_most(&mut self, by: Instant) {
        Client::wait_until_at_most(self, by);
    }

    fn say_spooled(&mut self, spooled: Spooled) {
        Client::say_spooled(self, spooled);
    }

    fn take_orders(&mut self) -> Vec<CaptureOrder> {
        Client::take_orders(self)
    }

    fn send_captured(&mut self, captured: Captured) -> Result<(), WireError> {
        Client::send_captured(self, captured)
    }

    fn take_gate_requests(&mut self) -> Vec<GateSaid> {
        Client::take_gate_requests(self)
    }

    fn send_gate_answer(&mut self, said: GateSaid) -> Result<(), WireError> {
        Client::send_gate_answer(self, said)
    }

    fn local_address(&self) -> Option<IpAddr> {
        Client::local_address(self)
    }
}
