//! What is wrong with a plan, looked at without knowing how it was made: sums, limits, hosts, and whether it does what it says.
use super::leave::LONGEST_NS;
use super::plan::{Assignment, Plan, Situation, time_ns};
use super::rent::Strategy;
use mycroft_record::HostName;
use std::collections::{BTreeMap, BTreeSet};

/// Everything that is wrong with a plan of a situation, one sentence each; empty: nothing.
pub fn lint(plan: &Plan, situation: &Situation) -> Vec<String> {
    let mut wrong = Vec::new();
    if plan.job != situation.job || plan.from != situation.present {
        wrong.push("it is for another job, or for another arrangement of it".to_owned());
        return wrong;
    }
    batches(plan, situation, &mut wrong);
    hosts(plan, situation, &mut wrong);
    changes(plan, &mut wrong);
    numbers(plan, situation, &mut wrong);
    left_out(plan, &mut wrong);
    let once = plan.apply(&plan.from);
    let twice = once.as_ref().ok().and_then(|once| plan.apply(once).ok());
    if once.is_err() || once.ok() != twice {
        wrong.push("applied twice it is not what it is when applied once".to_owned());
    }
    wrong
}

/// The batch stays whole, and every replica has a part that fits.
fn batches(plan: &Plan, situation: &Situation, wrong: &mut Vec<String>) {
    let sum = |assignment: &Assignment| assignment.micro_batches.iter().map(|&count| u64::from(count)).sum::<u64>();
    let (from, to) = (sum(&plan.from), sum(&plan.to));
    if from != to || plan.from.micro_batches.len() != plan.to.micro_batches.len() {
        wrong.push(format!("the batch has {from} micro-batches before and {to} after it, or other replicas"));
    }
    let limit = situation.micro_batches_max.unwrap_or(u32::MAX);
    for (replica, count) in plan.to.micro_batches.iter().enumerate() {
        if !(1..=limit).contains(count) {
            wrong.push(format!("replica {replica} has {count} micro-batches; it must have 1 to {limit}"));
        }
    }
}

/// Every host has one place, and no host is from elsewhere.
fn hosts(plan: &Plan, situation: &Situation, wrong: &mut Vec<String>) {
    let (from, to) = (&plan.from.hosts, &plan.to.hosts);
    if from.len() != to.len() {
        wrong.push(format!("{} places have a host before and {} after it", from.len(), to.len()));
    }
    let mut places: BTreeMap<&HostName, usize> = BTreeMap::new();
    to.iter().filter(|host| !host.is_empty()).for_each(|host| *places.entry(host).or_default() += 1);
    for (host, count) in places.iter().filter(|(_, count)| **count > 1) {
        wrong.push(format!("{host} has {count} places"));
    }
    let known: BTreeSet<&HostName> = from.iter().collect();
    let spares: BTreeSet<&HostName> = situation.spares.iter().flatten().collect();
    let restarts = plan.strategy == Strategy::Restart;
    let is_known = |host: &HostName| known.contains(host) || (restarts && spares.contains(host));
    for host in places.keys().filter(|host| !is_known(host)) {
        wrong.push(format!("{host} is neither a host of the job nor a spare one"));
    }
    for host in plan.to.left_out.iter().filter(|host| places.contains_key(host)) {
        wrong.push(format!("{host} is left out and has a place"));
    }
    if !restarts && to.iter().any(|host| host.is_empty()) {
        wrong.push("a place has no host, and the job is not started again".to_owned());
    }
}

/// A strategy changes what it is for, and nothing else.
fn changes(plan: &Plan, wrong: &mut Vec<String>) {
    let (from, to) = (&plan.from, &plan.to);
    let changed = (from.micro_batches != to.micro_batches, from.hosts != to.hosts, from.left_out != to.left_out);
    let is_allowed = match plan.strategy {
        Strategy::Ignore => changed == (false, false, false),
        Strategy::Split => changed == (true, false, false),
        Strategy::Move => changed.1 && !changed.2,
        Strategy::Restart => changed.1 && changed.2,
    };
    if !is_allowed {
        wrong.push(format!("{} does not change what it is for, or changes something else", plan.strategy.as_str()));
    }
}

/// It says what the model says, and pays when it is due.
fn numbers(plan: &Plan, situation: &Situation, wrong: &mut Vec<String>) {
    if plan.after_ns > plan.before_ns || (plan.strategy != Strategy::Ignore && plan.after_ns == plan.before_ns) {
        wrong.push("the job is no faster with it".to_owned());
    }
    if plan.lost_ns < plan.cost_ns {
        wrong.push("it costs more than has been lost: it is not due".to_owned());
    }
    if plan.strategy != Strategy::Restart {
        let number: BTreeMap<&HostName, usize> = plan.from.hosts.iter().zip(0..).collect();
        let placement: Vec<usize> = plan.to.hosts.iter().filter_map(|host| number.get(host).copied()).collect();
        if time_ns(situation, &placement, &plan.to.micro_batches) != Ok(plan.after_ns) {
            wrong.push("the model gives another iteration time for it than it says".to_owned());
        }
    }
}

/// Who is left out is a host of the job, has a reason, and comes back one day.
fn left_out(plan: &Plan, wrong: &mut Vec<String>) {
    for left in &plan.left_out {
        let days = left.until.since_ns(plan.as_of);
        if left.because.is_empty() || days == 0 || days > LONGEST_NS {
            wrong.push(format!("{} is left out without a reason, or not for up to 30 days", left.host));
        }
        if !plan.from.hosts.contains(&left.host) || !plan.to.left_out.contains(&left.host) {
            wrong.push(format!("{} is to be left out, and is no host of the job or is not", left.host));
        }
    }
}
