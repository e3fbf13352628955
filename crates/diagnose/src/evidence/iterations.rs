//! How long the iterations of a job are while nothing is wrong.
use super::past::{LATELY, PAST_MIN, sigma, young};
use super::rank_sum;
use crate::measure::Row;
use crate::median::median;
use mycroft_record::HostTime;
use std::collections::VecDeque;

/// Rows remembered: ten minutes.
const ROWS_KEPT: usize = 600;
/// Rows after which it is known how long iterations were.
const KNOWN_MIN: usize = 3;
/// What is further from the level than so many standard deviations is odd: an evaluation, a checkpoint.
const ODD: f64 = 3.0;
/// Rows follow each other without more between them, nanoseconds.
const SLACK_NS: u64 = 5_000_000;

/// A row.
#[derive(Debug)]
struct Seen {
    end: HostTime,
    ms: f64,
    latest_ms: f64,
    /// A case is about it.
    is_told: bool,
}

/// A row of which nothing says that it is not as usual.
#[derive(Clone, Copy, Debug)]
struct Usual {
    end: HostTime,
    /// The mean of its iterations, milliseconds.
    ms: f64,
    latest_ms: f64,
}

/// By how much iterations are longer than before.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Longer {
    /// By so many standard deviations they are rather longer than by chance, however they vary.
    pub(crate) sigmas: f64,
    /// All but one in ten are by this share of the usual one.
    pub(crate) low: f64,
}

/// The iterations of a job, by rows.
#[derive(Debug, Default)]
pub(super) struct Iterations {
    usual: VecDeque<Usual>,
    /// All rows, as usual or not.
    all: VecDeque<Seen>,
    rows: usize,
    count: usize,
    /// The end of the row that made it known how long iterations are.
    known_from: HostTime,
}

impl Iterations {
    /// Takes in a row. What began `doubtful_since` is not learned, and taken back if it was.
    pub(super) fn take(&mut self, row: &Row, doubtful_since: Option<HostTime>) {
        self.rows += 1;
        self.count += row.iterations;
        if self.rows == KNOWN_MIN {
            self.known_from = row.end;
        }
        match doubtful_since {
            Some(since) => self.usual.retain(|usual| usual.end <= since + SLACK_NS),
            None => {
                self.usual.push_back(Usual { end: row.end, ms: row.iteration_ms, latest_ms: row.latest_ms });
            }
        }
        if self.usual.len() > ROWS_KEPT {
            self.usual.pop_front();
        }
        let latest_ms = row.latest_ms;
        self.all.push_back(Seen { end: row.end, ms: row.iteration_ms, latest_ms, is_told: false });
        if self.all.len() > ROWS_KEPT {
            self.all.pop_front();
        }
    }

    /// What began then is told of by cases that are open: it is not what was before another fault.
    pub(super) fn tell(&mut self, since: HostTime) {
        let after = self.all.iter_mut().rev().take_while(|row| row.end > since + SLACK_NS);
        after.for_each(|row| row.is_told = true);
    }

    /// How much longer rows since then are than those before; `None`: too few were seen before.
    pub(super) fn longer(&self, since: HostTime) -> Option<Longer> {
        let is_before = |row: &&Seen| row.end <= since + SLACK_NS;
        let ms = |row: &Seen| row.ms;
        let before: Vec<f64> = self.all.iter().take_while(is_before).filter(|row| !row.is_told).map(ms).collect();
        let mut after: Vec<f64> = self.all.iter().skip_while(is_before).map(ms).collect();
        let sigmas = rank_sum::larger(&before, &after);
        after.sort_by(f64::total_cmp);
        let low_ms = after.get(after.len() / 10).copied().unwrap_or(0.0);
        let usual_ms = median(before.clone()).filter(|_| before.len() >= KNOWN_MIN)?;
        Some(Longer { sigmas, low: low_ms / usual_ms - 1.0 })
    }

    /// By how much rows since then are longer than the last ones before, whatever slowed these, milliseconds; `None`: of too few.
    pub(super) fn step_ms(&self, since: HostTime) -> Option<f64> {
        let (before, after): (Vec<&Seen>, Vec<&Seen>) = self.all.iter().partition(|row| row.end <= since + SLACK_NS);
        let enough = before.len() >= KNOWN_MIN && after.len() >= KNOWN_MIN;
        let before_ms = median(before.iter().rev().take(LATELY).map(|row| row.ms).collect()).filter(|_| enough)?;
        Some(median(after.iter().map(|row| row.ms).collect())? - before_ms)
    }

    /// Whether a case is about the last row before a moment.
    pub(super) fn is_told(&self, at: HostTime) -> bool {
        self.all.iter().rev().find(|row| row.end <= at + SLACK_NS).is_some_and(|row| row.is_told)
    }

    /// From when on rows before a moment are those with which [`Iterations::step_ms`] compares.
    pub(super) fn step_from(&self, since: HostTime) -> Option<HostTime> {
        let before = self.all.iter().rev().skip_while(|row| row.end > since + SLACK_NS);
        before.take(LATELY + 1).last().map(|row| row.end)
    }

    /// Iterations so far.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// How long they are now, milliseconds.
    pub(super) fn now_ms(&self) -> f64 {
        median(self.all.iter().rev().take(LATELY).map(|row| row.ms).collect()).unwrap_or(0.0)
    }

    /// Whether it was known at a moment how long they usually are.
    pub(super) fn knows(&self, at: HostTime) -> bool {
        self.known_from.is_some() && at + SLACK_NS >= self.known_from
    }

    /// How long they usually are, milliseconds.
    pub(super) fn level_ms(&self) -> Option<f64> {
        median(self.usual.iter().map(|usual| usual.ms).collect())
    }

    /// How much more than usually whoever issues last in an iteration makes its device idle now, milliseconds; `None`: nobody
    /// knows.
    pub(super) fn later_ms(&self) -> Option<f64> {
        let now_ms = median(self.all.iter().rev().take(LATELY).map(|row| row.latest_ms).collect())?;
        Some(now_ms - median(self.usual.iter().map(|usual| usual.latest_ms).collect())?)
    }

    /// The same, and the standard deviation as a share of it; `None`: of too few.
    pub(super) fn usual(&self) -> Option<(f64, f64)> {
        let n = self.usual.len();
        let level_ms = self.level_ms().filter(|_| n >= KNOWN_MIN)?;
        let shares = self.usual.iter().map(|usual| usual.ms / level_ms).collect();
        Some((level_ms, young(n) * sigma(shares)?))
    }

    /// Whether there are enough to know how much they vary.
    pub(super) fn knows_spread(&self) -> bool {
        self.usual.len() >= PAST_MIN as usize
    }

    /// Whether a row is further off than rows are.
    pub(super) fn is_odd(&self, ms: f64) -> bool {
        let known = self.usual().filter(|_| self.knows_spread());
        known.is_some_and(|(level_ms, sigma)| (ms / level_ms - 1.0).abs() > ODD * sigma)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::NANOS_PER_SEC;

    fn at(second: usize) -> HostTime {
        HostTime((1_000 + second as u64) * NANOS_PER_SEC)
    }

    /// One row a second.
    fn play(iterations: &mut Iterations, from: usize, ms: &[f64], doubtful_since: Option<HostTime>) {
        for (nth, ms) in ms.iter().enumerate() {
            let (start, end) = (at(from + nth), at(from + nth + 1));
            let row = Row { start, end, iterations: 3, iteration_ms: *ms, ..Row::default() };
            iterations.take(&row, doubtful_since);
        }
    }

    /// A fault is known rows after it began: what was learned of them is forgotten, and what is over is not learned either.
    #[test]
    fn rows_since_something_came_up_are_taken_back() {
        let mut iterations = Iterations::default();
        play(&mut iterations, 0, &[300.0; 5], None);
        play(&mut iterations, 5, &[500.0; 20], None);
        assert_eq!(iterations.level_ms(), Some(500.0), "nothing tells yet that these are no usual ones");
        play(&mut iterations, 25, &[500.0], Some(at(5)));
        assert_eq!((iterations.level_ms(), iterations.now_ms()), (Some(300.0), 500.0));
        play(&mut iterations, 26, &[300.0; 2], None);
        assert_eq!(iterations.level_ms(), Some(300.0));
        assert!(iterations.knows(at(5)) && !iterations.knows(at(2)), "from the third row on");
    }

    /// An evaluation among the first rows tells nothing of how long iterations are.
    #[test]
    fn one_odd_row_of_few_moves_no_level() {
        let mut iterations = Iterations::default();
        play(&mut iterations, 0, &[300.0, 310.0], None);
        assert_eq!(iterations.usual(), None, "of two rows");
        play(&mut iterations, 2, &[900.0, 305.0], None);
        let (level_ms, sigma) = iterations.usual().expect("of four rows");
        assert!((level_ms - 305.0).abs() < 5.0 && sigma < 0.1, "{level_ms} {sigma}");
    }

    /// A job that varies by a tenth has that spread, and not one of the rows that hardly vary.
    #[test]
    fn the_spread_is_that_of_all_rows() {
        let mut iterations = Iterations::default();
        let restless: Vec<f64> =
            (0..60).map(|nth| 300.0 * (1.0 + 0.1 * ((nth * 37 % 60) as f64 / 30.0 - 1.0))).collect();
        play(&mut iterations, 0, &restless, None);
        let (level_ms, sigma) = iterations.usual().expect("of many rows");
        assert!((level_ms - 300.0).abs() < 3.0 && (0.05..0.1).contains(&sigma), "{level_ms} {sigma}");
        assert!(!iterations.is_odd(330.0) && iterations.is_odd(400.0));
    }
}
