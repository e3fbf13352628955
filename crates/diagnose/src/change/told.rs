//! What is told of a series: levels, and how one became another.
use super::recent::Spread;
use mycroft_record::HostTime;

/// A change of level that passed verification.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Time of the first value of the new level; of a ramp, where the drift began.
    pub onset: HostTime,
    /// Time of the value at which the change was sure.
    pub seen_at: HostTime,
    /// Level before the onset.
    pub before: Level,
    /// Level since; of a ramp that still rises, of its newest values.
    pub after: Level,
    /// How the level went from one to the other.
    pub shape: Shape,
    /// Posterior probability of a change, above 0.9: of the run length, or of a hinge against a flat line.
    pub posterior: f64,
}

impl Change {
    /// The level after by the level before: above 1 slower, below 1 relief.
    pub fn ratio(&self) -> f64 {
        self.after.centre / self.before.centre
    }
}

/// How a level changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// From one value to the next.
    Step,
    /// By and by.
    Ramp,
}

/// Centre and spread of a part of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// The median, in the series' own unit.
    pub centre: f64,
    /// The standard deviation as the median absolute deviation tells it, in the series' own unit. Of relative deviations: it
    /// is `centre` times the spread of the logarithms.
    pub sigma: f64,
    /// Values that both were worked out from, at most 128 for a level of recent values.
    pub n: u32,
}

impl From<Spread> for Level {
    fn from(spread: Spread) -> Level {
        let centre = spread.centre.exp();
        Level { centre, sigma: centre * spread.sigma, n: spread.n }
    }
}
