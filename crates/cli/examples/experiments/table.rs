//! Results of many experiments as tables: docs/results/flow.md.
use crate::jobs::Nature;
use mycroft_sim::Share;
use std::collections::BTreeSet;

/// How one view judged one experiment.
pub(crate) struct Outcome {
    /// `flows` or `operations`.
    pub(crate) view: &'static str,
    pub(crate) failure: &'static str,
    pub(crate) nature: Nature,
    /// Hosts that were named with the right sign.
    pub(crate) right: usize,
    /// Hosts that were named otherwise.
    pub(crate) wrong: usize,
}

/// The anomalies of the paper, with what it says of itself and of operation-level methods (section 8.1, Figures 22 to 24).
const ANOMALIES: [(Nature, &str, &str, &str); 4] = [
    (Nature::StopsComputing, "computation stops", "nearly all, nearly all", "-"),
    (Nature::ComputesSlowly, "computation is slow", "100 %, over 90 % (16 % falsely positive)", "57 %, 64 %"),
    (Nature::StopsSending, "communication stops", "nearly all, nearly all", "-, over 60 %"),
    (Nature::SendsSlowly, "communication is slow", "nearly all, nearly all", "-, over 60 %"),
];

/// Of experiments with a failure those in which a host at fault was named with the right sign, and of hosts that were named those.
fn shares<'a>(of: impl Iterator<Item = &'a Outcome>) -> (Share, Share) {
    let (mut found, mut right) = (Share::default(), Share::default());
    for one in of {
        found.of += u64::from(one.nature != Nature::None);
        found.hits += u64::from(one.right > 0);
        right.of += (one.right + one.wrong) as u64;
        right.hits += one.right as u64;
    }
    (found, right)
}

fn counted(share: Share) -> String {
    format!("{} of {}", share.hits, share.of)
}

fn with_interval(share: Share) -> String {
    let (from, to) = share.interval();
    match share.value() {
        Some(value) => {
            format!("{} of {}: {:.0} % ({:.0} to {:.0})", share.hits, share.of, 100.0 * value, 100.0 * from, 100.0 * to)
        }
        None => "-".to_owned(),
    }
}

/// Prints both tables.
pub(crate) fn print(outcomes: &[Outcome]) {
    let cells = |is_of: &dyn Fn(&Outcome) -> bool, told: fn(Share) -> String| {
        let of = |view| shares(outcomes.iter().filter(|one| one.view == view && is_of(one)));
        let ((found, right), (found_outside, right_outside)) = (of("flows"), of("operations"));
        [found, right, found_outside, right_outside].map(told).join(" | ")
    };
    println!(
        "| anomaly | found, flows | right, flows | found, operations | right, operations | the paper's recall, precision | of operations, by the paper |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | --- | --- |");
    for (nature, words, pulse, outside) in ANOMALIES {
        println!("| {words} | {} | {pulse} | {outside} |", cells(&|one| one.nature == nature, with_interval));
    }
    println!("| all | {} | 100 %, over 90 % | - |", cells(&|_| true, with_interval));
    let healthy = outcomes.iter().filter(|one| one.nature == Nature::None && one.view == "flows");
    let (count, named) = healthy.fold((0, 0), |(count, named), one| (count + 1, named + one.wrong));
    println!("\nIn {count} healthy jobs {named} hosts were named.\n");
    println!("| failure | found, flows | right, flows | found, operations | right, operations |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    let mut seen = BTreeSet::new();
    for failure in outcomes.iter().filter(|one| one.nature != Nature::None).map(|one| one.failure) {
        if seen.insert(failure) {
            println!("| {failure} | {} |", cells(&|one| one.failure == failure, counted));
        }
    }
}
