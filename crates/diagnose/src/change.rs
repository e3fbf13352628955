//! Change points of one series: Bayesian online change point detection with verification (FALCON 4.2 and 9.1), robust and
//! of bounded memory.
//!
//! ```text
//! value -> recent (the last 128, as logarithms) -> runs (posterior of the run length) -> verify -> shape -> Change
//!                      |                                                                  ^
//!                      +-> past (block medians over the whole segment) -> hinge ----------+
//! ```
//!
//! **Scale.** Everything is worked out on natural logarithms, so that a series in nanoseconds and one in bytes per second
//! behave alike: 0.05 of a logarithm is about 5 %. A value of 0 counts as the smallest positive number; what is negative or
//! not a number is passed over.
//!
//! **Two ways to a change.** A sudden one is found by the posterior of the run length (`runs`), a slow one by a hinge through
//! medians of blocks of the whole segment (`past`): flat, then a line. Both must pass the same verification (`verify`). The
//! values since the last change that was told are the *segment*; a change that is told begins a new one.
//!
//! **Ramps.** A ramp of up to some 64 values moves the run length's posterior; whether the level went up at once or along a line
//! is then a comparison of two fits (`shape`). A longer one never differs from its own last 128 values; it is the hinge that
//! differs from a flat line through all of the segment. A ramp may be told while it is still rising, and once more when it
//! has gone on by as much as a change needs: `level` and `healthy` say where it stands.
//!
//! **The start.** Fewer than five values are no level. Leading values far above what follows (a job's first iterations) are
//! left out, and what precedes a change with fewer than five values is forgotten without a word. A series that is slow from
//! its first value on has no change; only a comparison with others can tell that.
mod limits;
mod past;
mod recent;
mod runs;
mod shape;
mod told;
mod verify;

pub use told::{Change, Level, Shape};

use limits::{BLOCK, LEVEL_MIN, RELATIVE_MIN, RUNS, VALUES, WARM_UP};
use mycroft_record::HostTime;
use past::Past;
use recent::{Recent, Spread};
use runs::Runs;

/// The change points of one series. At most 2 KiB, none of it on the heap.
#[derive(Clone, Debug)]
pub struct Changes {
    recent: Recent,
    runs: Runs,
    past: Past,
    /// Level of the segment as last worked out, in logarithms.
    usual: Spread,
    healthy: Option<Level>,
    /// Whether a level was told or the first one has been kept for good.
    settled: bool,
}

impl Default for Changes {
    fn default() -> Changes {
        Changes::new()
    }
}

impl Changes {
    /// A series without a value.
    pub fn new() -> Changes {
        let (recent, runs, past) = (Recent::new(), Runs::new(), Past::new());
        Changes { recent, runs, past, usual: Spread::UNKNOWN, healthy: None, settled: false }
    }

    /// Goes on with a series whose healthy level is known from before, although its values are not.
    pub fn go_on(&mut self, healthy: Level) {
        (self.healthy, self.settled) = (Some(healthy), true);
    }

    /// Takes in the next value, in order of time, and says what changed where that is sure now. Costs some 64 steps, and a few
    /// sorts of 128 values while a change is likely.
    pub fn push(&mut self, at: HostTime, value: f64) -> Option<Change> {
        if !value.is_finite() || value < 0.0 {
            return None;
        }
        let log = value.max(f64::MIN_POSITIVE).ln() as f32;
        if self.recent.len() == 0 {
            self.usual = Spread { centre: f64::from(log), ..Spread::UNKNOWN };
        }
        self.runs.push(log, self.recent.len(), self.usual, self.recent.scale());
        self.recent.push(at, log);
        if self.recent.len() < VALUES / 4 || self.recent.at_block() {
            self.usual = self.recent.spread(0, self.recent.len());
            self.recent.rescale();
        }
        self.leave_start_out();
        if self.recent.at_block() {
            self.past.push(self.recent.spread(0, BLOCK).centre, self.recent.time(BLOCK - 1));
        }
        let change = self.sudden(at).or_else(|| self.slow(at));
        self.keep_healthy(change.as_ref());
        change
    }

    /// Centre and spread of the newest values of the present segment, at most 128; `None` while they are fewer than five.
    pub fn level(&self) -> Option<Level> {
        let n = self.recent.len();
        (n >= LEVEL_MIN).then(|| Level::from(self.recent.spread(0, n)))
    }

    /// The oldest healthy level: the lowest that held for a while. It is the first level, of its first 64 values, until a
    /// change to a lower one is told. `None` while fewer than five values are known.
    pub fn healthy(&self) -> Option<Level> {
        self.healthy
    }

    /// Forgets leading values that are far above the median of the first few.
    fn leave_start_out(&mut self) {
        let n = self.recent.len();
        if self.settled || !(LEVEL_MIN..=WARM_UP).contains(&n) {
            return;
        }
        // Three standard deviations: one value in a thousand of a normal distribution. And what FALCON 4.2 takes for slow.
        let far = self.usual.centre + (3.0 * self.usual.sigma).max(2.0 * RELATIVE_MIN.ln_1p());
        let long = (0..n).rev().take_while(|&back| f64::from(self.recent.log(back)) > far).count();
        if long > 0 && n - long >= LEVEL_MIN.div_ceil(2) {
            self.begin_segment(n - long);
        }
    }

    /// A change that the posterior of the run length shows.
    fn sudden(&mut self, at: HostTime) -> Option<Change> {
        let (age, posterior) = self.runs.likeliest(self.recent.len())?;
        let (n, after) = (self.recent.len(), self.recent.spread(0, age));
        if n - age < LEVEL_MIN {
            if (after.centre - self.recent.spread(age, n).centre).abs() >= RELATIVE_MIN.ln_1p() {
                self.begin_segment(age);
            }
            return None;
        }
        let mut values = [0.0; VALUES];
        let values = self.recent.in_order(&mut values);
        let begun = verify::begun(values, n - age);
        let up = verify::passes(&values[..begun], &values[begun..])?;
        if self.past.has_been_beyond(recent::spread(&values[begun..]).centre, up, self.recent.time(n - 1 - begun)) {
            return None;
        }
        let found = shape::fit(values, begun);
        let (before, after) = (&values[..found.from], &values[found.to..]);
        // A ramp that has just begun differs at its end and not in the middle: it is told when it has gone on.
        verify::passes(before, after)?;
        let (before, after) = (recent::spread(before).into(), recent::spread(after).into());
        let onset = self.recent.time(n - 1 - found.from);
        let change = Change { onset, seen_at: at, before, after, shape: found.shape, posterior };
        self.settled = true;
        self.begin_segment(n - found.to);
        Some(change)
    }

    /// A change that only the whole segment shows.
    fn slow(&mut self, at: HostTime) -> Option<Change> {
        if !self.recent.at_block() || self.recent.len() < RUNS {
            return None;
        }
        let now = self.recent.spread(0, RUNS / 2);
        let drift = self.past.drift(now)?;
        let Spread { centre, sigma, n } = drift.before;
        let before = Spread { centre, sigma: sigma.max(self.usual.sigma.min(now.sigma)), n };
        if !verify::differs(before, now) {
            return None;
        }
        self.settled = true;
        self.begin_segment(RUNS / 2);
        let (before, after) = (before.into(), now.into());
        Some(Change { onset: drift.onset, seen_at: at, before, after, shape: drift.shape, posterior: drift.posterior })
    }

    /// The newest `keep` values are the segment from now on.
    fn begin_segment(&mut self, keep: usize) {
        self.recent.keep(keep);
        self.recent.rescale();
        self.usual = self.recent.spread(0, keep);
        self.runs = Runs::new();
        self.past = Past::new();
    }

    /// Keeps the lowest level that held.
    fn keep_healthy(&mut self, change: Option<&Change>) {
        let lower = |level: &Level, than: &Option<Level>| than.is_none_or(|than| level.centre < than.centre);
        if let Some(change) = change {
            if lower(&change.after, &self.healthy) && change.after.centre < change.before.centre {
                self.healthy = Some(change.after);
            }
        } else if !self.settled {
            // The oldest values of the first segment, while all of them are kept.
            self.healthy = self.level();
            self.settled = self.recent.len() >= RUNS;
        }
    }
}
