//! The sequential test of one hypothesis: it costs as much as counts, or nothing (Wald 1945).
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

/// Evidence that something costs as much.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Track {
    /// Log-likelihood ratio that it does.
    pub(crate) log_odds: f64,
    /// The same that it does no longer.
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
    /// Milliseconds an iteration that it takes more.
    pub(crate) more_ms: f64,
}

/// Page's sum (1954) for a shift of one size: since when values are rather beyond it than not.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Begun {
    at: HostTime,
    beyond: f64,
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
    pub(super) fn begin(share: f64, more_ms: f64, of: (f64, f64), (since, until): (HostTime, HostTime)) -> Track {
        let mut track = Track {
            log_odds: 0.0,
            relief: 0.0,
            since,
            until,
            begun: [Begun { at: since, beyond: 0.0 }; SIZES],
            cost: of.0,
            sigma: of.1,
            rows: 0,
            mean: 0.0,
            more_ms: 0.0,
        };
        track.take(share, more_ms, of, (since, until));
        track
    }

    pub(super) fn take(&mut self, share: f64, more_ms: f64, (cost, sigma): (f64, f64), row: (HostTime, HostTime)) {
        let seconds = row.1.since_ns(row.0) as f64 / NANOS_PER_SEC as f64;
        let most = SECOND_MOST * seconds.clamp(1.0, 1.25);
        let gain = (cost / (sigma * sigma) * (share - cost / 2.0)).clamp(-most, most);
        self.log_odds += gain;
        self.relief = (self.relief - gain).max(0.0);
        (self.cost, self.sigma) = (cost, sigma);
        let mut shift = cost;
        for begun in &mut self.begun {
            begun.take(share, shift, row.0);
            shift *= 2.0;
        }
        self.until = row.1;
        self.rows += 1;
        let rows = f64::from(self.rows).min(LATELY);
        self.mean += (share - self.mean) / rows;
        self.more_ms += (more_ms - self.more_ms) / rows;
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
