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
    std::fs::remove_dir_all(&dir).context("cannot remove what was made")?;
    write_page(root, "preload.md", &page(&added, rounds, &load_before)?)
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
         That is worked out, not measured: iterations vary by more.",
        verdict(share <= 0.1)
    )?;
    Ok(page)
}
