//! The places of agents on a server, and the names that they go by.
use crate::descriptors::Shares;
use crate::spooled::Spooled;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Orders that may wait for one agent.
pub(super) const ORDERS_MAX: usize = 16;

/// An agent that is connected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Number of the connection, never used again by this listener.
    pub connection: u64,
    /// Name of its host, as it says.
    pub host: String,
    /// Its program and version, as it says.
    pub software: String,
    /// The protocol version that is spoken with it.
    pub version: u16,
    /// Since its last message, when this was asked.
    pub silent: Duration,
    /// What it said last of its spool; `None`: nothing.
    pub spooled: Option<Spooled>,
}

/// Why an agent was not given an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotOrdered {
    /// The connection has ended.
    #[error("the agent is not connected any more")]
    Gone,
    /// It speaks a version without such orders, which came with a later one.
    #[error("the agent is too old: it speaks protocol version {0}, such orders came with {1}; upgrade it")]
    TooOld(u16, u16),
    /// It has not taken earlier orders.
    #[error("the agent has not taken {ORDERS_MAX} earlier orders; is its host overloaded?")]
    Busy,
}

/// Agents of all listeners that share these places.
#[derive(Debug)]
pub struct Places {
    pub(super) shares: Shares,
    taken: AtomicUsize,
}

impl Places {
    /// Places under a limit of descriptors.
    pub fn new(shares: Shares) -> Places {
        Places { shares, taken: AtomicUsize::new(0) }
    }

    /// A place, if one is free.
    pub(super) fn take(self: &Arc<Places>) -> Option<Place> {
        let free = |taken: usize| (taken < self.shares.agents).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).ok()?;
        Some(Place(Arc::clone(self)))
    }
}

/// The place of an agent; dropping it frees it.
pub(super) struct Place(Arc<Places>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connected agent, as far as its name goes.
pub(super) struct Named<'a> {
    pub(super) host: &'a str,
    /// 0: it did not say.
    pub(super) machine: u64,
    pub(super) since: Instant,
    /// When its last message came.
    pub(super) heard: Instant,
}

/// Names that agents of several machines have and go on with: each has sent something since the last of them came.
pub(super) fn shared_names<'a>(agents: impl Iterator<Item = Named<'a>>) -> Vec<String> {
    let mut of: BTreeMap<&str, Vec<Named<'_>>> = BTreeMap::new();
    for agent in agents.filter(|agent| agent.machine != 0) {
        of.entry(agent.host).or_default().push(agent);
    }
    let several = |agents: &[Named<'_>]| {
        let newest = agents.iter().map(|agent| agent.since).max();
        let mut talking = agents.iter().filter(|agent| newest.is_some_and(|newest| agent.heard > newest));
        let first = talking.next().map(|agent| agent.machine);
        talking.any(|agent| Some(agent.machine) != first)
    };
    of.into_iter().filter(|(_, agents)| several(agents)).map(|(host, _)| host.to_owned()).collect()
}
