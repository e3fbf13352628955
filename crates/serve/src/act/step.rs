//! What comes next of an action that is in force. Pure: an action, what was seen since, and a report.
use super::words::APPLIED;
use crate::api::ActionJson;
use mycroft_diagnose::Report;
use mycroft_diagnose::mitigate::effect::{Effect, is_healthy_again, now_ms};
use mycroft_record::{HostName, HostTime, NANOS_PER_MS, NANOS_PER_SEC};
use std::collections::BTreeSet;

/// The effect is looked at after so many iterations: ranks look for a plan at each tenth step, and a report's iteration time is
/// the median of nine.
const EFFECT_ITERATIONS: u64 = 30;
/// A host must be as fast as others for so long before its plan is taken back: four medians of five rows of a second.
const HEALTHY_NS: u64 = 20 * NANOS_PER_SEC;

/// What was seen since an action, in memory: after a restart of the server it is looked at anew.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Iterations and time when it was first looked at.
    began: (u64, HostTime),
    /// Since when its hosts are as fast as others.
    healthy_since: Option<HostTime>,
    /// Why it could not be taken back, as it was last said in the server's log.
    pub(super) complaint: String,
}

impl Seen {
    /// Nothing yet.
    pub(super) fn from(report: &Report) -> Seen {
        Seen { began: (report.iterations, report.as_of), healthy_since: None, complaint: String::new() }
    }
}

/// What comes next.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Step {
    /// Nothing yet.
    Wait,
    /// Nothing: its effect is known, and its reason is there.
    Stands,
    /// Its effect is known.
    Measured { after_ms: f64, cost_ms: f64, effect: Effect },
    /// It is to be taken back; for its effect, where that is the reason.
    TakeBack { because: String, after_ms: Option<f64> },
}

/// What comes next of a division that is in force.
pub(super) fn step(action: &ActionJson, seen: &mut Seen, report: &Report) -> Step {
    if report.lives.last().is_some_and(|life| life.number != action.life) {
        return Step::TakeBack {
            because: "the job was started again, perhaps on other hosts".to_owned(),
            after_ms: None,
        };
    }
    if action.state == APPLIED { measure(action, seen, report) } else { relief(action, seen, report) }
}

fn measure(action: &ActionJson, seen: &Seen, report: &Report) -> Step {
    let iterations = report.iterations.saturating_sub(seen.began.0);
    let Some(after_ms) = now_ms(report).filter(|_| iterations >= EFFECT_ITERATIONS) else { return Step::Wait };
    match Effect::of(action.before_ms, after_ms, action.spread_ms) {
        Effect::Worse => Step::TakeBack {
            because: format!("iterations got longer: {:.0} ms before, {after_ms:.0} ms after", action.before_ms),
            after_ms: Some(after_ms),
        },
        effect => {
            let took_ms = report.as_of.since_ns(seen.began.1) as f64 / NANOS_PER_MS as f64;
            Step::Measured { after_ms, cost_ms: (took_ms - iterations as f64 * after_ms).max(0.0), effect }
        }
    }
}

fn relief(action: &ActionJson, seen: &mut Seen, report: &Report) -> Step {
    let hosts: BTreeSet<HostName> = action.hosts.iter().map(|host| host.as_str().into()).collect();
    let layout = (action.tensor, action.pipeline);
    if is_healthy_again(report, layout, &action.micro_batches, &hosts) != Some(true) {
        seen.healthy_since = None;
        return Step::Stands;
    }
    let since = *seen.healthy_since.get_or_insert(report.as_of);
    if report.as_of.since_ns(since) < HEALTHY_NS {
        return Step::Stands;
    }
    let because = format!("{} computes a micro-batch as fast as its peers again", action.hosts.join(", "));
    Step::TakeBack { because, after_ms: None }
}
