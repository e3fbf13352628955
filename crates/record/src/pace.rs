//! Iterations as a job printed them: one series for each loop and rank.
use crate::ids::Rank;
use std::sync::Arc;

/// The iterations of one loop, as one rank or the job printed them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Meter {
    /// What tells it from other loops of the same file: the words of the line, or the other columns of a table.
    pub name: Arc<str>,
    /// The rank that printed it, where a prefix, a column or the file's name tells one.
    pub rank: Option<Rank>,
    /// Rows of a table that name what they are of, and not lines of a loop.
    pub is_row: bool,
    /// Each value is a moving average over some values before it, as bars have it.
    pub is_smoothed: bool,
    /// What its values are.
    pub unit: Unit,
    /// In the order of the lines.
    pub steps: Vec<Step>,
}

/// What a value of a [`Meter`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unit {
    /// Milliseconds of an iteration.
    #[default]
    Millis,
    /// Tokens in a second.
    Tokens,
    /// Samples in a second.
    Samples,
}

/// One iteration, or the mean of those since the last line.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Step {
    /// Line of the file, from 1.
    pub line: u64,
    /// Its number, where the line tells one.
    pub iteration: Option<u64>,
    /// Nanoseconds since the beginning of the year, where a prefix tells them.
    pub at: Option<u64>,
    /// In the meter's unit; above 0.
    pub value: f64,
    /// What the rank itself needed of it (forward pass, input), milliseconds, where the line tells that.
    pub own_ms: Option<f64>,
}

impl Step {
    /// The value so that more is slower: milliseconds, or seconds for one token or sample.
    pub fn cost(&self, unit: Unit) -> f64 {
        match unit {
            Unit::Millis => self.value,
            Unit::Tokens | Unit::Samples => 1.0 / self.value,
        }
    }
}
