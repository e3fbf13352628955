//! The newest values of a segment as logarithms, their times, and what is usual among them.
use super::limits::{BLOCK, LEVEL_MIN, RUNS, SIGMA_USUAL, VALUES};
use crate::median::SIGMA_PER_MAD;
use mycroft_record::HostTime;

/// Centre and spread in natural logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    /// The median.
    pub(super) centre: f64,
    /// The standard deviation by the median absolute deviation.
    pub(super) sigma: f64,
    /// Of so many values.
    pub(super) n: u32,
}

impl Spread {
    /// Of nothing.
    pub(super) const UNKNOWN: Spread = Spread { centre: 0.0, sigma: SIGMA_USUAL, n: 0 };

    /// The spread with what is expected beforehand: as if `LEVEL_MIN` values of the usual spread had been seen as well.
    pub(super) fn expected(self) -> f64 {
        let (prior, n) = (LEVEL_MIN as f64, f64::from(self.n));
        ((prior * SIGMA_USUAL * SIGMA_USUAL + n * self.sigma * self.sigma) / (prior + n)).sqrt()
    }
}

/// The newest `VALUES` values; the segment's are the newest `len` of them.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    logs: [f32; VALUES],
    times: [HostTime; RUNS],
    /// Values taken in since the beginning.
    seen: u64,
    /// Values of the segment, of those kept.
    len: u32,
    /// Values of the segment, all; for its blocks.
    length: u64,
    scale: f32,
}

impl Recent {
    pub(super) fn new() -> Recent {
        let (logs, times) = ([0.0; VALUES], [HostTime::NONE; RUNS]);
        Recent { logs, times, seen: 0, len: 0, length: 0, scale: SIGMA_USUAL as f32 }
    }

    pub(super) fn push(&mut self, at: HostTime, log: f32) {
        self.logs[(self.seen % VALUES as u64) as usize] = log;
        self.times[(self.seen % RUNS as u64) as usize] = at;
        self.seen += 1;
        self.len = (self.len + 1).min(VALUES as u32);
        self.length += 1;
    }

    /// Values of the segment that are kept.
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the newest value ends a block of the segment.
    pub(super) fn at_block(&self) -> bool {
        self.length.is_multiple_of(BLOCK as u64)
    }

    /// Lets the newest `keep` values be the segment.
    pub(super) fn keep(&mut self, keep: usize) {
        self.len = self.len.min(keep as u32);
        self.length = u64::from(self.len);
    }

    /// The value that `back` others came after.
    pub(super) fn log(&self, back: usize) -> f32 {
        self.logs[((self.seen - 1 - back as u64) % VALUES as u64) as usize]
    }

    /// Its time; of the oldest that is kept where it is older.
    pub(super) fn time(&self, back: usize) -> HostTime {
        let back = (back as u64).min(RUNS as u64 - 1).min(self.seen - 1);
        self.times[((self.seen - 1 - back) % RUNS as u64) as usize]
    }

    /// The segment's values, oldest first.
    pub(super) fn in_order<'a>(&self, into: &'a mut [f32; VALUES]) -> &'a [f32] {
        let n = self.len();
        for (at, value) in into[..n].iter_mut().enumerate() {
            *value = self.log(n - 1 - at);
        }
        &into[..n]
    }

    /// Centre and spread of the values from `from` back up to `to` back.
    pub(super) fn spread(&self, from: usize, to: usize) -> Spread {
        let mut values = [0.0; VALUES];
        for (value, back) in values.iter_mut().zip(from..to) {
            *value = self.log(back);
        }
        spread(&values[..to - from])
    }

    /// The noise from value to value, for the posterior: the smaller of the spread and of what successive values differ by, so
    /// that neither a step among the values nor two alternating lengths pass for noise that is not there.
    pub(super) fn scale(&self) -> f32 {
        self.scale
    }

    /// Works the scale out anew.
    pub(super) fn rescale(&mut self) {
        let n = self.len();
        let mut steps = [0.0; VALUES];
        for (back, step) in steps[..n.saturating_sub(1)].iter_mut().enumerate() {
            *step = (self.log(back) - self.log(back + 1)).abs();
        }
        let all = self.spread(0, n);
        // The difference of two values spreads by the root of two more than one.
        let by_steps = middle(&mut steps[..n.saturating_sub(1)]) * SIGMA_PER_MAD / std::f64::consts::SQRT_2;
        self.scale = Spread { sigma: all.sigma.min(by_steps), ..all }.expected() as f32;
    }
}

/// Centre and spread of some values; `UNKNOWN` of none.
pub(super) fn spread(values: &[f32]) -> Spread {
    let n = values.len().min(VALUES);
    if n == 0 {
        return Spread::UNKNOWN;
    }
    let mut sorted = [0.0; VALUES];
    sorted[..n].copy_from_slice(&values[values.len() - n..]);
    let centre = middle(&mut sorted[..n]);
    for value in &mut sorted[..n] {
        *value = (*value - centre as f32).abs();
    }
    // The median absolute deviation of few values is too small by n / (n - 0.8): Croux and Rousseeuw 1992.
    let few = n as f64 / (n as f64 - 0.8);
    Spread { centre, sigma: middle(&mut sorted[..n]) * SIGMA_PER_MAD * few, n: n as u32 }
}

/// The median; 0 of nothing. Orders the values.
pub(super) fn middle(values: &mut [f32]) -> f64 {
    let n = values.len();
    if n == 0 {
        return 0.0;
    }
    let (below, mid, _) = values.select_nth_unstable_by(n / 2, f32::total_cmp);
    let mid = f64::from(*mid);
    if n % 2 == 1 {
        return mid;
    }
    let lower = below.iter().copied().max_by(f32::total_cmp).map_or(mid, f64::from);
    f64::midpoint(lower, mid)
}
