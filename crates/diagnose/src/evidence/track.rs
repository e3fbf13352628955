//! The sequential test of one hypothesis: it costs as much as counts, or more, or nothing (Wald 1945).
use super::past;
use crate::median::median;
use mycroft_record::{HostTime, NANOS_PER_SEC};

/// A second adds so much at most to the log-likelihood ratio, or takes it, and no row more than a quarter more: two odd rows,
/// however long, decide nothing.
const SECOND_MOST: f64 = 8.0;
/// A cause is over once that is as sure as a small job's beginning: three rows at least.
const OVER: f64 = 24.0;
/// Rows of which the mean tells what it costs now.
const LATELY: f64 = 10.0;

/// A row is beyond by so many shifts at most: one that is odd is not the beginning of all that follows.
const SHIFTS_MOST: f64 = 2.0;
/// Sizes of a shift whose beginnings are kept, each twice the one before: 5 % to 160 % of an iteration.
const SIZES: usize = 6;

/// What a row says of something.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Value {
    /// How much longer it takes, as a share.
    pub(super) share: f64,
    /// The same in milliseconds an iteration.
    pub(super) more_ms: f64,
    /// What that tells at most, as a log-likelihood ratio.
    pub(super) tells: f64,
    /// Longer than before, and not than peers.
    pub(super) by_past: bool,
}

/// Evidence that something costs as much.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Track {
    /// Log-likelihood ratio that it does: of the size of shift that fits best, those beyond the least weighed by how many they are.
    pub(crate) log_odds: f64,
    /// The highest that was, and of which size of shift.
    peak: (f64, usize),
    /// Log-likelihood ratio that it does no longer, of that size.
    relief: f64,
    /// The first row of it began here.
    pub(crate) since: HostTime,
    /// The last row ended here.
    pub(crate) until: HostTime,
    begun: [Begun; SIZES],
    /// What counts, and by how much it varies: as shares.
    cost: f64,
    sigma: f64,
    pub(crate) rows: u32,
    mean: f64,
    /// Milliseconds an iteration that it takes more: the median of the last rows, as what iterations take now is.
    pub(crate) more_ms: f64,
    /// Of the last rows, by their number.
    lately_ms: [f64; past::LATELY],
    /// The last row said longer than before, and not than peers.
    pub(crate) by_past: bool,
}

/// A shift of one size: Page's sums (1954).
#[derive(Clone, Copy, PartialEq, Debug)]
struct Begun {
    /// Since when values are rather beyond half of it than not, and by how much.
    at: HostTime,
    beyond: f64,
    /// Log-likelihood ratio that it is one of this size.
    log_odds: f64,
}

impl Begun {
    fn take(&mut self, share: f64, shift: f64, start: HostTime) {
        if self.beyond <= 0.0 {
            self.at = start;
        }
        self.beyond = (self.beyond + (share - shift / 2.0).min(SHIFTS_MOST * shift)).max(0.0);
    }
}

impl Track {
    pub(super) fn begin(value: Value, of: (f64, f64), (since, until): (HostTime, HostTime)) -> Track {
        let mut track = Track::empty(of, since);
        track.take(value, of, (since, until));
        track
    }

    /// One that has seen nothing of what costs so much and varies by so much.
    pub(super) fn empty((cost, sigma): (f64, f64), since: HostTime) -> Track {
        Track {
            log_odds: 0.0,
            peak: (0.0, 0),
            relief: 0.0,
            since,
            until: since,
            begun: [Begun { at: since, beyond: 0.0, log_odds: 0.0 }; SIZES],
            cost,
            sigma,
            rows: 0,
            mean: 0.0,
            more_ms: 0.0,
            lately_ms: [0.0; past::LATELY],
            by_past: false,
        }
    }

    pub(super) fn take(&mut self, value: Value, (cost, sigma): (f64, f64), row: (HostTime, HostTime)) {
        let Value { share, more_ms, tells, by_past } = value;
        let seconds = row.1.since_ns(row.0) as f64 / NANOS_PER_SEC as f64;
        let most = SECOND_MOST * seconds.clamp(1.0, 1.25);
        let gain = |shift: f64| (shift / (sigma * sigma) * (share - shift / 2.0)).clamp(-most, most.min(tells));
        (self.cost, self.sigma, self.by_past) = (cost, sigma, by_past);
        let (mut shift, mut best) = (cost, (0.0, 0));
        for (nth, begun) in self.begun.iter_mut().enumerate() {
            begun.take(share, shift, row.0);
            begun.log_odds = (begun.log_odds + gain(shift)).max(0.0);
            let log_odds = begun.log_odds - if nth == 0 { 0.0 } else { (SIZES as f64).ln() };
            if log_odds > best.0 {
                best = (log_odds, nth);
            }
            shift *= 2.0;
        }
        self.log_odds = best.0;
        if best.0 > self.peak.0 {
            self.peak = best;
        }
        self.relief = (self.relief - gain(cost * 2f64.powi(self.peak.1 as i32))).max(0.0);
        self.note(share, row.1);
        self.lately_ms[(self.rows - 1) as usize % past::LATELY] = more_ms;
        let known = past::LATELY.min(self.rows as usize);
        self.more_ms = median(self.lately_ms[..known].to_vec()).unwrap_or(more_ms);
    }

    /// Takes in that much for, or against, that events come and go on, and not by chance.
    pub(super) fn take_events(&mut self, gain: f64, share: f64, more_ms: f64, until: HostTime) {
        self.log_odds += gain;
        self.relief = (self.relief - gain).max(0.0);
        self.note(share, until);
        // Most rows have no event: their mean.
        self.more_ms += (more_ms - self.more_ms) / self.counted();
    }

    fn note(&mut self, share: f64, until: HostTime) {
        self.until = until;
        self.rows += 1;
        self.mean += (share - self.mean) / self.counted();
    }

    /// Rows of which the mean is.
    fn counted(&self) -> f64 {
        f64::from(self.rows).min(LATELY)
    }

    /// It never was, or is no longer.
    pub(super) fn is_over(&self) -> bool {
        self.log_odds <= 0.0 || self.relief >= OVER
    }

    /// Since when it takes more, by the largest shift that is no more than what it takes now, and no less than what it varies
    /// by: what was odd before by less is not counted in.
    pub(crate) fn onset(&self) -> HostTime {
        let least = self.cost.max(self.sigma).max(self.mean);
        let mut shift = self.cost;
        let mut at = self.begun[0].at;
        for begun in &self.begun[1..] {
            shift *= 2.0;
            if shift > least {
                break;
            }
            at = begun.at;
        }
        at
    }

    /// What it costs now, as a share.
    pub(crate) fn mean(&self) -> f64 {
        self.mean
    }
}
