//! Verdicts and what they are worth.
use super::*;
use crate::scenario::Scenario;
use mycroft_record::time::HostTime;
use mycroft_record::{Rank, Suspect};

const S: u64 = 1_000_000_000;

/// Truths of faults in the default job, which begins at 0; each text may say `after`.
fn truths(faults: &[&str]) -> Vec<Truth> {
    let faults = faults.iter().map(|text| text.parse().unwrap()).collect();
    Truth::of_all(&Scenario { faults, ..Scenario::default() }, 0)
}

fn rank(rank: u32, confidence: f64) -> Suspect {
    let host = format!("host{}", rank / 4).as_str().into();
    Suspect { place: Place::Rank { rank: Rank(rank), host }, confidence }
}

fn host(host: &str, confidence: f64) -> Suspect {
    Suspect { place: Place::Host { host: host.into() }, confidence }
}

fn case(at_s: u64, what: What, category: Category, suspects: Vec<Suspect>) -> Finding {
    let (since, detected_at) = (HostTime(at_s * S), HostTime((at_s + 1) * S));
    Finding { what, category, suspects, since, detected_at, diagnosed_at: HostTime((at_s + 2) * S) }
}

#[test]
fn a_host_is_enough_but_a_rank_is_better() {
    let truths = truths(&["gpu-power@host1:rank6,after=10"]);
    let precision = |suspects| {
        let case = case(12, What::Slowdown, Category::Gpu, suspects);
        judge(&truths, &[&case], 60_000).outcomes[0].named_by.map(|(_, precision)| precision)
    };
    assert_eq!(precision(vec![rank(6, 0.9)]), Some(Closeness::Exact));
    assert_eq!(precision(vec![host("host1", 0.9), rank(4, 0.5)]), Some(Closeness::Host));
    assert_eq!(precision(vec![rank(5, 0.9), rank(6, 0.2)]), Some(Closeness::Host));
    assert_eq!(precision(vec![rank(8, 0.9), rank(6, 0.2)]), None);
    assert_eq!(precision(vec![]), None);
}

#[test]
fn a_fault_that_looks_like_another_may_be_taken_for_it() {
    let ring = Scenario { hosts: 8, ranks_per_host: 4, dp: 32, tp: 1, pp: 1, ..Scenario::default() };
    let fault = "memory-alignment@host0:rank3,after=10".parse().unwrap();
    let truths = Truth::of_all(&Scenario { faults: vec![fault], ..ring }, 0);
    let said = |category, suspects| {
        let judgement = judge(&truths, &[&case(12, What::Slowdown, category, suspects)], 60_000);
        (judgement.correct(), judgement.outcomes[0].named_by.map(|(_, precision)| precision))
    };
    let (path, sends) = (Category::NetworkCongestion, Category::NetworkSend);
    assert_eq!(said(path, vec![host("host0", 0.9), host("host1", 0.9)]), (true, Some(Closeness::Host)));
    assert_eq!(said(sends, vec![rank(3, 0.9)]), (true, Some(Closeness::Exact)));
    assert_eq!(said(path, vec![host("host0", 0.9)]), (false, Some(Closeness::Host)), "one end is no path");
    assert_eq!(said(path, vec![host("host0", 0.9), host("host2", 0.9)]), (false, None));
}

#[test]
fn times_are_counted_from_the_fault_and_from_the_case() {
    let right = case(12, What::Slowdown, Category::Gpu, vec![rank(6, 0.9)]);
    let judgement = judge(&truths(&["gpu-power@host1:rank6,after=10"]), &[&right], 60_000);
    assert!(judgement.correct(), "{:?}", judgement.wrong);
    let outcome = &judgement.outcomes[0];
    assert_eq!((outcome.detection_ms, outcome.diagnosis_ms), (Some(3_000), Some(1_000)));
}

#[test]
fn each_of_several_faults_needs_a_case() {
    let truths = truths(&["gpu-power@host1:rank6,after=10,lasts=30", "nic-bandwidth@host3,after=20"]);
    let gpu = case(12, What::Slowdown, Category::Gpu, vec![rank(6, 0.9)]);
    let nic = case(22, What::Slowdown, Category::NetworkSend, vec![host("host3", 0.9), rank(6, 0.9)]);
    assert!(judge(&truths, &[&gpu, &nic], 60_000).correct());
    let missed = judge(&truths, &[&gpu], 60_000);
    assert!(missed.wrong[0].starts_with("nic-bandwidth@host3 was not named"), "{:?}", missed.wrong);
    // Too short to be seen, and what comes after a job has stopped.
    assert!(judge(&truths, &[&gpu], 26_000).correct());
    let stopped = self::truths(&["gpu-hang@host1:rank6,after=10", "nic-bandwidth@host3,after=20"]);
    let hang = case(11, What::Hang, Category::Gpu, vec![rank(6, 0.9)]);
    assert!(judge(&stopped, &[&hang], 60_000).correct());
}

#[test]
fn a_fault_may_join_the_case_of_another() {
    let truths = truths(&["gpu-power@host1:rank6,after=10", "nic-bandwidth@host3,after=20"]);
    let judged = |second: f64| {
        let both = case(11, What::Slowdown, Category::Gpu, vec![rank(6, 0.9), host("host3", second)]);
        judge(&truths, &[&both], 60_000)
    };
    let named = |judgement: &Judgement| -> Vec<bool> {
        judgement.outcomes.iter().map(|outcome| outcome.named_by.is_some()).collect()
    };
    assert_eq!(named(&judged(0.6)), [true, false], "it is about the one that it names more surely");
    let judgement = judged(0.88);
    assert_eq!(named(&judgement), [true, true]);
    assert_eq!((judgement.outcomes[0].detection_ms, judgement.outcomes[1].detection_ms), (Some(2_000), None));
    // Before any fault there is nothing to join.
    let early = case(2, What::Slowdown, Category::Gpu, vec![rank(6, 0.9)]);
    assert_eq!(judge(&truths, &[&early], 60_000).false_cases.len(), 1);
}

#[test]
fn wrong_words_are_not_a_wrong_place() {
    let wire = case(12, What::Slowdown, Category::NetworkSend, vec![rank(6, 0.9)]);
    let judgement = judge(&truths(&["gpu-power@host1:rank6,after=10"]), &[&wire], 60_000);
    assert_eq!((judgement.true_cases, judgement.false_cases.len()), (1, 0));
    assert!(!judgement.outcomes[0].words_right);
    assert!(
        judgement.wrong[0].contains("expected slowdown, gpu, got slowdown, network-send (tempting: "),
        "{:?}",
        judgement.wrong
    );
}

#[test]
fn an_ended_job_must_be_said_to_be_one() {
    let ended = truths(&["job-ended,after=10"]);
    let judged = |truths: &[Truth], said| judge(truths, &[], 60_000).with_ending(truths, said).correct();
    assert!(judged(&ended, true) && !judged(&ended, false) && judged(&[], false) && !judged(&[], true));
    let crash = case(11, What::Crash, Category::ProcessExit, vec![rank(6, 0.99)]);
    assert!(!judge(&ended, &[&crash], 60_000).correct());
}

/// An onset is told by the iteration: of iterations of a minute it may be a minute early.
#[test]
fn an_onset_may_be_early_by_an_iteration() {
    let early = |iteration_ns: f64| {
        let mut truths = truths(&["gpu-power@host1:rank6,after=100"]);
        let seen =
            Due { cost: 1.0, spread: 0.1, iteration_ns, lasted: 9, seen_after: Some(3), needed_z: 6.0, reached_z: 9.0 };
        truths[0].due = Some(seen);
        let mut case = case(60, What::Slowdown, Category::Gpu, vec![rank(6, 0.9)]);
        case.detected_at = HostTime(130 * S);
        judge(&truths, &[&case], 300_000).correct()
    };
    assert!(early(30e9) && !early(1e9));
}

/// A case about the whole job names nobody, or all alike.
#[test]
fn nobody_is_named_before_others_where_the_whole_job_is_slow() {
    let truths = truths(&["all-devices,after=10"]);
    let right = |suspects| judge(&truths, &[&case(12, What::Slowdown, Category::Gpu, suspects)], 60_000).correct();
    assert!(right(vec![]));
    assert!(right((0..4).map(|at| host(&format!("host{at}"), 0.5)).collect()));
    assert!(!right(vec![host("host1", 0.9)]) && !right(vec![rank(6, 0.9), host("host0", 0.3), host("host2", 0.3)]));
}

#[test]
fn what_was_measured_decides_whether_a_case_is_due() {
    let judged = |seen_after: Option<usize>| {
        let mut truths = truths(&["gpu-power@host1:rank6,after=10"]);
        truths[0].slowdown = Some(1.1);
        let due =
            Due { cost: 0.1, spread: 0.1, iteration_ns: 1e9, lasted: 9, seen_after, needed_z: 6.0, reached_z: 9.0 };
        truths[0].due = Some(due);
        judge(&truths, &[], 60_000)
    };
    assert!(judged(None).correct());
    let missed = judged(Some(3)).wrong;
    assert!(missed[0].starts_with("MISSED: gpu-power@host1:rank6 was not named: cost 10.0 %"), "{missed:?}");
}

#[test]
fn cases_without_a_fault_are_false() {
    let early = case(5, What::Slowdown, Category::Gpu, vec![rank(6, 0.9)]);
    let truths = truths(&["gpu-power@host1:rank6,after=10,lasts=10"]);
    assert_eq!(judge(&truths, &[&early], 60_000).false_cases.len(), 1);
    let late = case(40, What::Slowdown, Category::Gpu, vec![rank(6, 0.9)]);
    assert_eq!(judge(&truths, &[&late], 60_000).false_cases.len(), 1);
    let healthy = judge(&[], &[&early], 60_000);
    assert_eq!(healthy.wrong, ["case 0: slowdown (gpu) without a fault"]);
    let view = self::truths(&["agent-outage@host1,after=4"]);
    assert!(!judge(&view, &[&early], 60_000).correct() && judge(&view, &[], 60_000).correct());
}

#[test]
fn a_case_that_names_nobody_blames_nobody() {
    let open = case(12, What::Slowdown, Category::Unknown, vec![]);
    let judgement = judge(&truths(&["gpu-power@host1:rank6,after=10"]), &[&open], 60_000);
    assert_eq!((judgement.open_questions, judgement.false_cases.len()), (1, 0));
    assert!(!judgement.correct());
}
