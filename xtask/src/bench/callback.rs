//! Nanoseconds of each kind of profiler callback, in rounds: docs/results/callback.md.
use super::rows::{Rows, line, load, machine, verdict, write_page};
use crate::run::example;
use crate::run::output;
use anyhow::Result;
use std::fmt::Write;
use std::path::Path;

/// Nanoseconds that the median callback may cost (SPEC.md).
const MEDIAN_NS: f64 = 50.0;
/// Interface versions that `callback_bench` replays.
const ABIS: [&str; 2] = ["v5", "v6"];
/// What `callback_bench` prints of each kind, and the head of its column.
const COLUMNS: [(&str, &str); 3] =
    [("median", "median"), ("mean of the middle", "mean of the middle 90 %"), ("p99", "p99")];

/// Measures and writes the page.
pub(crate) fn measure(root: &Path, rounds: usize) -> Result<()> {
    let load_before = load();
    let program = example(root, "mycroft-nccl", "callback_bench")?;
    let mut rows = Rows::default();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        rows.add_output(&output(root, &program, &[])?);
    }
    let page = page(&rows, rounds, &load_before)?;
    write_page(root, "callback.md", &page)
}

fn page(rows: &Rows, rounds: usize, load_before: &str) -> Result<String> {
    let mut page = String::from("# What a callback of the tracer costs\n\n");
    writeln!(
        page,
        "Made by `cargo xtask bench callback --rounds {rounds}`: in each of {rounds} processes the calls of 2000 ring \
         all-reduces (4 flows of 24 steps each, kernel events, one credit poll a step) go through the built plugin's \
         tables, after 4096 to warm up. Medians over the rounds, smallest and largest round in brackets.\n\n{}\n",
        machine(load_before)
    )?;
    writeln!(page, "| promise | measured | |\n| --- | --- | --- |")?;
    for abi in ABIS {
        let of = rows.summary(&format!("{abi}: all: median"))?;
        let met = verdict(of.median <= MEDIAN_NS);
        writeln!(page, "| median of all callbacks, {abi}: <= {MEDIAN_NS:.0} ns | {:.1} ns | {met} |", of.median)?;
    }
    for abi in ABIS {
        let of = rows.summary(&whole(abi))?;
        let met = verdict(of.median <= MEDIAN_NS);
        writeln!(
            page,
            "| mean of all callbacks without timing each, processor time, the replay's own work included, {abi}: <= {MEDIAN_NS:.0} ns | \
             {:.1} ns ({:.1} to {:.1}) | {met} |",
            of.median, of.min, of.max
        )?;
    }
    writeln!(
        page,
        "| no allocation, no system call on the event path | `crates/probe/nccl/tests/cost.rs`: a counting allocator, \
         and a seccomp filter that kills the process at the first call, each with a negative control | by the tests |\n"
    )?;
    let dearer = dearer(rows)?;
    if !dearer.is_empty() {
        writeln!(
            page,
            "Dearer than {MEDIAN_NS:.0} ns by themselves (mean of the middle): {}. An all-reduce of this replay makes one \
             start of a collective and 4 stops of proxy operations in 548 callbacks.\n",
            dearer.join(", ")
        )?;
    }
    for abi in ABIS {
        table(&mut page, rows, abi)?;
    }
    cold(&mut page, rows)?;
    writeln!(
        page,
        "Each call is timed by itself with the time stamp counter, and what timing an empty function takes is \
         subtracted. The processor runs on past a reading of the counter, so part of a call's work shows in the next one or \
         nowhere: the mean of the untimed replay is the upper bound that holds. The counter of some machines moves in steps of 10 ns or more, which a median of such times shows; \
         the mean of the middle 90 % (the fastest and slowest 5 % left out) averages the steps away. The 99th \
         percentiles hold the interruptions by whatever else runs on the machine."
    )?;
    Ok(page)
}

/// What groups of calls cost whose code and data are in no cache near.
fn cold(page: &mut String, rows: &Rows) -> Result<()> {
    writeln!(
        page,
        "## Cold\n\nA thread that was asleep finds little of this in its caches. So each group of calls is timed once more after a \
         walk over 16 MB of data and 4 MB of instructions, which leaves neither code nor data nor page tables in a core's own \
         caches: medians of whole groups, nothing subtracted.\n"
    )?;
    let mut head = vec!["group of calls".to_owned()];
    head.extend(ABIS.map(|abi| format!("{abi}, ns")));
    line(page, &head);
    line(page, &["---", "---:", "---:"].map(str::to_owned));
    let group_of =
        |name: &str| Some(name.strip_prefix(ABIS[0])?.strip_prefix(": ")?.strip_suffix(": cold")?.to_owned());
    for group in rows.names().filter_map(group_of) {
        let mut cells = vec![group.clone()];
        for abi in ABIS {
            let of = rows.summary(&format!("{abi}: {group}: cold"))?;
            cells.push(format!("{:.0} ({:.0} to {:.0})", of.median, of.min, of.max));
        }
        line(page, &cells);
    }
    writeln!(page)?;
    Ok(())
}

/// The row of the untimed replay.
fn whole(abi: &str) -> String {
    format!("{abi}: whole replay by its calls")
}

/// Kinds of event that v5 or v6 have, with their version.
fn kinds<'a>(rows: &'a Rows, abi: &'a str) -> impl Iterator<Item = &'a str> {
    rows.names().filter_map(move |name| name.strip_prefix(abi)?.strip_prefix(": ")?.strip_suffix(": median"))
}

/// Kinds that cost more than the median callback may.
fn dearer(rows: &Rows) -> Result<Vec<String>> {
    let mut dearer = Vec::new();
    for abi in ABIS {
        for kind in kinds(rows, abi) {
            let of = rows.summary(&format!("{abi}: {kind}: mean of the middle"))?;
            if of.median > MEDIAN_NS {
                dearer.push(format!("{kind} ({abi}) {:.0} ns", of.median));
            }
        }
    }
    Ok(dearer)
}

fn table(page: &mut String, rows: &Rows, abi: &str) -> Result<()> {
    writeln!(page, "## Interface {abi}\n")?;
    let mut head = vec!["event".to_owned()];
    head.extend(COLUMNS.map(|(_, title)| format!("{title}, ns")));
    line(page, &head);
    line(page, &["---", "---:", "---:", "---:"].map(str::to_owned));
    for kind in kinds(rows, abi) {
        let mut cells = vec![kind.to_owned()];
        for (column, _) in COLUMNS {
            let of = rows.summary(&format!("{abi}: {kind}: {column}"))?;
            cells.push(format!("{:.1} ({:.1} to {:.1})", of.median, of.min, of.max));
        }
        line(page, &cells);
    }
    writeln!(page)?;
    Ok(())
}
