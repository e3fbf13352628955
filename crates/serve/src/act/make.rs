//! An action from a plan, and faults of hosts from cases.
use super::words::{APPLIED, Declined, RESTART, SPLIT, WRITTEN, conflict};
use crate::api::{ActionJson, PlanJson, PlanRequest, TimeJson};
use crate::case::{BookState, BookedCase};
use mycroft_diagnose::Report;
use mycroft_diagnose::mitigate::effect::now_ms;
use mycroft_diagnose::mitigate::leave::{REMEMBERED_NS, Strike};
use mycroft_record::HostTime;
use std::collections::BTreeSet;

/// A fault of a host counts against it where a case was so sure of it: nine in ten of such verdicts should be right.
const STRIKE_CONFIDENCE: f64 = 0.9;

/// The action that a plan is.
pub(super) fn action(
    report: &Report,
    request: &PlanRequest,
    plan: &PlanJson,
    (by, who): (&str, &str),
    now: HostTime,
) -> Result<ActionJson, Declined> {
    let state = match plan.strategy.as_str() {
        SPLIT => APPLIED,
        RESTART => WRITTEN,
        "ignore" => return Err(conflict("the plan changes nothing now")),
        other => return Err(conflict(format!("{other} is due, and the server cannot carry it out: see the plan"))),
    };
    let is_split = plan.strategy == SPLIT;
    let cases: Vec<String> = plan.cases.iter().map(u64::to_string).collect();
    let because =
        format!("cases {}: {:.0} ms an iteration, {:.0} by the model", cases.join(", "), plan.before_ms, plan.after_ms);
    Ok(ActionJson {
        number: 0,
        job: plan.job.clone(),
        strategy: plan.strategy.clone(),
        state: state.to_owned(),
        by: by.to_owned(),
        who: who.to_owned(),
        at: TimeJson::exact(now),
        cases: plan.cases.clone(),
        because,
        file: String::new(),
        micro_batches: if is_split { plan.to.micro_batches.clone() } else { Vec::new() },
        micro_batches_before: if is_split { plan.from.micro_batches.clone() } else { Vec::new() },
        hosts: hosts_of(report, plan).into_iter().collect(),
        left_out: plan.left_out.clone(),
        tensor: request.tensor.unwrap_or(1),
        pipeline: request.pipeline.unwrap_or(1),
        life: report.lives.last().map_or(0, |life| life.number),
        healthy_ms: Some(plan.healthy_ms),
        before_ms: now_ms(report).unwrap_or(plan.before_ms),
        spread_ms: report.iteration_ms_spread,
        promised_ms: plan.after_ms,
        after_ms: None,
        cost_ms: None,
        effect: String::new(),
        ended_at: None,
        ended_because: String::new(),
    })
}

/// Hosts that a plan's cases suspect first.
pub(super) fn hosts_of(report: &Report, plan: &PlanJson) -> BTreeSet<String> {
    let named = report.cases.iter().filter(|case| plan.cases.contains(&case.id.0));
    named.filter_map(|case| Some(case.finding.suspects.first()?.place.host()?.to_string())).collect()
}

/// Faults of hosts that were surely theirs, in any job: all but those that are open in this one.
pub(super) fn strikes(cases: &[BookedCase], report: &Report) -> Vec<Strike> {
    let counts = |case: &&BookedCase| {
        let is_present = case.is_open() && case.job == report.job;
        !is_present
            && case.state != BookState::Withdrawn
            && report.as_of.since_ns(case.case.finding.since) < REMEMBERED_NS
    };
    let strike = |case: &BookedCase| {
        let first = case.case.finding.suspects.first().filter(|first| first.confidence >= STRIKE_CONFIDENCE)?;
        Some(Strike {
            host: first.place.host()?.clone(),
            at: case.case.finding.since,
            category: case.case.finding.category,
            job: case.job.clone(),
        })
    };
    cases.iter().filter(counts).filter_map(strike).collect()
}
