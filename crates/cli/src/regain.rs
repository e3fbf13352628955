//! `mycroft testbed mitigate`: jobs of real processes with a slow replica or slow paths, and what plans win back.
mod closed;
mod places;
mod running;

use crate::args_testbed::RegainArgs;
use crate::exit::{EXIT_INTERRUPTED, EXIT_OK};
use crate::stop::Stop;
use anyhow::{Context, Result};
use mycroft_diagnose::mitigate::split::{Replica, split};
use mycroft_sim::{Fault, FaultKind};
use mycroft_testbed::{Change, LaunchConfig, Testbed, Tracer};
use running::{EACH, LIMIT, measured, rank_command, scenario};
use std::fmt::Write as _;

/// Replicas of the jobs, and FALCON's mean for 2, 4 and 8 groups (7.3, Figure 13): percent of the slowdown.
const PAPER: [(u32, f64); 3] = [(2, 55.3), (4, 77.8), (8, 64.9)];
/// How many times longer the slow replica computes.
const SLOWER: [f64; 3] = [1.3, 1.8, 2.5];
/// One row: what iterations took, milliseconds, and how the micro-batches were divided.
struct Row {
    slower: f64,
    healthy: f64,
    slow: f64,
    planned: f64,
    /// The iteration in which the job changed over.
    change: f64,
    division: Vec<u32>,
}

impl Row {
    /// Percent of what the slow replica costs that the plan wins back.
    fn won(&self) -> f64 {
        100.0 * (self.slow - self.planned) / (self.slow - self.healthy)
    }

    /// What the best division of whole micro-batches wins, percent, if only computation takes time.
    fn best(&self) -> Result<f64> {
        let unit = 1e6;
        let mut replicas = vec![Replica::single(unit as u64); self.division.len()];
        replicas[0] = Replica::single((unit * self.slower) as u64);
        let best = split(&replicas, EACH * self.division.len() as u32)?.time_ns as f64 / unit;
        let even = f64::from(EACH) * self.slower;
        Ok(100.0 * (even - best) / (even - f64::from(EACH)))
    }
}

/// Plays all jobs and prints the page; with `--write` also into a file.
pub(crate) fn regain(args: &RegainArgs) -> Result<u8> {
    let stop = Stop::on_signals()?;
    if args.by_itself {
        let Some(closed) = closed::play(&stop)? else { return Ok(EXIT_INTERRUPTED) };
        print!("{closed}");
        return Ok(EXIT_OK);
    }
    let mut page = head(args);
    for (replicas, paper) in PAPER {
        let Some(rows) = of_job(replicas, args.iterations, &stop)? else { return Ok(EXIT_INTERRUPTED) };
        for row in &rows {
            let counts: Vec<String> = row.division.iter().map(u32::to_string).collect();
            let (won, best) = (row.won(), row.best()?);
            let line = format!(
                "| {replicas} | {} | {} | {:.0} | {:.0} | {:.0} | {won:.0} % | {best:.0} % | {:.0} % | {:+.0} |",
                row.slower,
                counts.join(", "),
                row.healthy,
                row.slow,
                row.planned,
                100.0 * won / best,
                row.change - row.planned,
            );
            eprintln!("{line}");
            let _ = writeln!(page, "{line}");
        }
        let mean = rows.iter().map(Row::won).sum::<f64>() / rows.len() as f64;
        let _ = writeln!(page, "| {replicas} | *mean* | | | | | **{mean:.1} %**, FALCON {paper} % | | | |");
    }
    let Some(places) = places::play(args.iterations, &stop)? else { return Ok(EXIT_INTERRUPTED) };
    page.push_str(&places);
    let Some(closed) = closed::play(&stop)? else { return Ok(EXIT_INTERRUPTED) };
    page.push_str(&closed);
    print!("{page}");
    if let Some(path) = &args.write {
        std::fs::write(path, &page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(EXIT_OK)
}

fn head(args: &RegainArgs) -> String {
    format!(
        "# Mitigation, carried out\n\nMade by `mycroft testbed mitigate --iterations {}` (version {}). Jobs of real processes, one \
         rank on each host, loopback; the device is a wait of 15 ms for each micro-batch, {EACH} micro-batches for each replica in \
         the even division, and the first replica's takes longer by the factor. The plan is `diagnose/mitigate/split` on what \
         iterations took before and since; no process ends, and every iteration checks that gradients are those of the even \
         division, to the bit. Medians of one run. *Won*: how much of what the slow replica costs the plan takes back, beside the \
         best that whole micro-batches allow where only computation takes time. *Change*: how much longer the iteration took in \
         which the job changed over.\n\n\
         | replicas | slower | division | healthy, ms | slow, ms | planned, ms | won | best | of the best | change, ms |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
        args.iterations,
        env!("CARGO_PKG_VERSION"),
    )
}

/// A job of `replicas`: healthy, slow and with a plan, for each factor in turn. `None` when somebody asked to stop.
fn of_job(replicas: u32, iterations: u64, stop: &Stop) -> Result<Option<Vec<Row>>> {
    let scenario = scenario(replicas);
    let mut running =
        Testbed::launch(LaunchConfig { tracer: Tracer::Off, ..LaunchConfig::new(scenario.clone(), rank_command()?) })?;
    running.wait_warmed_up(LIMIT)?;
    let none = Change::none(&scenario);
    let mut rows = Vec::new();
    for slower in SLOWER {
        if stop.asked() {
            return Ok(None);
        }
        let (healthy, _) = measured(&mut running, iterations, &none)?;
        running.inject_fault(&Fault { severity: Some(slower), ..Fault::new(FaultKind::GpuPower, 0) })?;
        let (slow, _) = measured(&mut running, iterations, &none)?;
        let each = |ms: f64| Replica::single((ms * 1e6 / f64::from(EACH)) as u64);
        let mut replicas_now = vec![each(healthy); replicas as usize];
        replicas_now[0] = each(slow);
        let division = split(&replicas_now, EACH * replicas)?.micro_batches;
        let plan = Change { micro_batches: division.clone(), ..none.clone() };
        let (planned, change) = measured(&mut running, iterations, &plan)?;
        running.heal();
        rows.push(Row { slower, healthy, slow, planned, change, division });
    }
    running.finish(LIMIT);
    Ok(Some(rows))
}
