//! Several faults at once: each has its case, with its own onset, suspect and end.
mod cluster;

use cluster::{Fault, MS, Outcome, Plan, T0, run};
use mycroft_diagnose::{Case, CaseState};
use mycroft_record::{Category, HostTime, Place, Rank, What};

const S: u64 = 1_000 * MS;
/// Onsets are the beginnings of iterations, which take less than this with two faults.
const ONSET_NS: u64 = 3 * S;

fn shape() -> Plan {
    let mut plan = Plan::new(4, 4, 4, 1, 4);
    plan.until = 45 * S;
    plan
}

fn rank_place(rank: u32) -> Place {
    Place::Rank { rank: Rank(rank), host: format!("host{}", rank / 4).into() }
}

fn host_place(host: u32) -> Place {
    Place::Host { host: format!("host{host}").into() }
}

/// The cases are exactly these: who, what kind, since when, and whether it is over.
fn check(outcome: &Outcome, expected: &[(Place, Category, u64, CaseState)]) {
    let (text, cases) = (outcome.text(), outcome.engine.cases());
    assert_eq!(cases.len(), expected.len(), "one fault, one case\n{text}");
    for (case, (place, category, at, state)) in cases.iter().zip(expected) {
        let finding = &case.finding;
        assert_eq!((finding.what, finding.category), (What::Slowdown, *category), "{text}");
        let leads: Vec<&Place> = leads(case).collect();
        assert_eq!(leads, [place], "{text}");
        assert!(finding.diagnosed_at.is_some(), "{text}");
        assert_eq!(case.state, *state, "{text}");
        let off = finding.since.0.abs_diff(T0 + at);
        assert!(off <= ONSET_NS, "{place:?} is said to have begun {} ms off\n{text}", off / MS);
    }
}

/// The suspects that are as sure as the first.
fn leads(case: &Case) -> impl Iterator<Item = &Place> {
    let suspects = &case.finding.suspects;
    let first = suspects.first().map_or(0.0, |suspect| suspect.confidence);
    suspects.iter().filter(move |suspect| suspect.confidence >= first).map(|suspect| &suspect.place)
}

#[test]
fn a_fault_that_joins_another_has_its_own_case() {
    for seed in 1..4 {
        let plan = shape().seed(seed).fault(Fault::GpuPower(2)).and(Fault::NicBandwidth(2), 22 * S, u64::MAX);
        let expected = [
            (rank_place(2), Category::Gpu, 8 * S, CaseState::Open),
            (host_place(2), Category::NetworkSend, 22 * S, CaseState::Open),
        ];
        check(&run(plan), &expected);
    }
}

#[test]
fn the_first_case_is_over_when_its_own_fault_is() {
    let mut plan = shape().fault(Fault::GpuPower(2)).and(Fault::NicBandwidth(2), 20 * S, u64::MAX);
    plan.fault_ends = 30 * S;
    let outcome = run(plan);
    let expected = [
        (rank_place(2), Category::Gpu, 8 * S, CaseState::Closed),
        (host_place(2), Category::NetworkSend, 20 * S, CaseState::Open),
    ];
    check(&outcome, &expected);
    let closed = outcome.engine.cases()[0].closed_at;
    assert!(closed > HostTime(T0 + 30 * S) && closed < HostTime(T0 + 42 * S), "{}", outcome.text());
}

#[test]
fn the_second_case_is_over_when_its_own_fault_is() {
    let plan = shape().fault(Fault::NicBandwidth(2)).and(Fault::GpuPower(5), 20 * S, 30 * S);
    let expected = [
        (host_place(2), Category::NetworkSend, 8 * S, CaseState::Open),
        (rank_place(5), Category::Gpu, 20 * S, CaseState::Closed),
    ];
    check(&run(plan), &expected);
}

/// Two devices of the same speed work side by side: the second makes no iteration longer.
#[test]
fn a_device_that_another_hides_has_its_own_case() {
    let mut plan = shape().fault(Fault::GpuPower(2)).and(Fault::GpuPower(13), 22 * S, u64::MAX);
    plan.fault_ends = 36 * S;
    plan.until = 55 * S;
    let expected = [
        (rank_place(2), Category::Gpu, 8 * S, CaseState::Closed),
        (rank_place(13), Category::Gpu, 22 * S, CaseState::Open),
    ];
    check(&run(plan), &expected);
}

#[test]
fn a_fault_that_comes_when_another_goes_has_its_own_case() {
    let mut plan = shape().fault(Fault::GpuPower(2)).and(Fault::GpuPower(13), 24 * S, u64::MAX);
    plan.fault_ends = 24 * S;
    let expected = [
        (rank_place(2), Category::Gpu, 8 * S, CaseState::Closed),
        (rank_place(13), Category::Gpu, 24 * S, CaseState::Open),
    ];
    check(&run(plan), &expected);
}

/// A stall at another place is another fault; at the suspect's own it is the same one getting worse.
#[test]
fn a_stall_in_a_slow_job_has_its_own_case() {
    let plan = shape().and(Fault::NicBandwidth(2), 8 * S, u64::MAX).fault(Fault::Stuck(5));
    let outcome = run(Plan { fault_at: 25 * S, ..plan });
    let cases = outcome.engine.cases();
    let said: Vec<_> = cases.iter().map(|case| (case.finding.what, case.finding.category)).collect();
    let expected = [(What::Slowdown, Category::NetworkSend), (What::Hang, Category::NotStarted)];
    assert_eq!(said, expected, "{}", outcome.text());
    assert_eq!(leads(&cases[1]).collect::<Vec<_>>(), [&rank_place(5)], "{}", outcome.text());

    let plan = shape().and(Fault::GpuPower(5), 8 * S, u64::MAX).fault(Fault::GpuHang(5));
    let outcome = run(Plan { fault_at: 25 * S, ..plan });
    let case = outcome.case();
    assert_eq!((case.finding.what, case.finding.category), (What::Hang, Category::Gpu), "{}", outcome.text());
}
