//! A report and its ranks as JSON.
use super::case::finite;
use super::{CaseJson, LifeJson, TimeJson, rank_number, rank_numbers};
use crate::case::BookedCase;
use mycroft_diagnose::{Case, CaseState, Caveat, RankSummary, Report, Split, Threshold};
use mycroft_record::{HostName, Place};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// `GET /api/v1/report?job=NAME`: what is known of a job at one time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReportJson {
    /// The job.
    pub job: String,
    /// The time it is about, server clock.
    pub as_of: TimeJson,
    /// The lives of the job, oldest first; the last goes on, or says how it ended.
    #[serde(default)]
    pub lives: Vec<LifeJson>,
    /// Cases of this run of the server, oldest first.
    pub cases: Vec<CaseJson>,
    /// Single pauses that went away by themselves, oldest first; `id` is the engine's own number.
    pub transients: Vec<CaseJson>,
    /// What limits this report.
    pub caveats: Vec<CaveatJson>,
    /// Ranks, ascending.
    pub ranks: Vec<RankJson>,
    /// Ranks cut off by the server's limit.
    pub more_ranks: u64,
    /// How the job is split among its ranks, as far as that shows in what it does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layout: Vec<SplitJson>,
    /// Median iteration time, milliseconds.
    pub iteration_ms_median: Option<f64>,
    /// Iterations that all known ranks have finished.
    pub iterations: u64,
    /// Thresholds in use and why.
    pub thresholds: Vec<ThresholdJson>,
}

/// `GET /api/v1/ranks?job=NAME`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RanksJson {
    /// The job.
    pub job: String,
    /// The time it is about, server clock.
    pub as_of: TimeJson,
    /// Ranks, ascending; or by host, those of hosts where something is wrong first.
    pub ranks: Vec<RankJson>,
    /// Ranks cut off by `limit`.
    pub more: u64,
    /// How many of all ranks are in which state.
    #[serde(default)]
    pub states: BTreeMap<String, u64>,
    /// Hosts of all ranks.
    #[serde(default)]
    pub hosts: u64,
    /// Iteration time of the rank in the middle, milliseconds; null: none has one.
    #[serde(default)]
    pub middle_ms: Option<f64>,
    /// As in [`ReportJson`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layout: Vec<SplitJson>,
}

/// Communicators that split the same thing among as many ranks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SplitJson {
    /// `data parallel`, `tensor parallel`, `pipeline parallel`, `expert parallel` or `context parallel`.
    pub of: String,
    /// Ranks of each.
    pub ranks: u32,
    /// How far its first two ranks are apart.
    pub apart: u32,
    /// How many there are.
    pub groups: u64,
}

impl SplitJson {
    fn of(split: &Split) -> SplitJson {
        let Split { of, ranks, apart, groups } = *split;
        SplitJson { of: of.as_str().to_owned(), ranks, apart, groups }
    }
}

/// Something that limits what a report can say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CaveatJson {
    /// Stable name.
    pub rule: String,
    /// One sentence.
    pub text: String,
    /// The ranks it is about.
    pub ranks: Vec<u32>,
}

/// A threshold in use and why.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ThresholdJson {
    /// Stable name.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// Where the value comes from.
    pub why: String,
}

/// One rank in one line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RankJson {
    /// Global rank; null where no launcher told it.
    pub rank: Option<u32>,
    /// Its host.
    pub host: String,
    /// Its process id.
    pub pid: u32,
    /// Iterations seen.
    pub iterations: u64,
    /// Median of the recent iteration times, milliseconds.
    pub iteration_ms: Option<f64>,
    /// Operations in flight at the last sample.
    pub in_flight: u32,
    /// When any counter or operation of it last moved.
    pub last_progress_at: Option<TimeJson>,
    /// When the agent last looked.
    pub last_seen_at: Option<TimeJson>,
    /// `running`, `idle`, `waiting`, `stopped`, `exited`, `dead` or `unknown`.
    pub state: String,
    /// What it is in.
    pub doing: String,
    /// Records lost so far.
    pub lost: u64,
}

impl ReportJson {
    /// The JSON form of a report with at most `limit` ranks.
    pub fn of(report: &Report, limit: usize) -> ReportJson {
        ReportJson::with_known(report, limit, |_| None)
    }

    /// The same with what the server knows of cases besides: `known` of a case's number.
    pub(crate) fn with_known(report: &Report, limit: usize, known: impl Fn(u64) -> Option<BookedCase>) -> ReportJson {
        let case = |case: &Case| {
            let mut booked = BookedCase::of(case.id.0, &report.job, case);
            known(case.id.0).iter().for_each(|known| booked.take_over(known));
            CaseJson::of(&booked)
        };
        let transient = |case: &Case| CaseJson::of(&BookedCase::of(case.id.0, &report.job, case));
        ReportJson {
            job: report.job.to_string(),
            as_of: TimeJson::exact(report.as_of),
            lives: report.lives.iter().map(LifeJson::of).collect(),
            cases: report.cases.iter().map(case).collect(),
            transients: report.transients.iter().map(transient).collect(),
            caveats: report.caveats.iter().map(CaveatJson::of).collect(),
            ranks: report.ranks.iter().take(limit).map(RankJson::of).collect(),
            more_ranks: report.ranks.len().saturating_sub(limit) as u64,
            layout: layout(report),
            iteration_ms_median: report.iteration_ms_median.map(finite),
            iterations: report.iterations,
            thresholds: report.thresholds.iter().map(ThresholdJson::of).collect(),
        }
    }
}

impl RanksJson {
    /// The ranks of a report, at most `limit`; with `is_trouble_first` hosts as a whole, in the order of [`by_trouble`].
    pub fn of(report: &Report, limit: usize, is_trouble_first: bool) -> RanksJson {
        let mut states: BTreeMap<String, u64> = BTreeMap::new();
        for rank in &report.ranks {
            *states.entry(rank.state.to_owned()).or_default() += 1;
        }
        let mut known: Vec<f64> = report.ranks.iter().filter_map(|rank| rank.iteration_ms).collect();
        known.sort_by(f64::total_cmp);
        let ranks: Vec<RankJson> = match is_trouble_first {
            true => by_trouble(report, &states, limit).into_iter().map(RankJson::of).collect(),
            false => report.ranks.iter().take(limit).map(RankJson::of).collect(),
        };
        RanksJson {
            job: report.job.to_string(),
            as_of: TimeJson::exact(report.as_of),
            more: (report.ranks.len() - ranks.len()) as u64,
            ranks,
            states,
            hosts: report.ranks.iter().map(|rank| &rank.host).collect::<BTreeSet<_>>().len() as u64,
            middle_ms: known.get(known.len() / 2).copied().map(finite),
            layout: layout(report),
        }
    }
}

/// Ranks host by host: hosts with a suspect of an open case first, then those with the rank whose state is rarest, of these the
/// one with the longest iterations. As many whole hosts as `limit` has room for, and one at least.
fn by_trouble<'a>(report: &'a Report, states: &BTreeMap<String, u64>, limit: usize) -> Vec<&'a RankSummary> {
    let open = report.cases.iter().filter(|case| case.state == CaseState::Open);
    let suspects: Vec<&Place> = open.flat_map(|case| &case.finding.suspects).map(|suspect| &suspect.place).collect();
    let is_suspect = |rank: &RankSummary| {
        suspects.iter().any(|place| match place {
            Place::Rank { rank: suspect, .. } => *suspect == rank.rank,
            Place::Host { host } => *host == rank.host,
            Place::Link { .. } => false,
        })
    };
    let mut hosts: BTreeMap<&HostName, Vec<&RankSummary>> = BTreeMap::new();
    for rank in &report.ranks {
        hosts.entry(&rank.host).or_default().push(rank);
    }
    let mut hosts: Vec<Vec<&RankSummary>> = hosts.into_values().collect();
    let rarity = |ranks: &[&RankSummary]| ranks.iter().filter_map(|rank| states.get(rank.state)).min().copied();
    let slowest_us =
        |ranks: &[&RankSummary]| ranks.iter().filter_map(|rank| rank.iteration_ms).fold(0.0, f64::max) * 1e3;
    hosts.sort_by_cached_key(|ranks| {
        let suspect = ranks.iter().any(|rank| is_suspect(rank));
        (Reverse(suspect), rarity(ranks), Reverse(slowest_us(ranks) as u64), ranks.first().map(|rank| rank.rank))
    });
    let mut shown: Vec<&RankSummary> = Vec::new();
    for ranks in hosts {
        if !shown.is_empty() && shown.len() + ranks.len() > limit {
            break;
        }
        shown.extend(ranks.into_iter().take(limit));
    }
    shown
}

fn layout(report: &Report) -> Vec<SplitJson> {
    report.layout.iter().map(SplitJson::of).collect()
}

impl CaveatJson {
    fn of(caveat: &Caveat) -> CaveatJson {
        CaveatJson { rule: caveat.rule.to_owned(), text: caveat.text.clone(), ranks: rank_numbers(&caveat.ranks) }
    }
}

impl ThresholdJson {
    fn of(threshold: &Threshold) -> ThresholdJson {
        ThresholdJson {
            name: threshold.name.to_owned(),
            value: finite(threshold.value),
            unit: threshold.unit.to_owned(),
            why: threshold.why.clone(),
        }
    }
}

impl RankJson {
    fn of(rank: &RankSummary) -> RankJson {
        RankJson {
            rank: rank_number(rank.rank),
            host: rank.host.to_string(),
            pid: rank.pid,
            iterations: rank.iterations,
            iteration_ms: rank.iteration_ms.map(finite),
            in_flight: rank.in_flight,
            last_progress_at: TimeJson::of(rank.last_progress_at),
            last_seen_at: TimeJson::of(rank.last_seen_at),
            state: rank.state.to_owned(),
            doing: rank.doing.clone(),
            lost: rank.lost,
        }
    }
}
