//! What the server asks of this agent, and the answers.
use super::Client;
use crate::WireError;
use crate::capture::{CaptureOrder, Captured};
use crate::gate::GateSaid;
use crate::proto::Message;
use std::net::IpAddr;
use std::time::Instant;

impl Client {
    /// Takes the server's orders since the last call, oldest first; of too many the latest.
    pub fn take_orders(&mut self) -> Vec<CaptureOrder> {
        self.orders.drain(..).collect()
    }

    /// Sends a part of what an order brought. It needs no credit and is not kept: what is lost with the connection stays
    /// lost, and the server says so.
    ///
    /// # Errors
    /// `Disconnected` when the connection has ended or the server does not read.
    pub fn send_captured(&mut self, captured: Captured) -> Result<(), WireError> {
        self.answer(&Message::Captured(captured))
    }

    /// Takes what coordinators of held ranks said since the last call, oldest first; of too many the latest.
    pub fn take_gate_requests(&mut self) -> Vec<GateSaid> {
        self.gate_requests.drain(..).collect()
    }

    /// Answers a coordinator; as [`Client::send_captured`].
    ///
    /// # Errors
    /// As [`Client::send_captured`].
    pub fn send_gate_answer(&mut self, said: GateSaid) -> Result<(), WireError> {
        self.answer(&Message::GateAnswer(said))
    }

    /// This machine's address on the way to the server; `None` without a connection, or of a Unix socket.
    pub fn local_address(&self) -> Option<IpAddr> {
        self.connection.as_ref()?.stream.local_address()
    }

    fn answer(&mut self, message: &Message) -> Result<(), WireError> {
        let deadline = self.end_of(self.config.write_timeout);
        let message = message.encode();
        let connection = self.live()?;
        connection.writes(Instant::now());
        match connection.stream.write_all_by(&message, deadline) {
            Ok(()) => Ok(()),
            Err(e) => Err(self.end(e)),
        }
    }
}
