//! Pulse's experiments (appendix E, Table 4) as the simulator plays them, judged from what goes over the wires alone, in two views:
//! `flows` is what `mycroft flow --suspects` says; `operations` is the same judgement of operations' beginnings, ends and bytes.
//!
//! `experiments FIRST_SEED SEEDS [FAILURE]` prints a line for each job and view: view, job, failure, severity, nature, seed, hosts
//! rightly named, named wrongly, and what was said, with tabs between. `experiments FIRST_SEED SEEDS table` prints the tables of
//! `docs/results/flow.md`, and the lines as errors. `experiments FIRST_SEED SEEDS parallelism` prints of how many drawn jobs it is told what
//! communicators are for. `experiments PROGRAM SEED boundaries` plays jobs over RDMA with `rdma_job` of the CPU library, and prints how
//! often operations in their captures are cut where the library says.
mod boundaries;
mod curves;
mod jobs;
mod splits;
mod table;

use curves::{EPOCH_NS, Flow, captured};
use jobs::{Experiment, Nature};
use mycroft_diagnose::flow::{GAP_NS_DEFAULT, Sent, Sign, Suspect, suspects};
use std::collections::BTreeSet;
use table::Outcome;

fn main() {
    let argument = |at: usize| std::env::args().nth(at).and_then(|text| text.parse::<u64>().ok());
    let (first, seeds) = (argument(1).unwrap_or(0), argument(2).unwrap_or(1));
    let wanted = std::env::args().nth(3);
    if let (Some("boundaries"), Some(program)) = (wanted.as_deref(), std::env::args().nth(1)) {
        return boundaries::print(std::path::Path::new(&program), seeds);
    }
    if wanted.as_deref() == Some("parallelism") {
        return splits::print(first, seeds);
    }
    let is_table = wanted.as_deref() == Some("table");
    let mut outcomes = Vec::new();
    for seed in first..first + seeds {
        for experiment in jobs::all(seed) {
            if wanted.as_ref().is_some_and(|wanted| !is_table && !experiment.failure.contains(wanted.as_str())) {
                continue;
            }
            for (view, found) in views(&experiment) {
                let (outcome, line) = told(view, &experiment, seed, &found);
                outcomes.push(outcome);
                if is_table { eprintln!("{line}") } else { println!("{line}") }
            }
        }
    }
    if is_table {
        table::print(&outcomes);
    }
}

/// Whom each view names.
fn views(experiment: &Experiment) -> [(&'static str, Vec<Suspect>); 2] {
    let (flows, until_ns) = captured(&experiment.scenario);
    let inside = named(flows.iter().map(Flow::sent).collect(), until_ns);
    let outside: Vec<Flow> = flows.iter().map(Flow::without_inside).collect();
    let mut found = named(outside.iter().map(Flow::sent).collect(), until_ns);
    // How much of an operation that did not end was sent is not known there: all of its group are as good.
    found.retain(|one| !matches!(one.sign, Sign::Stopped { sent: 1.., .. }));
    [("flows", inside), ("operations", found)]
}

fn named(sent: Vec<Sent<'_>>, until_ns: u64) -> Vec<Suspect> {
    suspects(sent, EPOCH_NS, GAP_NS_DEFAULT, until_ns)
}

/// Whether what is said of a sender fits what is wrong: the words of `mycroft flow --suspects`. Who did not begin may have lost its NIC
/// before, which they say.
fn fits(nature: Nature, sign: Sign) -> bool {
    match sign {
        Sign::Slow { .. } => nature == Nature::SendsSlowly,
        Sign::Late { .. } | Sign::Held { .. } => nature == Nature::ComputesSlowly,
        Sign::Stopped { .. } => matches!(nature, Nature::StopsSending | Nature::StopsComputing),
    }
}

fn told(view: &'static str, of: &Experiment, seed: u64, found: &[Suspect]) -> (Outcome, String) {
    let scenario = &of.scenario;
    let culprits: BTreeSet<u32> = scenario.all_faults().flat_map(|fault| fault.culprit_hosts(scenario)).collect();
    let host = |one: &Suspect| one.from / scenario.cluster.nics_per_host;
    let said: BTreeSet<(u32, bool)> = found.iter().map(|one| (host(one), fits(of.nature, one.sign))).collect();
    let right = said.iter().filter(|(host, fits)| *fits && culprits.contains(host)).count();
    let wrong = said.len() - right;
    let words: BTreeSet<String> = found.iter().map(|one| format!("host{} {}", host(one), word(one.sign))).collect();
    let line = format!(
        "{view}\t{}\t{}\t{}\t{:?}\t{seed}\t{right}\t{wrong}\t{} (it was {culprits:?})",
        of.job,
        of.failure,
        of.severity,
        of.nature,
        words.into_iter().collect::<Vec<_>>().join(", "),
    );
    (Outcome { view, failure: of.failure, nature: of.nature, right, wrong }, line)
}

fn word(sign: Sign) -> &'static str {
    match sign {
        Sign::Slow { .. } => "slow",
        Sign::Held { .. } => "held",
        Sign::Late { .. } => "late",
        Sign::Stopped { sent: 0, .. } => "did not begin",
        Sign::Stopped { .. } => "stopped",
    }
}
