//! `cargo xtask calls DIR`: plays traces of profiler calls into the tracer and prints a table (`docs/formats/calls.md`).
use crate::run::{run, target_dir};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to play.
#[derive(clap::Args)]
pub(crate) struct CallsArgs {
    /// Folders or files: every `*.jsonl` below them is a trace.
    #[arg(required = true)]
    places: Vec<PathBuf>,
}

/// One row of the table: a trace that was played.
struct Row {
    name: String,
    summary: String,
    deviations: Vec<String>,
}

/// Plays all traces; an error unless every one is right.
pub(crate) fn calls(root: &Path, args: &CallsArgs) -> Result<()> {
    run(
        root,
        "cargo",
        &["build", "--quiet", "--package", "mycroft-nccl", "--lib", "--example", "calls", "--example", "other_v5"],
    )?;
    let player = target_dir(root).join("debug/examples/calls");
    let mut traces = Vec::new();
    for place in &args.places {
        find(place, &mut traces).with_context(|| format!("{}: cannot be listed", place.display()))?;
    }
    traces.sort();
    if traces.is_empty() {
        bail!("no *.jsonl below {:?}: a trace is one file a rank, see docs/formats/calls.md", args.places);
    }
    println!("| trace | operations, flows, and what cannot be seen | verdict |\n|---|---|---|");
    let mut wrong = 0;
    for trace in &traces {
        let row = play(&player, trace)?;
        let right = row.deviations.is_empty();
        wrong += usize::from(!right);
        println!("| {} | {} | {} |", row.name, row.summary, if right { "right" } else { "WRONG" });
        row.deviations.iter().for_each(|deviation| println!("|  | {deviation} |  |"));
    }
    println!("\n{} of {} traces right", traces.len() - wrong, traces.len());
    if wrong > 0 {
        bail!("{wrong} of {} traces deviate", traces.len());
    }
    Ok(())
}

fn find(place: &Path, traces: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if place.is_file() {
        traces.push(place.to_owned());
        return Ok(());
    }
    for entry in std::fs::read_dir(place)? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, traces)?;
        } else if path.extension().is_some_and(|extension| extension == "jsonl") {
            traces.push(path);
        }
    }
    Ok(())
}

/// Plays one trace in a process of its own: the tracer is once per process.
fn play(player: &Path, trace: &Path) -> Result<Row> {
    let dir = std::env::temp_dir().join(format!("mycroft-calls-{}", std::process::id()));
    let output = Command::new(player)
        .arg(trace)
        .env("MYCROFT_DIR", &dir)
        .env("MYCROFT_SEGMENT_BYTES", "8388608")
        .output()
        .with_context(|| format!("cannot start {}", player.display()))?;
    // The segment goes with the process that made it; only the folder may be left.
    let _ = std::fs::remove_dir_all(&dir);
    let text = String::from_utf8_lossy(&output.stdout);
    let mut row = Row { name: short(trace), summary: String::new(), deviations: Vec::new() };
    for line in text.lines() {
        match line.split_once('\t') {
            Some(("summary", rest)) => row.summary = rest.replace('\t', ", "),
            Some(("deviation", rest)) => row.deviations.push(rest.to_owned()),
            _ => {}
        }
    }
    if row.summary.is_empty() {
        row.deviations.push(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    Ok(row)
}

/// The last three parts of a path: version, test and rank.
fn short(trace: &Path) -> String {
    let parts: Vec<_> = trace.iter().map(|part| part.to_string_lossy()).collect();
    parts[parts.len().saturating_sub(3)..].join("/")
}
