//! `cargo xtask bench cluster`: many simulated jobs through two servers on a bus: docs/results/cluster-load.md.
use super::rows::{line, load, machine, verdict, write_page};
use crate::run::{output, run, target_dir};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Times real time that is aimed at, all jobs together.
const TIMES: f64 = 4.0;
/// Of the servers.
const SERVERS: usize = 2;

/// How much is driven.
#[derive(clap::Args, Clone, PartialEq, Eq)]
pub(crate) struct ClusterSize {
    /// Of the cluster measurement: jobs. Of another size than the usual one the page is printed, and written only with `--write`.
    #[arg(long, default_value_t = USUAL.jobs)]
    jobs: u32,
    /// Ranks of each, a multiple of 64.
    #[arg(long, default_value_t = USUAL.ranks)]
    ranks: u32,
    /// Seconds of each.
    #[arg(long, default_value_t = USUAL.seconds)]
    seconds: u32,
    /// See `--jobs`.
    #[arg(long)]
    write: bool,
}

/// What the page is of.
const USUAL: ClusterSize = ClusterSize { jobs: 100, ranks: 1_024, seconds: 20, write: false };

/// What the driver printed.
struct Driven(BTreeMap<String, f64>);

impl Driven {
    fn of(&self, name: &str) -> Result<f64> {
        self.0.get(name).copied().with_context(|| format!("the driver printed no `{name}`"))
    }

    /// Of each server.
    fn each(&self, name: &str) -> Result<Vec<f64>> {
        (0..SERVERS).map(|server| self.of(&format!("{name}_{server}"))).collect()
    }
}

/// Drives jobs and writes the page.
pub(crate) fn measure(root: &Path, size: &ClusterSize) -> Result<()> {
    let load_before = load();
    let build = ["build", "--release", "-p", "mycroft-cli", "--features", "kafka", "--bin", "mycroft"];
    run(root, "cargo", &[&build[..], &["--example", "cluster"]].concat())?;
    let built = target_dir(root).join("release");
    let (driver, mycroft) = (built.join("examples/cluster"), built.join("mycroft"));
    let (driver, mycroft) = (driver.to_string_lossy(), mycroft.to_string_lossy());
    let (jobs, ranks, seconds) = (size.jobs.to_string(), size.ranks.to_string(), size.seconds.to_string());
    let text = output(root, &driver, &["load", &mycroft, &jobs, &ranks, &seconds])?;
    eprint!("{text}");
    let pair = |line: &str| line.split_once(' ').and_then(|(name, n)| Some((name.to_owned(), n.parse().ok()?)));
    let driven = Driven(text.lines().filter_map(pair).collect());
    let text = page(size, &driven, &machine(&load_before))?;
    if *size == USUAL || size.write {
        return write_page(root, "cluster-load.md", &text);
    }
    println!("{text}");
    eprintln!("not written: of another size than the page's; --write does it all the same");
    Ok(())
}

fn millions(number: f64) -> String {
    format!("{:.1} M", number / 1e6)
}

fn all(numbers: &[f64], shown: impl Fn(f64) -> String) -> String {
    numbers.iter().map(|number| shown(*number)).collect::<Vec<_>>().join(", ")
}

fn page(size: &ClusterSize, driven: &Driven, machine: &str) -> Result<String> {
    let ClusterSize { jobs, ranks, seconds, .. } = size;
    let mut page = String::from(
        "# Many jobs through two servers on a bus\n\nWritten by `cargo xtask bench cluster`; do not edit.\n\n",
    );
    writeln!(
        page,
        "{jobs} healthy simulated jobs of {ranks} ranks (the reference job of [scale.md](scale.md)), {seconds} s of each: at most four \
         recordings differ, the other jobs have the records of one of these under other names of job and hosts. They are ready in files \
         before anything is measured, a second of a host in a record of the bus, and end before they are sent: the servers catch up. \
         The broker is librdkafka's `MockCluster` in the program that drives, 16 partitions; PostgreSQL 15 has leases and cases; two \
         processes of `mycroft serve --bus`, release mode, each with a store on disk. All share the machine. The driver writes \
         as fast as servers weigh: at most 262,144 records are on their way, since these brokers keep 5 MB of a partition.\n\n{machine}\n"
    )?;
    line(&mut page, &["".to_owned(), "measured".to_owned()]);
    line(&mut page, &["---".to_owned(), "---:".to_owned()]);
    let (records, wall, times) = (driven.of("records")?, driven.of("wall_s")?, driven.of("times_real")?);
    let processor = driven.each("processor_s")?;
    let both: f64 = processor.iter().sum();
    let mut row = |what: &str, value: String| line(&mut page, &[what.to_owned(), value]);
    row("seconds of all jobs that were driven", format!("{:.0}", driven.of("seconds_driven")?));
    row("wall time", format!("{wall:.1} s"));
    row("times real time, all jobs together", format!("{times:.2}"));
    row("seconds of jobs in a second of wall time, added up", format!("{:.1}", times * f64::from(*jobs)));
    row("records", format!("{}, {}/s", millions(records), millions(records / wall)));
    row("bytes on the bus", format!("{:.0} MB", driven.of("bytes")? / 1e6));
    row("jobs of each server", all(&driven.each("jobs")?, |jobs| format!("{jobs:.0}")));
    row("processor seconds of each server", all(&processor, |seconds| format!("{seconds:.1}")));
    row("processor time of servers", format!("{:.0} ns a record", both * 1e9 / records));
    row("processor seconds of driver and broker", format!("{:.1}", driven.of("processor_s_driver")?));
    row(
        "memory of each server at the end",
        all(&driven.each("resident_bytes")?, |bytes| format!("{:.2} GB", bytes / 1e9)),
    );
    let held: f64 = driven.each("resident_bytes")?.iter().sum();
    row("of it a rank", format!("{:.0} KB", held / 1e3 / f64::from(*jobs) / f64::from(*ranks)));
    let dropped = driven.of("dropped_queue")? + driven.of("dropped_else")? + driven.of("unweighed")?;
    row("records not weighed, or dropped", format!("{dropped:.0}"));
    row("records that no store has", format!("{:.0}", records - driven.of("kept_records")?));
    row("cases (nothing is wrong in any job)", format!("{:.0}", driven.of("cases")?));
    writeln!(
        page,
        "\nAimed at were {TIMES:.0} times real time of all jobs on two cores: {}.",
        verdict(times >= TIMES)
    )?;
    if driven.of("short_of_memory").is_ok() {
        writeln!(page, "\nSending ended early: the machine had less than 8 GB of memory left for others.")?;
    }
    let looks = driven
        .0
        .iter()
        .filter_map(|(name, bytes)| Some((name.strip_prefix("memory_at_")?.parse::<u32>().ok()?, *bytes)));
    let mut looks: Vec<(u32, f64)> = looks.collect();
    looks.sort_by_key(|(second, _)| *second);
    let shown: Vec<String> = looks.iter().map(|(second, bytes)| format!("{second} s {:.2}", bytes / 1e9)).collect();
    writeln!(page, "\nMemory of both servers by seconds of the jobs, GB: {}.", shown.join(", "))?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made-up numbers: what is printed becomes the page.
    #[test]
    fn the_page_says_what_was_driven_and_what_was_aimed_at() {
        let names = ["wall_s", "times_real", "bytes", "processor_s_driver", "seconds_driven", "cases"];
        let of_servers = ["jobs", "processor_s", "resident_bytes"];
        let of_servers = of_servers.iter().flat_map(|name| (0..SERVERS).map(move |server| format!("{name}_{server}")));
        let mut values: BTreeMap<String, f64> =
            names.iter().map(|name| (*name).to_owned()).chain(of_servers).map(|name| (name, 2.0)).collect();
        for (name, value) in
            [("records", 10e6), ("kept_records", 10e6 - 3.0), ("unweighed", 1.0), ("memory_at_10", 3e9)]
        {
            values.insert(name.to_owned(), value);
        }
        values.extend(["dropped_queue", "dropped_else", "memory_at_2"].map(|name| (name.to_owned(), 0.0)));
        let text = page(&USUAL, &Driven(values), "Machine: none.").expect("all values are there");
        for found in [
            "| times real time, all jobs together | 2.00 |",
            "| processor time of servers | 400 ns a record |",
            "| records not weighed, or dropped | 1 |",
            "| records that no store has | 3 |",
            "Aimed at were 4 times real time of all jobs on two cores: **not met**.",
            "Memory of both servers by seconds of the jobs, GB: 2 s 0.00, 10 s 3.00.",
        ] {
            assert!(text.lines().any(|line| line == found), "no line {found}\n{text}");
        }
        assert!(!text.contains("ended early"));
    }
}
