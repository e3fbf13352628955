//! Jobs as JSON.
use super::{CaveatJson, TimeJson};
use mycroft_diagnose::Life;
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
    /// `live` (records arrived within the last ten seconds), `silent`, or `ended`.
    pub state: String,
    /// When the last of it was seen to be gone, clock of that host; null while it goes on.
    #[serde(default)]
    pub ended_at: Option<TimeJson>,
    /// `finished`, `ended-from-outside` or `failed`; empty while it goes on.
    #[serde(default)]
    pub ended_how: String,
    /// One sentence; empty while it goes on.
    #[serde(default)]
    pub ended_because: String,
    /// Its lives, oldest first: a job that is started again under the same name begins another. The newest 144.
    #[serde(default)]
    pub lives: Vec<LifeJson>,
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
    /// Its newest iterations, at most 60, oldest first, microseconds.
    #[serde(default)]
    pub recent_iterations_us: Vec<u64>,
    /// How long an iteration takes now, microseconds; null while that is not known.
    #[serde(default)]
    pub iteration_us: Option<u64>,
    /// How long it takes when nothing is wrong: the lowest level that held for a while.
    #[serde(default)]
    pub healthy_iteration_us: Option<u64>,
    /// Seconds of all ranks together by which iterations of the last 24 hours were longer than that.
    #[serde(default)]
    pub lost_rank_s: u64,
    /// `running`, or `off` after the engine failed too often.
    pub engine: String,
    /// What limits the diagnosis of this job on the server's side.
    pub caveats: Vec<CaveatJson>,
}

/// One life of a job, from its start to its end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LifeJson {
    /// 1 for the first that the server knows of.
    pub number: u32,
    /// When its first records were collected, clock of their host.
    pub began_at: TimeJson,
    /// When the last of it was seen to be gone, clock of that host; null while it goes on.
    pub ended_at: Option<TimeJson>,
    /// `finished`, `ended-from-outside` or `failed`; empty while it goes on.
    pub ended_how: String,
    /// One sentence; empty while it goes on.
    pub ended_because: String,
}

impl LifeJson {
    /// The JSON form of a life.
    pub(crate) fn of(life: &Life) -> LifeJson {
        let ended = life.ended.as_ref();
        LifeJson {
            number: life.number,
            began_at: TimeJson::exact(life.began),
            ended_at: ended.and_then(|ended| TimeJson::of(ended.at)),
            ended_how: ended.map_or("", |ended| ended.how.as_str()).to_owned(),
            ended_because: ended.map(|ended| ended.because.clone()).unwrap_or_default(),
        }
    }
}
