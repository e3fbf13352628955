//! How a job ends: by itself, from outside, or because a part of it failed first; and what follows when it is started again.
mod cluster;

use cluster::{Cluster, Fault, MS, Outcome, Plan, T0, drive, run};
use mycroft_diagnose::{CaseEvent, CaseState, Ending, How};
use mycroft_record::{Batch, Category, ExitStatus, HostTime, NANOS_PER_SEC, Place, Rank, What};

/// When something happens in these stories, nanoseconds after the start.
const AT: u64 = 8_000 * MS;

fn plan() -> Plan {
    let mut plan = Plan::new(4, 4, 4, 1, 4);
    plan.until = 16_000 * MS;
    plan
}

fn ending(outcome: &Outcome) -> &Ending {
    let life = outcome.engine.lives().last().expect("a life");
    life.ended.as_ref().unwrap_or_else(|| panic!("the job has ended\n{}", outcome.text()))
}

fn opened(outcome: &Outcome) -> usize {
    outcome.events.iter().filter(|(_, event)| matches!(event, CaseEvent::Opened(_))).count()
}

/// From an event to the case, nanoseconds.
fn after(outcome: &Outcome, event: u64) -> u64 {
    outcome.case().opened_at.since_ns(HostTime(T0 + event))
}

#[test]
fn a_job_that_is_killed_as_a_whole_was_ended_from_outside() {
    for (seed, status) in [
        (1, ExitStatus::Unknown),
        (2, ExitStatus::Signal(9)),
        (3, ExitStatus::Signal(15)),
        (4, ExitStatus::Code(1)),
        (5, ExitStatus::Unknown),
        (6, ExitStatus::Unknown),
    ] {
        for (at, apart) in [(0, 0), (37 * MS, MS), (73 * MS, 9 * MS)] {
            let mut plan = plan().seed(seed).killed(0..16, AT + at, apart);
            plan.status = status;
            let outcome = run(plan);
            let text = outcome.text();
            assert_eq!(opened(&outcome), 0, "nobody is paged\n{text}");
            let ending = ending(&outcome);
            assert_eq!(ending.how, How::Outside, "{text}");
            assert!(ending.because.starts_with("16 ranks of 4 hosts were gone within "), "{text}");
            let says = ending.because.contains(&format!(" by {status}"));
            assert_eq!(says, status != ExitStatus::Unknown, "{text}");
        }
    }
}

/// The launcher, or an elastic agent, ends the others seconds later.
#[test]
fn one_that_goes_first_is_a_crash_and_stays_one() {
    for seed in 1..5 {
        let plan = plan().seed(seed).killed(6..7, AT, 0).killed(0..16, AT + 5_000 * MS, MS);
        let outcome = run(plan);
        let (text, case) = (outcome.text(), outcome.case());
        assert_eq!((case.finding.what, case.finding.category), (What::Crash, Category::ProcessExit), "{text}");
        assert!(matches!(case.finding.suspects[0].place, Place::Rank { rank: Rank(6), .. }), "{text}");
        assert!(after(&outcome, AT) <= 2 * NANOS_PER_SEC, "{} ms\n{text}", after(&outcome, AT) / MS);
        assert_eq!(case.state, CaseState::Open, "{text}");
        assert_eq!(ending(&outcome).how, How::Failed, "{text}");
    }
}

/// No host is paged for; the launcher needs half a second.
#[test]
fn one_that_goes_more_than_the_spread_before_the_others_is_a_crash() {
    let outcome = run(plan().killed(6..7, AT, 0).killed(0..16, AT + 700 * MS, MS));
    assert_eq!(outcome.case().finding.what, What::Crash, "{}", outcome.text());
    assert!(
        matches!(outcome.case().finding.suspects[0].place, Place::Rank { rank: Rank(6), .. }),
        "{}",
        outcome.text()
    );
}

/// A launcher that sees one fail may end the others within milliseconds: where agents read how processes ended, that tells.
#[test]
fn one_that_failed_by_itself_is_named_although_others_were_ended_at_once() {
    let mut batches = Cluster::new(Plan { status: ExitStatus::Signal(15), ..plan().killed(0..16, AT, MS) }).batches();
    for batch in batches.iter_mut().filter(|batch| batch.source.process.is_some_and(|of| of.rank == Rank(6))) {
        for record in &mut batch.records {
            if let mycroft_record::Record::ProcessExit(exit) = record {
                exit.status = ExitStatus::Signal(11);
            }
        }
    }
    let outcome = drive(&batches, 16_000 * MS, |_| 0);
    let (text, case) = (outcome.text(), outcome.case());
    assert_eq!(case.finding.what, What::Crash, "{text}");
    assert_eq!(case.finding.suspects.len(), 1, "{text}");
    assert!(matches!(case.finding.suspects[0].place, Place::Rank { rank: Rank(6), .. }), "{text}");
    assert!(text.contains("the process of rank 6 is gone (SIGSEGV)"), "{text}");
    assert_eq!(ending(&outcome).how, How::Failed, "{text}");
}

#[test]
fn programs_that_end_with_code_0_have_finished() {
    let mut plan = plan().killed(0..16, AT, 200 * MS);
    plan.status = ExitStatus::Code(0);
    // One after the other, over three seconds, none in an operation.
    plan.iterations = 12;
    let outcome = run(plan);
    assert_eq!(opened(&outcome), 0, "{}", outcome.text());
    assert_eq!(ending(&outcome).how, How::Finished, "{}", outcome.text());
    assert!(ending(&outcome).because.contains("exit code 0"), "{}", outcome.text());
}

#[test]
fn half_of_the_hosts_that_are_lost_are_a_crash_of_these_hosts() {
    let outcome = run(plan().killed(8..16, AT, MS));
    let (text, case) = (outcome.text(), outcome.case());
    assert_eq!(case.finding.what, What::Crash, "{text}");
    let mut hosts: Vec<&Place> = case.finding.suspects.iter().map(|suspect| &suspect.place).collect();
    hosts.sort();
    assert_eq!(hosts, [&Place::Host { host: "host2".into() }, &Place::Host { host: "host3".into() }], "{text}");
    assert!(after(&outcome, AT) <= 2 * NANOS_PER_SEC, "{} ms\n{text}", after(&outcome, AT) / MS);
    assert_eq!(outcome.engine.lives().last().and_then(|life| life.ended.clone()), None, "half of it lives\n{text}");
}

/// An allocation that is taken away ends an agent that runs inside it, too.
#[test]
fn a_host_whose_agent_goes_with_the_job_does_not_make_it_a_crash() {
    for mute in 0..4 {
        let mut plan = plan().killed(0..16, AT, MS);
        (plan.mute_host, plan.fault_at) = (Some(mute), AT);
        let outcome = run(plan);
        let text = outcome.text();
        assert_eq!(opened(&outcome), 0, "{text}");
        assert_eq!(ending(&outcome).how, How::Outside, "{text}");
        let last = mute * 4 + 3;
        assert!(ending(&outcome).because.contains(&format!("is heard of ranks {}-{last} since", mute * 4)), "{text}");
    }
}

/// Somebody ends a job that hangs.
#[test]
fn a_job_that_is_ended_takes_its_open_cases_with_it() {
    let outcome = run(plan().fault(Fault::Stuck(6)).killed(0..16, AT + 5_000 * MS, MS));
    let (text, case) = (outcome.text(), outcome.case());
    assert_eq!((case.finding.what, case.state), (What::Hang, CaseState::Closed), "{text}");
    assert_eq!(case.closed_because, "the job was ended from outside", "{text}");
    assert_eq!(ending(&outcome).how, How::Outside, "{text}");
}

/// Batches of several lives, one after the other.
fn lives(plans: Vec<Plan>) -> Vec<Batch> {
    let mut batches: Vec<Batch> = plans.into_iter().flat_map(|plan| Cluster::new(plan).batches()).collect();
    mycroft_record::batch::sort_as_collected(&mut batches);
    batches
}

/// What was a crash is over when the job begins anew; what comes then is diagnosed.
#[test]
fn a_job_that_is_started_again_is_diagnosed_again() {
    // At once, after half a minute, after ten.
    for begins in [14_000 * MS, 45_000 * MS, 600_000 * MS] {
        let first = plan().killed(6..7, AT, 0).killed(0..16, AT + 3_000 * MS, MS);
        let mut second = plan().fault(Fault::Stuck(9)).seed(2);
        (second.life, second.begins) = (1, begins);
        let outcome = drive(&lives(vec![first, second]), begins + 16_000 * MS, |_| 0);
        let text = outcome.text();
        let [crash, hang] = outcome.engine.cases() else { panic!("two cases\n{text}") };
        assert_eq!((crash.finding.what, crash.state), (What::Crash, CaseState::Closed), "{text}");
        assert_eq!(crash.closed_because, "the job was started again", "{text}");
        assert!(crash.closed_at.since_ns(HostTime(T0 + begins)) <= 2 * NANOS_PER_SEC, "{text}");
        assert_eq!((hang.finding.what, hang.finding.category), (What::Hang, Category::NotStarted), "{text}");
        assert!(matches!(hang.finding.suspects[0].place, Place::Rank { rank: Rank(9), .. }), "{text}");
        let [before, now] = outcome.engine.lives() else { panic!("two lives\n{text}") };
        assert_eq!(before.ended.as_ref().map(|ending| ending.how), Some(How::Failed), "{text}");
        assert_eq!((now.number, &now.ended), (2, &None), "{text}");
    }
}

/// The whole of a job is ended and started again with fewer ranks, on other hosts: nobody of before is missed.
#[test]
fn who_does_not_come_back_is_forgotten() {
    let first = plan().killed(0..16, AT, MS);
    let mut second = Plan::new(2, 4, 4, 1, 2).seed(2);
    (second.life, second.begins, second.until) = (1, 20_000 * MS, 12_000 * MS);
    let outcome = drive(&lives(vec![first, second]), 32_000 * MS, |_| 0);
    let text = outcome.text();
    assert_eq!(outcome.engine.cases(), [], "{text}");
    assert_eq!(outcome.engine.report(outcome.end).ranks.len(), 8, "{text}");
    assert_eq!(outcome.engine.lives().len(), 2, "{text}");
}

/// What a spool still holds of processes of before comes late.
#[test]
fn late_records_of_an_earlier_life_change_nothing() {
    let first = plan().killed(6..7, AT, 0).killed(0..16, AT + 3_000 * MS, MS);
    let mut second = plan().seed(2);
    (second.life, second.begins) = (1, 14_000 * MS);
    let batches = lives(vec![first, second]);
    let is_late = |batch: &Batch| {
        batch.collected_at.0 > T0 + AT && batch.source.process.is_some_and(|of| of.nonce == 7 && of.rank.0 >= 8)
    };
    let late: Vec<bool> = batches.iter().map(is_late).collect();
    let outcome = drive(&batches, 30_000 * MS, |at| if late[at] { 12_000 * MS } else { 0 });
    let text = outcome.text();
    assert_eq!(outcome.case().closed_because, "the job was started again", "{text}");
    assert_eq!(outcome.engine.lives().len(), 2, "{text}");
    assert_eq!(outcome.engine.lives()[1].ended, None, "{text}");
}
