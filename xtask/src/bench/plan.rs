//! `cargo xtask bench plan`: plans against slowness on drawn jobs of many sizes, as docs/results/mitigation.md.
use super::rows::{load, machine, write_page};
use crate::run::{example, output};
use anyhow::{Context, Result};
use std::path::Path;

/// Which jobs are drawn. Chosen when the page was first made; another page takes another one.
const SEED: &str = "20261127";
/// GREYHOUND's own run, where the machine has it.
const THEIR_RUN: &str = "../shared/data/field/51-greyhound-run/solver.json";

/// Plans for all jobs in release mode and writes the page.
pub(crate) fn measure(root: &Path) -> Result<()> {
    let before = load();
    let program = example(root, "mycroft-diagnose", "plan")?;
    let mut args = vec![SEED.to_owned()];
    match their_run(&root.join(THEIR_RUN))? {
        Some(run) => args.extend(run),
        None => eprintln!("{THEIR_RUN} is not there: its line of the page is left out"),
    }
    let text = output(root, &program, &args.iter().map(String::as_str).collect::<Vec<&str>>())?;
    let mut page = String::from("# Mitigation\n\nWritten by `cargo xtask bench plan`; do not edit.\n\n");
    page.push_str(&format!(
        "Part \"Planning\": what plans cost to make, and what they gain by the model that they are made with. Nothing is carried out. Seed \
         {SEED}, one thread. {}\n\n",
        machine(&before)
    ));
    page.push_str(text.trim_end());
    page.push('\n');
    write_page(root, "mitigation.md", &page)
}

/// Times, micro-batches and the plan of a solver's own run, as the example takes them; `None` where it is not at hand.
fn their_run(path: &Path) -> Result<Option<[String; 3]>> {
    let Ok(text) = std::fs::read_to_string(path) else { return Ok(None) };
    let run: serde_json::Value = serde_json::from_str(&text).context("the solver's run is no JSON")?;
    let list = |field: &str| -> Result<String> {
        let numbers = run[field].as_array().with_context(|| format!("the solver's run has no list `{field}`"))?;
        Ok(numbers.iter().map(ToString::to_string).collect::<Vec<String>>().join(","))
    };
    Ok(Some([list("time_ms")?, run["micro_batches"].to_string(), list("their_plan")?]))
}
