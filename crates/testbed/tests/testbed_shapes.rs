//! The scenarios of `scenarios/` on real processes: healthy shapes compute the right data at the pace that two cores allow.
//! That each fault slows or stops a job is in `testbed_run`. Rank processes are this binary again.
mod common;

use common::{be_a_rank, launch};
use mycroft_sim::{Scenario, Transport};
use std::path::Path;
use std::time::Duration;

/// Long enough for a loaded machine of two cores; a pass takes a fraction of it.
const LIMIT: Duration = Duration::from_secs(120);

/// Not a test of its own: the process of one rank, when the launcher appended its arguments.
#[test]
fn rank_process() {
    be_a_rank();
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

/// Shapes whose collectives, sizes of groups and order of calls others of the list have, too. They are played by hand
/// (`mycroft testbed table`) and in the simulator.
const ALIKE: &[&str] = &["healthy-dp8", "healthy-moe-16", "healthy-tp2-pp2-dp2", "healthy-tp8-pp2-dp2-32"];

#[test]
fn healthy_shapes_compute_the_right_data_in_under_a_second() {
    for scenario in scenarios("healthy-").into_iter().filter(|scenario| !ALIKE.contains(&scenario.name.as_str())) {
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
