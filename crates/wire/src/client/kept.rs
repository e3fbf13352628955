//! What a client holds and has done, and what it says of the spool behind it.
use super::{Client, ClientStats, EXCHANGE_EVERY};
use crate::WireError;
use crate::spooled::Spooled;
use std::time::Instant;

impl Client {
    /// Whether the connection stands, as far as is known.
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Counters.
    pub fn stats(&self) -> ClientStats {
        let (unacknowledged, unacknowledged_bytes) = (self.pending.len(), self.pending_bytes);
        ClientStats { unacknowledged, unacknowledged_bytes, ..self.stats }
    }

    /// Why the server last rejected a frame for good.
    pub fn last_reject(&self) -> Option<&str> {
        self.last_reject.as_deref()
    }

    /// Takes the frames that the server rejected since the last call, oldest first; of too many the latest. What was in
    /// them is lost, and its sources should be told.
    pub fn take_rejected(&mut self) -> Vec<Vec<u8>> {
        self.rejected.drain(..).collect()
    }

    /// Numbers of the frames from the oldest that was not acknowledged to the latest; empty, at the number of the next
    /// frame, when all were. Numbers only grow.
    pub fn unacknowledged(&self) -> std::ops::Range<u64> {
        self.pending.front().map_or(self.next_sequence, |oldest| oldest.sequence)..self.next_sequence
    }

    /// Gives back the frames that were not acknowledged, oldest first (for the spool).
    pub fn into_unacked(self) -> Vec<Vec<u8>> {
        self.pending.into_iter().map(|p| p.frame).collect()
    }

    /// Tells the server with the next heartbeat what waits in the spool that this client is given its frames from.
    pub fn say_spooled(&mut self, spooled: Spooled) {
        self.spooled = Some(spooled);
    }

    /// Sends a heartbeat where the server was not told what it is to know of the spool, once a second at most.
    pub(super) fn tell_spooled(&mut self) -> Result<(), WireError> {
        let spooled = self.spooled;
        let connection = self.live()?;
        if connection.told_spooled == spooled || connection.told_at.elapsed() < EXCHANGE_EVERY {
            return Ok(());
        }
        self.write_heartbeat()
    }

    /// What a heartbeat that is written now says of the spool.
    pub(super) fn spooled_now(&mut self) -> Option<Spooled> {
        let spooled = self.spooled;
        if let Some(connection) = &mut self.connection {
            (connection.told_spooled, connection.told_at) = (spooled, Instant::now());
        }
        spooled
    }
}
