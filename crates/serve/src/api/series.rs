//! Series of a job as JSON: its iterations, and where the time of its ranks went. Times are milliseconds since the Unix epoch,
//! which a JavaScript number holds to less than a microsecond.
use super::case::finite;
use super::{SuspectJson, TimeJson, rank_number};
use crate::case::BookedCase;
use crate::series::{ChangePoint, HIDDEN, PathMean, PathWindow, RankMean, RankWindow, SeriesTold, Summary, thin};
use mycroft_diagnose::Part;
use mycroft_record::HostTime;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `GET /api/v1/jobs/JOB/iterations`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct IterationsJson {
    /// The job.
    pub job: String,
    /// Server clock.
    pub as_of: TimeJson,
    /// Iterations measured since the server began with the job.
    pub iterations: u64,
    /// Oldest first.
    pub points: Vec<PointJson>,
    /// The level now, milliseconds; null before five iterations.
    pub level_ms: Option<f64>,
    /// The lowest level that held for a while, milliseconds.
    pub healthy_ms: Option<f64>,
    /// Changes of the level, oldest first.
    pub changes: Vec<ChangeJson>,
    /// Cases of the job, oldest first.
    pub bands: Vec<BandJson>,
}

/// All series of a job, each as its route tells it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SeriesJson {
    /// Its iterations.
    pub iterations: IterationsJson,
    /// Where the time of its ranks went.
    pub ranks: RankSeriesJson,
    /// What went between its hosts.
    pub paths: PathsJson,
}

/// One iteration, or what is known of several that follow each other.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PointJson {
    /// When the last of them ended, milliseconds since the epoch.
    pub at_ms: f64,
    /// How many.
    pub iterations: u32,
    /// The shortest, milliseconds.
    pub min_ms: f64,
    /// The one in the middle, milliseconds.
    pub median_ms: f64,
    /// The longest, milliseconds.
    pub max_ms: f64,
}

/// The level of iteration times changed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ChangeJson {
    /// The first iteration of the new level, milliseconds since the epoch.
    pub at_ms: f64,
    /// The level before, milliseconds.
    pub before_ms: f64,
    /// The level after, milliseconds.
    pub after_ms: f64,
}

/// While a case was open.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BandJson {
    /// Number of the case.
    pub case: u64,
    /// What it does to the job, a word as in a case.
    pub what: String,
    /// Its category, a word as in a case.
    pub category: String,
    /// The suspects, as in a case.
    pub suspects: Vec<SuspectJson>,
    /// When the fault began, milliseconds since the epoch.
    pub from_ms: f64,
    /// When it was over; null: it is not.
    pub to_ms: Option<f64>,
}

/// `GET /api/v1/jobs/JOB/ranks/series`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RankSeriesJson {
    /// The job.
    pub job: String,
    /// What of the window is known, milliseconds since the epoch; null: nothing.
    pub from_ms: Option<f64>,
    /// Its end.
    pub to_ms: Option<f64>,
    /// Iterations in it.
    pub iterations: u64,
    /// Their mean, milliseconds.
    pub iteration_ms: f64,
    /// Those that took most more than their peers, first.
    pub ranks: Vec<RankSpentJson>,
    /// Ranks cut off by `limit`; `hosts` has all.
    pub more: u64,
    /// The excess of all ranks, by host.
    pub hosts: Vec<HostExcessJson>,
}

/// Where the time of a rank went, milliseconds per iteration.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RankSpentJson {
    /// The rank.
    pub rank: Option<u32>,
    /// Its host.
    pub host: String,
    /// Ranks with the same number do the same work by design.
    pub peers: u32,
    /// Iterations of which it is known.
    pub iterations: u64,
    /// By part; together its iteration.
    pub parts_ms: BTreeMap<String, f64>,
    /// What copy, proxy and wire took, also what was hidden behind others.
    pub took_ms: BTreeMap<String, f64>,
    /// By part, what it took more than its peers in the middle; waiting is nobody's own.
    pub more_ms: BTreeMap<String, f64>,
    /// All its own parts together, more than those of its peers in the middle.
    pub excess_ms: f64,
}

/// The excess of the ranks of a host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HostExcessJson {
    /// The host.
    pub host: String,
    /// Its ranks, ascending.
    pub ranks: Vec<Option<u32>>,
    /// Of each, milliseconds per iteration.
    pub excess_ms: Vec<f64>,
}

/// `GET /api/v1/jobs/JOB/paths`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PathsJson {
    /// The job.
    pub job: String,
    /// What of the window is known, milliseconds since the epoch; null: nothing.
    pub from_ms: Option<f64>,
    /// Its end.
    pub to_ms: Option<f64>,
    /// Iterations in it.
    pub iterations: u64,
    /// Their mean, milliseconds.
    pub iteration_ms: f64,
    /// Those whose data was on its way longest beside paths that carry as much, first.
    pub paths: Vec<PathJson>,
    /// Paths cut off by `limit`.
    pub more: u64,
    /// The job has more paths than the server keeps.
    pub left_out: bool,
}

/// What went from one host to another, per iteration.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PathJson {
    /// The sender.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// Megabytes.
    pub mb: f64,
    /// For how long data was on its way, milliseconds: also what waited for a late receiver.
    pub sent_ms: f64,
    /// How much longer than on the path in the middle of those that carry from half to twice as much.
    pub excess_ms: f64,
}

impl IterationsJson {
    /// What is known of a window, at most so many points; with cases, oldest first.
    pub(crate) fn of(
        job: &str,
        as_of: TimeJson,
        told: &SeriesTold,
        points: usize,
        cases: &[BookedCase],
    ) -> IterationsJson {
        let (level_ms, healthy_ms) = told.levels;
        IterationsJson {
            job: job.to_owned(),
            as_of,
            iterations: told.count,
            points: thin(&told.iterations, points).iter().map(PointJson::of).collect(),
            level_ms,
            healthy_ms,
            changes: told.changes.iter().map(ChangeJson::of).collect(),
            bands: cases.iter().map(BandJson::of).collect(),
        }
    }
}

impl PathsJson {
    /// What is known of a window, at most `limit` paths.
    pub(crate) fn of(job: &str, window: &PathWindow, limit: usize) -> PathsJson {
        let means = window.means();
        let (iterations, iteration_ms) = window.pieces.iterations();
        let span = window.pieces.span();
        PathsJson {
            job: job.to_owned(),
            from_ms: span.map(|(from, _)| ms(from)),
            to_ms: span.map(|(_, to)| ms(to)),
            iterations,
            iteration_ms: short(iteration_ms),
            paths: means.iter().take(limit).map(PathJson::of).collect(),
            more: means.len().saturating_sub(limit) as u64,
            left_out: window.left_out,
        }
    }
}

impl PathJson {
    fn of(mean: &PathMean) -> PathJson {
        PathJson {
            from: mean.from.to_string(),
            to: mean.to.to_string(),
            mb: short(mean.mb),
            sent_ms: short(mean.sent_ms),
            excess_ms: short(mean.excess_ms),
        }
    }
}

/// Milliseconds since the epoch.
fn ms(at: HostTime) -> f64 {
    at.0 as f64 / 1e6
}

/// To a tenth of a microsecond: more digits are noise, and make answers longer.
fn short(ms: f64) -> f64 {
    finite((ms * 1e4).round() / 1e4)
}

impl PointJson {
    pub(crate) fn of(point: &Summary) -> PointJson {
        PointJson {
            at_ms: ms(point.last),
            iterations: point.count,
            min_ms: short(f64::from(point.min_ms)),
            median_ms: short(f64::from(point.median_ms)),
            max_ms: short(f64::from(point.max_ms)),
        }
    }
}

impl ChangeJson {
    pub(crate) fn of(change: &ChangePoint) -> ChangeJson {
        ChangeJson { at_ms: ms(change.at), before_ms: short(change.before_ms), after_ms: short(change.after_ms) }
    }
}

impl BandJson {
    pub(crate) fn of(booked: &BookedCase) -> BandJson {
        let finding = &booked.case.finding;
        BandJson {
            case: booked.number,
            what: finding.what.as_str().to_owned(),
            category: finding.category.as_str().to_owned(),
            suspects: finding.suspects.iter().map(SuspectJson::of).collect(),
            from_ms: ms(finding.since.some().unwrap_or(booked.case.opened_at)),
            to_ms: (!booked.is_open()).then(|| ms(booked.case.closed_at)),
        }
    }
}

impl RankSeriesJson {
    /// What is known of a window, with at most `limit` ranks in full.
    pub(crate) fn of(job: &str, window: &RankWindow, limit: usize) -> RankSeriesJson {
        let means = window.means();
        let (iterations, iteration_ms) = window.pieces.iterations();
        let span = window.pieces.span();
        RankSeriesJson {
            job: job.to_owned(),
            from_ms: span.map(|(from, _)| ms(from)),
            to_ms: span.map(|(_, to)| ms(to)),
            iterations,
            iteration_ms: short(iteration_ms),
            ranks: means.iter().take(limit).map(RankSpentJson::of).collect(),
            more: means.len().saturating_sub(limit) as u64,
            hosts: by_host(&means),
        }
    }
}

fn by_host(means: &[RankMean]) -> Vec<HostExcessJson> {
    let mut sorted: Vec<&RankMean> = means.iter().collect();
    sorted.sort_by_key(|mean| mean.seat.rank);
    let mut hosts: Vec<HostExcessJson> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for mean in sorted {
        // In the order of their first ranks.
        let place = *places.entry(&mean.seat.host).or_insert_with(|| {
            let (host, ranks, excess_ms) = (mean.seat.host.to_string(), Vec::new(), Vec::new());
            hosts.push(HostExcessJson { host, ranks, excess_ms });
            hosts.len() - 1
        });
        hosts[place].ranks.push(rank_number(mean.seat.rank));
        hosts[place].excess_ms.push(short(mean.excess_ms));
    }
    hosts
}

fn named(parts: &[Part], ms: &[f64]) -> BTreeMap<String, f64> {
    parts.iter().zip(ms).map(|(part, ms)| (part.word().to_owned(), short(*ms))).collect()
}

impl RankSpentJson {
    fn of(mean: &RankMean) -> RankSpentJson {
        RankSpentJson {
            rank: rank_number(mean.seat.rank),
            host: mean.seat.host.to_string(),
            peers: mean.seat.peers,
            iterations: mean.iterations,
            parts_ms: named(&Part::ALL, &mean.exposed_ms),
            took_ms: named(&HIDDEN, &mean.took_ms),
            more_ms: named(&Part::ALL[..Part::OWN], &mean.more_ms),
            excess_ms: short(mean.excess_ms),
        }
    }
}
