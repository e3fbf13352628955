//! Slow paths in a job of 4 x 4: hosts change places, with their weights, while it runs (FALCON S3, 7.3, Figure 16).
use super::running::{LIMIT, measured, rank_command};
use crate::stop::Stop;
use anyhow::Result;
use mycroft_diagnose::mitigate::place::{Job, Pace, SlowPath, Waits, ring_ns};
use mycroft_sim::{Scenario, Transport};
use mycroft_testbed::{Change, LaunchConfig, Testbed, Tracer};
use std::fmt::Write as _;

/// A row of FALCON's Figure 16.
struct Paper {
    /// Slow paths: pairs of neighbours, each in the ring of another stage.
    slow: &'static [(u32, u32)],
    /// Iteration times without and with the paper's strategy, as times the healthy one.
    without: f64,
    with: f64,
}

const PAPER: [Paper; 3] = [
    Paper { slow: &[(0, 1)], without: 1.6, with: 1.3 },
    Paper { slow: &[(0, 1), (5, 6)], without: 1.7, with: 1.3 },
    Paper { slow: &[(0, 1), (5, 6), (10, 11)], without: 1.9, with: 1.7 },
];
/// Stages, and columns.
const SIDE: u32 = 4;
/// How many times slower the paths are: one of them makes an iteration about 1.6 times as long, as in the paper.
const SLOWER: f64 = 3.6;
/// Milliseconds of a micro-batch on a stage.
const STAGE_MS: u64 = 15;

fn scenario() -> Scenario {
    Scenario {
        name: "mitigate-4x4".to_owned(),
        hosts: SIDE * SIDE,
        ranks_per_host: 1,
        tp: 1,
        pp: SIDE,
        dp: SIDE,
        micro_batches: SIDE,
        layers: 1,
        forward_ms: 5.0,
        backward_ms: 10.0,
        optimizer_ms: 1.0,
        pp_bytes: 4 << 10,
        dp_bytes: 1_400_000,
        nic_bytes_per_sec: 20_000_000,
        jitter: 0.01,
        transport: Transport::Loopback,
        ..Scenario::default()
    }
}

/// The job as the planner sees it.
fn model(scenario: &Scenario, slow: &[(u32, u32)]) -> Job {
    let exchange = ring_ns(scenario.dp_bytes, SIDE as usize, scenario.nic_bytes_per_sec);
    let path = |(a, b): &(u32, u32)| SlowPath { ends: (*a as usize, *b as usize), network: (SLOWER * 1e3) as u32 };
    Job {
        stages_ns: vec![STAGE_MS * 1_000_000; SIDE as usize],
        gradients_ns: vec![exchange; SIDE as usize],
        activations_ns: ring_ns(scenario.pp_bytes, 2, scenario.nic_bytes_per_sec),
        micro_batches: scenario.micro_batches,
        waits: Waits::EachIteration,
        hosts: vec![Pace::HEALTHY; (SIDE * SIDE) as usize],
        paths: slow.iter().map(path).collect(),
    }
}

/// Plays the three jobs and gives the part of the page. `None` when somebody asked to stop.
pub(super) fn play(iterations: u64, stop: &Stop) -> Result<Option<String>> {
    let mut page = format!(
        "\n## Places\n\n16 ranks on as many hosts, 4 stages of 4 replicas; each path between two neighbours in a ring of gradients is \
         {SLOWER} times slower, each in the ring of another stage. The plan is `diagnose/mitigate/place`; ranks that move take the \
         weights of their position over through memory, and communicators are made anew. Ours of one run, beside FALCON's \
         Figure 16: iteration times as times the healthy one.\n\n\
         | slow paths | healthy, ms | slow | planned | by the model: slow, then planned | ranks that move | change, ms | FALCON: slow, then planned |\n\
         |---|---|---|---|---|---|---|---|\n"
    );
    let scenario = scenario();
    let launch = LaunchConfig { tracer: Tracer::Off, ..LaunchConfig::new(scenario.clone(), rank_command()?) };
    let mut running = Testbed::launch(launch)?;
    running.wait_warmed_up(LIMIT)?;
    let none = Change::none(&scenario);
    for Paper { slow, without, with } in PAPER {
        if stop.asked() {
            return Ok(None);
        }
        let (healthy, _) = measured(&mut running, iterations, &none)?;
        for path in slow {
            running.slow_path(*path, (scenario.nic_bytes_per_sec as f64 / SLOWER) as u64)?;
        }
        let (before, _) = measured(&mut running, iterations, &none)?;
        let job = model(&scenario, slow);
        let present: Vec<usize> = (0..job.hosts.len()).collect();
        let placed = job.place(&present)?;
        let mut positions = none.positions.clone();
        for (position, host) in placed.placement.iter().enumerate() {
            positions[*host] = position as u32;
        }
        let moves = positions.iter().zip(&none.positions).filter(|(new, old)| new != old).count();
        let (after, change) = measured(&mut running, iterations, &Change { positions, ..none.clone() })?;
        running.heal();
        let of_model =
            |ns: u64| -> Result<f64> { Ok(ns as f64 / model(&scenario, &[]).iteration_ns(&present)? as f64) };
        let line = format!(
            "| {} | {healthy:.0} | {:.2} | {:.2} | {:.2}, then {:.2} | {moves} | {:+.0} | {without}, then {with} |",
            slow.len(),
            before / healthy,
            after / healthy,
            of_model(placed.before_ns)?,
            of_model(placed.after_ns)?,
            change - after,
        );
        eprintln!("{line}");
        let _ = writeln!(page, "{line}");
    }
    running.finish(LIMIT);
    Ok(Some(page))
}
