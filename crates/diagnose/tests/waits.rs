//! From when on a wait is a stall where nothing tells yet how long an iteration is.
mod cluster;

use cluster::{Fault, MS, Plan, run};
use mycroft_diagnose::CaseState;
use mycroft_record::{Place, Rank};

/// A rank that starts half a minute after the others is waited for, and nothing is wrong.
#[test]
fn a_start_half_a_minute_apart_is_no_stall() {
    let mut plan = Plan::new(2, 4, 2, 1, 4);
    plan.start_skew = 30_000 * MS;
    plan.until = 60_000 * MS;
    let outcome = run(plan);
    assert!(outcome.engine.cases().is_empty(), "{}", outcome.text());
}

/// A job that stops in its first minute is told of when the minute is over.
#[test]
fn a_job_that_never_gets_through_its_first_operations_is_a_stall() {
    let mut plan = Plan::new(2, 4, 2, 1, 4).fault(Fault::GpuHang(5));
    plan.fault_at = 1;
    plan.until = 90_000 * MS;
    let outcome = run(plan);
    let case = outcome.case();
    assert!(matches!(case.finding.suspects[0].place, Place::Rank { rank: Rank(5), .. }), "{}", outcome.text());
}

/// Before anybody knows how long an iteration is, a stop that went away by itself was a long step: it names nobody.
#[test]
fn a_start_that_takes_more_than_a_minute_is_told_and_taken_back() {
    let mut plan = Plan::new(2, 4, 2, 1, 4);
    plan.start_skew = 90_000 * MS;
    plan.until = 130_000 * MS;
    let outcome = run(plan);
    assert!(outcome.engine.cases().is_empty(), "{}", outcome.text());
    assert!(outcome.text().contains("went away by itself"), "{}", outcome.text());
}

/// A start is longer than anything that follows: it excuses no stop later.
#[test]
fn what_a_start_took_excuses_no_later_stop() {
    let mut plan = Plan::new(2, 4, 2, 1, 4).fault(Fault::LateOnce(5));
    plan.until = 230_000 * MS;
    let outcome = run(plan);
    let cases = outcome.engine.cases();
    assert_eq!(cases.len(), 1, "{}", outcome.text());
    assert!(matches!(cases[0].finding.suspects[0].place, Place::Rank { rank: Rank(5), .. }), "{}", outcome.text());
}

/// Ranks of several hosts that are late in turn collect garbage: from the third on nobody is named.
#[test]
fn pauses_that_wander_over_ranks_name_nobody() {
    let mut plan = Plan::new(2, 4, 2, 1, 4).fault(Fault::LateInTurn(12));
    plan.until = 85_000 * MS;
    let outcome = run(plan);
    let cases = outcome.engine.cases();
    let named: Vec<usize> = cases.iter().map(|case| case.finding.suspects.len()).collect();
    assert!(named.len() > 4 && named.iter().take(2).all(|named| *named > 0), "{}", outcome.text());
    assert!(named.iter().skip(2).all(|named| *named == 0), "{}", outcome.text());
    assert!(outcome.text().contains("for 3 ranks in turn"), "{}", outcome.text());
}

/// Where the job hardly runs between them there is one case, and those that named somebody are over.
#[test]
fn pauses_that_follow_each_other_have_one_case() {
    for every in [1, 3] {
        let mut plan = Plan::new(2, 4, 2, 1, 4).fault(Fault::LateInTurn(every));
        plan.until = 85_000 * MS;
        let outcome = run(plan);
        let text = outcome.text();
        let open: Vec<_> = outcome.engine.cases().iter().filter(|case| case.state == CaseState::Open).collect();
        let named = open.iter().map(|case| case.finding.suspects.len()).sum::<usize>();
        assert_eq!((open.len(), named), (1, 0), "{every}: {text}");
        assert!(text.contains("its pause is one of many that wander over ranks"), "{every}: {text}");
        assert!(text.contains("suspect    nobody: it is not one rank, host or path"), "{every}: {text}");
        assert!(outcome.engine.cases().len() <= 3, "{every}: {text}");
    }
}
