//! `cargo xtask bench scale`: what brain, backend and simulator cost on simulated jobs of 1,024, 10,240 and 102,400 ranks,
//! and whether they keep what the product promises: docs/results/scale.md and its picture.
mod picture;

use super::rows::{line, load, machine, verdict, write_page};
use crate::run::example;
use crate::run::output;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Ranks and the longest that a verdict may take, milliseconds; none was promised for the smallest.
const SIZES: [(u32, Option<f64>); 3] = [(1_024, None), (10_240, Some(1_000.0)), (102_400, Some(5_000.0))];
/// Faults, and how many seconds of the job are simulated: each begins after 18 s and is found before the end.
const FAULTS: [(&str, &str, u32); 2] =
    [("stall", "a device stops for good", 26), ("slow", "a device computes at two fifths of its speed", 36)];
/// Ranks, how many times as fast as the job runs a simulator must be, and seconds of the job that are simulated.
const SPEEDS: [(u32, f64, u32); 2] = [(1_024, 20.0, 60), (10_240, 1.0, 24)];
/// Jobs that a server takes: ranks, seconds of the job, and how many times as fast as it ran. The first is long enough
/// for every list of the brain to reach its limit, which says how much the second would take.
const BACKENDS: [(u32, u32, u32); 2] = [(1_024, 1_200, 40), (10_240, 240, 4)];
/// What the kernel's clock of processor time cannot tell from nothing, milliseconds.
const CLOCK_MS: f64 = 5.0;
/// A backend may take so much memory at 10,240 ranks.
const BACKEND_BYTES_MAX: f64 = 4e9;
/// How much of the wanted speed must be reached: the last frames are on their way when the clock stops.
const SPEED_TOLERANCE: f64 = 0.98;
/// Memory is at rest when the last third of a run adds no more than this share.
const FLAT: f64 = 0.02;

/// What one run printed.
struct Run {
    ranks: u32,
    values: BTreeMap<String, f64>,
}

impl Run {
    fn of(&self, name: &str) -> Result<f64> {
        let found = self.values.get(name).copied();
        found.with_context(|| format!("the measuring program printed no `{name}` at {} ranks", self.ranks))
    }

    /// Memory by second of the job.
    fn memory(&self) -> Vec<(u32, f64)> {
        let look = |(name, bytes): (&String, &f64)| Some((name.strip_prefix("memory_at_")?.parse().ok()?, *bytes));
        let mut looks: Vec<(u32, f64)> = self.values.iter().filter_map(look).collect();
        looks.sort_by_key(|(second, _)| *second);
        looks
    }

    /// By what share memory grew in the last third.
    fn growth(&self) -> Result<f64> {
        let looks = self.memory();
        let (Some((_, last)), Some((_, before))) = (looks.last(), looks.get(looks.len() * 2 / 3)) else {
            bail!("the measuring program looked at no memory at {} ranks", self.ranks)
        };
        Ok(last / before - 1.0)
    }
}

/// All that was measured.
struct Runs {
    /// Fault and run.
    faulty: Vec<(&'static str, Run)>,
    /// The simulator alone, and with the diagnosis beside it.
    alone: Vec<Run>,
    beside: Vec<Run>,
    backends: Vec<Run>,
}

/// Measures jobs of up to `ranks_max` ranks and writes the page, when all sizes were wanted. The measuring program itself
/// checks that the right rank is named, or nobody.
pub(crate) fn measure(root: &Path, ranks_max: u32) -> Result<()> {
    let load_before = load();
    let program = example(root, "mycroft-serve", "scale")?;
    let run = |ranks: u32, arguments: &[&str]| -> Result<Run> {
        eprintln!("{}", arguments.join(" "));
        let text = output(root, &program, arguments)?;
        eprint!("{text}");
        let pair = |line: &str| line.split_once(' ').and_then(|(name, n)| Some((name.to_owned(), n.parse().ok()?)));
        Ok(Run { ranks, values: text.lines().filter_map(pair).collect() })
    };
    let mut runs = Runs { faulty: Vec::new(), alone: Vec::new(), beside: Vec::new(), backends: Vec::new() };
    for (ranks, _, seconds) in SPEEDS.into_iter().filter(|(ranks, ..)| *ranks <= ranks_max) {
        let (size, seconds) = (ranks.to_string(), seconds.to_string());
        runs.alone.push(run(ranks, &["simulate", &size, &seconds])?);
        runs.beside.push(run(ranks, &["diagnose", &size, "none", &seconds])?);
    }
    for (ranks, seconds, times) in BACKENDS.into_iter().filter(|(ranks, ..)| *ranks <= ranks_max) {
        let folder = crate::run::target_dir(root).join("scale");
        let path = folder.to_string_lossy();
        let arguments = ["backend", &ranks.to_string(), &seconds.to_string(), &times.to_string(), &path];
        let measured = run(ranks, &arguments);
        // Some gigabytes; what cannot be removed now is overwritten next time.
        let _ = std::fs::remove_dir_all(&folder);
        runs.backends.push(measured?);
    }
    // Last, since it takes longest and tells processor time, which others on the machine disturb least.
    for (ranks, _) in SIZES.into_iter().filter(|(ranks, _)| *ranks <= ranks_max) {
        for (fault, _, seconds) in FAULTS {
            runs.faulty.push((fault, run(ranks, &["diagnose", &ranks.to_string(), fault, &seconds.to_string()])?));
        }
    }
    let text = page(&runs, &machine(&load_before))?;
    if SIZES.iter().any(|(ranks, _)| *ranks > ranks_max) {
        println!("{text}");
        eprintln!("not written: larger jobs were left out");
        return Ok(());
    }
    let drawn = root.join("docs/results/scale.svg");
    std::fs::write(&drawn, picture::draw(&runs)?).context("cannot write docs/results/scale.svg")?;
    write_page(root, "scale.md", &text)
}

fn page(runs: &Runs, machine: &str) -> Result<String> {
    let mut page = String::from(
        "# Scale: what brain, backend and simulator cost\n\nWritten by `cargo xtask bench scale`; do not edit.\n\n\
         One job, simulated: TP 8 inside a host, 8 pipeline stages, the rest data parallel in rings; an iteration of 2 s \
         with 8 all-reduces, 16 messages (8 at both ends of the pipeline), a reduce-scatter and an all-gather of 1 GiB \
         on two channels a rank; the host runs a whole iteration ahead; agents look every 100 ms. Every run must name \
         the right rank alone, or nobody where nothing is wrong. Release mode.\n\n",
    );
    writeln!(page, "{machine}\n")?;
    verdicts(&mut page, runs)?;
    speeds(&mut page, runs)?;
    backends(&mut page, runs)?;
    promises(&mut page, runs)?;
    page.push_str("\n![Cost against scale, memory against time](scale.svg)\n");
    Ok(page)
}

fn table(page: &mut String, heads: &[&str]) {
    line(page, &heads.iter().map(|head| (*head).to_owned()).collect::<Vec<String>>());
    line(page, &vec!["---".to_owned(); heads.len()]);
}

fn verdicts(page: &mut String, runs: &Runs) -> Result<()> {
    page.push_str("## Root cause\n\n");
    for (fault, what, seconds) in FAULTS {
        writeln!(page, "`{fault}`: {what}; {seconds} s of the job.\n")?;
    }
    page.push_str(
        "Processor time of the brain's one thread, which the kernel tells to a few milliseconds: wall time where nobody \
         else wants that core. Case to verdict is the look that opens the case; beside it the longest of all other \
         looks, before and after.\n\n",
    );
    let heads = [
        "ranks",
        "fault",
        "records/s a rank",
        "ns a record",
        "usual look",
        "case to verdict",
        "longest other look",
        "report",
    ];
    table(page, &heads);
    for (fault, run) in &runs.faulty {
        let cells = [
            run.ranks.to_string(),
            (*fault).to_owned(),
            format!("{:.0}", run.of("records_per_rank_second")?),
            format!("{:.0}", run.of("observe_ns")?),
            milliseconds(run.of("tick_ms")?),
            milliseconds(run.of("verdict_ms")?),
            milliseconds(run.of("other_ms_max")?),
            milliseconds(run.of("report_ms")?),
        ];
        line(page, &cells);
    }
    Ok(())
}

fn speeds(page: &mut String, runs: &Runs) -> Result<()> {
    page.push_str(
        "\n## Speed\n\nTimes real time: seconds of the job in a second of wall time, simulator alone and with the \
         diagnosis beside it on a second thread, as `mycroft sim run` has them; and in a second of processor time, of \
         the simulator (all threads) and of the brain (looks included).\n\n",
    );
    let heads = [
        "ranks",
        "records/s a rank",
        "simulator alone",
        "with the diagnosis",
        "simulator, of processor time",
        "brain, of processor time",
    ];
    table(page, &heads);
    for (alone, beside) in runs.alone.iter().zip(&runs.beside) {
        let cells = [
            alone.ranks.to_string(),
            format!("{:.0}", alone.of("records_per_rank_second")?),
            format!("{:.2}", alone.of("times_real")?),
            format!("{:.2}", beside.of("times_real")?),
            format!("{:.2}", alone.of("times_real_of_processor")?),
            format!("{:.2}", beside.of("brain_times_real")?),
        ];
        line(page, &cells);
    }
    Ok(())
}

fn backends(page: &mut String, runs: &Runs) -> Result<()> {
    page.push_str(
        "\n## Backend\n\nWhat a server does with records, as a process of its own: wire, queues, brain, and a store on disk \
         with its segments; no HTTP. It is sent, over a unix socket, what agents would have held for a second \
         each, several times as fast as it was made; it loses nothing, but may be slower than asked. Memory is its \
         resident set.\n\n",
    );
    let heads = [
        "ranks",
        "job",
        "taken at",
        "records/s",
        "processor ns a record",
        "memory, most",
        "a rank",
        "growth in the last third",
    ];
    table(page, &heads);
    for (run, (_, seconds, _)) in runs.backends.iter().zip(BACKENDS) {
        let (records, times, most) = (run.of("records")?, run.of("times_real")?, run.of("resident_bytes_max")?);
        let cells = [
            run.ranks.to_string(),
            format!("{seconds} s"),
            format!("{times:.2} times"),
            format!("{:.2} M", records / f64::from(seconds) * times / 1e6),
            format!("{:.0}", run.of("processor_ns_per_record")?),
            format!("{:.2} GB", most / 1e9),
            format!("{:.0} kB", most / 1e3 / f64::from(run.ranks)),
            format!("{:.1} %", 100.0 * run.growth()?),
        ];
        line(page, &cells);
    }
    page.push_str("\nMemory by time of the job:\n\n");
    for run in &runs.backends {
        let looks = run.memory();
        let shown = looks.iter().filter(|(second, _)| second.is_multiple_of(SHOWN_S) || looks.len() <= SHOWN_MAX);
        let shown: Vec<String> = shown.map(|(second, bytes)| format!("{second} s {:.2}", bytes / 1e9)).collect();
        writeln!(page, "- {} ranks, GB: {}", run.ranks, shown.join(", "))?;
    }
    Ok(())
}

/// Looks at memory in the text: every so many seconds of the job where there are more than so many.
const SHOWN_S: u32 = 100;
const SHOWN_MAX: usize = 24;

fn promises(page: &mut String, runs: &Runs) -> Result<()> {
    page.push_str("\n## Promises\n\n");
    table(page, &["promise", "measured", ""]);
    for (ranks, most) in SIZES {
        let Some(most) = most else { continue };
        for (fault, run) in runs.faulty.iter().filter(|(_, run)| run.ranks == ranks) {
            let ms = run.of("verdict_ms")?.max(run.of("other_ms_max")?) + run.of("report_ms")?;
            let cells = [
                format!("{ranks} ranks, {fault}: case to verdict and report in {:.0} s", most / 1e3),
                format!("{:.2} s", ms / 1e3),
                verdict(ms <= most).to_owned(),
            ];
            line(page, &cells);
        }
    }
    for ((ranks, least, _), (alone, beside)) in SPEEDS.into_iter().zip(runs.alone.iter().zip(&runs.beside)) {
        for (what, run) in [("alone", alone), ("with the diagnosis beside it", beside)] {
            let times = run.of("times_real")?;
            let promise = format!("{ranks} ranks: simulator {what} at {least:.0} times real time");
            line(page, &[promise, format!("{times:.2} times"), verdict(times >= least).to_owned()]);
        }
    }
    for (run, (ranks, _, wanted)) in runs.backends.iter().zip(BACKENDS).filter(|(run, _)| run.ranks > SIZES[0].0) {
        let times = run.of("times_real")?;
        let (met, measured) = (times >= SPEED_TOLERANCE * f64::from(wanted), format!("{times:.2} times"));
        line(
            page,
            &[format!("{ranks} ranks: backend takes {wanted} times real time"), measured, verdict(met).to_owned()],
        );
        let most = run.of("resident_bytes_max")?;
        let promise = format!("{ranks} ranks: backend in {:.0} GB meanwhile", BACKEND_BYTES_MAX / 1e9);
        line(page, &[promise, format!("{:.2} GB", most / 1e9), verdict(most <= BACKEND_BYTES_MAX).to_owned()]);
    }
    if let Some(run) = runs.backends.first() {
        let growth = run.growth()?;
        let promise = format!("memory comes to rest: {} ranks, last third of {} s", run.ranks, BACKENDS[0].1);
        line(page, &[promise, format!("{:+.1} %", 100.0 * growth), verdict(growth <= FLAT).to_owned()]);
    }
    Ok(())
}

/// A time for people.
fn milliseconds(ms: f64) -> String {
    if ms < CLOCK_MS { format!("< {CLOCK_MS:.0} ms") } else { format!("{ms:.0} ms") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ranks: u32, values: &[(&str, f64)]) -> Run {
        Run { ranks, values: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect() }
    }

    /// Made-up numbers: what is printed becomes the page and the picture, whichever sizes were measured.
    #[test]
    fn the_page_says_what_was_measured_and_what_was_promised() {
        let faulty = |(ranks, ms): (u32, f64)| {
            let names = ["records_per_rank_second", "observe_ns", "tick_ms", "other_ms_max", "report_ms"];
            let values: Vec<(&str, f64)> =
                names.iter().map(|name| (*name, ms / 4.0)).chain([("verdict_ms", ms)]).collect();
            FAULTS.map(|(fault, ..)| (fault, run(ranks, &values)))
        };
        let speed = |(ranks, least, _): (u32, f64, u32)| {
            let names = ["records_per_rank_second", "times_real", "times_real_of_processor", "brain_times_real"];
            run(ranks, &names.map(|name| (name, 1.5 * least)))
        };
        let backend = |(ranks, seconds, times): (u32, u32, u32)| {
            let bytes = |second: u32| f64::from(ranks) * 2e5 * f64::from(second.min(300)) / 300.0;
            let looks = (1..=seconds / 10).map(|look| (format!("memory_at_{}", 10 * look), bytes(10 * look)));
            let mut run = run(ranks, &[("records", 1e6), ("processor_ns_per_record", 500.0)]);
            run.values.extend(looks);
            run.values.insert("resident_bytes_max".to_owned(), bytes(seconds));
            run.values.insert("times_real".to_owned(), f64::from(times) / 2.0);
            run
        };
        let runs = Runs {
            faulty: [(1_024, 2.0), (10_240, 90.0), (102_400, 6_000.0)].into_iter().flat_map(faulty).collect(),
            alone: SPEEDS.into_iter().map(speed).collect(),
            beside: SPEEDS.into_iter().map(speed).collect(),
            backends: BACKENDS.into_iter().map(backend).collect(),
        };
        let text = page(&runs, "Machine: none.").expect("all values are there");
        for line in [
            "| 102400 ranks, stall: case to verdict and report in 5 s | 7.50 s | **not met** |",
            "| 10240 ranks: simulator alone at 1 times real time | 1.50 times | met |",
            "| 10240 ranks: backend takes 4 times real time | 2.00 times | **not met** |",
            "| memory comes to rest: 1024 ranks, last third of 1200 s | +0.0 % | met |",
        ] {
            assert!(text.lines().any(|found| found == line), "no line {line}\n{text}");
        }
        let drawn = picture::draw(&runs).expect("all values are there");
        assert_eq!(drawn.matches("<polyline").count(), 4 + BACKENDS.len());
    }
}
