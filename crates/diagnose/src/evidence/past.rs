//! What was usual: levels, offsets from peers, and spreads.
use crate::median::median;
use std::collections::VecDeque;

/// Rows that make a past without which a rank without peers is not judged: ten iterations or seconds.
pub(crate) const PAST_MIN: u32 = 10;
/// Rows after which a level hardly moves any more: ten minutes.
const SETTLED: u32 = 600;
/// A learned offset from the peers counts whole after several times so many rows.
const OFFSET_ROWS: f64 = 5.0;
/// Rows whose spread is remembered: half a minute.
const SPREAD_ROWS: usize = 32;
/// Nobody is known more exactly than this share: what a second of noise leaves.
const SPREAD_LEAST: f64 = 0.01;
/// A median absolute deviation of a normal spread is this part of its sigma.
const MAD_OF_SIGMA: f64 = 0.6745;

/// A mean deviation of a normal spread is this part of its sigma.
const MEAN_OF_SIGMA: f64 = 0.7979;
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

    /// The standard deviation of its rows, milliseconds.
    pub(super) fn sigma_ms(&self) -> f64 {
        self.off / MEAN_OF_SIGMA
    }

    /// What it always took more than its peers, as far as that is known, `most` at most.
    pub(super) fn offset(&self, most: f64) -> f64 {
        let n = f64::from(self.n);
        (self.offset * n / (n + OFFSET_ROWS)).clamp(-most, most)
    }
}

/// How much values of a row differ while nothing is wrong.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Spread(VecDeque<f64>);

impl Spread {
    /// Takes in the values of a row. A few that are far off hardly count.
    pub(super) fn take(&mut self, values: &[Option<f64>]) {
        let values: Vec<f64> = values.iter().flatten().copied().collect();
        let Some(mid) = median(values.clone()) else { return };
        if let Some(mad) = median(values.iter().map(|value| (value - mid).abs()).collect()) {
            self.keep(mad);
        }
    }

    /// Takes in how far a value of a series was off.
    pub(super) fn keep(&mut self, off: f64) {
        self.0.push_back(off / MAD_OF_SIGMA);
        if self.0.len() > SPREAD_ROWS {
            self.0.pop_front();
        }
    }

    /// A standard deviation, as a share.
    pub(crate) fn sigma(&self) -> f64 {
        median(self.0.iter().copied().collect()).unwrap_or(0.0).max(SPREAD_LEAST)
    }
}
