//! The posterior of the run length (FALCON 9.1, (3) to (5)), with two differences: run lengths beyond `RUNS` are one, and the
//! noise has heavy tails.
//!
//! A value is predicted by Student's t with four degrees of freedom about the run's mean, or is odd by itself (a checkpoint, a
//! pause) with the chance `OUTLIERS` and then anything. So one odd value costs a run a factor, and a change costs the
//! smaller `HAZARD`: an odd value begins no run, and a few that agree do. A run's mean takes a value in by the chance that it
//! is not odd.
use super::limits::{HAZARD, LEVEL_MIN, OUTLIERS, POSTERIOR, RUNS, WIDTH};
use super::recent::Spread;

/// Weights of run lengths. A run is kept by where it began, so that nothing moves when a value comes.
#[derive(Clone, Debug)]
pub(super) struct Runs {
    /// Logarithm of the posterior of the run in each slot; `NEG_INFINITY` where it no more counts.
    weights: [f32; RUNS],
    means: [f32; RUNS],
    /// The same of the whole segment.
    whole: f32,
    /// Slot of the next run.
    next: u32,
}

impl Runs {
    pub(super) fn new() -> Runs {
        Runs { weights: [f32::NEG_INFINITY; RUNS], means: [0.0; RUNS], whole: 0.0, next: 0 }
    }

    /// Values in the run of a slot, 1 to `RUNS`.
    fn age(&self, slot: usize) -> usize {
        (self.next as usize + RUNS - 1 - slot) % RUNS + 1
    }

    /// Takes in a value where the segment, `n` values so far, has the level `usual` and the noise `scale`.
    pub(super) fn push(&mut self, log: f32, n: usize, usual: Spread, scale: f32) {
        let goes_on = (1.0 - HAZARD as f32).ln();
        let (segment, _) = predicted(log, usual.centre as f32, n.max(1), scale);
        self.whole += segment + goes_on;
        // The oldest run has become as long as the segment is known: it is a part of it.
        let slot = self.next as usize;
        let oldest = std::mem::replace(&mut self.weights[slot], f32::NEG_INFINITY);
        if oldest.is_finite() {
            let (odds, _) = predicted(log, self.means[slot], RUNS, scale);
            self.whole = sum(self.whole, oldest + odds + goes_on);
        }
        for at in (0..RUNS).filter(|&at| at != slot) {
            if self.weights[at].is_finite() {
                let age = self.age(at);
                let (odds, ours) = predicted(log, self.means[at], age, scale);
                self.weights[at] += odds + goes_on;
                self.means[at] += ours * (log - self.means[at]) / (age + 1) as f32;
            }
        }
        if n > 0 {
            self.weights[slot] = (HAZARD / WIDTH).ln() as f32;
            self.means[slot] = log;
        }
        self.next = (self.next + 1) % RUNS as u32;
        self.normalize();
    }

    /// Lets the posterior add up to 1.
    fn normalize(&mut self) {
        let most = self.weights.iter().copied().fold(self.whole, f32::max);
        let all: f32 = self.weights.iter().map(|weight| (weight - most).exp()).sum::<f32>() + (self.whole - most).exp();
        let total = most + all.ln();
        // The logarithm of a weight that no more counts; the segment's never goes, so that it can come back.
        let nothing = -30.0;
        self.whole = (self.whole - total).max(nothing);
        for weight in &mut self.weights {
            *weight -= total;
            if *weight < nothing {
                *weight = f32::NEG_INFINITY;
            }
        }
    }

    /// Values since the likeliest change in a segment of `n` values, and the posterior that there was one, of all run lengths that
    /// are shorter than the segment. `None` where that is not above `POSTERIOR`. Where runs too short for a level have the
    /// weight (a new level that is noisy, or comes in two steps), it is `LEVEL_MIN` values ago at the latest.
    pub(super) fn likeliest(&self, n: usize) -> Option<(usize, f64)> {
        let posterior = 1.0 - f64::from(self.whole).exp();
        if posterior <= POSTERIOR || n <= LEVEL_MIN {
            return None;
        }
        let weight = |slot: &usize| self.weights[*slot];
        let long = |slot: &usize| weight(slot).is_finite() && (LEVEL_MIN..n).contains(&self.age(*slot));
        let of_long: f64 = (0..RUNS).filter(long).map(|slot| f64::from(weight(&slot)).exp()).sum();
        let best = (0..RUNS).filter(long).max_by(|one, other| weight(one).total_cmp(&weight(other)));
        match best.filter(|_| of_long > POSTERIOR) {
            Some(slot) => Some((self.age(slot), posterior)),
            // Nothing is forgotten on the word of runs this short: there must be a level before.
            None => (n >= 2 * LEVEL_MIN).then_some((LEVEL_MIN, posterior)),
        }
    }
}

/// Logarithm of the density of a value after `n` about `mean`, and the chance that it is no odd one.
fn predicted(log: f32, mean: f32, n: usize, scale: f32) -> (f32, f32) {
    let scale = scale * (1.0 + 1.0 / n as f32).sqrt();
    let far = (log - mean) / scale;
    let tail = 1.0 + far * far / 4.0;
    // Three eighths is the density of this Student's t at its centre.
    let usual = (1.0 - OUTLIERS as f32) * 0.375 / (scale * tail * tail * tail.sqrt());
    let all = usual + (OUTLIERS / WIDTH) as f32;
    (all.ln(), usual / all)
}

/// Logarithm of the sum of two weights.
fn sum(one: f32, other: f32) -> f32 {
    let most = one.max(other);
    most + ((one - most).exp() + (other - most).exp()).ln()
}
