//! Reports: an immutable snapshot of what the brain knows, and its stable text.
use crate::case::docket::Docket;
use crate::case::{Case, Reason};
use crate::config::Config;
use crate::fact::ranks_text;
use crate::timeline::{RankState, Timeline};
use crate::watch::Watch;
use mycroft_record::{HostName, HostTime, JobName, NANOS_PER_MS, Place, Rank};
use std::fmt::Write;

/// Something that limits what the report can say (missing ranks, lost records, no kernel events).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Caveat {
    /// Stable name, e.g. `gap`.
    pub rule: &'static str,
    /// One sentence.
    pub text: String,
    /// The ranks it is about, ascending.
    pub ranks: Vec<Rank>,
}

/// A threshold in use and why (design D6).
#[derive(Clone, PartialEq, Debug)]
pub struct Threshold {
    /// Stable name, e.g. `stall`.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// Its unit, e.g. `ms`.
    pub unit: &'static str,
    /// Where the value comes from.
    pub why: String,
}

/// One rank in one line.
#[derive(Clone, PartialEq, Debug)]
pub struct RankSummary {
    /// The rank.
    pub rank: Rank,
    /// Its host.
    pub host: HostName,
    /// Its process id.
    pub pid: u32,
    /// Iterations seen.
    pub iterations: u64,
    /// Median of the recent iteration times, milliseconds; `None` before three.
    pub iteration_ms: Option<f64>,
    /// Operations in flight at the last sample.
    pub in_flight: u32,
    /// When any counter or operation of it last moved.
    pub last_progress_at: HostTime,
    /// When the agent last looked.
    pub last_seen_at: HostTime,
    /// `running`, `idle`, `waiting`, `stopped`, `exited`, `dead` or `unknown`.
    pub state: &'static str,
    /// What it is in, one phrase; empty if nothing.
    pub doing: String,
    /// Records lost so far.
    pub lost: u64,
}

/// What is known of a job at one time.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The job.
    pub job: JobName,
    /// The time it is about.
    pub as_of: HostTime,
    /// Cases, oldest first.
    pub cases: Vec<Case>,
    /// Single pauses that went away by themselves, oldest first; not cases.
    pub transients: Vec<Case>,
    /// What limits this report.
    pub caveats: Vec<Caveat>,
    /// Ranks, ascending.
    pub ranks: Vec<RankSummary>,
    /// Median iteration time of the job, milliseconds; `None` before three iterations.
    pub iteration_ms_median: Option<f64>,
    /// Iterations that all known ranks have finished.
    pub iterations: u64,
    /// Thresholds in use.
    pub thresholds: Vec<Threshold>,
}

/// Ranks shown in full by `render`; more are counted.
const RANKS_SHOWN: usize = 64;

pub(crate) fn make(
    job: &JobName,
    timeline: &Timeline,
    watch: &Watch,
    docket: &Docket,
    config: &Config,
    now: HostTime,
) -> Report {
    let ranks: Vec<RankSummary> = timeline.ranks.values().map(|state| summary(timeline, state, config)).collect();
    Report {
        job: job.clone(),
        as_of: now,
        cases: docket.cases.clone(),
        transients: docket.transients.clone(),
        caveats: caveats(timeline, config),
        iteration_ms_median: watch.iteration_ms(),
        iterations: ranks.iter().map(|rank| rank.iterations).filter(|count| *count > 0).min().unwrap_or(0),
        ranks,
        thresholds: watch.thresholds(timeline, config),
    }
}

fn summary(timeline: &Timeline, state: &RankState, config: &Config) -> RankSummary {
    let current = state.current();
    let doing = match (current.first(), state.next_issued()) {
        (Some(op), _) => format!("in {}", timeline.label(&op.meta)),
        (None, Some(op)) => format!("before {}", timeline.label(&op.meta)),
        (None, None) => String::new(),
    };
    let word = if state.exit_clean == Some(true) || state.finalized() {
        "exited"
    } else if state.dead() {
        "dead"
    } else if state.stopped {
        "stopped"
    } else if timeline.no_data(state, config.no_data_after_ns) {
        "unknown"
    } else if state.live.is_empty() {
        "idle"
    } else if state.sampled_at.since_ns(state.progress_at) > config.stall_floor_ns {
        "waiting"
    } else {
        "running"
    };
    RankSummary {
        rank: state.rank,
        host: state.host.clone(),
        pid: state.pid,
        iterations: state.iterations.total(),
        iteration_ms: state.iterations.recent_ms(),
        in_flight: state.ops_in_flight,
        last_progress_at: state.progress_at,
        last_seen_at: state.sampled_at,
        state: word,
        doing,
        lost: state.lost,
    }
}

/// Partial knowledge is not an error (invariant 4): it is said.
fn caveats(timeline: &Timeline, config: &Config) -> Vec<Caveat> {
    let select = |wanted: &dyn Fn(&RankState) -> bool| -> Vec<Rank> {
        timeline.ranks.values().filter(|state| wanted(state)).map(|state| state.rank).collect()
    };
    let mut out = Vec::new();
    let mut say = |rule: &'static str, ranks: Vec<Rank>, text: &str| {
        if !ranks.is_empty() {
            out.push(Caveat { rule, text: format!("ranks {}: {text}", ranks_text(&ranks)), ranks });
        }
    };
    say("gap", select(&|state| state.lost > 0), "records were lost; what they would have shown is unknown");
    say(
        "no-data",
        select(&|state| !state.ended_well() && timeline.no_data(state, config.no_data_after_ns)),
        "not sampled lately; is the agent of their host running?",
    );
    say(
        "no-kernel-events",
        select(&|state| !state.kernel_events),
        "no kernel events, so entry into operations is guessed; set MYCROFT_KERNEL_EVENTS=on where NCCL allows it",
    );
    let world = timeline.ranks.values().map(|state| state.world_size).max().unwrap_or(0) as usize;
    if world > timeline.ranks.len() {
        let text = format!("{} of {world} ranks are seen; is the tracer loaded in all of them?", timeline.ranks.len());
        out.push(Caveat { rule: "missing-ranks", text, ranks: Vec::new() });
    }
    out
}

fn place_text(place: &Place) -> String {
    match place {
        Place::Rank { rank, host } => format!("rank {rank} ({host})"),
        Place::Host { host } => format!("host {host}"),
        Place::Link { from, to } => format!("link {from} -> {to}"),
    }
}

/// The report as text for a terminal; stable, so that golden files can hold it.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "job {} as of {}", report.job, report.as_of);
    let pace = report.iteration_ms_median.map_or_else(|| "not known yet".to_string(), |ms| format!("{ms:.0} ms"));
    let _ = writeln!(out, "{} ranks, {} iterations, usual iteration {pace}", report.ranks.len(), report.iterations);
    if report.cases.is_empty() {
        let _ = writeln!(out, "no case");
    }
    for case in &report.cases {
        render_case(&mut out, case, report.as_of);
    }
    for case in &report.transients {
        let ms = case.closed_at.since_ns(case.finding.since) / NANOS_PER_MS;
        let _ = writeln!(out, "pause at {} for about {ms} ms, went away by itself", case.finding.since);
    }
    for caveat in &report.caveats {
        let _ = writeln!(out, "caveat {}: {}", caveat.rule, caveat.text);
    }
    for threshold in &report.thresholds {
        let (name, value, unit, why) = (threshold.name, threshold.value, threshold.unit, &threshold.why);
        let _ = writeln!(out, "threshold {name}: {value:.2} {unit} ({why})");
    }
    for rank in report.ranks.iter().take(RANKS_SHOWN) {
        let ms = rank.iteration_ms.map_or_else(|| "-".to_string(), |ms| format!("{ms:.0}"));
        let doing = if rank.doing.is_empty() { "" } else { " " };
        let _ = writeln!(out, "rank {} {} {} {ms} ms{doing}{}", rank.rank, rank.host, rank.state, rank.doing);
    }
    if report.ranks.len() > RANKS_SHOWN {
        let _ = writeln!(out, "and {} more ranks", report.ranks.len() - RANKS_SHOWN);
    }
    out
}

fn render_case(out: &mut String, case: &Case, now: HostTime) {
    let finding = &case.finding;
    let age = now.since_ns(finding.since) / NANOS_PER_MS;
    let _ = writeln!(out, "case {} {}: {} ({})", case.id, case.state.as_str(), finding.what, finding.category);
    let _ = writeln!(out, "  since {} ({}.{} s ago)", finding.since, age / 1000, age % 1000 / 100);
    if finding.suspects.is_empty() {
        let _ = writeln!(out, "  suspect: not known yet");
    }
    for suspect in &finding.suspects {
        let _ = writeln!(out, "  suspect: {} confidence {:.2}", place_text(&suspect.place), suspect.confidence);
    }
    for Reason { rule, text, .. } in &case.because {
        let _ = writeln!(out, "  because {rule}: {text}");
    }
    for entry in &case.blast_radius {
        let _ = writeln!(out, "  blast radius: {}", entry.text);
    }
    for step in &case.do_next {
        let _ = writeln!(out, "  do next: {step}");
    }
    if !case.closed_because.is_empty() {
        let _ = writeln!(out, "  closed: {}", case.closed_because);
    }
}
