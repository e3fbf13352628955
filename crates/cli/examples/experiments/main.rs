//! Pulse's experiments (appendix E, Table 4) as the simulator plays them, judged from what goes over the wires alone:
//! `experiments FIRST_SEED SEEDS [FAILURE]` prints a line for each job and each of two views. `flows` is what
//! `mycroft flow --suspects` says; `operations` is the same judgement of operations' beginnings, ends and bytes.
//! Results are in `docs/papers/pulse.md`.
//!
//! A line: view, job, failure, severity, nature, seed, hosts rightly named, named wrongly, and what was said, with tabs between.
mod curves;
mod jobs;

use curves::{EPOCH_NS, Flow, captured};
use jobs::{Experiment, Nature};
use mycroft_diagnose::flow::{GAP_NS_DEFAULT, Sent, Sign, Suspect, suspects};
use std::collections::BTreeSet;

fn main() {
    let argument = |at: usize| std::env::args().nth(at).and_then(|text| text.parse::<u64>().ok());
    let (first, seeds) = (argument(1).unwrap_or(0), argument(2).unwrap_or(1));
    let wanted = std::env::args().nth(3);
    for seed in first..first + seeds {
        for experiment in jobs::all(seed) {
            if wanted.as_ref().is_some_and(|wanted| !experiment.failure.contains(wanted.as_str())) {
                continue;
            }
            let (flows, until_ns) = captured(&experiment.scenario);
            told("flows", &experiment, seed, &named(flows.iter().map(Flow::sent).collect(), until_ns));
            let outside: Vec<Flow> = flows.iter().map(Flow::without_inside).collect();
            let mut found = named(outside.iter().map(Flow::sent).collect(), until_ns);
            // How much of an operation that did not end was sent is not known there: all of its group are as good.
            found.retain(|one| !matches!(one.sign, Sign::Stopped { sent: 1.., .. }));
            told("operations", &experiment, seed, &found);
        }
    }
}

fn named(sent: Vec<Sent<'_>>, until_ns: u64) -> Vec<Suspect> {
    suspects(sent, EPOCH_NS, GAP_NS_DEFAULT, until_ns)
}

/// Whether what is said of a sender fits what is wrong: the words of `mycroft flow --suspects`.
fn fits(nature: Nature, sign: Sign) -> bool {
    match sign {
        Sign::Slow { .. } => nature == Nature::SendsSlowly,
        Sign::Late { .. } => nature == Nature::ComputesSlowly,
        Sign::Stopped { sent: 0, .. } => nature == Nature::StopsComputing,
        Sign::Stopped { .. } => matches!(nature, Nature::StopsSending | Nature::StopsComputing),
    }
}

fn told(view: &str, of: &Experiment, seed: u64, found: &[Suspect]) {
    let scenario = &of.scenario;
    let culprits: BTreeSet<u32> = scenario.all_faults().flat_map(|fault| fault.culprit_hosts(scenario)).collect();
    let host = |one: &Suspect| one.from / scenario.cluster.nics_per_host;
    let said: BTreeSet<(u32, bool)> = found.iter().map(|one| (host(one), fits(of.nature, one.sign))).collect();
    let right = said.iter().filter(|(host, fits)| *fits && culprits.contains(host)).count();
    let words: BTreeSet<String> = found.iter().map(|one| format!("host{} {}", host(one), word(one.sign))).collect();
    println!(
        "{view}\t{}\t{}\t{}\t{:?}\t{seed}\t{right}\t{}\t{} (it was {culprits:?})",
        of.job,
        of.failure,
        of.severity,
        of.nature,
        said.len() - right,
        words.into_iter().collect::<Vec<_>>().join(", "),
    );
}

fn word(sign: Sign) -> &'static str {
    match sign {
        Sign::Slow { .. } => "slow",
        Sign::Late { .. } => "late",
        Sign::Stopped { sent: 0, .. } => "did not begin",
        Sign::Stopped { .. } => "stopped",
    }
}
