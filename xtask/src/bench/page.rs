//! What the live page of a job of 10,240 ranks costs the server and the browser: docs/results/page.md.
use super::rows::{load, machine, verdict, write_page};
use crate::run::{output_with, run, target_dir};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::path::Path;

/// Ranks of the job.
const RANKS: &str = "10240";
/// Frames a second, milliseconds to the first paint, bytes in the browser, share of a processor of the server, milliseconds until the band is red.
const FRAMES: f64 = 30.0;
const PAINT_MS: f64 = 1_000.0;
const HEAP: f64 = 60e6;
const SHARE: f64 = 0.05;
const RED_MS: f64 = 2_000.0;

/// Measures and writes the page.
pub(crate) fn measure(root: &Path) -> Result<()> {
    run(root, "cargo", &["build", "--release", "-p", "mycroft-serve", "--example", "scale"])?;
    let folder = target_dir(root).join("bench-page");
    let program = target_dir(root).join("release/examples/scale");
    let load_before = load();
    let arguments = ["page", RANKS, &folder.to_string_lossy()];
    let many = output_with(root, &program.to_string_lossy(), &arguments, &[])?;
    std::fs::remove_dir_all(&folder).with_context(|| format!("{}: cannot be removed", folder.display()))?;
    let test = ["test", "--package", "mycroft-cli", "--test", "testbed_page", "--", "--nocapture"];
    let real = output_with(root, "cargo", &test, &[])?;
    write_page(root, "page.md", &page(&many, &real, &load_before)?)
}

fn figure(text: &str, name: &str) -> Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let told = line.with_context(|| format!("nobody said `{name}`:\n{text}"))?;
    told.trim().parse().with_context(|| format!("`{name}` is {told:?}"))
}

fn page(many: &str, real: &str, load_before: &str) -> Result<String> {
    let of = |name: &str| figure(many, name);
    let unseen = f64::midpoint(of("server_share_unseen")?, of("server_share_unseen_after")?);
    let pages = of("server_share_ten")? - unseen;
    let mut page = String::from("# What the live page costs\n\n");
    writeln!(
        page,
        "Made by `cargo xtask bench page`: a simulated job of 10,240 ranks, in which a device becomes slow after 18 s, is sent at its own pace to a server \
         (`crates/serve/examples/scale/page.rs`, release build, a process of its own); Chromium without a GPU shows the job's view in a window of 1,280 x 900, \
         scrolled by 23 pixels a frame for ten seconds; then nine more tabs of it are opened. The time until the band is red is that of a real job of the \
         testbed (`crates/cli/tests/testbed_page.rs`). Sender, server and browser share the machine.\n\n{}\n",
        machine(load_before)
    )?;
    writeln!(page, "| | measured | promise |\n| --- | ---: | --- |")?;
    let mut row = |what: &str, value: String, promise: String| writeln!(page, "| {what} | {value} | {promise} |");
    let met = |is: bool, promise: &str| format!("{promise}: {}", verdict(is));
    let frames = of("frames_per_second")?;
    row(
        "frames a second while it is scrolled and shown anew each second",
        format!("{frames:.1}"),
        met(frames >= FRAMES, ">= 30"),
    )?;
    row(
        "time between frames, 95th percentile, longest",
        format!("{:.0} ms, {:.0} ms", of("frame_ms_p95")?, of("frame_ms_max")?),
        String::new(),
    )?;
    row("of it to show the view anew, at most", format!("{:.0} ms", of("shown_ms_max")?), String::new())?;
    let paint = of("first_paint_ms")?;
    row("first paint", format!("{paint:.0} ms"), met(paint <= PAINT_MS, "<= 1 s"))?;
    let heap = of("heap_bytes")?;
    row(
        "memory of the page after garbage was collected",
        format!("{:.1} MB", heap / 1e6),
        met(heap <= HEAP, "<= 60 MB"),
    )?;
    row("more of it a second later", format!("{:.1} KB", of("heap_bytes_per_turn")? / 1e3), String::new())?;
    row("elements", format!("{:.0}", of("elements")?), String::new())?;
    row("server, nobody looks: share of a processor", format!("{:.1} %", 100.0 * unseen), String::new())?;
    row("server, ten pages more", format!("{:.1} %", 100.0 * pages), met(pages <= SHARE, "<= 5 %"))?;
    let dropped = of("dropped")? - of("dropped_before")?;
    row(
        "records dropped while ten look; batches behind",
        format!("{dropped:.0}; {:.0} ms", of("lag_ms")?),
        String::new(),
    )?;
    let red = figure(real, "band_red_after_ms")?;
    row("band red after the case was opened, a real job", format!("{:.2} s", red / 1e3), met(red <= RED_MS, "<= 2 s"))?;
    Ok(page)
}
