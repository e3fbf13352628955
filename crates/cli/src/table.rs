//! `mycroft testbed table`: many scenarios, many seeds, one table of results.
use crate::args_testbed::{TableArgs, TransportArg};
use crate::exit::{EXIT_FOUND, EXIT_INTERRUPTED, EXIT_OK};
use crate::live::{Live, Options, Outcome};
use crate::stop::Stop;
use anyhow::{Context, Result, anyhow, bail};
use mycroft_sim::{Fault, Scenario};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

/// One line of the table: a scenario in a transport over its seeds.
#[derive(Default)]
struct Row {
    runs: u32,
    correct: u32,
    detected_ms: Vec<i64>,
    settled_ms: Vec<i64>,
    iterations: Vec<u64>,
    /// Percent that the fault made iterations longer.
    costs: Vec<f64>,
    wrong: Vec<String>,
    stops_job: bool,
}

/// What the table needs of a run: a line of the run log, which holds what `mycroft testbed run --json` prints.
#[derive(Deserialize)]
struct Run {
    scenario: String,
    transport: String,
    seed: u64,
    correct: bool,
    why: String,
    detected_after_ms: Option<i64>,
    diagnosed_after_ms: Option<i64>,
    iterations_after_fault: Option<u64>,
    iteration_ms_median: Option<f64>,
    faulty_iteration_ms_median: Option<f64>,
    truth: RunTruth,
}

#[derive(Deserialize)]
struct RunTruth {
    fault: Option<String>,
}

/// Runs that were made before, and where the next ones are noted.
struct RunLog {
    path: PathBuf,
    file: File,
    runs: Vec<Run>,
}

impl RunLog {
    fn open(path: &Path) -> Result<RunLog> {
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .with_context(|| format!("--runs {}: cannot be opened", path.display()))?;
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(|| format!("--runs {}: cannot be read", path.display()))?;
        let mut runs = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let run = serde_json::from_str(line)
                .with_context(|| format!("--runs {}: line {} is no run", path.display(), number + 1))?;
            runs.push(run);
        }
        Ok(RunLog { path: path.to_owned(), file, runs })
    }

    fn has(&self, scenario: &str, transport: &str, seed: u64) -> bool {
        self.runs.iter().any(|run| run.scenario == scenario && run.transport == transport && run.seed == seed)
    }

    fn note(&mut self, line: &Value) -> Result<()> {
        writeln!(self.file, "{line}").with_context(|| format!("--runs {}: cannot be written", self.path.display()))
    }
}

/// Runs everything that the run log does not hold yet; exit 0 when every run was correct.
pub(crate) fn table(args: &TableArgs) -> Result<u8> {
    let stop = Stop::on_signals()?;
    let scenarios = playable(&args.scenarios)?;
    let total = scenarios.len() as u64 * args.seeds * args.transport.len() as u64;
    let mut log = args.runs.as_deref().map(RunLog::open).transpose()?;
    let mut rows: BTreeMap<(String, String), Row> = BTreeMap::new();
    for run in log.iter().flat_map(|log| &log.runs) {
        add(&mut rows, run)?;
    }
    let mut done = 0;
    // Seed by seed, so that a table that was interrupted says something of every scenario.
    for seed in args.first_seed..args.first_seed + args.seeds {
        for scenario in &scenarios {
            for &via in &args.transport {
                done += 1;
                if stop.asked() {
                    return Ok(EXIT_INTERRUPTED);
                }
                let scenario = Scenario { transport: via.into(), seed, ..scenario.clone() };
                let name = via_name(via);
                if log.as_ref().is_some_and(|log| log.has(&scenario.name, &name, seed)) {
                    continue;
                }
                let Some(outcome) = one(scenario, &name, args, &stop)? else { return Ok(EXIT_INTERRUPTED) };
                let mark = if outcome.score.correct { "right" } else { "WRONG" };
                eprintln!(
                    "[{done}/{total}] {} {} seed {seed}: {mark} - {}",
                    outcome.scenario, outcome.transport, outcome.score.why
                );
                let line = crate::testbed::as_json(&outcome);
                if let Some(log) = &mut log {
                    log.note(&line)?;
                }
                add(&mut rows, &serde_json::from_value(line).context("a run's own JSON cannot be read")?)?;
            }
        }
    }
    let text = render(&rows, args);
    print!("{text}");
    if let Some(path) = &args.write {
        std::fs::write(path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(if rows.values().all(|row| row.correct == row.runs) { EXIT_OK } else { EXIT_FOUND })
}

/// One run; the records of a wrong one are kept when asked for.
fn one(scenario: Scenario, via: &str, args: &TableArgs, stop: &Stop) -> Result<Option<Outcome>> {
    let name = format!("{}-{via}-{}", scenario.name, scenario.seed);
    let record = args.keep_failures.as_ref().map(|dir| dir.join(name));
    if let Some(dir) = &record {
        remove(dir)?; // of the same run, made before
    }
    let options = Options { record: record.clone(), ..Options::default() };
    let outcome = Live::start(scenario, options)?.run(stop, |_| (), |_| ())?;
    if let Some(dir) = &record {
        match &outcome {
            Some(outcome) if !outcome.score.correct => {
                let path = dir.join("report.txt");
                let text = format!("{}\n{}", outcome.report_text, crate::testbed::as_json(outcome));
                std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            }
            // Nobody asks for the half of a run that was interrupted.
            _ => remove(dir)?,
        }
    }
    Ok(outcome)
}

/// Removes a directory, if it is there.
fn remove(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// A transport as runs name it.
fn via_name(via: TransportArg) -> String {
    format!("{via:?}").to_lowercase()
}

fn add(rows: &mut BTreeMap<(String, String), Row>, run: &Run) -> Result<()> {
    let fault: Option<Result<Fault, String>> = run.truth.fault.as_deref().map(str::parse);
    let fault = fault.transpose().map_err(|why| anyhow!("fault of a run of {}: {why}", run.scenario))?;
    let row = rows.entry((run.scenario.clone(), run.transport.clone())).or_default();
    row.runs += 1;
    row.correct += u32::from(run.correct);
    row.detected_ms.extend(run.detected_after_ms);
    if let (Some(detected), Some(diagnosed)) = (run.detected_after_ms, run.diagnosed_after_ms) {
        row.settled_ms.push(diagnosed - detected);
    }
    row.iterations.extend(run.iterations_after_fault);
    if let (Some(before), Some(after)) = (run.iteration_ms_median, run.faulty_iteration_ms_median) {
        row.costs.push(100.0 * (after / before - 1.0));
    }
    row.stops_job = fault.is_some_and(|fault| fault.kind.stops_job());
    if !run.correct {
        row.wrong.push(format!("seed {}: {}", run.seed, run.why));
    }
    Ok(())
}

/// Scenario files among the arguments: files as they are, directories by their *.toml in name order.
/// The scenarios of the files, all of them read before the first of many hours.
fn playable(paths: &[PathBuf]) -> Result<Vec<Scenario>> {
    let load = |file: &PathBuf| {
        let scenario = Scenario::load(file)?;
        scenario.check_testbed().map_err(|message| anyhow!("{}: {message}", file.display()))?;
        Ok(scenario)
    };
    scenario_files(paths)?.iter().map(load).collect()
}

fn scenario_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let entries = std::fs::read_dir(path).with_context(|| format!("cannot list {}", path.display()))?;
            let mut found: Vec<PathBuf> = entries
                .flatten()
                .map(|entry| entry.path())
                .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
                .collect();
            found.sort();
            files.extend(found);
        } else {
            files.push(path.clone());
        }
    }
    if files.is_empty() {
        bail!("no scenario: give *.toml files or a directory that has some");
    }
    Ok(files)
}

/// Middle and largest of a list, in seconds.
fn spread(values: &[i64]) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    match (sorted.get(sorted.len() / 2), sorted.last()) {
        (Some(median), Some(max)) => format!("{:.2} / {:.2}", *median as f64 / 1000.0, *max as f64 / 1000.0),
        _ => "-".to_owned(),
    }
}

/// Least and largest of a list.
fn range(values: &[f64]) -> String {
    let (least, most) = (values.iter().copied().reduce(f64::min), values.iter().copied().reduce(f64::max));
    least.zip(most).map_or("-".to_owned(), |(least, most)| format!("{least:.0} to {most:.0}"))
}

fn render(rows: &BTreeMap<(String, String), Row>, args: &TableArgs) -> String {
    let mut out = String::from("# Testbed results\n\n");
    let via: Vec<String> = args.transport.iter().map(|arg| via_name(*arg)).collect();
    let _ = writeln!(
        out,
        "Made by `mycroft testbed table {} --seeds {} --first-seed {} --transport {}` (version {}).\n",
        args.scenarios.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" "),
        args.seeds,
        args.first_seed,
        via.join(","),
        env!("CARGO_PKG_VERSION"),
    );
    out.push_str("Times in seconds, median / worst. *Detected*: fault to case. *Settled*: case to diagnosis. ");
    out.push_str("*Iterations*: finished by the slowest rank between the fault's first effect and the case (slowdowns), median / worst. ");
    out.push_str(
        "*Cost*: by how much the fault made iterations longer, as the ranks timed them, percent, least to most.\n\n",
    );
    out.push_str(
        "| scenario | transport | right | detected | settled | iterations | cost |\n|---|---|---|---|---|---|---|\n",
    );
    for ((scenario, transport), row) in rows {
        let mut iterations = row.iterations.clone();
        iterations.sort_unstable();
        let iterations = match (iterations.get(iterations.len() / 2), iterations.last()) {
            (Some(median), Some(max)) if !row.stops_job => format!("{median} / {max}"),
            _ => "-".to_owned(),
        };
        let _ = writeln!(
            out,
            "| {scenario} | {transport} | {} of {} | {} | {} | {iterations} | {} |",
            row.correct,
            row.runs,
            spread(&row.detected_ms),
            spread(&row.settled_ms),
            if row.stops_job { "-".to_owned() } else { range(&row.costs) }
        );
    }
    let mut stalls: Vec<i64> =
        rows.values().filter(|row| row.stops_job).flat_map(|row| row.detected_ms.clone()).collect();
    stalls.sort_unstable();
    if !stalls.is_empty() {
        let p99 = stalls[(stalls.len() * 99).div_ceil(100) - 1];
        let _ = writeln!(out, "\nStalls: {} runs, detected p99 {:.2} s.", stalls.len(), p99 as f64 / 1000.0);
    }
    let runs: u32 = rows.values().map(|row| row.runs).sum();
    let correct: u32 = rows.values().map(|row| row.correct).sum();
    let _ = writeln!(out, "\nAll: {correct} of {runs} right.");
    for ((scenario, transport), row) in rows {
        for wrong in &row.wrong {
            let _ = writeln!(out, "- {scenario} {transport} {wrong}");
        }
    }
    out
}
