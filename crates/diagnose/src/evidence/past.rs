//! What was usual: levels, offsets from peers, and spreads.
use crate::median::{ROOT_HALF_PI, SIGMA_PER_MAD, low_median, median};
use std::collections::VecDeque;

/// Rows that make a past without which a rank without peers is not judged: ten iterations or seconds.
pub(crate) const PAST_MIN: u32 = 10;
/// Rows of which the median tells how it is now: some seconds.
pub(crate) const LATELY: usize = 5;
/// Rows after which a level hardly moves any more: ten minutes.
const SETTLED: u32 = 600;
/// A learned offset from the peers counts whole after several times so many rows.
const OFFSET_ROWS: f64 = 5.0;
/// Rows whose spread is remembered: half a minute.
const SPREAD_ROWS: usize = 32;
/// Nobody is known more exactly than this share: what a second of noise leaves.
pub(super) const SPREAD_LEAST: f64 = 0.01;
/// A spread needs so many rows: of fewer its error has no bound.
pub(crate) const FEW_MIN: u32 = 4;
/// Croux and Rousseeuw's factors by which the median absolute deviation of 2, 3 .. 9 values is too small; of more n / (n - 0.8).
const OF_FEW: [f64; 8] = [1.196, 1.495, 1.363, 1.206, 1.200, 1.140, 1.129, 1.107];
/// A deviation of more than so many usual ones counts as so many.
const ODD: f64 = 3.0;

/// What something takes while nothing is wrong.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Past {
    /// The mean, milliseconds.
    pub(crate) level: f64,
    offset: f64,
    /// Rows that it is the mean of.
    pub(crate) n: u32,
    /// How far rows are off the level, milliseconds: their mean deviation, odd ones cut.
    off: f64,
    /// The first rows, milliseconds.
    early: [f64; FEW_MIN as usize],
}

impl Past {
    pub(super) fn learn(&mut self, ms: f64, offset_ms: f64) {
        if let Some(early) = self.early.get_mut(self.n as usize) {
            *early = ms;
        }
        self.n = (self.n + 1).min(SETTLED);
        let part = 1.0 / f64::from(self.n);
        self.level += part * (ms - self.level);
        self.offset += part * (offset_ms - self.offset);
    }

    /// What the first rows say, of which the last may be slow already: the lower of their middle, and how far most are off it, as a share of
    /// the level times `unit_ms`.
    pub(super) fn settle(&mut self, unit_ms: f64) {
        let (level, sigma) = (low_median(self.early.to_vec()), sigma(self.early.to_vec()));
        if let (Some(level), Some(sigma)) = (level.filter(|level| *level > 0.0), sigma) {
            self.level = level;
            self.off = sigma / level / ROOT_HALF_PI * unit_ms;
        }
    }

    /// Notes how far a row is off, learned or not; what is odd beside others is cut once there are so many `rows`.
    pub(super) fn vary(&mut self, off_ms: f64, rows: u32) {
        if self.n == 0 {
            return;
        }
        let n = f64::from(self.n);
        let off = if self.n < rows { off_ms } else { off_ms.min(ODD * self.off) };
        self.off += (off - self.off) / n;
    }

    /// The standard deviation of its rows, milliseconds; of few rows more, since it is known less.
    pub(super) fn sigma_ms(&self) -> f64 {
        self.off * ROOT_HALF_PI * young(self.n as usize)
    }

    /// What it always took more than its peers, as far as that is known, `most` at most.
    pub(super) fn offset(&self, most: f64) -> f64 {
        let n = f64::from(self.n);
        (self.offset * n / (n + OFFSET_ROWS)).clamp(-most, most)
    }
}

/// What a spread of n rows is taken times: the standard deviation of what is beyond their mean, which is known to sigma / sqrt(n), by
/// a spread of n - 1 degrees of freedom (that of Student's t).
pub(super) fn young(n: usize) -> f64 {
    let n = n.max(FEW_MIN as usize) as f64;
    ((1.0 + 1.0 / n) * (n - 1.0) / (n - 3.0)).sqrt()
}

/// The standard deviation of values of which a few may be far off; `None`: of fewer than two.
pub(super) fn sigma(values: Vec<f64>) -> Option<f64> {
    let n = values.len();
    let mid = median(values.clone()).filter(|_| n >= 2)?;
    let mad = median(values.into_iter().map(|value| (value - mid).abs()).collect())?;
    Some(OF_FEW.get(n - 2).copied().unwrap_or(n as f64 / (n as f64 - 0.8)) * mad * SIGMA_PER_MAD)
}

/// By how much whoever was furthest beyond the others was so, in rows in which nothing is known to be wrong: now this one, now that one.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Furthest(VecDeque<f64>);

impl Furthest {
    /// Takes in the values of a row.
    pub(super) fn take(&mut self, shares: &[Option<f64>]) {
        let Some(most) = shares.iter().flatten().copied().reduce(f64::max) else { return };
        self.0.push_back(most);
        if self.0.len() > SPREAD_ROWS {
            self.0.pop_front();
        }
    }

    /// What one row tells at most, as a log-likelihood ratio, of one that is so far beyond: as far as whoever is furthest often is, only
    /// that it is this one of so many.
    pub(super) fn most(&self, share: f64, of: usize) -> f64 {
        let mut known: Vec<f64> = self.0.iter().copied().collect();
        known.sort_by(|a, b| b.total_cmp(a));
        // In one of as many rows as make a past.
        let often = known.get(known.len() / PAST_MIN as usize).filter(|_| known.len() >= PAST_MIN as usize);
        if often.is_some_and(|often| share <= *often) { (of.max(2) as f64).ln() } else { f64::INFINITY }
    }
}

/// How much values of a row differ while nothing is wrong.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Spread(VecDeque<f64>);

impl Spread {
    /// Takes in the values of a row. A few that are far off hardly count.
    pub(super) fn take(&mut self, values: &[Option<f64>]) {
        let Some(sigma) = sigma(values.iter().flatten().copied().collect()) else { return };
        self.0.push_back(sigma);
        if self.0.len() > SPREAD_ROWS {
            self.0.pop_front();
        }
    }

    /// A standard deviation, as a share.
    pub(crate) fn sigma(&self) -> f64 {
        (young(self.0.len()) * median(self.0.iter().copied().collect()).unwrap_or(0.0)).max(SPREAD_LEAST)
    }
}

/// What is usual of a component of ranks, and of the hosts that have them.
#[derive(Debug, Default)]
pub(super) struct OfRanks {
    /// By slot.
    pub(super) pasts: Vec<Past>,
    pub(super) spread: Spread,
    pub(super) host_spread: Spread,
    pub(super) furthest: Furthest,
    pub(super) furthest_host: Furthest,
}
