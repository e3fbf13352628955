//! A running job takes another division of its micro-batches, and ranks take other positions, without a process that ends.
//! Rank processes are this binary again.
use mycroft_sim::{Fault, FaultKind, Scenario, Transport};
use mycroft_testbed::{Change, LaunchConfig, RankArgs, Running, Testbed, Tracer, rank_main};
use std::time::Duration;

/// Long enough for a loaded machine of two cores; a pass takes a fraction of it.
const LIMIT: Duration = Duration::from_secs(120);

/// Not a test of its own: the process of one rank, when the launcher appended its arguments.
#[test]
fn rank_process() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Ok(args) = RankArgs::parse(&arguments) {
        tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
        std::process::exit(rank_main(&args));
    }
}

fn launch(scenario: Scenario) -> Running {
    let me = std::env::current_exe().unwrap().into_os_string();
    let command = vec![me, "--exact".into(), "rank_process".into(), "--nocapture".into(), "--".into()];
    let config = LaunchConfig { tracer: Tracer::Off, ..LaunchConfig::new(scenario, command) };
    Testbed::launch(config).unwrap()
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
