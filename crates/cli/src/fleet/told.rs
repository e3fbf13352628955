//! What was asked of a server, and everything that is found in it.
use super::clocks::Spread;
use super::finding::Finding;
use mycroft_serve::api::{DiskJson, FleetJson, HealthJson};
use serde::Serialize;

/// What a server tells of itself and its hosts.
pub(super) struct Asked {
    pub(super) url: String,
    pub(super) health: HealthJson,
    /// `None`: a server that is too old to tell.
    pub(super) fleet: Option<FleetJson>,
}

/// Everything that is found, for a table or as JSON.
#[derive(Serialize)]
pub(super) struct Found {
    pub(super) url: String,
    /// Version of the server.
    pub(super) version: String,
    /// Seconds since it started.
    pub(super) uptime_s: f64,
    /// Hosts that it knows.
    pub(super) hosts: usize,
    /// Hosts of which nothing is to be mended.
    pub(super) healthy: usize,
    /// Agents that are connected.
    pub(super) agents: u64,
    /// How far the clocks of hosts lie apart; null: fewer than two are known.
    pub(super) clocks: Option<Spread>,
    /// What the server's store has and keeps; null: nothing is stored.
    pub(super) disk: Option<DiskJson>,
    /// Worst first; those of several hosts that are alike are one.
    pub(super) findings: Vec<Finding>,
}
