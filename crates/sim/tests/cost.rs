//! What a fault costs its job is told beside the same job without it, whatever was there before.
use mycroft_sim::{Fault, Scenario, Simulation};

/// Where iterations begin to take longer by this factor a fault is felt.
const FELT: f64 = 1.3;

/// What each fault costs in a job whose replicas are hosts: an iteration takes as long as the slowest of them.
fn slowdowns(faults: &[&str]) -> Vec<Option<f64>> {
    let faults: Vec<Fault> = faults.iter().map(|fault| fault.parse().unwrap()).collect();
    let base = Scenario { hosts: 4, ranks_per_host: 4, tp: 4, pp: 1, dp: 4, ..Scenario::default() };
    let scenario = Scenario { name: "cost".to_owned(), duration_s: 24.0, seed: 5, faults, ..base };
    scenario.check().unwrap();
    let mut simulation = Simulation::new(&scenario);
    while simulation.next_stretch().is_some() {}
    simulation.slowdowns()
}

#[test]
fn a_fault_that_another_hides_costs_nothing_and_alone_it_does() {
    let (hard, mild) = ("gpu-power@host1:rank5,severity=4,after=8", "gpu-power@host3:rank13,severity=2,after=14");
    let [Some(first), Some(hidden)] = slowdowns(&[hard, mild])[..] else { panic!("something is compared") };
    assert!(first > 2.0, "{first}");
    assert!((hidden - 1.0).abs() < 0.02, "{hidden}");
    let [Some(alone)] = slowdowns(&[mild])[..] else { panic!("something is compared") };
    assert!(alone > FELT && alone < first, "{alone}");
}

#[test]
fn a_fault_beside_a_milder_one_costs_what_it_adds() {
    let (mild, hard) = ("gpu-power@host3:rank13,severity=2,after=8", "gpu-power@host1:rank5,severity=4,after=14");
    let [Some(first), Some(second)] = slowdowns(&[mild, hard])[..] else { panic!("something is compared") };
    let [Some(alone)] = slowdowns(&[hard])[..] else { panic!("something is compared") };
    assert!(first > FELT && second > FELT, "{first} {second}");
    assert!((first * second / alone - 1.0).abs() < 0.1, "{first} * {second} is not {alone}");
}

/// Most of the iterations since it began are as long as the second makes them.
#[test]
fn what_a_later_fault_costs_is_not_the_first_ones() {
    let (mild, hard) = ("gpu-power@host3:rank13,severity=1.1,after=8", "gpu-power@host1:rank5,severity=4,after=11");
    let [Some(first), Some(second)] = slowdowns(&[mild, hard])[..] else { panic!("something is compared") };
    assert!(first < 1.2 && second > 2.0, "{first} {second}");
}

#[test]
fn what_ends_before_another_begins_does_not_hide_it() {
    let (hard, mild) =
        ("gpu-power@host1:rank5,severity=4,after=6,lasts=4", "gpu-power@host3:rank13,severity=2,after=14");
    let [Some(_), Some(felt)] = slowdowns(&[hard, mild])[..] else { panic!("something is compared") };
    assert!(felt > FELT, "{felt}");
}

#[test]
fn what_stops_the_job_costs_all_of_it() {
    let costs = slowdowns(&["gpu-power@host1:rank5,severity=4,after=8", "gpu-hang@host3:rank13,after=14"]);
    assert_eq!(costs[1], Some(f64::INFINITY));
}
