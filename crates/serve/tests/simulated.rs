//! Every scenario of `scenarios/`, played by the simulator: the brain's verdict is right.
use mycroft_diagnose::render;
use mycroft_serve::TICK;
use mycroft_serve::replay::{Player, TAIL};
use mycroft_sim::{Scenario, Simulation, Truth, score};
use std::path::{Path, PathBuf};

fn files() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|ext| ext == "toml")).collect();
    files.sort();
    files
}

#[test]
fn every_scenario_is_diagnosed_right() {
    let files = files();
    assert!(files.len() >= 30, "ten faults at two sizes, and ten healthy jobs: {}", files.len());
    for file in files {
        let scenario = Scenario::load(&file).unwrap();
        let mut simulation = Simulation::new(&scenario);
        let mut player = Player::new(TICK);
        while let Some(stretch) = simulation.next_stretch() {
            for delivery in stretch {
                player.deliver(mycroft_record::HostTime(delivery.arrives_at), &delivery.batch);
            }
        }
        let report = player.finish(TAIL).pop_first().unwrap().1.report;
        let truth = simulation.truth().pop().unwrap_or_else(Truth::healthy);
        let verdict = score(&truth, report.cases.first().map(|case| &case.finding));
        assert!(verdict.correct, "{}: {}\n{}", scenario.name, verdict.why, render(&report));
        let progress = simulation.progress();
        assert!(progress.iterations >= 5, "{}: {progress:?}", scenario.name);
    }
}
