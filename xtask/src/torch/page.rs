//! docs/results/torch.md from the kept results. What is suspected where a verdict is wrong is written by hand, in
//! `testbed/torch/suspected.toml`.
use super::results::{COST, FAULTS, PROGRAMS, file};
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// What `mycroft testbed torch --json` prints, as far as the page tells it.
#[derive(Deserialize)]
struct Run {
    correct: bool,
    why: String,
    detected_after_ms: Option<i64>,
    iterations: u64,
    iteration_ms_median: Option<f64>,
    verdict: Option<Verdict>,
    capture: Option<Capture>,
}

#[derive(Deserialize)]
struct Verdict {
    what: String,
    category: String,
    suspects: Vec<Suspect>,
}

#[derive(Deserialize)]
struct Capture {
    what: String,
    category: Option<String>,
    suspects: Vec<Suspect>,
    because: Vec<String>,
}

#[derive(Deserialize)]
struct Suspect {
    rank: Option<u32>,
    host: String,
    confidence: f64,
}

/// By file name without ending: what is suspected, or was looked into.
type Suspected = BTreeMap<String, String>;

const HEAD: &str = "# PyTorch on the testbed

Made by `cargo xtask torch --results`: real PyTorch programs (`testbed/torch/programs`) of 4 ranks on 2 hosts, through a
`torch.distributed` backend over the CPU collective library, which loads the tracer; agents, server and all ranks share two
cores. A program x fault is played once, and told as measured, right or wrong; a row that is not there was not played. A verdict
is right when what is wrong, category and suspect are those that `docs/formats/scenario.md` gives for the kind (uneven
micro-batches: those of `gpu-power`; pauses of the garbage collector: those of `data-wait`), no case came before the
fault, and no other case names anybody else. *Capture* is what stacks and Flight Recorder dumps, taken when the case opened, add.

";

/// Writes the page.
pub(super) fn write(root: &Path, dir: &Path) -> Result<()> {
    let notes = root.join("testbed/torch/suspected.toml");
    let text = std::fs::read_to_string(&notes).with_context(|| format!("cannot read {}", notes.display()))?;
    let suspected: Suspected = toml::from_str(&text).with_context(|| format!("{}", notes.display()))?;
    let mut out = HEAD.to_owned();
    // What is to be known of the results as they lie there.
    out.extend(suspected.get("note").map(|note| format!("{note}\n\n")));
    matrix(&mut out, dir, &suspected)?;
    healthy(&mut out, dir, &suspected)?;
    cost(&mut out, dir);
    let path = root.join("docs/results/torch.md");
    std::fs::write(&path, out).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("{}", path.display());
    Ok(())
}

/// One run, if it was played.
fn read(dir: &Path, name: &str) -> Result<Option<Run>> {
    let path = dir.join(name);
    let Ok(text) = std::fs::read_to_string(&path) else { return Ok(None) };
    serde_json::from_str(&text).map(Some).with_context(|| format!("{} is no run", path.display()))
}

fn matrix(out: &mut String, dir: &Path, suspected: &Suspected) -> Result<()> {
    let (mut rows, mut wrong, mut right, mut total) = (String::new(), String::new(), 0, 0);
    for (fault, _) in FAULTS {
        for program in PROGRAMS {
            let name = file(program, fault);
            let Some(run) = read(dir, &name)? else { continue };
            (total, right) = (total + 1, right + u32::from(run.correct));
            let seconds = run.detected_after_ms.map_or("-".to_owned(), |ms| format!("{:.1}", ms as f64 / 1e3));
            let verdict = if run.correct { "right" } else { "**wrong**" };
            let (said, capture) = (said(&run), capture(&run));
            let _ = writeln!(rows, "| {program} | {fault} | {said} | {seconds} | {verdict} | {capture} |");
            if !run.correct {
                let why = suspected.get(name.trim_end_matches(".json")).map_or("not looked into", String::as_str);
                let _ = writeln!(wrong, "| {program} | {fault} | {} | {why} |", run.why);
            }
        }
    }
    let _ = writeln!(out, "## Programs x faults: {right} of {total} right\n");
    out.push_str("| program | fault | said | after s | verdict | capture |\n|---|---|---|---|---|---|\n");
    out.push_str(&rows);
    if !wrong.is_empty() {
        out.push_str("\nWhere it was wrong:\n\n| program | fault | why | suspected mechanism |\n|---|---|---|---|\n");
        out.push_str(&wrong);
    }
    Ok(())
}

fn healthy(out: &mut String, dir: &Path, suspected: &Suspected) -> Result<()> {
    out.push_str("\n## Healthy jobs\n\n| program | minutes | iterations | median ms | said | verdict |\n");
    out.push_str("|---|---|---|---|---|---|\n");
    for program in PROGRAMS {
        let name = file(program, "none");
        let Some(run) = read(dir, &name)? else { continue };
        let median = run.iteration_ms_median.unwrap_or(0.0);
        let minutes = median * run.iterations as f64 / 60e3;
        let why = suspected.get(name.trim_end_matches(".json")).map_or(String::new(), |why| format!(": {why}"));
        let verdict = if run.correct { "right".to_owned() } else { format!("**wrong**{why}") };
        let (iterations, said) = (run.iterations, said(&run));
        let _ = writeln!(out, "| {program} | {minutes:.1} | {iterations} | {median:.0} | {said} | {verdict} |");
    }
    Ok(())
}

/// The tables that `mycroft testbed overhead` printed.
fn cost(out: &mut String, dir: &Path) {
    out.push_str("\n## Cost of the tracer\n");
    for program in COST {
        let Ok(text) = std::fs::read_to_string(dir.join(format!("cost-{program}.md"))) else { continue };
        let body = text.split_once('\n').map_or(text.as_str(), |(_, rest)| rest);
        let _ = write!(out, "\n### {program}\n{}", body.trim_end());
        out.push('\n');
    }
}

/// A verdict in a few words.
fn said(run: &Run) -> String {
    run.verdict.as_ref().map_or("no case".to_owned(), |verdict| {
        format!("{} / {}: {}", verdict.what, verdict.category, people(&verdict.suspects))
    })
}

fn people(suspects: &[Suspect]) -> String {
    let one = |suspect: &Suspect| {
        let who = suspect.rank.map_or_else(|| suspect.host.clone(), |rank| format!("rank {rank}"));
        format!("{who} ({:.2})", suspect.confidence)
    };
    if suspects.is_empty() {
        "nobody".to_owned()
    } else {
        suspects.iter().take(2).map(one).collect::<Vec<_>>().join(", ")
    }
}

/// What a capture says: its verdict, else the innermost frames that it saw.
fn capture(run: &Run) -> String {
    let Some(capture) = &run.capture else { return "-".to_owned() };
    if !capture.suspects.is_empty() {
        let category = capture.category.as_deref().unwrap_or("-");
        return format!("{} / {category}: {}", capture.what, people(&capture.suspects));
    }
    let frame = capture.because.iter().find_map(|text| {
        let (rank, rest) = text.split_once(" of ")?.1.split_once(" is in ")?;
        Some(format!("{rank} in `{}`", rest.split([' ', '<']).next()?))
    });
    frame.unwrap_or_else(|| capture.what.clone())
}
