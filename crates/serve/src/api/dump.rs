//! Live captures as JSON: stacks and Flight Recorder dumps taken of a running job.
use super::{ReasonJson, SuspectJson, TimeJson};
use crate::autopsy::AutopsyJson;
use serde::{Deserialize, Serialize};

/// `GET /api/v1/jobs/JOB/dumps`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DumpsJson {
    /// Newest first, without ranks, files and autopsy.
    pub dumps: Vec<DumpJson>,
    /// Dumps cut off by `limit`.
    pub more: u64,
}

/// `GET /api/v1/jobs/JOB/dumps/ID`: one capture of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DumpJson {
    /// Its number, unique within this server for ever.
    pub id: u64,
    /// The job.
    pub job: String,
    /// The case it belongs to, if any.
    pub case: Option<u64>,
    /// Taken because a case opened, not because somebody asked.
    pub automatic: bool,
    /// `running`, `done` or `failed` (`error` says why).
    pub state: String,
    /// What is being done while it runs, one phrase.
    pub progress: String,
    /// Why it failed; empty otherwise.
    pub error: String,
    /// The time at which all agents were to begin.
    pub taken_at: TimeJson,
    /// When it was done; null while it runs.
    pub ended_at: Option<TimeJson>,
    /// Stacks were asked for.
    pub stacks: bool,
    /// Flight Recorder dumps were asked for.
    pub flight_recorder: bool,
    /// The hosts of the job, and what their agents did.
    pub hosts: Vec<DumpHostJson>,
    /// The processes that were tried.
    pub tried: Vec<DumpTriedJson>,
    /// The files that came of it.
    pub files: Vec<DumpFileJson>,
    /// What the files say; null while it runs and where there are none.
    pub autopsy: Option<AutopsyJson>,
}

/// The agent of one host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DumpHostJson {
    /// The host.
    pub host: String,
    /// `ok`, `waiting`, `too-old`, `lost` (its connection ended), `silent` (no answer in time), `refused` or `absent`
    /// (no agent of it is connected).
    pub state: String,
    /// Ranks of the job there, as its agent says.
    pub ranks: u32,
    /// What to know and to do; may be empty.
    pub text: String,
}

/// What became of one process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DumpTriedJson {
    /// `stacks`, `child-stacks` or `flight-recorder`.
    pub kind: String,
    /// Global rank (of a child: its parent's); null where no launcher told it.
    pub rank: Option<u32>,
    /// The host.
    pub host: String,
    /// Process.
    pub pid: u32,
    /// The file it gave; null: none, and `text` says why and what to do.
    pub file: Option<String>,
    /// What to know and to do; may be empty.
    pub text: String,
}

/// A file of a capture.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DumpFileJson {
    /// `HOST/NAME`: what goes behind `/files/`.
    pub path: String,
    /// Size.
    pub bytes: u64,
}

/// What a capture adds to a case.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CaseDumpJson {
    /// Number of the capture.
    pub id: u64,
    /// When it was taken.
    pub taken_at: Option<TimeJson>,
    /// `hang`, ..., `healthy` or `unknown`: the autopsy's own verdict.
    pub what: String,
    /// Its category; null when nothing is wrong or nothing is told.
    pub category: Option<String>,
    /// Whom it blames. A case's own suspects go before them.
    pub suspects: Vec<SuspectJson>,
    /// The reasons it adds to the case's `because`.
    pub because: Vec<ReasonJson>,
}

impl DumpJson {
    /// The same without its long parts, for lists.
    pub(crate) fn short(&self) -> DumpJson {
        DumpJson { tried: Vec::new(), files: Vec::new(), hosts: Vec::new(), autopsy: None, ..self.clone() }
    }
}
