//! How fast iterations were, as lines of a log tell it.
use crate::change::Shape;
use mycroft_record::pace::Unit;
use mycroft_record::{NANOS_PER_SEC, Rank};
use std::sync::Arc;

/// A change of what an iteration takes, and the line that shows it first.
#[derive(Clone, PartialEq, Debug)]
pub struct PaceChange {
    /// Name of the loop, where the file holds several.
    pub name: Arc<str>,
    /// Slower, or faster again.
    pub is_slower: bool,
    /// At once, or by and by from there on.
    pub shape: Shape,
    /// Number of the iteration, where the line tells it.
    pub iteration: Option<u64>,
    /// Nanoseconds since the beginning of the year, clock of who printed the line; `None` where no line tells a time.
    pub at: Option<u64>,
    /// The file.
    pub source: Arc<str>,
    /// The line, from 1.
    pub line: u64,
    /// Usual value before.
    pub before: f64,
    /// Usual value since.
    pub after: f64,
    /// Their unit.
    pub unit: Unit,
    /// Ranks that print their own times and show it; empty where lines tell no rank.
    pub ranks: Vec<Rank>,
    /// Ranks that print as many and do not.
    pub others: Vec<Rank>,
}

impl PaceChange {
    /// How many times as long an iteration takes as before; below 1 when it takes less.
    pub fn ratio(&self) -> f64 {
        match self.unit {
            Unit::Millis => self.after / self.before,
            Unit::Tokens | Unit::Samples => self.before / self.after,
        }
    }

    /// `1.52 s -> 2.01 s an iteration`, `5123 -> 3907 tokens a second`.
    pub fn levels(&self) -> String {
        match self.unit {
            Unit::Millis if self.before.max(self.after) >= 1000.0 => {
                format!("{:.2} s -> {:.2} s an iteration", self.before / 1e3, self.after / 1e3)
            }
            Unit::Millis => format!("{:.1} ms -> {:.1} ms an iteration", self.before, self.after),
            Unit::Tokens => format!("{:.0} -> {:.0} tokens a second", self.before, self.after),
            Unit::Samples => format!("{:.2} -> {:.2} samples a second", self.before, self.after),
        }
    }

    /// Time of day, `12:03:10`.
    pub fn time_of_day(&self) -> Option<String> {
        let seconds = self.at? / NANOS_PER_SEC % 86_400;
        Some(format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60))
    }
}
