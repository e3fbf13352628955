//! A running job takes another division of its micro-batches, and ranks take other positions, without a process that ends.
//! Rank processes are this binary again.
mod common;

use common::{be_a_rank, launch};
use mycroft_sim::{Fault, FaultKind, Scenario, Transport};
use mycroft_testbed::{Change, Running};
use std::time::Duration;

/// Long enough for a loaded machine of two cores; a pass takes a fraction of it.
const LIMIT: Duration = Duration::from_secs(120);

/// Not a test of its own: the process of one rank, when the launcher appended its arguments.
#[test]
fn rank_process() {
    be_a_rank();
}

/// Median duration of the iterations from `from` to before `to`, milliseconds.
fn median(running: &Running, from: u64, to: u64) -> f64 {
    let laps = running.laps().into_iter().filter(|(number, _)| (from..to).contains(number));
    let mut ms: Vec<f64> = laps.map(|(_, lap)| lap.ms).collect();
    ms.sort_by(f64::total_cmp);
    ms[ms.len() / 2]
}

fn runs_on(running: &mut Running, from: u64, iterations: u64) -> f64 {
    running.wait_for_iteration(from + iterations, LIMIT).unwrap();
    median(running, from, from + iterations)
}

fn scenario(shape: Scenario) -> Scenario {
    let small = Scenario { micro_batches: 8, layers: 1, tp_bytes: 4096, pp_bytes: 4096, dp_bytes: 1 << 16, ..shape };
    Scenario { forward_ms: 5.0, backward_ms: 10.0, transport: Transport::Loopback, jitter: 0.0, ..small }
}

#[test]
fn a_slow_replica_takes_fewer_micro_batches_and_gradients_stay() {
    let shape = Scenario { hosts: 2, ranks_per_host: 1, tp: 1, pp: 1, dp: 2, ..Scenario::default() };
    let mut running = launch(scenario(shape));
    running.wait_warmed_up(LIMIT).unwrap();
    let begun = running.progress().iterations[0];
    let healthy = runs_on(&mut running, begun, 6);
    let fault = Fault { severity: Some(2.5), ..Fault::new(FaultKind::GpuPower, 1) };
    running.inject_fault(&fault).unwrap();
    let at = running.progress().iterations[0] + 2;
    let slow = runs_on(&mut running, at, 6);
    let change = Change { micro_batches: vec![11, 5], positions: vec![0, 1] };
    let at = running.change(&change).unwrap();
    let divided = runs_on(&mut running, at + 1, 6);
    // Twice is once.
    let at = running.change(&change).unwrap();
    let again = runs_on(&mut running, at + 1, 4);
    let exits = running.finish(LIMIT);
    assert!(exits.iter().all(|exit| exit.clean), "{exits:?}");
    eprintln!("healthy {healthy:.0}, slow {slow:.0}, divided {divided:.0}, again {again:.0} ms");
    // Of 1.5 that it costs 62 % can be won (12.5 instead of 20 micro-batches of a healthy device, where it were 8).
    assert!(slow > 1.8 * healthy, "{healthy:.0} {slow:.0}");
    assert!(slow - divided.max(again) > 0.3 * (slow - healthy), "{healthy:.0} {slow:.0} {divided:.0} {again:.0}");
}

#[test]
fn ranks_take_other_positions_with_their_weights() {
    let shape = Scenario { hosts: 4, ranks_per_host: 2, tp: 2, pp: 2, dp: 2, ..Scenario::default() };
    let scenario = scenario(shape);
    let mut running = launch(scenario.clone());
    running.wait_warmed_up(LIMIT).unwrap();
    // Hosts 0 and 3 change places, then all move on by one host.
    for positions in [vec![6, 7, 2, 3, 4, 5, 0, 1], vec![4, 5, 6, 7, 0, 1, 2, 3]] {
        let change = Change { positions, micro_batches: vec![10, 6] };
        let at = running.change(&change).unwrap();
        running.wait_for_iteration(at + 3, LIMIT).unwrap();
    }
    let wrong = Change { positions: vec![0; 8], ..Change::none(&scenario) };
    assert!(running.change(&wrong).unwrap_err().to_string().contains("each position of 8 once"));
    // A rank that has wrong data, or another position's weights, ends with an error.
    let exits = running.finish(LIMIT);
    assert!(exits.iter().all(|exit| exit.clean), "{exits:?}");
}

/// Neighbours in the ring of gradients over a slow path wait for it; at other positions they are no neighbours.
#[test]
fn a_slow_path_costs_nothing_once_its_ends_are_no_neighbours() {
    let shape = Scenario { hosts: 4, ranks_per_host: 1, tp: 1, pp: 1, dp: 4, ..Scenario::default() };
    let heavy = Scenario { dp_bytes: 1_400_000, nic_bytes_per_sec: 20_000_000, micro_batches: 1, ..scenario(shape) };
    let mut running = launch(heavy.clone());
    running.wait_warmed_up(LIMIT).unwrap();
    let begun = running.progress().iterations[0];
    let healthy = runs_on(&mut running, begun, 6);
    running.slow_path((0, 1), heavy.nic_bytes_per_sec / 8).unwrap();
    let twice = running.slow_path((1, 2), 1).unwrap_err().to_string();
    assert!(twice.contains("one slow path at a time"), "{twice}");
    let at = running.progress().iterations[0] + 2;
    let slow = runs_on(&mut running, at, 4);
    let at = running.change(&Change { positions: vec![0, 2, 1, 3], ..Change::none(&heavy) }).unwrap();
    let moved = runs_on(&mut running, at + 1, 6);
    let exits = running.finish(LIMIT);
    assert!(exits.iter().all(|exit| exit.clean), "{exits:?}");
    eprintln!("healthy {healthy:.0}, slow {slow:.0}, moved {moved:.0} ms");
    assert!(slow > 2.0 * healthy && slow - moved > 0.5 * (slow - healthy), "{healthy:.0} {slow:.0} {moved:.0}");
}
