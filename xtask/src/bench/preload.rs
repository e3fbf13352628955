//! What the preloaded library adds to NCCL's host calls while nobody holds the job, in pairs of processes: docs/results/preload.md.
use super::rows::{Rows, line, load, machine, verdict, write_page};
use crate::run::{example, output_with, run, target_dir};
use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::Path;

/// Nanoseconds that a call may cost more (SPEC.md).
const CALL_NS: f64 = 30.0;
/// Calls of each kind in a process.
const CALLS: &str = "3000000";
/// What `examples/rank` times.
const KINDS: [&str; 3] = ["all-reduce", "send", "group start and end"];
/// Pairs of blocks of iterations.
const PAIRS: usize = 2_000;
/// Of an iteration, percent (SPEC.md).
const ITERATION_PERCENT: f64 = 0.1;
/// Of a normal distribution, two-sided 95 %.
const Z_95: f64 = 1.96;
/// An iteration of the largest jobs makes so many host calls in a rank, and takes at least so many nanoseconds: 20,000 operations
/// in a second (docs/results/scale.md has jobs like it).
const CALLS_AN_ITERATION: f64 = 20_000.0;
const ITERATION_NS: f64 = 1e9;

/// Measures and writes the page.
pub(crate) fn measure(root: &Path, rounds: usize) -> Result<()> {
    let load_before = load();
    let program = example(root, "mycroft-preload", "rank")?;
    run(root, "cargo", &["build", "--release", "--package", "mycroft-preload", "--lib", "--example", "empty_nccl"])?;
    let release = target_dir(root).join("release");
    let dir = target_dir(root).join("bench-preload");
    let (libraries, segments) = (dir.join("lib"), dir.join("segments"));
    std::fs::create_dir_all(&libraries).context("cannot make a directory of libraries")?;
    std::os::unix::fs::symlink(release.join("examples/libempty_nccl.so"), libraries.join("libnccl.so.2"))
        .context("cannot link the empty library")?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (libraries, segments, preload) =
        (text(&libraries), text(&segments), text(&release.join("libmycroft_preload.so")));
    let bare = [("BENCH_CALLS", CALLS), ("LD_LIBRARY_PATH", &*libraries)];
    let more = [("LD_PRELOAD", &*preload), ("MYCROFT_DIR", &*segments), ("MYCROFT_JOB", "bench"), ("RANK", "0")];
    let mut added = Rows::default();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        let (mut without, mut with) = (Rows::default(), Rows::default());
        without.add_output(&output_with(root, &program, &[], &bare)?);
        with.add_output(&output_with(root, &program, &[], &[&bare[..], &more[..]].concat())?);
        for kind in KINDS {
            let (with, without) = (with.summary(kind)?.median, without.summary(kind)?.median);
            added.add(kind, with - without);
            added.add(&plain(kind), without);
        }
    }
    let pairs = pairs(root, &dir)?;
    std::fs::remove_dir_all(&dir).context("cannot remove what was made")?;
    let mut page = page(&added, rounds, &load_before)?;
    iterations(&mut page, pairs)?;
    write_page(root, "preload.md", &page)
}

/// A job of two ranks over the CPU library: how much longer iterations take with the library than without, percent, in neighbouring blocks.
fn pairs(root: &Path, dir: &Path) -> Result<Vec<(f64, f64)>> {
    let program = example(root, "mycroft-preload", "iterations")?;
    run(root, "cargo", &["build", "--release", "--package", "mycroft-testbed-nccl", "--lib"])?;
    let release = target_dir(root).join("release");
    let libraries = dir.join("job");
    std::fs::create_dir_all(&libraries).context("cannot make a directory of libraries")?;
    std::os::unix::fs::symlink(release.join("libmycroft_testbed_nccl.so"), libraries.join("libnccl.so.2"))
        .context("cannot link the testbed's library")?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (libraries, segments, preload) =
        (text(&libraries), text(&dir.join("segments")), text(&release.join("libmycroft_preload.so")));
    let pairs = PAIRS.to_string();
    let env = [
        ("RANK_PAIRS", pairs.as_str()),
        ("RANK", "0"),
        ("LD_LIBRARY_PATH", &libraries),
        ("LD_PRELOAD", &preload),
        ("MYCROFT_DIR", &segments),
        ("MYCROFT_JOB", "bench"),
    ];
    eprintln!("{PAIRS} pairs of blocks of iterations");
    let told = output_with(root, &program, &[], &env)?;
    let pair = |line: &str| {
        let (with, without) = line.strip_prefix("pair ")?.split_once(' ')?;
        Some((with.parse().ok()?, without.parse().ok()?))
    };
    let found: Vec<(f64, f64)> = told.lines().filter_map(pair).collect();
    anyhow::ensure!(found.len() == PAIRS, "{program} told {} of {PAIRS} pairs", found.len());
    Ok(found)
}

/// The middle of paired changes, with the bounds of its 95 % interval (order statistics: whatever the distribution).
fn middle(mut changes: Vec<f64>) -> [f64; 3] {
    changes.sort_by(f64::total_cmp);
    let n = changes.len() as f64;
    let off = Z_95 * n.sqrt() / 2.0;
    let at = |place: f64| changes[(place.max(0.0) as usize).min(changes.len() - 1)];
    [at(n / 2.0), at((n / 2.0 - off).floor()), at((n / 2.0 + off).ceil())]
}

fn iterations(page: &mut String, pairs: Vec<(f64, f64)>) -> Result<()> {
    let [middle, low, high] = middle(pairs.iter().map(|(with, without)| 100.0 * (with / without - 1.0)).collect());
    let mut without: Vec<f64> = pairs.iter().map(|(_, without)| *without).collect();
    without.sort_by(f64::total_cmp);
    writeln!(
        page,
        "\n## In iterations\n\nTwo ranks over the CPU library, 20 times half a millisecond of computation and an all-reduce of 16 KiB in an iteration \
         of {:.2} ms. In one job {PAIRS} pairs of neighbouring blocks of iterations: in one calls go through the library, in the other to NCCL's own \
         function at once, by turns the first.\n\nWith the library iterations take {middle:+.3} % (95 % interval of the median: {low:+.3} to \
         {high:+.3} %) longer; at most {ITERATION_PERCENT} %: {}.",
        without[without.len() / 2],
        verdict(high <= ITERATION_PERCENT)
    )?;
    Ok(())
}

/// The row of a kind without the library.
fn plain(kind: &str) -> String {
    format!("{kind}, without")
}

fn page(added: &Rows, rounds: usize, load_before: &str) -> Result<String> {
    let mut page = String::from("# What the preloaded library adds to NCCL's calls\n\n");
    writeln!(
        page,
        "Made by `cargo xtask bench preload --rounds {rounds}`: {rounds} pairs of processes call a library that does nothing, \
         {CALLS} times for each kind, one with and one without `LD_PRELOAD=libmycroft_preload.so`; nobody holds the job. Medians over the \
         pairs of the difference, smallest and largest in brackets.\n\n{}\n",
        machine(load_before)
    )?;
    writeln!(page, "| call | without, ns | added, ns | |\n| --- | ---: | ---: | --- |")?;
    for kind in KINDS {
        let (of, without) = (added.summary(kind)?, added.summary(&plain(kind))?);
        let told = format!("{:.1} ({:.1} to {:.1})", of.median, of.min, of.max);
        let met = verdict(of.median <= CALL_NS);
        line(
            &mut page,
            &[kind.to_owned(), format!("{:.1}", without.median), told, format!("<= {CALL_NS:.0} ns: {met}")],
        );
    }
    let worst = KINDS.iter().map(|kind| Ok(added.summary(kind)?.median)).collect::<Result<Vec<f64>>>()?;
    let worst = worst.into_iter().fold(0.0, f64::max);
    let share = 100.0 * worst * CALLS_AN_ITERATION / ITERATION_NS;
    writeln!(
        page,
        "\nThe dearest of them {CALLS_AN_ITERATION:.0} times in an iteration of a second would be {share:.3} % of it (at most 0.1 %: {}). \
         That is worked out: iterations vary by more.",
        verdict(share <= ITERATION_PERCENT)
    )?;
    Ok(page)
}
