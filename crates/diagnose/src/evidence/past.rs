//! What was usual: levels, offsets from peers, and spreads.
use crate::median::median;
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
/// A median absolute deviation of a normal spread is this part of its sigma.
const MAD_OF_SIGMA: f64 = 0.6745;

/// A mean deviation of a normal spread is this part of its sigma.
const MEAN_OF_SIGMA: f64 = 0.7979;
/// The spread of n rows is taken (1 + 2/n) times: about one standard error of it, 1 / sqrt(2n - 2), at n = 10.
const YOUNG: f64 = 2.0;
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
}

impl Past {
    pub(super) fn learn(&mut self, ms: f64, offset_ms: f64) {
        self.n = (self.n + 1).min(SETTLED);
        let part = 1.0 / f64::from(self.n);
        self.level += part * (ms - self.level);
        self.offset += part * (offset_ms - self.offset);
    }

    /// Notes how far a row is off, learned or not.
    pub(super) fn vary(&mut self, off_ms: f64) {
        if self.n == 0 {
            return;
        }
        let n = f64::from(self.n);
        let off = if self.n < PAST_MIN { off_ms } else { off_ms.min(ODD * self.off) };
        self.off += (off - self.off) / n;
    }

    /// The standard deviation of its rows, milliseconds; of few rows more, since it is known less.
    pub(super) fn sigma_ms(&self) -> f64 {
        self.off / MEAN_OF_SIGMA * young(self.n as usize)
    }

    /// What it always took more than its peers, as far as that is known, `most` at most.
    pub(super) fn offset(&self, most: f64) -> f64 {
        let n = f64::from(self.n);
        (self.offset * n / (n + OFFSET_ROWS)).clamp(-most, most)
    }
}

/// What a spread of n rows is taken times, because it is known less.
pub(super) fn young(n: usize) -> f64 {
    1.0 + YOUNG / n.max(1) as f64
}

/// The standard deviation of values of which a few may be far off; `None`: of fewer than two.
pub(super) fn sigma(values: Vec<f64>) -> Option<f64> {
    let n = values.len();
    let mid = median(values.clone()).filter(|_| n >= 2)?;
    let mad = median(values.into_iter().map(|value| (value - mid).abs()).collect())?;
    Some(OF_FEW.get(n - 2).copied().unwrap_or(n as f64 / (n as f64 - 0.8)) * mad / MAD_OF_SIGMA)
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
