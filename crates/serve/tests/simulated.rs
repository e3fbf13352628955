//! Every scenario of `scenarios/` through the simulator and the brain: the verdict is right.
use mycroft_record::Batch;
use mycroft_sim::{Scenario, Simulation, score};
use std::time::{Duration, Instant};

fn run(scenario: &Scenario) -> (usize, Vec<Batch>, Simulation) {
    let mut simulation = Simulation::new(scenario);
    let mut batches = Vec::new();
    while let Some(stretch) = simulation.next_stretch() {
        batches.extend(stretch.into_iter().map(|delivery| delivery.batch));
    }
    let records = batches.iter().map(|batch| batch.records.len()).sum();
    (records, batches, simulation)
}

#[test]
fn scenarios_are_diagnosed() {
    let mut files: Vec<_> = std::fs::read_dir("../../scenarios").unwrap().flatten().map(|e| e.path()).collect();
    files.sort();
    let only = std::env::var("ONLY").unwrap_or_default();
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "toml")) {
        if !file.to_string_lossy().contains(&only) {
            continue;
        }
        let scenario = Scenario::load(file).unwrap();
        let begun = Instant::now();
        let (records, batches, simulation) = run(&scenario);
        let simulated = begun.elapsed();
        let reports = mycroft_serve::replay::replay(batches, Duration::from_secs(1));
        let report = reports.values().next().unwrap();
        let finding = report.cases.first().map(|case| &case.finding);
        let truth = simulation.truth();
        let truth = truth.first().cloned().unwrap_or_else(mycroft_sim::Truth::healthy);
        let score = score(&truth, finding);
        let progress = simulation.progress();
        println!(
            "{:40} {:5} {} | {} iterations of {:.0} ms, {records} records, {:.2} s + {:.2} s",
            scenario.name,
            score.correct,
            score.why,
            progress.iterations,
            progress.iteration_ms_median,
            simulated.as_secs_f64(),
            begun.elapsed().as_secs_f64() - simulated.as_secs_f64()
        );
        if !score.correct && !only.is_empty() {
            println!("{}", mycroft_diagnose::render(report));
        }
    }
}
