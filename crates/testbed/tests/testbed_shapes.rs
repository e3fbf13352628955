//! The scenarios of `scenarios/` on real processes: every healthy shape computes the right data at the pace that two
//! cores allow, and every slowdown of the 16-rank job is at least 1.5 times (`testbed_run` has both transports). Rank processes are this binary again.
use mycroft_sim::{FaultKind, Scenario, Transport};
use mycroft_testbed::{LaunchConfig, RankArgs, Running, Testbed, Tracer, rank_main};
use std::path::Path;
use std::time::Duration;

/// Long enough for a loaded machine of two cores; a pass takes a fraction of it.
const LIMIT: Duration = Duration::from_secs(120);

/// Not a test of its own: the process of one rank, when the launcher appended its arguments.
#[test]
fn rank_process() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Ok(args) = RankArgs::parse(&arguments) {
        std::process::exit(rank_main(&args));
    }
}

fn launch(scenario: Scenario) -> Running {
    let me = std::env::current_exe().unwrap().into_os_string();
    let command = vec![me, "--exact".into(), "rank_process".into(), "--nocapture".into(), "--".into()];
    let config = LaunchConfig { tracer: Tracer::Off, ..LaunchConfig::new(scenario, command) };
    Testbed::launch(config).unwrap()
}

/// The scenarios whose name begins with `prefix`, in loopback, in order.
fn scenarios(prefix: &str) -> Vec<Scenario> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<Scenario> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| Scenario { transport: Transport::Loopback, ..Scenario::load(&path).unwrap() })
        .filter(|scenario| scenario.name.starts_with(prefix))
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

#[test]
fn healthy_shapes_compute_the_right_data_in_under_a_second() {
    for scenario in scenarios("healthy-") {
        let (name, warm_up) = (scenario.name.clone(), u64::from(scenario.warm_up_iterations));
        let mut running = launch(scenario);
        running.wait_for_iteration(warm_up + 4, LIMIT).unwrap();
        let exits = running.finish(LIMIT);
        assert!(exits.iter().all(|exit| exit.clean), "{name}: {exits:?}");
        let median = running.progress().iteration_ms_median.unwrap();
        eprintln!("{name}: {median:.0} ms");
        assert!(median < 1000.0, "{name}: {median:.0} ms");
        running.stop();
    }
}

#[test]
fn slowdowns_of_the_16_rank_job_are_clear() {
    let all = scenarios("");
    let slowing = |s: &&Scenario| s.world() == 16 && s.fault.as_ref().is_some_and(|fault| !fault.kind.stops_job());
    let slowing: Vec<&Scenario> = all.iter().filter(slowing).collect();
    assert_eq!(slowing.len(), 6);
    let mut running = launch(Scenario { fault: None, transport: Transport::Auto, ..slowing[0].clone() });
    let mut healthy = f64::INFINITY;
    for scenario in &slowing {
        let next = |running: &mut Running, more: u64| {
            let now = running.progress().iterations.into_iter().max().unwrap();
            running.wait_for_iteration(now + more, LIMIT).unwrap();
        };
        next(&mut running, 3);
        let mut fault = scenario.fault.clone().unwrap();
        if fault.kind == FaultKind::ProxyDelay {
            // Sleeps are drawn: twice as many make the median of three iterations certain.
            fault.severity = Some(2.0 * fault.severity());
        }
        running.inject_fault(&fault).unwrap();
        next(&mut running, 3);
        let progress = running.progress();
        // Later medians contain iterations of earlier faults.
        healthy = healthy.min(progress.iteration_ms_median.unwrap());
        let faulty = progress.faulty_iteration_ms_median.unwrap();
        let name = &scenario.name;
        eprintln!("{} {name}: {healthy:.0} ms -> {faulty:.0} ms ({:.1}x)", running.transport(), faulty / healthy);
        assert!(faulty > 1.5 * healthy, "{name}: {healthy:.0} ms -> {faulty:.0} ms");
        running.heal();
    }
    running.stop();
}
