//! What a listener tells of its agents.
use super::counters::ServerStats;
use super::{Line, ListenerHandle};
use crate::descriptors::Shares;
use crate::places::{Named, Peer, shared_names};
use crate::sync::lock;

impl ListenerHandle {
    /// Counters.
    pub fn stats(&self) -> ServerStats {
        self.shared.counters.stats(lock(&self.shared.connections).len())
    }

    /// The agents connected now, by connection.
    pub fn peers(&self) -> Vec<Peer> {
        lock(&self.shared.connections).values().map(Line::peer).collect()
    }

    /// Names of hosts that agents of several machines give themselves and go on with: each has sent something since the
    /// last of them came, so none is what a restarted machine has left behind.
    pub fn shared_names(&self) -> Vec<String> {
        let connections = lock(&self.shared.connections);
        shared_names(connections.values().map(|line| Named {
            host: &line.peer.host,
            machine: line.machine,
            since: line.since,
            heard: line.heard,
        }))
    }

    /// How many connections it takes of each kind.
    pub fn shares(&self) -> Shares {
        self.shared.places.shares
    }
}
