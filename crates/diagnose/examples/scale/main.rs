//! What the brain costs at scale: feeds a large job to one engine as a server would and prints what it took, one
//! `NAME VALUE` a line. `cargo xtask bench scale` runs it; `cargo run --release -p mycroft-diagnose --example scale --
//! RANKS none|stall|slow SECONDS` runs it alone. Times are processor time of the one thread that there is, which is
//! wall time where nobody else wants its core; `MYCROFT_SCALE_TEXT=1` prints the report too.
mod job;

use job::{Fault, Job};
use mycroft_diagnose::{CaseEvent, Config, Engine, render};
use mycroft_record::{Batch, HostTime, NANOS_PER_SEC, Place, Rank};
use std::time::{Duration, Instant};

/// Processor time that this thread has used, or wall time where the kernel does not tell.
fn used(since: Instant) -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split_whitespace().next().and_then(|ns| ns.parse().ok());
    ns.map_or_else(|| since.elapsed(), Duration::from_nanos)
}

/// What was measured.
#[derive(Default)]
struct Cost {
    records: u64,
    observe: Duration,
    ticks: Vec<Duration>,
    /// The tick that opened the first case, and the longest since.
    verdict: Option<Duration>,
    after: Duration,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [ranks, fault, seconds] = &arguments[..] else {
        eprintln!("usage: scale RANKS none|stall|slow SECONDS");
        std::process::exit(2);
    };
    let ranks: u32 = ranks.parse().expect("RANKS is a number");
    let seconds: u64 = seconds.parse().expect("SECONDS is a number");
    let culprit = ranks / 2 + 3;
    let fault = match fault.as_str() {
        "none" => Fault::None,
        "stall" => Fault::Stall(culprit),
        "slow" => Fault::Slow(culprit),
        other => panic!("`{other}` is no fault: none, stall or slow"),
    };
    let before = resident_bytes();
    let mut job = Job::new(ranks, fault);
    let mut engine = Engine::new("scale".into(), Config::default());
    let (cost, end) = feed(&mut job, &mut engine, seconds);
    let resident = resident_bytes().saturating_sub(before);
    let begun = Instant::now();
    let before = used(begun);
    let report = engine.report(end);
    let report_ms = ms(used(begun) - before);
    if std::env::var_os("MYCROFT_SCALE_TEXT").is_some() {
        eprintln!("{}", render(&report).chars().take(6_000).collect::<String>());
    }
    check(&engine, fault, &report);
    print(&cost, ranks, seconds, resident, report_ms);
}

/// Feeds the job and ticks as a server does: every second, and when something becomes due.
fn feed(job: &mut Job, engine: &mut Engine, seconds: u64) -> (Cost, HostTime) {
    let mut cost = Cost::default();
    let mut next_tick = job::T0 + NANOS_PER_SEC;
    let mut now = HostTime(job::T0);
    let begun = Instant::now();
    while now.0 < job::T0 + seconds * NANOS_PER_SEC {
        let batches: Vec<Batch> = job.next_window();
        now = job.now();
        let before = used(begun);
        batches.iter().for_each(|batch| engine.observe(batch));
        cost.observe += used(begun) - before;
        cost.records += batches.iter().map(|batch| batch.records.len() as u64).sum::<u64>();
        drop(batches);
        let is_due = engine.next_check(now).is_some_and(|at| at <= now);
        if now.0 < next_tick && !is_due {
            continue;
        }
        if now.0 >= next_tick {
            next_tick += NANOS_PER_SEC;
        }
        let before = used(begun);
        let events = engine.tick(now);
        let spent = used(begun) - before;
        match cost.verdict {
            None if events.iter().any(|event| matches!(event, CaseEvent::Opened(_))) => cost.verdict = Some(spent),
            None => cost.ticks.push(spent),
            Some(_) => cost.after = cost.after.max(spent),
        }
    }
    (cost, now)
}

/// The right rank and no other, or nobody.
fn check(engine: &Engine, fault: Fault, report: &mycroft_diagnose::Report) {
    let cases = engine.cases();
    let right = match fault {
        Fault::None => cases.is_empty(),
        Fault::Stall(culprit) | Fault::Slow(culprit) => {
            let names = |place: &Place| matches!(place, Place::Rank { rank, .. } if *rank == Rank(culprit));
            cases.len() == 1 && cases[0].finding.suspects.first().is_some_and(|suspect| names(&suspect.place))
        }
    };
    let text: String = render(report).chars().take(4_000).collect();
    assert!(right, "wrong verdict on {fault:?}:\n{text}");
}

fn print(cost: &Cost, ranks: u32, seconds: u64, resident: u64, report_ms: f64) {
    let mut ticks = cost.ticks.clone();
    ticks.sort_unstable();
    let median = ticks.get(ticks.len() / 2).copied().unwrap_or_default();
    let longest = ticks.last().copied().unwrap_or_default();
    println!("ranks {ranks}");
    println!("records_per_rank_second {:.1}", cost.records as f64 / f64::from(ranks) / seconds as f64);
    println!("observe_ns {:.0}", cost.observe.as_nanos() as f64 / cost.records.max(1) as f64);
    println!("observe_times_real {:.1}", seconds as f64 / cost.observe.as_secs_f64());
    println!("tick_ms {:.2}", ms(median));
    println!("tick_ms_max {:.2}", ms(longest));
    if let Some(verdict) = cost.verdict {
        println!("verdict_ms {:.2}", ms(verdict));
        println!("follow_ms_max {:.2}", ms(cost.after));
    }
    println!("report_ms {report_ms:.2}");
    println!("resident_bytes {resident}");
    println!("bytes_per_rank {:.0}", resident as f64 / f64::from(ranks));
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Resident memory of this process; 0 where nobody tells.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}
