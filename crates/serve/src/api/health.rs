//! The server's own state as JSON.
use super::TimeJson;
use serde::{Deserialize, Serialize};

/// `GET /api/v1/health`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HealthJson {
    /// `ok`, or `degraded`: then `problems` says why.
    pub status: String,
    /// What is wrong with the server itself, one sentence each.
    pub problems: Vec<String>,
    /// Version of the program.
    pub version: String,
    /// The server's wall clock.
    pub now: TimeJson,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// Agents connected now.
    pub agents_connected: u64,
    /// Hosts that sent a batch within the last ten seconds.
    pub hosts_heard: u64,
    /// Jobs known.
    pub jobs: u64,
    /// Cases open now.
    pub open_cases: u64,
    /// Batches received.
    pub batches: u64,
    /// Records received.
    pub records: u64,
    /// Largest age of a batch, from the agent's closing it to its diagnosis, in the last tick, milliseconds. Corrected
    /// by what the two clocks differ by, where that is known.
    pub lag_ms: u64,
    /// What waits in the server.
    pub queue: QueueJson,
    /// Records lost in the server.
    pub dropped: DroppedJson,
    /// Times that an engine failed and was replaced.
    pub engine_panics: u64,
    /// The clocks of hosts against the server's.
    #[serde(default)]
    pub clocks: ClocksJson,
    /// The disk of the store; null: nothing is stored, or it is not known yet.
    #[serde(default)]
    pub disk: Option<DiskJson>,
}

/// The disk that the store lies on, and what is kept on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DiskJson {
    /// Bytes that are free for the server.
    pub free_bytes: u64,
    /// All bytes.
    pub bytes: u64,
    /// Records that arrived longer ago are deleted, seconds.
    pub retain_s: u64,
    /// The oldest records are deleted while all take more.
    pub retain_bytes: u64,
}

/// The clocks of the hosts that are heard, against the server's.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ClocksJson {
    /// Hosts whose clocks were compared.
    pub hosts: u64,
    /// Those that are off by more than 100 ms.
    pub off: u64,
    /// Those that are not known: they are set again and again, or their agent is too old to exchange times.
    pub unknown: u64,
    /// Those that are off or not known, the worst first; at most 64.
    pub told: Vec<ClockJson>,
}

/// One host's clock against the server's.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ClockJson {
    /// The host.
    pub host: String,
    /// Seconds that it is ahead; negative: behind.
    pub offset_s: f64,
    /// The truth differs by at most so many seconds; none: nobody knows.
    pub bound_s: Option<f64>,
}

/// What waits in the server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueueJson {
    /// Batches.
    pub batches: u64,
    /// Records.
    pub records: u64,
}

/// Records lost in the server, by place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DroppedJson {
    /// Not diagnosed and not stored: the queue was full.
    pub queue: u64,
    /// Diagnosed but not stored: the disk was too slow or failed.
    pub store: u64,
    /// Not diagnosed: too many jobs.
    pub jobs: u64,
    /// Not diagnosed: they name more ranks, hosts, communicators or interfaces than are kept.
    #[serde(default)]
    pub limits: u64,
}
