//! Reports: an immutable snapshot of what the brain knows, and its stable text.
use crate::case::Case;
use crate::case::docket::Docket;
use crate::config::Config;
use crate::fact::these;
use crate::life::Life;
use crate::timeline::{Parallelism, RankState, Timeline};
use crate::watch::Watch;
use mycroft_record::{Category, HostName, HostTime, JobName, Rank, What};
use std::collections::BTreeMap;

/// Processes without a rank that a report names one by one: what a person reads.
const UNTOLD_SHOWN: usize = 16;

/// Something that limits what the report can say (missing ranks, lost records, no kernel events).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Caveat {
    /// Stable name, e.g. `gap`.
    pub rule: &'static str,
    /// One sentence.
    pub text: String,
    /// The ranks it is about, ascending.
    pub ranks: Vec<Rank>,
    /// The switch that would provide what is missing, e.g. `TORCH_FR_BUFFER_SIZE=20000`; empty where none would.
    pub switch: String,
}

impl Caveat {
    /// A caveat about no rank in particular that no switch mends.
    pub fn new(rule: &'static str, text: impl Into<String>) -> Caveat {
        Caveat { rule, text: text.into(), ranks: Vec::new(), switch: String::new() }
    }

    /// The same about these ranks, ascending.
    #[must_use]
    pub fn about(self, ranks: &[Rank]) -> Caveat {
        Caveat { ranks: ranks.to_vec(), ..self }
    }

    /// The same with the switch that would provide what is missing.
    #[must_use]
    pub fn switch(self, switch: &str) -> Caveat {
        Caveat { switch: switch.to_owned(), ..self }
    }

    /// The sentence, with its switch where there is one.
    pub fn sentence(&self) -> String {
        if self.switch.is_empty() { self.text.clone() } else { format!("{}; switch on {}", self.text, self.switch) }
    }
}

/// A threshold in use and why.
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
    /// What it computes per iteration itself, milliseconds, by the last rows of about a second; `None`: not seen.
    pub computation_ms: Option<f64>,
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

/// Communicators that split the same thing among as many ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split {
    /// What they split.
    pub of: Parallelism,
    /// Ranks of each.
    pub ranks: u32,
    /// How far its first two ranks are apart.
    pub apart: u32,
    /// How many there are.
    pub groups: u64,
}

/// What is known of a job at one time.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The job.
    pub job: JobName,
    /// The time it is about.
    pub as_of: HostTime,
    /// The lives of the job, oldest first; the last goes on, or says how it ended.
    pub lives: Vec<Life>,
    /// Cases, oldest first.
    pub cases: Vec<Case>,
    /// Single pauses that went away by themselves, oldest first; not cases.
    pub transients: Vec<Case>,
    /// What limits this report.
    pub caveats: Vec<Caveat>,
    /// Ranks, ascending.
    pub ranks: Vec<RankSummary>,
    /// How the job is split among its ranks, as far as that shows, by what and size; empty at first.
    pub layout: Vec<Split>,
    /// Median iteration time of the job, milliseconds; `None` before three iterations.
    pub iteration_ms_median: Option<f64>,
    /// Standard deviation of means of about a second of it while nothing is wrong, milliseconds; `None`: of too few.
    pub iteration_ms_spread: Option<f64>,
    /// Iterations that all known ranks have finished.
    pub iterations: u64,
    /// Thresholds in use.
    pub thresholds: Vec<Threshold>,
}

pub(crate) fn make(
    job: &JobName,
    timeline: &Timeline,
    watch: &Watch,
    docket: &Docket,
    lives: &[Life],
    config: &Config,
    now: HostTime,
) -> Report {
    let ranks: Vec<RankSummary> = timeline.ranks.values().map(|state| summary(timeline, state, config)).collect();
    Report {
        job: job.clone(),
        as_of: now,
        lives: lives.to_vec(),
        cases: docket.cases.clone(),
        transients: docket.transients.clone(),
        caveats: caveats(timeline, docket, config),
        layout: layout(timeline),
        iteration_ms_median: watch.iteration_ms(),
        iteration_ms_spread: None,
        iterations: ranks.iter().map(|rank| rank.iterations).filter(|count| *count > 0).min().unwrap_or(0),
        ranks,
        thresholds: watch.thresholds(timeline, config),
    }
}

/// Communicators that are alike, counted.
fn layout(timeline: &Timeline) -> Vec<Split> {
    let mut counts: BTreeMap<(Parallelism, u32, u32), u64> = BTreeMap::new();
    for comm in timeline.comms.values() {
        let mut ranks = comm.members.iter().map(|(_, rank)| rank.0);
        let (Some(of), Some(first), Some(second)) = (comm.used_for, ranks.next(), ranks.next()) else { continue };
        *counts.entry((of, comm.n_ranks, first.abs_diff(second))).or_default() += 1;
    }
    counts.into_iter().map(|((of, ranks, apart), groups)| Split { of, ranks, apart, groups }).collect()
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
        pid: state.process.pid,
        iterations: state.iterations.total(),
        iteration_ms: state.iterations.recent_ms(),
        computation_ms: None, // the evidence knows
        in_flight: state.ops_in_flight,
        last_progress_at: state.progress_at,
        last_seen_at: state.sampled_at,
        state: word,
        doing,
        lost: state.lost,
    }
}

/// Partial knowledge is not an error (invariant 4): it is said.
fn caveats(timeline: &Timeline, docket: &Docket, config: &Config) -> Vec<Caveat> {
    let select = |wanted: &dyn Fn(&RankState) -> bool| -> Vec<Rank> {
        timeline.ranks.values().filter(|state| wanted(state)).map(|state| state.rank).collect()
    };
    let mut out = Vec::new();
    let mut say = |rule: &'static str, ranks: Vec<Rank>, text: &str| {
        if !ranks.is_empty() {
            out.push(Caveat::new(rule, format!("{}: {text}", these(&ranks))).about(&ranks));
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
        out.push(Caveat::new("missing-ranks", text));
    }
    out.extend(untold(timeline));
    // Where a device or a link is named, nobody is for being idle.
    let by_idleness = |case: &Case| matches!(case.finding.category, Category::NotStarted | Category::Unknown);
    if docket.cases.iter().any(|case| case.finding.what == What::Hang && by_idleness(case)) {
        out.extend(not_visible(timeline));
    }
    out
}

/// Processes of which nobody told the rank: who is behind the numbers that they got here.
fn untold(timeline: &Timeline) -> Option<Caveat> {
    let untold: Vec<&RankState> = timeline.ranks.values().filter(|state| state.rank.is_untold()).collect();
    let ranks: Vec<Rank> = untold.iter().map(|state| state.rank).collect();
    let who = |state: &&RankState| {
        let largest = state.comms.iter().max_by_key(|(comm, _)| timeline.comms.get(comm).map(|comm| comm.n_ranks));
        let place = largest
            .map_or(String::new(), |(comm, joined)| format!(", rank {} of {}", joined.me, timeline.comm_name(*comm)));
        format!("{} is pid {} on {}{place}", state.rank, state.process.pid, state.host)
    };
    let mut text: Vec<String> = untold.iter().take(UNTOLD_SHOWN).map(who).collect();
    if untold.len() > UNTOLD_SHOWN {
        text.push(format!("and {} more", untold.len() - UNTOLD_SHOWN));
    }
    let text = format!("nobody told the ranks of {} processes: {}", untold.len(), text.join("; "));
    (!untold.is_empty()).then(|| Caveat::new("no-rank", text).about(&ranks).switch("RANK, or MYCROFT_RANK, in the job"))
}

/// Operations that the job's NCCL does not report: who waits in one looks idle, and is not known to be.
fn not_visible(timeline: &Timeline) -> Option<Caveat> {
    let hiding = || timeline.ranks.values().filter_map(|state| Some((state, state.hides().next()?)));
    let (first, (kind, known)) = hiding().next()?;
    let ranks: Vec<Rank> = hiding().map(|(state, _)| state.rank).collect();
    let text = format!(
        "NCCL {} shows of a {kind} only that it was issued: a rank that waits in one looks idle",
        first.nccl_version
    );
    Some(Caveat::new("not-visible", text).about(&ranks).switch(known.remedy))
}
