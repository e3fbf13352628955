//! Reports: an immutable snapshot of what the brain knows, and its stable text.
use crate::case::Case;
use mycroft_record::{HostName, HostTime, JobName, Rank};

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

/// The report as text for a terminal; stable, so that golden files can hold it.
pub fn render(report: &Report) -> String {
    format!("job {}: {} cases\n", report.job, report.cases.len())
}
