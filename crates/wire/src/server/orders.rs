//! What agents are asked: orders, and what a coordinator of held ranks says.
use super::ListenerHandle;
use crate::capture::{CaptureOrder, VERSION_CAPTURE};
use crate::gate::{GateSaid, VERSION_GATE};
use crate::places::{NotOrdered, ORDERS_MAX};
use crate::proto::Message;
use crate::sync::lock;
use std::time::{Duration, Instant};

/// For so long after each of its requests.
const GATE_SESSION: Duration = Duration::from_secs(3);

impl ListenerHandle {
    /// Gives an order to an agent; it is on its way within 0.2 s.
    ///
    /// # Errors
    /// The agent is gone, too old, or does not take orders.
    pub fn order(&self, connection: u64, order: &CaptureOrder) -> Result<(), NotOrdered> {
        self.give(connection, VERSION_CAPTURE, &Message::Order(order.clone()), None)
    }

    /// Gives an agent what a coordinator of held ranks says; it is on its way within 2 ms, but for the first.
    ///
    /// # Errors
    /// As [`ListenerHandle::order`].
    pub fn ask_gate(&self, connection: u64, said: GateSaid) -> Result<(), NotOrdered> {
        self.give(connection, VERSION_GATE, &Message::GateRequest(said), Some(Instant::now() + GATE_SESSION))
    }

    /// `handler` is given from now on what agents answer to coordinators, as `captured` of [`Listener::serve_with`]. Once.
    pub fn hear_gates(&self, handler: impl Fn(u64, GateSaid) + Send + Sync + 'static) {
        // A second one would be a fault of the caller, and changes nothing.
        let _ = self.shared.gates.set(Box::new(handler));
    }

    fn give(&self, to: u64, since: u16, message: &Message, quick_until: Option<Instant>) -> Result<(), NotOrdered> {
        let mut connections = lock(&self.shared.connections);
        let line = connections.get_mut(&to).ok_or(NotOrdered::Gone)?;
        let version = line.peer.version;
        if version < since {
            return Err(NotOrdered::TooOld(version, since));
        }
        if line.orders.len() >= ORDERS_MAX {
            return Err(NotOrdered::Busy);
        }
        line.orders.push_back(message.encode());
        line.quick_until = quick_until.or(line.quick_until);
        Ok(())
    }
}
