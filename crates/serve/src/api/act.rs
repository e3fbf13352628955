//! Actions against slowness as JSON: what is asked for, what was done, what came of it. The audit log keeps the same.
use super::{LeftOutJson, PlanRequest, TimeJson};
use serde::{Deserialize, Serialize};

/// `POST /api/v1/jobs/JOB/actions`: carry out the plan that is due now, or take back what is in force.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActRequest {
    /// What the brain cannot know; its `job` is the path's. Not needed to take back.
    pub plan: Option<PlanRequest>,
    /// Take back what is in force instead.
    #[serde(default)]
    pub take_back: bool,
    /// Carry out what was tried before and made things worse.
    #[serde(default)]
    pub again: bool,
    /// Who asks, for the audit log.
    pub who: String,
}

/// `POST /api/v1/jobs/JOB/auto`: what may be done to a job without asking again.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AutoRequest {
    /// What the brain cannot know; its `job` is the path's. Not needed where nothing is allowed.
    pub plan: Option<PlanRequest>,
    /// `split` and `restart`, or neither: nothing is done by itself any more.
    pub allow: Vec<String>,
    /// Most actions in 24 hours.
    pub per_day: u32,
    /// Each case must name its first suspect at least so surely, 0 to 1.
    pub confidence: f64,
    /// Who asks, for the audit log.
    pub who: String,
}

/// What may be done to a job without asking.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PolicyJson {
    /// The job.
    pub job: String,
    /// When it was said.
    pub at: TimeJson,
    /// What was asked for.
    pub asked: AutoRequest,
    /// Why nothing is done now; empty: nothing is due, or it was done.
    #[serde(default)]
    pub waits_for: String,
}

/// One action.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ActionJson {
    /// Its number, unique within a server for ever.
    pub number: u64,
    /// The job.
    pub job: String,
    /// `split` or `restart`.
    pub strategy: String,
    /// `applied` (its effect is not known yet), `kept`, `replaced` (another division took its place), `taken-back`, `failed` (nothing was
    /// changed), `written` (hosts are in the list; whoever starts the job reads it).
    pub state: String,
    /// `request` or `policy`.
    pub by: String,
    /// Who asked for it, or for the policy.
    pub who: String,
    /// When it was decided, server clock.
    pub at: TimeJson,
    /// Numbers of the cases it is about.
    pub cases: Vec<u64>,
    /// One sentence.
    pub because: String,
    /// The file that carries it.
    pub file: String,
    /// Micro-batches of each replica; empty: not changed.
    pub micro_batches: Vec<u32>,
    /// The same before.
    pub micro_batches_before: Vec<u32>,
    /// Hosts that it is about.
    pub hosts: Vec<String>,
    /// Hosts that were put on the list.
    pub left_out: Vec<LeftOutJson>,
    /// Ranks of a tensor-parallel group.
    pub tensor: u32,
    /// Pipeline stages.
    pub pipeline: u32,
    /// The life of the job, from 1.
    pub life: u32,
    /// An iteration of the healthy job, milliseconds; null in rows of older servers.
    #[serde(default)]
    pub healthy_ms: Option<f64>,
    /// An iteration before it, milliseconds.
    pub before_ms: f64,
    /// By how much iterations varied, milliseconds; null: not known.
    pub spread_ms: Option<f64>,
    /// An iteration with it by the model, milliseconds.
    pub promised_ms: f64,
    /// An iteration with it as measured; null: not known yet.
    pub after_ms: Option<f64>,
    /// What the change itself cost the job, milliseconds; null: not known yet.
    pub cost_ms: Option<f64>,
    /// `better`, `same` or `worse`; empty: not known yet.
    pub effect: String,
    /// When it was taken back or replaced, or failed.
    pub ended_at: Option<TimeJson>,
    /// Why, and who asked.
    pub ended_because: String,
}

/// `GET /api/v1/actions`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ActionsJson {
    /// Newest first.
    pub actions: Vec<ActionJson>,
    /// How many more there are.
    pub more: u64,
    /// What may be done to which job without asking.
    pub policies: Vec<PolicyJson>,
}
