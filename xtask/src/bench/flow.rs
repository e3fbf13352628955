//! What `crates/flow` costs and shows: docs/results/flow.md.
use super::rows::{Rows, line, load, machine, verdict, write_page};
use crate::run::{example, output, run, target_dir};
use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::Path;

/// Processor seconds of each case of a round.
const CASE_SECONDS: &str = "0.5";
/// Events that a port of 400 Gb/s makes, one each 4 KB, millions per second (Pulse, section 4.3; SPEC.md).
const EVENTS_MILLIONS: f64 = 12.5;
/// What 2,000 flows that never pause may take at 32 us and a second (Pulse, section 4.3; SPEC.md).
const MEMORY_BYTES: f64 = 184e6;
/// Cases of the example, and which one the promise is about.
const CASES: [&str; 4] = ["event, 1 flows", "event, 100 flows", PROMISED, "packet, 2000 flows"];
const PROMISED: &str = "event, 2000 flows";
/// Seconds that a sender sends beside a tap, in each round.
const LIVE_SECONDS: &str = "3";
/// Cases of the tap's example.
const LIVE_CASES: [&str; 2] = ["live, ring and filter", "live, ring, headers, meter"];
/// Epochs of the example's rows, microseconds.
const EPOCHS_US: [u32; 8] = [8, 16, 32, 64, 128, 256, 512, 1024];
/// From which ratio of actual times a straggler is taken to show.
const SHOWS: f64 = 1.05;

/// Seed of the experiments, which nobody tuned to.
const EXPERIMENTS_SEED: &str = "4001";
/// Heading of their section.
const EXPERIMENTS: &str = "## The experiments of Table 4";

/// First seed and number of the drawn layouts, which nobody tuned to.
const LAYOUTS: [&str; 2] = ["8000", "200"];
/// Heading of their section.
const PARALLELISM: &str = "## What communicators are for";

/// First seed of the jobs over RDMA, which nobody tuned to.
const BOUNDARIES_SEED: &str = "9100";
/// Heading of their section.
const BOUNDARIES: &str = "## Operations of jobs over RDMA";

/// A section that can be measured alone.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Section {
    /// Pulse's experiments: they need no quiet machine.
    Experiments,
    /// What communicators are for, of drawn layouts: it needs no quiet machine either.
    Parallelism,
    /// Where operations of jobs over RDMA begin and end: packets are real and take some minutes.
    Boundaries,
}

/// Measures and writes the page, or one section of it.
pub(crate) fn measure(root: &Path, rounds: usize, only: Option<Section>) -> Result<()> {
    if let Some(only) = only {
        let page = std::fs::read_to_string(root.join("docs/results/flow.md")).context("docs/results/flow.md")?;
        let section = match only {
            Section::Experiments => experiments(root)?,
            Section::Parallelism => parallelism(root)?,
            Section::Boundaries => boundaries(root)?,
        };
        return write_page(root, "flow.md", &with_section(&page, &section));
    }
    let load_before = load();
    let program = example(root, "mycroft-flow", "measure")?;
    let tap = example(root, "mycroft-agent", "tap")?;
    let (mut rows, mut lives) = (Rows::default(), Vec::new());
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        rows.add_output(&output(root, &program, &["events", CASE_SECONDS])?);
        // A network namespace of its own, where an ordinary user may look at packets.
        let told = output(root, "unshare", &["-rn", &tap, LIVE_SECONDS])?;
        rows.add_output(&told);
        lives.push(told);
    }
    let memory = output(root, &program, &["memory"])?;
    let granularity = output(root, &program, &["granularity"])?;
    let mut page = format!(
        "# Flows in epochs of microseconds: cost, memory, granularity\n\nMade by `cargo xtask bench flow --rounds {rounds}`. Events \
         and packets are made up; no NIC and no wire is in it, but in \"Live\" the kernel.\n\n{}\n\n",
        machine(&load_before)
    );
    events(&mut page, &rows, rounds)?;
    live(&mut page, &rows, &lives)?;
    held(&mut page, &memory)?;
    law(&mut page, &granularity)?;
    page = with_section(&page, &boundaries(root)?);
    page = with_section(&page, &parallelism(root)?);
    write_page(root, "flow.md", &with_section(&page, &experiments(root)?))
}

/// The page with this section instead of that of the same heading, or behind the others.
fn with_section(page: &str, section: &str) -> String {
    let heading = section.lines().next().unwrap_or_default();
    let (before, rest) = page.split_once(heading).unwrap_or((page, ""));
    let after = rest.find("\n## ").map_or("", |at| rest[at..].trim());
    let parts = [before.trim_end(), section.trim_end(), after];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n") + "\n"
}

fn events(page: &mut String, rows: &Rows, rounds: usize) -> Result<()> {
    writeln!(
        page,
        "## Events\n\nProcessor time of one thread for each event of 4 KB, 82 ns apart, in random order of flows, epochs of 32 us, with \
         a poll each second that reads all epochs. \"Packet\": a frame cut to 80 bytes, its headers read, its flow found by \
         addresses. Medians of {rounds} rounds of {CASE_SECONDS} s, smallest and largest in brackets.\n\n\
         | case | ns | millions per second | |\n| --- | ---: | ---: | --- |"
    )?;
    for case in CASES {
        let of = rows.summary(case)?;
        let millions = of.millions_per_sec();
        let told = if case == PROMISED {
            format!(">= {EVENTS_MILLIONS} millions: {}", verdict(millions >= EVENTS_MILLIONS))
        } else {
            String::new()
        };
        let ns = format!("{:.1} ({:.1} to {:.1})", of.median, of.min, of.max);
        line(page, &[case.to_owned(), ns, format!("{millions:.1}"), told]);
    }
    Ok(())
}

fn live(page: &mut String, rows: &Rows, lives: &[String]) -> Result<()> {
    writeln!(
        page,
        "\n## Live\n\nA tap (`crates/agent/src/tap`) at one end of a veth pair, small RDMA writes (138 bytes on the wire, 64 queue pairs) out of \
         the other. First five times 200,000 packets that lie in the ring are read: processor time of the reader for each, without the kernel's, \
         which is spent where packets come. Medians of {} rounds, smallest and largest in brackets.\n\n\
         | case | ns | millions per second |\n| --- | ---: | ---: |",
        lives.len()
    )?;
    for case in LIVE_CASES {
        let of = rows.summary(case)?;
        let ns = format!("{:.1} ({:.1} to {:.1})", of.median, of.min, of.max);
        line(page, &[case.to_owned(), ns, format!("{:.1}", of.millions_per_sec())]);
    }
    writeln!(
        page,
        "\nThen a sender sends {LIVE_SECONDS} s as fast as it can, one packet a call, beside the reader on the machine's cores:\n\n\
         | round | offered per second | taken | lost by the kernel | reader's share of a core |\n| ---: | ---: | ---: | ---: | ---: |"
    )?;
    for (round, told) in lives.iter().enumerate() {
        let of = |word| number(told, word);
        let cells = [
            (round + 1).to_string(),
            format!("{:.0}", of("packets per second offered")?),
            format!("{:.0}", of("packets taken")?),
            format!("{:.0}", of("packets lost")?),
            format!("{:.0} %", of("percent of a core")?),
        ];
        line(page, &cells);
    }
    writeln!(page, "\nThe sender is slower than the reader: what a NIC offers beyond that is not measured here.")?;
    Ok(())
}

/// The number before a word of the example's output.
fn number(text: &str, word: &str) -> Result<f64> {
    let found = text.lines().find_map(|line| line.strip_suffix(word)?.split_whitespace().next()?.parse().ok());
    found.with_context(|| format!("the measuring program printed no line `{word}`"))
}

fn held(page: &mut String, memory: &str) -> Result<()> {
    let bytes = number(memory, "counted")?;
    writeln!(
        page,
        "\n## Memory\n\n2,000 flows with queue pairs anywhere in 24 bits send in each of the 31,250 epochs of a second: {:.1} MB counted, {:.1} \
         MB more resident (<= {:.0} MB: {}). The poll that reads these {:.1} million epochs takes {:.0} ms of processor time. When all \
         flows have ended, {:.2} MB are left.",
        bytes / 1e6,
        number(memory, "resident")? / 1e6,
        MEMORY_BYTES / 1e6,
        verdict(bytes <= MEMORY_BYTES),
        number(memory, "told")? / 1e6,
        number(memory, "poll")? / 1e6,
        number(memory, "afterwards")? / 1e6,
    )?;
    Ok(())
}

fn law(page: &mut String, granularity: &str) -> Result<()> {
    writeln!(
        page,
        "\n## Which epoch shows which straggler\n\nSlices of 1 MB in 40 us on one of two channels of 400 Gb/s; one way of the ring has 1/p \
         of the rate and sets the pace of all. In each cell: actual time (epochs that are not empty) of the slow way over that of \
         another; bold where that is {SHOWS} or more, so that the straggler shows. By Pulse, section 6.1, gaps are 40 (p - 1) us, \
         and epochs that are longer hide them. The trains have no jitter.\n"
    )?;
    let epochs = EPOCHS_US.map(|us| format!("{us} us"));
    line(page, &[&["p".to_owned(), "40 (p - 1)".to_owned()], &epochs[..]].concat());
    line(page, &["---:"; 2 + EPOCHS_US.len()].map(str::to_owned));
    for row in granularity.lines() {
        let mut words = row.split_whitespace().skip(1);
        let p: f64 = words.next().context("a row without p")?.parse().context("p is no number")?;
        let mut cells = vec![format!("{p}"), format!("{:.0} us", 40.0 * (p - 1.0))];
        for word in words {
            let ratio: f64 = word.split('/').next().unwrap_or_default().parse().context("a ratio is no number")?;
            cells.push(if ratio >= SHOWS { format!("**{ratio:.2}**") } else { format!("{ratio:.2}") });
        }
        line(page, &cells);
    }
    writeln!(
        page,
        "\nAn epoch no longer than half a gap shows all of them, one longer than a gap none; between, some, as gaps and epochs happen to \
         lie (`crates/flow/tests/granularity.rs`)."
    )?;
    Ok(())
}

/// Output of the program that plays experiments and layouts.
fn played(root: &Path, arguments: &[&str]) -> Result<String> {
    run(root, "cargo", &["build", "--release", "--package", "mycroft-cli", "--example", "experiments"])?;
    let program = target_dir(root).join("release/examples/experiments");
    output(root, &program.to_string_lossy(), arguments)
}

/// Plays drawn layouts and gives their section.
fn parallelism(root: &Path) -> Result<String> {
    let [first, count] = LAYOUTS;
    let table = played(root, &[first, count, "parallelism"])?;
    Ok(format!(
        "{PARALLELISM}\n\nPulse, section 5.2: {count} drawn jobs of 2 to 512 ranks, split by tensors, sequence, stages, data and experts, from seed {first} on, \
         once. From calls: all of them for ten seconds, without names of communicators; told whole where each dimension, its size and its groups \
         are right. From flows: all NICs for four seconds, one for each rank; what stays inside a host shows nothing and is not asked for. Told whole \
         where each dimension that crosses hosts is named, all senders of a group are of one, and its size is right, or \"at least\" no more \
         than it. Intervals are Wilson's at 95 % (`cargo xtask bench flow --only parallelism`).\n\n{table}"
    ))
}

/// Plays jobs over RDMA and gives their section.
fn boundaries(root: &Path) -> Result<String> {
    run(root, "cargo", &["build", "--release", "--package", "mycroft-testbed-verbs", "--lib"])?;
    let job = example(root, "mycroft-testbed-nccl", "rdma_job")?;
    let table = played(root, &[&job, BOUNDARIES_SEED, "boundaries"])?;
    Ok(format!(
        "{BOUNDARIES}\n\nFour ranks with a queue pair for each of two channels, on the stand-ins for NCCL and libibverbs: RoCEv2 packets over loopback, \
         as each device sends them, also those that are then lost; half as many come late. An iteration of six operations of 64 KB to 4 MB is drawn once \
         for a job, with 3 to 30 ms of computation between them, and repeated. Seeds from {BOUNDARIES_SEED} on, once. The library says when the first \
         slice of an operation was about to go on a queue pair, when the last one had arrived, and how many bytes there were. A boundary is right \
         where exactly one silence that cuts has the end of the one operation before it and the beginning of the next behind it; a cut inside of an \
         operation counts as a boundary that is wrong. A volume is right within 1 %. \"Bytes alone\": with the volumes of calls, as if one did not know \
         what is sent again. Intervals are Wilson's at 95 % (`cargo xtask bench flow --only boundaries`).\n\n{table}"
    ))
}

/// Plays the experiments and gives their section.
fn experiments(root: &Path) -> Result<String> {
    let tables = played(root, &[EXPERIMENTS_SEED, "1", "table"])?;
    Ok(format!(
        "{EXPERIMENTS}\n\nPulse, appendix E, played with the simulator's slices on the wire and judged from flows alone, as `mycroft flow --suspects` \
         does, epochs of 32 us (`cargo xtask bench flow --only experiments`; what is played otherwise: docs/papers/pulse.md). Seed \
         {EXPERIMENTS_SEED}, which nobody tuned to, once. \"Operations\": the same judgement of beginnings, ends and bytes only. Found: \
         experiments in which a host at fault was named with the right sign. Right: of hosts that were named. Intervals are Wilson's at \
         95 %. The paper's figures are those of its own testbed.\n\n{tables}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_takes_the_place_of_its_former_self() {
        let page = "# Page\n\n## One\n\nold\n\n## Two\n\nkept\n";
        assert_eq!(with_section(page, "## One\n\nnew\n"), "# Page\n\n## One\n\nnew\n\n## Two\n\nkept\n");
        assert_eq!(with_section(page, "## Two\n\nnew"), "# Page\n\n## One\n\nold\n\n## Two\n\nnew\n");
        assert_eq!(with_section("# Page\n", "## One\n\nnew\n"), "# Page\n\n## One\n\nnew\n");
    }
}
