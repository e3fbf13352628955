//! The ring's cost per record, in rounds that alternate with LTTng-UST: docs/results/ring.md.
use super::lttng::{self, Lttng};
use super::rows::{Rows, line, load, machine, verdict, write_page};
use crate::run::output;
use crate::run::{example, target_dir};
use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::Path;

/// How long each case of a round takes, seconds.
const CASE_SECONDS: &str = "0.3";
/// Records per second that one writer of a small ring must reach, millions (SPEC.md).
const WRITER_MILLIONS: f64 = 20.0;
/// Records per second that a reader must reach, millions (SPEC.md).
const READER_MILLIONS: f64 = 10.0;
/// Rows of `ring_bench` that promises and ratios are about.
const WRITE_SMALL: &str = "write, small segment, no reader";
const READ_SMALL: &str = "read, small segment, full";
const READ_DEFAULT: &str = "read, default segment, full";
const STAMPED: &str = "time-stamped record, small segment";
/// Rows of the LTTng program.
const LTTNG_ON: &str = "LTTng-UST tracepoint, recorded";
const LTTNG_OFF: &str = "LTTng-UST tracepoint, no session";

/// Measures and writes the page.
pub(crate) fn measure(root: &Path, rounds: usize) -> Result<()> {
    let load_before = load();
    let program = example(root, "mycroft-ring", "ring_bench")?;
    let missing = lttng::missing();
    let build = target_dir(root).join("lttng-bench");
    let lttng = match &missing {
        Some(message) => {
            eprintln!("{message}");
            None
        }
        None => Some(Lttng::start(root, &build).context("LTTng-UST is installed but cannot be measured")?),
    };
    let mut rows = Rows::default();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        rows.add_output(&output(root, &program, &[CASE_SECONDS])?);
        if let Some(lttng) = &lttng {
            rows.add(LTTNG_ON, lttng.enabled_ns(CASE_SECONDS)?);
            rows.add(LTTNG_OFF, lttng.disabled_ns(CASE_SECONDS)?);
        }
    }
    drop(lttng);
    let page = page(root, &rows, rounds, &load_before, missing.as_deref())?;
    write_page(root, "ring.md", &page)
}

fn page(root: &Path, rows: &Rows, rounds: usize, load_before: &str, missing: Option<&str>) -> Result<String> {
    let mut page = String::from("# The ring: cost of a record\n\n");
    writeln!(
        page,
        "Made by `cargo xtask bench ring --rounds {rounds}`. Medians of {rounds} rounds of {CASE_SECONDS} s for each \
         case, smallest and largest round in brackets. All times are processor time of the measured thread.\n\n{}\n",
        machine(load_before)
    )?;
    promises(&mut page, rows)?;
    beside_lttng(&mut page, root, rows, missing)?;
    writeln!(page, "## All cases\n")?;
    writeln!(
        page,
        "A record is 128 bytes. Writer and reader are two processes. \"agent reader\" drains every 100 ms as the agent \
         does, \"eager reader\" never pauses: a reader never slows the writer by waiting, only by sharing cache lines \
         and cores. The event path is one operation with one flow of four steps: 20 events, two records, clock \
         readings included.\n"
    )?;
    table_head(&mut page);
    for name in rows.names().filter(|name| ![LTTNG_ON, LTTNG_OFF].contains(name)) {
        let of = rows.summary(name)?;
        let range = format!("{:.1} ({:.1} to {:.1})", of.median, of.min, of.max);
        line(&mut page, &[name.to_owned(), range, format!("{:.1}", of.millions_per_sec())]);
    }
    Ok(page)
}

fn table_head(page: &mut String) {
    line(page, &["case", "ns", "million/s"].map(str::to_owned));
    line(page, &["---", "---:", "---:"].map(str::to_owned));
}

fn promises(page: &mut String, rows: &Rows) -> Result<()> {
    writeln!(page, "| promise | measured | |\n| --- | --- | --- |")?;
    for (what, name, least) in [
        ("one writer, small ring", WRITE_SMALL, WRITER_MILLIONS),
        ("reader, small rings", READ_SMALL, READER_MILLIONS),
        ("reader, default rings", READ_DEFAULT, READER_MILLIONS),
    ] {
        let of = rows.summary(name)?;
        writeln!(
            page,
            "| {what}: >= {least:.0} M records/s | {:.1} M records/s ({:.1} ns; {:.1} to {:.1}) | {} |",
            of.millions_per_sec(),
            of.median,
            of.min,
            of.max,
            verdict(of.millions_per_sec() >= least)
        )?;
    }
    writeln!(page)?;
    Ok(())
}

fn beside_lttng(page: &mut String, root: &Path, rows: &Rows, missing: Option<&str>) -> Result<()> {
    writeln!(page, "## Beside LTTng-UST\n")?;
    if let Some(message) = missing {
        writeln!(page, "{message}.\n")?;
        return Ok(());
    }
    writeln!(
        page,
        "{}, one thread, a tracepoint of the same 14 words (112 bytes, one array field) with LTTng's own time stamp \
         (`bench/lttng`), in a snapshot session: overwrite, buffers by user, 4 x 64 KiB. Beside it our record of 14 \
         words and a time stamp. Rounds alternate, so that what else runs on the machine meets both.\n",
        lttng::version(root)?
    )?;
    writeln!(page, "| one event | ns | against the ring |\n| --- | ---: | ---: |")?;
    let ours = rows.summary(STAMPED)?.median;
    let names = [STAMPED, LTTNG_ON, LTTNG_OFF, "clock reading alone"];
    for name in names {
        let of = rows.summary(name)?;
        writeln!(page, "| {name} | {:.1} ({:.1} to {:.1}) | {:.2} x |", of.median, of.min, of.max, of.median / ours)?;
    }
    writeln!(
        page,
        "\nThe two are not the same thing: LTTng takes events of any shape and length from any thread into buffers of \
         each CPU, the ring takes 128 bytes from the one thread that owns it. The second is all a tracer of collectives \
         needs, and the difference is what that saves."
    )?;
    writeln!(page)?;
    Ok(())
}
