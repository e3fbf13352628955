//! `cargo xtask bench autopsy`: dumps of a large job, made here; how long the autopsy of them takes and what it needs,
//! whether it names the right rank, and what PyTorch's own analyser needs for the same files.
mod dumps;
mod logs;
mod watched;

use super::rows::{line, load, machine, verdict, write_page};
use crate::run::target_dir;
use crate::run::{answers, run};
use anyhow::{Context, Result, bail};
use dumps::Size;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use watched::{Cost, watch};

/// The promise (SPEC.md, "Autopsy"): wall time at full size, two cores.
const WALL_S_MAX: f64 = 2.0;
/// The promise: peak resident memory at full size.
const PEAK_BYTES_MAX: f64 = 1e9;
/// The promise for a log of a gigabyte, one core: wall time.
const LOG_WALL_S_MAX: f64 = 3.0;
/// .. and peak resident memory.
const LOG_PEAK_BYTES_MAX: f64 = 200e6;
/// Full size.
const FULL: Size = Size { ranks: 1024, entries: 2000 };
/// Sizes of the table: linear in ranks, linear in entries, full last.
const SIZES: &[Size] = &[
    Size { ranks: 256, entries: 2000 },
    Size { ranks: 512, entries: 2000 },
    Size { ranks: 1024, entries: 500 },
    Size { ranks: 1024, entries: 1000 },
    FULL,
];
/// Sizes that PyTorch's analyser ends in a minute; it is quadratic in entries.
const PEER_SIZES: &[Size] =
    &[Size { ranks: 64, entries: 500 }, Size { ranks: 64, entries: 1000 }, Size { ranks: 64, entries: 2000 }];
/// Longest that PyTorch's analyser may take.
const PEER_PATIENCE: Duration = Duration::from_secs(120);
/// Python that has torch, where it is not `python3`.
const PYTHON: &str = "MYCROFT_BENCH_PYTHON";
/// PyTorch's analyser, since 2.15 and before.
const PEER_MODULES: &[&str] = &["torch.distributed.flight_recorder.fr_trace", "tools.flight_recorder.fr_trace"];
/// Cores that the promise speaks of.
const CORES: usize = 2;

/// A folder that goes when it is no longer needed.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch> {
        let path = std::env::temp_dir().join(format!("mycroft-bench-autopsy-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left is in the system's own folder for such things.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One row of the table.
struct Row {
    size: Size,
    bytes: u64,
    cost: Cost,
    peer: Option<Cost>,
}

/// Measures, checks the answers, writes docs/results/autopsy.md.
pub(crate) fn measure(root: &Path, rounds: usize) -> Result<()> {
    let load_before = load();
    run(root, "cargo", &["build", "--release", "--package", "mycroft-cli"])?;
    let mycroft = target_dir(root).join("release/mycroft");
    let scratch = Scratch::new()?;
    let peer = peer();
    let mut rows = Vec::new();
    for size in PEER_SIZES.iter().filter(|_| peer.is_some()).chain(SIZES) {
        let dir = scratch.0.join(format!("{}x{}", size.ranks, size.entries));
        let bytes = dumps::write(&dir, *size)?;
        let cost = autopsy(&mycroft, &dir, *size, rounds)?;
        let is_peers = PEER_SIZES.iter().any(|other| other == size);
        let peer = peer.as_ref().filter(|_| is_peers).map(|peer| analyse(peer, &dir)).transpose()?.flatten();
        eprintln!("{} x {}: {:.2} s", size.ranks, size.entries, cost.wall_s);
        std::fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        rows.push(Row { size: *size, bytes, cost, peer });
    }
    let path = scratch.0.join("job.log");
    let log = Log { bytes: logs::write(&path)?, cost: of_log(&mycroft, &path, rounds)? };
    eprintln!("log: {:.2} s", log.cost.wall_s);
    write_page(root, "autopsy.md", &page(&rows, &log, peer.is_some(), &machine(&load_before)))
}

/// The log, and what it cost.
struct Log {
    bytes: u64,
    cost: Cost,
}

/// The median run over the log; every run must name the rank that is missing.
fn of_log(mycroft: &Path, path: &Path, rounds: usize) -> Result<Cost> {
    let mut costs = Vec::new();
    for _ in 0..rounds {
        let mut command = Command::new(mycroft);
        command.args(["autopsy", "--json", "--quiet"]).arg(path);
        let (cost, said) = watch(command, Duration::MAX)?.context("the autopsy did not end")?;
        let answer: serde_json::Value = serde_json::from_str(&said).context("the autopsy printed no JSON")?;
        let suspects = answer["verdict"]["suspects"].as_array().map_or(&[][..], Vec::as_slice);
        let named: Vec<Option<u64>> = suspects.iter().map(|suspect| suspect["rank"].as_u64()).collect();
        if named != [Some(u64::from(logs::MISSING))] {
            bail!("log: wrong verdict, expected rank {} alone: {}", logs::MISSING, answer["verdict"]);
        }
        costs.push(cost);
    }
    costs.sort_by(|a, b| a.wall_s.total_cmp(&b.wall_s));
    Ok(costs[costs.len() / 2])
}

/// The median run by wall time; every run must name the right rank.
fn autopsy(mycroft: &Path, dir: &Path, size: Size, rounds: usize) -> Result<Cost> {
    let mut costs = Vec::new();
    for _ in 0..rounds {
        let mut command = on_two_cores(mycroft);
        command.args(["autopsy", "--json", "--quiet"]).arg(dir);
        let (cost, said) = watch(command, Duration::MAX)?.context("the autopsy did not end")?;
        check(&said, size)?;
        costs.push(cost);
    }
    costs.sort_by(|a, b| a.wall_s.total_cmp(&b.wall_s));
    // At least three rounds.
    Ok(costs[costs.len() / 2])
}

/// Only on two cores, where there are more and `taskset` can hold a program to them.
fn on_two_cores(program: &Path) -> Command {
    let cores = std::thread::available_parallelism().map_or(CORES, std::num::NonZero::get);
    if cores > CORES && answers("taskset", &["--version"]) {
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", "0,1"]).arg(program);
        return command;
    }
    Command::new(program)
}

/// Exactly the rank that is missing, at the operation in which it is.
fn check(said: &str, size: Size) -> Result<()> {
    let answer: serde_json::Value = serde_json::from_str(said).context("the autopsy printed no JSON")?;
    let verdict = &answer["verdict"];
    let suspects = verdict["suspects"].as_array().map_or(&[][..], Vec::as_slice);
    let named: Vec<Option<u64>> = suspects.iter().map(|suspect| suspect["rank"].as_u64()).collect();
    let is_right = verdict["what"] == "hang"
        && named == [Some(u64::from(size.missing()))]
        && verdict["seq"] == size.last_world_seq()
        && verdict["collective"] == "all_reduce"
        && answer["ranks"] == size.ranks;
    if !is_right {
        let (ranks, entries) = (size.ranks, size.entries);
        bail!("{ranks} x {entries}: wrong verdict, expected rank {} alone: {verdict}", size.missing());
    }
    Ok(())
}

/// The Python and the module of PyTorch's analyser, where they are there.
fn peer() -> Option<(String, &'static str)> {
    let python = std::env::var(PYTHON).unwrap_or_else(|_| "python3".to_owned());
    let module = PEER_MODULES.iter().find(|module| answers(&python, &["-c", &format!("import {module}")]))?;
    Some((python, module))
}

/// PyTorch's analyser on the same files; nothing when it takes too long.
fn analyse((python, module): &(String, &'static str), dir: &Path) -> Result<Option<Cost>> {
    let mut command = Command::new(python);
    command.args(["-m", module]).arg(dir);
    Ok(watch(command, PEER_PATIENCE)?.map(|(cost, _)| cost))
}

fn page(rows: &[Row], log: &Log, has_peer: bool, machine: &str) -> String {
    let mut page = String::from(
        "# Autopsy: cost of one verdict\n\nWritten by `cargo xtask bench autopsy`; do not edit.\n\n\
         Dumps of R ranks x E entries (protocol 2, with stacks; three groups interleaved: tensor parallel of 8, data \
         parallel of stride 8, world), made by the benchmark with the structure that PyTorch's recorder has; the rank \
         R/2 + 1 never issues the last world all_reduce. Each run must name that rank alone, at that operation. Wall \
         time from start to end of `mycroft autopsy --json` in release mode, files in the page cache, medians; peak is \
         the largest resident set (VmHWM).\n\n",
    );
    let _ = writeln!(page, "{machine} Priority of the measurement over other programs: {}.\n", priority());
    line(&mut page, &["ranks x entries", "dumps", "wall", "CPU", "peak"].map(String::from));
    line(&mut page, &["---"; 5].map(String::from));
    for row in rows {
        let Size { ranks, entries } = row.size;
        let cells = [
            format!("{ranks} x {entries}"),
            format!("{:.0} MB", row.bytes as f64 / 1e6),
            format!("{:.2} s", row.cost.wall_s),
            format!("{:.2} s", row.cost.cpu_s),
            format!("{:.0} MB", row.cost.peak_bytes as f64 / 1e6),
        ];
        line(&mut page, &cells);
    }
    promises(&mut page, rows);
    of_logs(&mut page, log);
    peers(&mut page, rows, has_peer);
    page
}

/// What others on the machine do to wall time depends on it: the niceness of this session's group of programs.
fn priority() -> String {
    let group = std::fs::read_to_string("/proc/self/autogroup").unwrap_or_default();
    group.split_once(' ').map_or_else(|| "none".to_owned(), |(_, nice)| nice.trim().to_owned())
}

/// The promise and the two slopes.
fn promises(page: &mut String, rows: &[Row]) {
    let cost = |ranks, entries| rows.iter().find(|row| row.size == Size { ranks, entries }).map(|row| row.cost);
    let Some(full) = cost(FULL.ranks, FULL.entries) else { return };
    page.push('\n');
    line(page, &["promise at full size", "measured", ""].map(String::from));
    line(page, &["---"; 3].map(String::from));
    let wall = [format!("at most {WALL_S_MAX:.0} s"), format!("{:.2} s", full.wall_s)];
    line(page, &[wall[0].clone(), wall[1].clone(), verdict(full.wall_s <= WALL_S_MAX).to_owned()]);
    let peak = full.peak_bytes as f64;
    let peak_row =
        ["at most 1 GB".to_owned(), format!("{:.2} GB", peak / 1e9), verdict(peak <= PEAK_BYTES_MAX).to_owned()];
    line(page, &peak_row);
    page.push_str("\nLinear would be 1.0:\n\n");
    let mut slope = |name: &str, small: Option<Cost>, factor: f64| {
        if let Some(small) = small {
            let ratio = full.cpu_s / small.cpu_s / factor;
            let _ = writeln!(page, "- {name}: processor time x {:.2}, {ratio:.2} of linear", full.cpu_s / small.cpu_s);
        }
    };
    slope("ranks 256 -> 1,024 (x 4)", cost(256, 2000), 4.0);
    slope("ranks 512 -> 1,024 (x 2)", cost(512, 2000), 2.0);
    slope("entries 500 -> 2,000 (x 4)", cost(1024, 500), 4.0);
    slope("entries 1,000 -> 2,000 (x 2)", cost(1024, 1000), 2.0);
}

/// What a job printed, without any dump.
fn of_logs(page: &mut String, log: &Log) {
    let _ = writeln!(
        page,
        "\n## A log\n\nThe merged log of {} ranks, {:.2} GB: iterations, progress bars, lines of NCCL's start, of a data \
         loader and of memory, and at the end the watchdog of all ranks but {}. Each run must name that rank alone. One log is \
         read on one core.\n",
        logs::RANKS,
        log.bytes as f64 / 1e9,
        logs::MISSING
    );
    line(page, &["promise", "measured", ""].map(String::from));
    line(page, &["---"; 3].map(String::from));
    let (wall, peak) = (log.cost.wall_s, log.cost.peak_bytes as f64);
    let wall_row =
        [format!("at most {LOG_WALL_S_MAX:.0} s"), format!("{wall:.2} s, processor {:.2} s", log.cost.cpu_s)];
    line(page, &[wall_row[0].clone(), wall_row[1].clone(), verdict(wall <= LOG_WALL_S_MAX).to_owned()]);
    let peak_row = ["at most 200 MB".to_owned(), format!("{:.0} MB", peak / 1e6)];
    line(page, &[peak_row[0].clone(), peak_row[1].clone(), verdict(peak <= LOG_PEAK_BYTES_MAX).to_owned()]);
}

/// Side by side with PyTorch's analyser.
fn peers(page: &mut String, rows: &[Row], has_peer: bool) {
    page.push_str("\n## Beside PyTorch's analyser (torchfrtrace)\n\n");
    if !has_peer {
        let _ = writeln!(page, "Not measured: no Python with torch (set {PYTHON} to one that has it).");
        return;
    }
    page.push_str("The same files on the same machine; loading torch takes about two seconds of it.\n\n");
    line(page, &["ranks x entries", "torchfrtrace CPU", "mycroft CPU", "ratio", "peak, both"].map(String::from));
    line(page, &["---"; 5].map(String::from));
    for row in rows {
        let Some(peer) = row.peer else { continue };
        let cells = [
            format!("{} x {}", row.size.ranks, row.size.entries),
            format!("{:.1} s", peer.cpu_s),
            format!("{:.2} s", row.cost.cpu_s),
            // The clock of processor time has hundredths: a shorter run counts as one.
            format!("{:.0} x", peer.cpu_s / row.cost.cpu_s.max(0.01)),
            format!("{:.0} MB, {:.0} MB", peer.peak_bytes as f64 / 1e6, row.cost.peak_bytes as f64 / 1e6),
        ];
        line(page, &cells);
    }
}
