//! `cargo xtask bench scale`: what the brain costs on jobs of 1,024, 10,240 and 102,400 ranks, and whether it keeps what
//! the product promises: docs/results/scale.md and its picture.
use super::example;
use super::rows::{line, load, machine, verdict, write_page};
use crate::run::output;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Ranks and the longest that a verdict may take, milliseconds; none was promised for the smallest.
const SIZES: [(u32, Option<f64>); 3] = [(1_024, None), (10_240, Some(1_000.0)), (102_400, Some(5_000.0))];
/// Faults, and how many seconds of the job are fed: each shows after 13 s and is found before the end.
const FAULTS: [(&str, &str, u32); 2] = [
    ("stall", "a rank does not issue its next collective", 18),
    ("slow", "a rank computes 25 ms longer a micro-batch", 24),
];
/// A healthy job that is watched for long, to see where memory comes to rest: ranks and seconds.
const LONG: (u32, u32) = (10_240, 120);
/// What the kernel's clock of processor time cannot tell from nothing, milliseconds.
const CLOCK_MS: f64 = 5.0;
/// How many times as fast as the job runs a backend must take its records in.
const TIMES_REAL_MIN: f64 = 4.0;
/// Memory of a backend at 10,240 ranks: the promise, and what of it is not the brain's: the hot window (1 GiB) and two
/// queues of 105 MB.
const BACKEND_BYTES_MAX: f64 = 4e9;
const NOT_THE_BRAINS_BYTES: f64 = 1.074e9 + 2.0 * 105e6;
/// Width and height of the picture, and its margin.
const PICTURE: (f64, f64, f64) = (640.0, 400.0, 60.0);

/// What one run printed.
struct Run {
    ranks: u32,
    fault: &'static str,
    values: BTreeMap<String, f64>,
}

impl Run {
    fn of(&self, name: &str) -> Result<f64> {
        let found = self.values.get(name).copied();
        found.with_context(|| format!("the measuring program printed no `{name}` at {} ranks", self.ranks))
    }
}

/// Measures and writes the page. The measuring program itself checks that the right rank is named.
pub(crate) fn measure(root: &Path) -> Result<()> {
    let load_before = load();
    let program = example(root, "mycroft-diagnose", "scale")?;
    let mut runs = Vec::new();
    let faulty = SIZES.iter().flat_map(|(ranks, _)| FAULTS.map(|(fault, _, seconds)| (*ranks, fault, seconds)));
    for (ranks, fault, seconds) in faulty.chain([(LONG.0, "none", LONG.1)]) {
        eprintln!("{ranks} ranks, {fault}");
        let text = output(root, &program, &[&ranks.to_string(), fault, &seconds.to_string()])?;
        eprint!("{text}");
        let pair = |line: &str| line.split_once(' ').and_then(|(name, n)| Some((name.to_owned(), n.parse().ok()?)));
        runs.push(Run { ranks, fault, values: text.lines().filter_map(pair).collect() });
    }
    let picture = root.join("docs/results/scale.svg");
    std::fs::write(&picture, draw(&runs)?).context("cannot write docs/results/scale.svg")?;
    write_page(root, "scale.md", &page(&runs, &machine(&load_before))?)
}

fn page(runs: &[Run], machine: &str) -> Result<String> {
    let mut page = String::from(
        "# Scale: what the brain costs\n\nWritten by `cargo xtask bench scale`; do not edit.\n\n\
         Records of one job (TP 8 inside a host, 8 pipeline stages, the rest data parallel; an iteration of 2 s with 16 \
         all-reduces, 28 messages, a reduce-scatter and an all-gather a rank, looks every 100 ms), made by the benchmark \
         itself, go into one engine in the order in which agents would ship them; it ticks every second and when it \
         asks to. Each run must name the right rank alone. Times are processor time of one thread in release mode, which the kernel \
         tells to a few milliseconds: wall time where nobody else wants that core. Case to verdict is the tick that opens the case; a follow-up is the \
         longest tick after it. Memory is what the process grew by, the records in flight included.\n\n",
    );
    writeln!(page, "{machine}\n")?;
    for (fault, what, seconds) in FAULTS {
        writeln!(page, "`{fault}`: {what}; {seconds} s of the job.\n")?;
    }
    writeln!(page, "`none`: nothing is wrong, and nobody may be named; {} s of the job.\n", LONG.1)?;
    let heads = [
        "ranks",
        "fault",
        "records/s a rank",
        "ns a record",
        "times real time",
        "healthy tick",
        "case to verdict",
        "follow-up",
        "report",
        "memory a rank",
    ];
    line(&mut page, &heads.map(String::from));
    line(&mut page, &["---"; 10].map(String::from));
    for run in runs {
        let ms = |name: &str| -> Result<String> {
            let is_known = run.fault != "none" || !["verdict_ms", "follow_ms_max"].contains(&name);
            Ok(if is_known { milliseconds(run.of(name)?) } else { "-".to_owned() })
        };
        let cells = [
            run.ranks.to_string(),
            run.fault.to_owned(),
            format!("{:.0}", run.of("records_per_rank_second")?),
            format!("{:.0}", run.of("observe_ns")?),
            format!("{:.1}", run.of("observe_times_real")?),
            ms("tick_ms")?,
            ms("verdict_ms")?,
            ms("follow_ms_max")?,
            ms("report_ms")?,
            format!("{:.1} kB", run.of("bytes_per_rank")? / 1e3),
        ];
        line(&mut page, &cells);
    }
    promises(&mut page, runs)?;
    page.push_str("\n![Cost against scale](scale.svg)\n");
    Ok(page)
}

fn promises(page: &mut String, runs: &[Run]) -> Result<()> {
    page.push('\n');
    line(page, &["promise", "measured", ""].map(String::from));
    line(page, &["---"; 3].map(String::from));
    for (ranks, most) in SIZES {
        let Some(most) = most else { continue };
        for run in runs.iter().filter(|run| run.ranks == ranks && run.fault != "none") {
            let ms = run.of("verdict_ms")?.max(run.of("follow_ms_max")?) + run.of("report_ms")?;
            let cells = [
                format!("{ranks} ranks, {}: case to verdict and report in {:.0} s", run.fault, most / 1e3),
                format!("{:.2} s", ms / 1e3),
                verdict(ms <= most).to_owned(),
            ];
            line(page, &cells);
        }
    }
    let own = || runs.iter().filter(|run| run.ranks == LONG.0);
    let times = |run: &Run| Ok(1.0 / (1.0 / run.of("observe_times_real")? + run.of("tick_ms")? / 1e3));
    let least = own().map(times).collect::<Result<Vec<f64>>>()?.into_iter().fold(f64::MAX, f64::min);
    let cells = [
        format!(
            "{} ranks: the brain's part of {TIMES_REAL_MIN:.0} times real time, on one core, ticks included",
            LONG.0
        ),
        format!("{least:.1} times"),
        verdict(least >= TIMES_REAL_MIN).to_owned(),
    ];
    line(page, &cells);
    let brain = own().map(|run| run.of("resident_bytes")).collect::<Result<Vec<f64>>>()?;
    let whole = brain.into_iter().fold(0.0, f64::max) + NOT_THE_BRAINS_BYTES;
    let is_less = if whole <= BACKEND_BYTES_MAX { "less" } else { "**more**" };
    let cells = [
        format!("{} ranks: backend in {:.0} GB", LONG.0, BACKEND_BYTES_MAX / 1e9),
        format!("{:.2} GB = the brain as measured + hot window and queues at their limits", whole / 1e9),
        format!("{is_less} by this sum; not measured as one process"),
    ];
    line(page, &cells);
    Ok(())
}

/// A time for people.
fn milliseconds(ms: f64) -> String {
    if ms < CLOCK_MS { format!("< {CLOCK_MS:.0} ms") } else { format!("{ms:.0} ms") }
}

/// Ranks against milliseconds, both logarithmic.
fn draw(runs: &[Run]) -> Result<String> {
    let (width, height, margin) = PICTURE;
    let x = |ranks: u32| margin + (f64::from(ranks).log10() - 3.0) / 2.2 * (width - 2.0 * margin);
    // The kernel does not tell less than its clock's tick.
    let y = |ms: f64| height - margin - ms.max(CLOCK_MS).log10() / 4.0 * (height - 2.0 * margin);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for exponent in 0..=4 {
        let (at, ms) = (y(10f64.powi(exponent)), 10f64.powi(exponent));
        writeln!(out, "<path d=\"M{margin} {at:.0}H{:.0}\" stroke=\"#ddd\"/>", width - margin)?;
        writeln!(out, "<text x=\"4\" y=\"{:.0}\">{ms} ms</text>", at + 4.0)?;
    }
    for (ranks, _) in SIZES {
        writeln!(out, "<text x=\"{:.0}\" y=\"{:.0}\">{ranks} ranks</text>", x(ranks) - 24.0, height - margin / 2.0)?;
    }
    let lines = [
        ("case to verdict, stall", "stall", "verdict_ms", "#c0392b"),
        ("case to verdict, slow", "slow", "verdict_ms", "#e67e22"),
        ("healthy tick", "slow", "tick_ms", "#2980b9"),
        ("report", "slow", "report_ms", "#7f8c8d"),
    ];
    for (number, (name, fault, value, colour)) in lines.into_iter().enumerate() {
        let own = runs.iter().filter(|run| run.fault == fault);
        let points = own.map(|run| Ok((x(run.ranks), y(run.of(value)?)))).collect::<Result<Vec<(f64, f64)>>>()?;
        for (x, y) in &points {
            writeln!(out, "<circle cx=\"{x:.0}\" cy=\"{y:.0}\" r=\"3\" fill=\"{colour}\"/>")?;
        }
        let points = points.iter().map(|(x, y)| format!("{x:.0},{y:.0}")).collect::<Vec<String>>().join(" ");
        writeln!(out, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>")?;
        let at = 24 + 16 * number;
        writeln!(out, "<text x=\"{:.0}\" y=\"{at}\" fill=\"{colour}\">{name}</text>", margin + 8.0)?;
    }
    let (at, text) = (y(CLOCK_MS), format!("at most {CLOCK_MS:.0} ms"));
    writeln!(out, "<path d=\"M{margin} {at:.0}H{:.0}\" stroke=\"#999\" stroke-dasharray=\"3\"/>", width - margin)?;
    writeln!(out, "<text x=\"{:.0}\" y=\"{:.0}\" fill=\"#666\">{text}</text>", width - margin - 80.0, at - 4.0)?;
    out.push_str("</svg>\n");
    Ok(out)
}
