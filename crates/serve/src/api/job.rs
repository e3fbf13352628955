//! Jobs as JSON.
use super::{CaveatJson, TimeJson};
use serde::{Deserialize, Serialize};

/// `GET /api/v1/jobs`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobsJson {
    /// In name order.
    pub jobs: Vec<JobJson>,
    /// Jobs cut off by `limit`.
    pub more: u64,
}

/// A job that agents report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobJson {
    /// Its name.
    pub name: String,
    /// `live` (records arrived within the last ten seconds) or `silent`.
    pub state: String,
    /// When its first batch arrived, server clock.
    pub first_seen_at: TimeJson,
    /// When its last batch arrived, server clock.
    pub last_seen_at: TimeJson,
    /// Hosts seen.
    pub hosts: u64,
    /// Traced processes seen (a restarted rank counts again).
    pub processes: u64,
    /// Records received.
    pub records: u64,
    /// Records known to be lost on the way (gaps).
    pub lost: u64,
    /// Cases open now.
    pub open_cases: u64,
    /// `running`, or `off` after the engine failed too often.
    pub engine: String,
    /// What limits the diagnosis of this job on the server's side.
    pub caveats: Vec<CaveatJson>,
}
