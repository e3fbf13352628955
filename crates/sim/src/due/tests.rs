//! Costs and tests by hand.
use super::*;

/// Iterations of these lengths, milliseconds, from 0 on.
fn iterations(lengths: &[f64]) -> Vec<Iteration> {
    let mut began = 0;
    let of = |ms: &f64| {
        let one = Iteration { began, ended: began + (ms * 1e6) as u64 };
        began = one.ended;
        one
    };
    lengths.iter().map(of).collect()
}

/// A job of a second an iteration that is a little longer and shorter in turn, and what a fault adds from its 20th on.
fn due(text: &str, after_s: f64, count: usize, added: f64) -> Due {
    let fault = Fault { after_s, ..text.parse().unwrap() };
    let scenario = Scenario { warm_up_iterations: 0, fault: Some(fault.clone()), ..Scenario::default() };
    let usual: Vec<f64> = (0..count).map(|at| if at % 2 == 0 { 970.0 } else { 1030.0 }).collect();
    let onset = usual.iter().scan(0.0, |end, ms| {
        *end += ms / 1e3;
        Some(*end)
    });
    let onset = onset.take_while(|end| *end <= after_s).count();
    let with: Vec<f64> = usual.iter().enumerate().map(|(at, ms)| if at < onset { *ms } else { ms + added }).collect();
    Due::of(&scenario, &fault, &iterations(&with), &iterations(&usual))
}

#[test]
fn a_cost_is_what_was_added_and_the_spread_is_the_jobs_own() {
    let due = due("gpu-power@host0", 20.0, 60, 50.0);
    assert!((due.cost - 0.05).abs() < 1e-6, "{due:?}");
    assert!((due.spread - 0.03025).abs() < 1e-4, "{due:?}");
    assert_eq!((due.lasted, due.iteration_ns), (40, 1e9));
}

/// One false alarm in 86,400 tests is a normal quantile of 4.23; with power 6.56. What is added must be 6.56 x 3.025 % x
/// sqrt(1/20 + 1/n) of an iteration: 7 % in 21 iterations, 5 % in none.
#[test]
fn it_is_seen_when_an_ideal_test_would_see_it() {
    let strong = due("gpu-power@host0", 20.0, 60, 70.0);
    assert!((strong.needed_z - 6.56).abs() < 0.01, "{strong:?}");
    let n = 1.0 / ((0.07_f64 / (strong.spread * strong.needed_z)).powi(2) - 1.0 / 20.0);
    assert_eq!(strong.seen_after, Some(n.ceil() as usize), "{strong:?}");
    let weak = due("gpu-power@host0", 20.0, 60, 50.0);
    assert!(weak.seen_after.is_none() && weak.reached_z < weak.needed_z, "{weak:?}");
    assert!(weak.text().starts_with("cost 5.0 %, spread 3.0 %, an ideal test needs z 6.6"), "{}", weak.text());
}

#[test]
fn from_the_first_second_on_peers_are_the_other_sample_and_the_whole_job_has_none() {
    assert!(due("gpu-power@host0", 0.0, 200, 100.0).is_due());
    let all = due("all-devices", 0.0, 200, 500.0);
    assert!(!all.is_due() && (all.cost - 0.5).abs() < 1e-6, "{all:?}");
    assert!(due("all-devices", 20.0, 60, 500.0).is_due());
}

#[test]
fn what_stops_a_job_is_due_whatever_it_costs() {
    assert!(due("gpu-hang@host0", 20.0, 25, 0.0).is_due());
}
