//! The whole of a segment in a few medians, and drifts that no window of recent values shows.
//!
//! A segment of any length is `BLOCKS / 2` to `BLOCKS` blocks of equal length: medians of eight values, and where there are
//! too many, means of those. A flat line through them and through the newest values is compared with a hinge (flat up to a
//! block, then a line) and a step, by Schwarz's criterion, with the prior that a change has at any value.
use super::limits::{BLOCK, BLOCKS, HAZARD, LEVEL_MIN, OUTLIERS, POSTERIOR, RUNS};
use super::recent::{Spread, middle, spread};
use super::told::Shape;
use mycroft_record::HostTime;

/// Medians of blocks, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Past {
    centres: [f32; BLOCKS],
    /// Time of each block's first value.
    starts: [HostTime; BLOCKS],
    len: u32,
    /// Medians of eight values that make a block.
    stride: u32,
    /// The block that is not full: sum of its medians, how many, and where it began.
    sum: f32,
    count: u32,
    start: HostTime,
}

/// A drift: a level that was left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drift {
    pub(super) before: Spread,
    pub(super) onset: HostTime,
    pub(super) shape: Shape,
    pub(super) posterior: f64,
}

impl Past {
    pub(super) fn new() -> Past {
        let (centres, starts) = ([0.0; BLOCKS], [HostTime::NONE; BLOCKS]);
        Past { centres, starts, len: 0, stride: 1, sum: 0.0, count: 0, start: HostTime::NONE }
    }

    /// Takes in the median of eight values, of which the first came at `start`.
    pub(super) fn push(&mut self, centre: f64, start: HostTime) {
        if self.count == 0 {
            self.start = start;
        }
        self.sum += centre as f32;
        self.count += 1;
        if self.count < self.stride {
            return;
        }
        let at = self.len as usize;
        (self.centres[at], self.starts[at]) = (self.sum / self.count as f32, self.start);
        (self.sum, self.count) = (0.0, 0);
        self.len += 1;
        if self.len as usize == BLOCKS {
            for pair in 0..BLOCKS / 2 {
                self.centres[pair] = (self.centres[2 * pair] + self.centres[2 * pair + 1]) / 2.0;
                self.starts[pair] = self.starts[2 * pair];
            }
            self.len /= 2;
            self.stride *= 2;
        }
    }

    /// Whether the segment was at `centre` or beyond before, for more than a rare block: then it wanders, and does so again.
    pub(super) fn has_been_beyond(&self, centre: f64, up: bool, until: HostTime) -> bool {
        let ends = self.starts[..self.len as usize].iter().skip(1).filter(|&&end| end <= until).count();
        let beyond = self.centres[..ends].iter().filter(|&&block| (f64::from(block) > centre) == up).count();
        beyond as f64 > OUTLIERS * ends as f64
    }

    /// The drift from the segment's older blocks to `now`, its newest `RUNS / 2` values, where the posterior is sure of one and
    /// no block before it was as near to `now` as to the old level.
    pub(super) fn drift(&self, now: Spread) -> Option<Drift> {
        let n = self.len as usize;
        if n < LEVEL_MIN {
            return None;
        }
        let mut points = [(0.0, 0.0); BLOCKS + 1];
        for (at, &centre) in self.centres[..n].iter().enumerate() {
            points[at] = (at as f64 + 0.5, f64::from(centre));
        }
        let all = (self.len * self.stride + self.count) as f64;
        let mid = all - (RUNS / 2 / BLOCK) as f64 / 2.0;
        points[n] = ((mid / f64::from(self.stride)).max(n as f64 - 0.5), now.centre);
        let points = &points[..=n];
        let hinge = best(n, |knee| hinge(points, knee as f64))?;
        let step = best(n, |knee| split(points, knee))?;
        let (fit, shape) = if step.1 < hinge.1 { (step, Shape::Step) } else { (hinge, Shape::Ramp) };
        let posterior = posterior(points.len() as f64, flat(points), fit.1);
        let before = self.level(fit.0);
        let middle = f64::midpoint(before.centre, now.centre);
        let far = |block: &&f32| (f64::from(**block) > middle) == (now.centre > middle);
        let unseen = self.centres[..fit.0].iter().filter(far).count() == 0;
        (posterior > POSTERIOR && unseen).then(|| Drift { before, onset: self.starts[fit.0], shape, posterior })
    }

    /// Level of the first `blocks` blocks. The spread is that of blocks, which values have at least.
    fn level(&self, blocks: usize) -> Spread {
        let mut centres = self.centres;
        let centre = middle(&mut centres[..blocks]);
        let sigma = spread(&self.centres[..blocks]).sigma;
        Spread { centre, sigma, n: (blocks as u32 * self.stride).saturating_mul(BLOCK as u32) }
    }
}

/// The block at which a fit is best, of those with two before it, and what is left.
fn best(n: usize, left: impl Fn(usize) -> f64) -> Option<(usize, f64)> {
    (2..n).map(|knee| (knee, left(knee))).min_by(|one, other| one.1.total_cmp(&other.1))
}

/// Posterior of two more parameters, a place and a height, that leave `fit` of the squares that a flat line leaves.
fn posterior(n: f64, flat: f64, fit: f64) -> f64 {
    // Squares of a thousandth of a per cent are rounding.
    let left = |squares: f64| squares.max(n * 1e-10);
    let odds = n / 2.0 * (left(flat) / left(fit)).ln() - n.ln() + HAZARD.ln();
    1.0 / (1.0 + (-odds).exp())
}

/// Squares that a mean leaves.
fn flat(points: &[(f64, f64)]) -> f64 {
    let mean = points.iter().map(|&(_, y)| y).sum::<f64>() / points.len().max(1) as f64;
    points.iter().map(|&(_, y)| (y - mean) * (y - mean)).sum()
}

/// Squares that two means leave.
fn split(points: &[(f64, f64)], knee: usize) -> f64 {
    flat(&points[..knee]) + flat(&points[knee..])
}

/// Squares that a constant and a line from `knee` on leave.
fn hinge(points: &[(f64, f64)], knee: f64) -> f64 {
    let (mut n, mut sx, mut sy, mut sxx, mut sxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for &(x, y) in points {
        let x = (x - knee).max(0.0);
        (n, sx, sy, sxx, sxy) = (n + 1.0, sx + x, sy + y, sxx + x * x, sxy + x * y);
    }
    let slope = (n * sxy - sx * sy) / (n * sxx - sx * sx).max(f64::MIN_POSITIVE);
    let base = (sy - slope * sx) / n;
    let rest = |&(x, y): &(f64, f64)| y - base - slope * (x - knee).max(0.0);
    points.iter().map(|point| rest(point) * rest(point)).sum()
}
