//! How long a job is paused by `mycroft validate --agents`, told in advance and measured, over simulated agents (the test
//! `crates/cli/tests/paused.rs`): docs/results/pause.md.
use super::rows::{Rows, line, load, machine, verdict, write_page};
use crate::run::{output_with, run};
use anyhow::Result;
use std::fmt::Write;
use std::path::Path;

/// Ranks of a job, eight on a host.
const SIZES: [u32; 3] = [64, 256, 1024];
/// Who is slow in it.
const JOBS: [&str; 2] = ["nobody slow", "two slow"];
/// Nanoseconds that a job may be paused for, told in advance and measured (SPEC.md).
const PAUSE_NS: f64 = 5e9;

/// Measures and writes the page.
pub(crate) fn measure(root: &Path, rounds: usize) -> Result<()> {
    let test = ["test", "--release", "--package", "mycroft-cli", "--test", "paused"];
    run(root, "cargo", &[&test[..], &["--no-run"]].concat())?;
    let load_before = load();
    let mut rows = Rows::default();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        for size in SIZES.map(|size| size.to_string()) {
            let one_by_one = ["--quiet", "--", "--nocapture", "--test-threads", "1"];
            let variables = [("MYCROFT_PAUSE_RANKS", &*size)];
            rows.add_output(&output_with(root, "cargo", &[&test[..], &one_by_one].concat(), &variables)?);
        }
    }
    write_page(root, "pause.md", &page(&rows, rounds, &load_before)?)
}

fn page(rows: &Rows, rounds: usize, load_before: &str) -> Result<String> {
    let mut page = String::from("# How long a job is paused for its validation\n\n");
    writeln!(
        page,
        "Made by `cargo xtask bench pause --rounds {rounds}`: a server and `mycroft validate --agents --checks device,copy,processor,host`, \
         release build, over simulated agents of eight ranks each that speak the wire protocol \
         (`crates/cli/tests/paused.rs`), {rounds} times for each size. Server, command and all agents share the machine. A simulated check takes \
         0.12 s and a simulated way 0.25 s, which is what the command reckons with; where two are slow, a device takes 1.3 times as long and a \
         way between two hosts 1.5 times. A rank comes to its gate within 20 ms of being asked, some are up to five calls behind. No rank \
         runs anything: what is measured is the exchange with all agents, not tests of real devices.\n\n{}\n",
        machine(load_before)
    )?;
    writeln!(
        page,
        "| ranks | hosts | | told, s | measured, s: median | longest | of it beside tests, s: median | told and longest |\n\
         | ---: | ---: | --- | ---: | ---: | ---: | ---: | --- |"
    )?;
    for size in SIZES {
        for job in JOBS {
            let of = |what: &str| rows.summary(&format!("{what}, {size} ranks, {job}"));
            let (told, measured, beside) = (of("told")?, of("measured")?, of("beside tests")?);
            let seconds = |ns: f64| format!("{:.2}", ns / 1e9);
            let met = verdict(told.max <= PAUSE_NS && measured.max <= PAUSE_NS);
            // As the command tells it.
            let told_s = format!("{:.1}", told.max / 1e9);
            let cells = [size.to_string(), (size / 8).to_string(), job.to_owned(), told_s];
            let times = [measured.median, measured.max, beside.median].map(seconds);
            let met = [format!("<= {:.0} s: {met}", PAUSE_NS / 1e9)];
            line(&mut page, &[&cells[..], &times, &met].concat());
        }
    }
    writeln!(
        page,
        "\nSix passes: each check of all ranks is one, the ways of the ring are two. Passes in which somebody stands out are run again three \
         times before anybody is named, twelve passes in all where two are slow: the command tells both in advance, the second for as many as could be. The slow device and the slow way were named in \
         every run, and nobody else, and no rank was held any more when the command had ended."
    )?;
    Ok(page)
}
