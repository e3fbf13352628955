//! How two windows of series differ, as JSON.
use super::case::finite;
use super::rank_number;
use crate::series::{Compared, Difference, RankDifference, RankWindow, compare};
use mycroft_diagnose::Part;
use mycroft_record::Rank;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Ranks of one window only that are named.
const ONLY_MAX: usize = 1_000;

/// `GET /api/v1/compare`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CompareJson {
    /// What is compared with.
    pub before: WindowJson,
    /// What is looked at.
    pub after: WindowJson,
    /// An iteration; null: one window has none.
    pub iteration: Option<DifferenceJson>,
    /// The ranks of both windows, those that clearly take more or less themselves first.
    pub ranks: Vec<RankDifferenceJson>,
    /// Ranks cut off by `limit`.
    pub more: u64,
    /// Ranks that clearly take more themselves.
    pub slower: u64,
    /// Ranks that clearly take less themselves.
    pub faster: u64,
    /// Ranks of the first window only, at most 1,000.
    pub only_before: Vec<Option<u32>>,
    /// Ranks of the second window only, at most 1,000.
    pub only_after: Vec<Option<u32>>,
}

/// One of two windows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WindowJson {
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
    /// Pieces of time of which it is made: the observations.
    pub pieces: u64,
}

/// How something differs, milliseconds per iteration.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DifferenceJson {
    /// In the first window.
    pub before_ms: f64,
    /// In the second.
    pub after_ms: f64,
    /// How much more in the second.
    pub more_ms: f64,
    /// The true difference is within so much of it in 95 of 100 cases; null: a window has one piece only.
    pub within_ms: Option<f64>,
    /// The share of chance among differences that are as sure as this one; null as above.
    pub chance: Option<f64>,
    /// Whether it is more than chance: that share is below 0.01.
    pub is_clear: bool,
}

/// How a rank differs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RankDifferenceJson {
    /// The rank.
    pub rank: Option<u32>,
    /// Its host.
    pub host: String,
    /// Its host in the first window.
    pub host_before: String,
    /// All that it does itself.
    pub own: DifferenceJson,
    /// By part.
    pub parts: BTreeMap<String, DifferenceJson>,
}

impl CompareJson {
    /// Compares two windows; at most `limit` ranks are told in full.
    pub(crate) fn of(before: (&str, &RankWindow), after: (&str, &RankWindow), limit: usize) -> CompareJson {
        let Compared { iteration, ranks, only_before, only_after } = compare(before.1, after.1);
        let clearly = |slower: bool| {
            ranks.iter().filter(|one| one.own.is_clear() && (one.own.more_ms() > 0.0) == slower).count() as u64
        };
        let some = |ranks: Vec<Rank>| ranks.into_iter().take(ONLY_MAX).map(rank_number).collect();
        CompareJson {
            before: WindowJson::of(before.0, before.1),
            after: WindowJson::of(after.0, after.1),
            iteration: iteration.as_ref().map(DifferenceJson::of),
            slower: clearly(true),
            faster: clearly(false),
            more: ranks.len().saturating_sub(limit) as u64,
            ranks: ranks.iter().take(limit).map(RankDifferenceJson::of).collect(),
            only_before: some(only_before),
            only_after: some(only_after),
        }
    }
}

impl WindowJson {
    fn of(job: &str, window: &RankWindow) -> WindowJson {
        let (iterations, iteration_ms) = window.pieces.iterations();
        let span = window.pieces.span();
        WindowJson {
            job: job.to_owned(),
            from_ms: span.map(|(from, _)| from.0 as f64 / 1e6),
            to_ms: span.map(|(_, to)| to.0 as f64 / 1e6),
            iterations,
            iteration_ms: short(iteration_ms),
            pieces: window.pieces.count() as u64,
        }
    }
}

impl DifferenceJson {
    fn of(difference: &Difference) -> DifferenceJson {
        DifferenceJson {
            before_ms: short(difference.before_ms),
            after_ms: short(difference.after_ms),
            more_ms: short(difference.more_ms()),
            within_ms: difference.within_ms.map(short),
            chance: difference.chance.map(finite),
            is_clear: difference.is_clear(),
        }
    }
}

impl RankDifferenceJson {
    fn of(one: &RankDifference) -> RankDifferenceJson {
        let part = |(part, difference): (&Part, &Difference)| (part.word().to_owned(), DifferenceJson::of(difference));
        RankDifferenceJson {
            rank: rank_number(one.rank),
            host: one.host.to_string(),
            host_before: one.host_before.to_string(),
            own: DifferenceJson::of(&one.own),
            parts: Part::ALL.iter().zip(&one.parts).map(part).collect(),
        }
    }
}

/// To a tenth of a microsecond.
fn short(ms: f64) -> f64 {
    finite((ms * 1e4).round() / 1e4)
}
