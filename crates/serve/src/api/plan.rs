//! A plan against slowness as JSON.
use super::TimeJson;
use mycroft_diagnose::mitigate::known::Known;
use mycroft_diagnose::mitigate::leave::LeftOut;
use mycroft_diagnose::mitigate::plan::{Assignment, Choice, Plan};
use mycroft_diagnose::mitigate::render;
use mycroft_record::NANOS_PER_MS;
use serde::{Deserialize, Serialize};

/// What the brain cannot know of a job: parameters of `GET /api/v1/plan`, and part of what actions are asked with. Times in the
/// unit that their names end with.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// The job; may be left out while there is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Micro-batches of the whole batch, over all replicas.
    pub micro_batches: u32,
    /// Ranks of a tensor-parallel group; default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor: Option<u32>,
    /// Pipeline stages; default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<u32>,
    /// Most micro-batches of a replica; default: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_batches_max: Option<u32>,
    /// A healthy iteration; default: what is usual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthy_ms: Option<f64>,
    /// How long an iteration waits for gradients; default: a tenth of a healthy one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gradients_ms: Option<f64>,
    /// Activations of a micro-batch from stage to stage; default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activations_ms: Option<f64>,
    /// Whether replicas wait for each other in each micro-batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub each_micro_batch: Option<bool>,
    /// What other numbers of micro-batches cost; default: what was measured, or 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_cost_s: Option<f64>,
    /// What it costs when hosts change places; default 60.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub move_cost_s: Option<f64>,
    /// What a restart costs; default: what was seen of this job, or 1800.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_cost_s: Option<f64>,
    /// What has been done already; default: what the server did, or nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<String>,
    /// Names of hosts that are free, with commas; default: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spares: Option<String>,
}

/// `GET /api/v1/plan?job=NAME&...`: what could be done about a slow job. Nothing is carried out.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PlanJson {
    /// The job.
    pub job: String,
    /// When it was made, server clock.
    pub as_of: Option<TimeJson>,
    /// What would be done now: `ignore`, `split`, `move` or `restart`.
    pub strategy: String,
    /// Numbers of the open cases that it is about.
    pub cases: Vec<u64>,
    /// Iteration time of a healthy job by the model, milliseconds.
    pub healthy_ms: f64,
    /// The same now.
    pub before_ms: f64,
    /// The same with the plan.
    pub after_ms: f64,
    /// What the plan costs once, milliseconds of the job.
    pub cost_ms: f64,
    /// What the faults have cost so far, milliseconds of the job.
    pub lost_ms: f64,
    /// Who takes each strategy when it is due pays at most so many times what somebody pays who knows when the faults end.
    pub bound: f64,
    /// How the job is arranged now.
    pub from: AssignmentJson,
    /// How it would be.
    pub to: AssignmentJson,
    /// Every strategy that was weighed, mildest first.
    pub choices: Vec<ChoiceJson>,
    /// The strategy after this one; null: none.
    pub next: Option<NextJson>,
    /// Hosts to be left out at a restart.
    pub left_out: Vec<LeftOutJson>,
    /// What was assumed, one sentence each.
    pub assumed: Vec<String>,
    /// All of it as text for a terminal.
    pub text: String,
}

/// An arrangement of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AssignmentJson {
    /// The host at each place, the first pipeline stage's first; empty: any that is not left out.
    pub hosts: Vec<String>,
    /// Micro-batches of each replica.
    pub micro_batches: Vec<u32>,
    /// Hosts that the job does without.
    pub left_out: Vec<String>,
}

/// A strategy that was weighed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ChoiceJson {
    /// `ignore`, `split`, `move` or `restart`.
    pub strategy: String,
    /// Iteration time with it by the model, milliseconds.
    pub after_ms: f64,
    /// What it costs once, milliseconds of the job.
    pub cost_ms: f64,
    /// Whether it takes enough of the loss away.
    pub helps: bool,
    /// Whether nothing of its kind is better.
    pub is_exact: bool,
}

/// What comes next, and when.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NextJson {
    /// `split`, `move` or `restart`.
    pub strategy: String,
    /// What must be lost until it is due, milliseconds of the job.
    pub more_ms: f64,
}

/// A host to be left out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeftOutJson {
    /// The host.
    pub host: String,
    /// Its faults that count.
    pub strikes: u32,
    /// Until when, server clock.
    pub until: Option<TimeJson>,
    /// One sentence.
    pub because: String,
}

impl PlanJson {
    /// A plan of what is known.
    pub fn of(plan: &Plan, known: &Known) -> PlanJson {
        let mut text = render(plan);
        known.assumed.iter().for_each(|sentence| text.push_str(&format!("  assumed    {sentence}\n")));
        PlanJson {
            job: plan.job.to_string(),
            as_of: TimeJson::of(plan.as_of),
            strategy: plan.strategy.as_str().to_owned(),
            cases: known.cases.clone(),
            healthy_ms: ms(plan.healthy_ns),
            before_ms: ms(plan.before_ns),
            after_ms: ms(plan.after_ns),
            cost_ms: ms(plan.cost_ns),
            lost_ms: ms(plan.lost_ns),
            bound: plan.bound,
            from: AssignmentJson::of(&plan.from),
            to: AssignmentJson::of(&plan.to),
            choices: plan.choices.iter().map(ChoiceJson::of).collect(),
            next: plan
                .next
                .map(|(strategy, more_ns)| NextJson { strategy: strategy.as_str().to_owned(), more_ms: ms(more_ns) }),
            left_out: plan.left_out.iter().map(LeftOutJson::of).collect(),
            assumed: known.assumed.clone(),
            text,
        }
    }
}

impl AssignmentJson {
    fn of(assignment: &Assignment) -> AssignmentJson {
        let names = |hosts: &[mycroft_record::HostName]| hosts.iter().map(ToString::to_string).collect();
        AssignmentJson {
            hosts: names(&assignment.hosts),
            micro_batches: assignment.micro_batches.clone(),
            left_out: names(&assignment.left_out),
        }
    }
}

impl ChoiceJson {
    fn of(choice: &Choice) -> ChoiceJson {
        ChoiceJson {
            strategy: choice.strategy.as_str().to_owned(),
            after_ms: ms(choice.after_ns),
            cost_ms: ms(choice.cost_ns),
            helps: choice.helps,
            is_exact: choice.is_exact,
        }
    }
}

impl LeftOutJson {
    fn of(left: &LeftOut) -> LeftOutJson {
        LeftOutJson {
            host: left.host.to_string(),
            strikes: left.strikes,
            until: TimeJson::of(left.until),
            because: left.because.clone(),
        }
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / NANOS_PER_MS as f64
}
