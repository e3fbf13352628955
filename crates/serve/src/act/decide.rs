//! Whether a plan may be carried out without asking. Pure: what was allowed, what was done before, and what the plan is about.
use super::make::hosts_of;
use super::words::{BY_POLICY, KEPT, RESTART, SPLIT, WRITTEN};
use crate::api::{ActionJson, LeftOutJson, PlanJson, PolicyJson};
use mycroft_diagnose::{Case, Report};
use mycroft_record::{HostTime, NANOS_PER_SEC};

/// Actions are counted over so long.
const DAY_NS: u64 = 24 * 3600 * NANOS_PER_SEC;

/// Why a plan is not carried out by itself; `None`: it is.
pub(super) fn forbids(policy: &PolicyJson, done: &[ActionJson], plan: &PlanJson, report: &Report) -> Option<String> {
    let asked = &policy.asked;
    if !asked.allow.contains(&plan.strategy) {
        return Some(format!("{} is due, and only {} is allowed", plan.strategy, asked.allow.join(", ")));
    }
    let hosts = hosts_of(report, plan);
    let answers_all = |action: &&ActionJson| {
        action.job == plan.job && action.state == KEPT && hosts.iter().all(|host| action.hosts.contains(host))
    };
    if let Some(action) = done.iter().rev().find(answers_all).filter(|_| plan.strategy == SPLIT) {
        let number = action.number;
        return Some(format!("action {number} is about these hosts already: another division wants to be asked for"));
    }
    let cases: Vec<&Case> = report.cases.iter().filter(|case| plan.cases.contains(&case.id.0)).collect();
    for case in &cases {
        let sure = case.finding.suspects.first().map_or(0.0, |first| first.confidence);
        if case.finding.diagnosed_at.some().is_none() || sure < asked.confidence {
            let (id, wanted) = (case.id, 100.0 * asked.confidence);
            return Some(format!(
                "case {id} is {:.0} % sure of its suspect, and {wanted:.0} % are asked for",
                100.0 * sure
            ));
        }
    }
    let theirs = || done.iter().filter(|action| action.job == plan.job && action.by == BY_POLICY);
    let today = theirs().filter(|action| report.as_of.since_ns(HostTime(action.at.ns)) < DAY_NS).count();
    if today >= asked.per_day as usize {
        return Some(format!("{today} actions were tried in 24 hours, which is all that is allowed"));
    }
    None
}

/// The number of an action of this kind that made this life of the job worse.
pub(super) fn made_worse(done: &[ActionJson], plan: &PlanJson, hosts: &[String], life: u32) -> Option<u64> {
    let is_like = |action: &&ActionJson| {
        action.job == plan.job
            && action.strategy == plan.strategy
            && action.life == life
            && action.effect == "worse"
            && action.hosts == hosts
    };
    done.iter().find(is_like).map(|action| action.number)
}

/// The number of an action that lists all hosts that this plan leaves out, until later than now. Whoever took one off the list since
/// knows why.
pub(super) fn lists_already(done: &[ActionJson], plan: &PlanJson, now: HostTime) -> Option<u64> {
    let lasts = |action: &ActionJson, host: &str| {
        let is_left = |left: &&LeftOutJson| left.host == host;
        action
            .left_out
            .iter()
            .find(is_left)
            .is_some_and(|left| left.until.as_ref().is_none_or(|until| until.ns > now.0))
    };
    let is_like = |action: &&ActionJson| {
        action.job == plan.job
            && (action.strategy.as_str(), action.state.as_str()) == (RESTART, WRITTEN)
            && plan.left_out.iter().all(|left| lasts(action, &left.host))
    };
    done.iter().rev().find(is_like).map(|action| action.number)
}

/// The middle of what actions of a kind have cost, nanoseconds of a job, and how many were measured. A division costs as much
/// again when it is taken back.
pub(super) fn learned_split_ns(done: &[ActionJson]) -> Option<(u64, usize)> {
    let mut costs: Vec<f64> =
        done.iter().filter(|action| action.strategy == SPLIT).filter_map(|action| action.cost_ms).collect();
    costs.sort_by(f64::total_cmp);
    let middle = costs.get(costs.len() / 2)?;
    Some(((2.0 * middle * 1e6) as u64, costs.len()))
}

/// What a restart of this job took at most so far: from the end of a life to the first records of the next.
pub(super) fn learned_restart_ns(report: &Report) -> Option<u64> {
    let gaps = report.lives.windows(2).filter_map(|pair| Some(pair[1].began.since_ns(pair[0].ended.as_ref()?.at)));
    gaps.max().filter(|gap| *gap > 0)
}
