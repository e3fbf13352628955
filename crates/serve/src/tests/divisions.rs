//! A second division while one is in force. The jobs are simulated.
use super::acts::{ALWAYS_SLOW, EACH, Place, SLOW, auto, divided, job, plan_request, report_of, request};
use crate::act::Acts;
use crate::api::AutoRequest;
use mycroft_sim::Scenario;

/// A second device gets slow while the batch is divided for the first one: the next division is for both, by what each host computes for a
/// micro-batch. Where it makes the job slower the first one holds again; when both are healthy the even one does.
#[test]
fn a_second_fault_is_divided_for_from_the_division_in_force() {
    let place = Place::new();
    let ill = report_of(&job(Some(SLOW), &[], 60.0));
    let acts = place.acts();
    let first = acts.act(&ill, &request(false)).expect("carried out");
    let both = |seconds: f64, second_after: f64, micro_batches: &[u32]| {
        let faults = [ALWAYS_SLOW.to_owned(), format!("gpu-power@host3,severity=2.2,after={second_after}")];
        let faults = faults.iter().map(|fault| fault.parse().expect("a fault")).collect();
        Scenario { faults, ..job(None, micro_batches, seconds) }
    };
    let (_, early) =
        acts.act(&report_of(&both(30.0, 20.0, &first.micro_batches)), &request(false)).expect_err("too early");
    assert!(early.contains("changes nothing") || early.contains("is not known yet"), "{early}");
    drop(acts);
    let acts = place.settled(&|seconds| job(Some(ALWAYS_SLOW), &first.micro_batches, seconds));
    assert_eq!(acts.list(None, 1).actions[0].state, "kept");

    let worse = report_of(&both(90.0, 30.0, &first.micro_batches));
    let second = acts.act(&worse, &request(false)).expect("carried out");
    assert_eq!(second.hosts, ["host1", "host3"], "{second:?}");
    assert_eq!(second.micro_batches_before, first.micro_batches);
    assert!(second.micro_batches[3] < EACH && second.micro_batches[1] < EACH, "{second:?}");
    let file = place.plan_file(&second.job);
    let written = |division: &[u32]| division.iter().map(|&m| u64::from(m)).collect::<Vec<u64>>();
    assert_eq!(divided(&file), written(&second.micro_batches));
    let state = |acts: &Acts, number: u64| {
        let all = acts.list(None, 10).actions;
        all.iter().find(|action| action.number == number).map(|action| action.state.clone()).expect("in the log")
    };
    assert_eq!(
        (state(&acts, first.number), state(&acts, second.number)),
        ("replaced".to_owned(), "applied".to_owned())
    );

    // It keeps what it promised.
    drop(acts);
    let acts = place.settled(&|seconds| both(seconds, 0.0, &second.micro_batches));
    let kept = acts.list(None, 1).actions[0].clone();
    assert_eq!((kept.state.as_str(), kept.effect.as_str()), ("kept", "better"), "{kept:?}");
    acts.look(&report_of(&job(Some(ALWAYS_SLOW), &second.micro_batches, 90.0)));
    acts.look(&report_of(&job(Some(ALWAYS_SLOW), &second.micro_batches, 120.0)));
    assert_eq!(state(&acts, second.number), "kept", "one of both is slow still");
    acts.look(&report_of(&job(None, &second.micro_batches, 90.0)));
    acts.look(&report_of(&job(None, &second.micro_batches, 120.0)));
    assert_eq!(
        (state(&acts, first.number), state(&acts, second.number)),
        ("replaced".to_owned(), "taken-back".to_owned())
    );
    assert_eq!(divided(&file), vec![u64::from(EACH); 4]);
}

#[test]
fn a_second_division_that_made_the_job_slower_gives_way_to_the_first() {
    let place = Place::new();
    let ill = report_of(&job(Some(SLOW), &[], 60.0));
    let first = place.acts().act(&ill, &request(false)).expect("carried out");
    let acts = place.settled(&|seconds| job(Some(ALWAYS_SLOW), &first.micro_batches, seconds));
    let faults = [ALWAYS_SLOW, "gpu-power@host3,severity=2.2,after=30"].map(|fault| fault.parse().expect("a fault"));
    let scenario = Scenario { faults: faults.to_vec(), ..job(None, &first.micro_batches, 90.0) };
    let mut worse = report_of(&scenario);
    let policy = AutoRequest { plan: Some(plan_request()), ..auto(&["split"], 9, 0.0) };
    acts.allow(&worse.job, policy).expect("a policy");
    acts.look(&worse);
    let second = acts.list(None, 1).actions[0].clone();
    let waits = &acts.list(None, 1).policies[0].waits_for;
    assert_eq!((second.by.as_str(), second.state.as_str()), ("policy", "applied"), "by itself: {waits} {second:?}");
    worse.iterations += 30;
    worse.ranks.iter_mut().for_each(|rank| rank.iteration_ms = rank.iteration_ms.map(|ms| 1.3 * ms));
    acts.look(&worse);
    let all = acts.list(None, 10).actions;
    let states: Vec<&str> = all.iter().map(|action| action.state.as_str()).collect();
    assert_eq!(states, ["taken-back", "kept"], "{all:?}");
    let first_again: Vec<u64> = first.micro_batches.iter().map(|&m| u64::from(m)).collect();
    assert_eq!(divided(&place.plan_file(&first.job)), first_again);
    acts.act(&worse, &request(true)).expect("taken back");
    assert_eq!(divided(&place.plan_file(&first.job)), vec![u64::from(EACH); 4], "the even one");
}
