//! Many runs in a few numbers.
use crate::judge::{Closeness, Judgement};
use mycroft_record::Category;
use std::collections::BTreeMap;

/// Median and 99th percentile of a duration, milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spread {
    /// Half are at most this long.
    pub median: u64,
    /// 99 of 100 are at most this long.
    pub p99: u64,
}

/// A run that was wrong.
#[derive(Clone, PartialEq, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// Its scenario.
    pub scenario: String,
    /// What was wrong, one line each.
    pub why: Vec<String>,
}

/// What became of many runs. The order in which they are added does not show.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Tally {
    /// Runs.
    pub runs: u64,
    /// Faults that should have been named.
    pub due: u64,
    /// Those that were, at host level or better.
    pub named: u64,
    /// Those that were named exactly: the rank, for a fault of a rank.
    pub named_exactly: u64,
    /// Named faults, due or not, and those of them with the right words.
    pub worded: (u64, u64),
    /// Cases that name a culprit, and those that name an innocent or come without a fault.
    pub cases: (u64, u64),
    /// Cases that name nobody.
    pub open_questions: u64,
    /// How often a kind of fault was given where another, or the same, was expected.
    pub confusion: BTreeMap<(Category, Category), u64>,
    detection_ms: Vec<u64>,
    diagnosis_ms: Vec<u64>,
    failing: BTreeMap<(u64, String), Vec<String>>,
}

impl Tally {
    /// Adds a run.
    pub fn add(&mut self, seed: u64, scenario: &str, judgement: &Judgement) {
        self.runs += 1;
        self.cases.0 += judgement.true_cases as u64;
        self.cases.1 += judgement.false_cases.len() as u64;
        self.open_questions += judgement.open_questions as u64;
        for outcome in &judgement.outcomes {
            self.due += u64::from(outcome.due);
            let (Some((_, precision)), Some(given)) = (outcome.named_by, outcome.given) else { continue };
            self.named += u64::from(outcome.due);
            self.named_exactly += u64::from(outcome.due && precision == Closeness::Exact);
            self.worded.0 += 1;
            self.worded.1 += u64::from(outcome.words_right);
            // Any of the right words counts as the one that was expected.
            let given = if outcome.words_right { outcome.expected } else { given };
            *self.confusion.entry((outcome.expected, given)).or_default() += 1;
            self.detection_ms.extend(outcome.detection_ms);
            self.diagnosis_ms.extend(outcome.diagnosis_ms);
        }
        if !judgement.correct() {
            self.failing.insert((seed, scenario.to_owned()), judgement.wrong.clone());
        }
    }

    /// Adds the runs of another tally.
    pub fn merge(&mut self, other: Tally) {
        self.runs += other.runs;
        self.due += other.due;
        self.named += other.named;
        self.named_exactly += other.named_exactly;
        self.worded = (self.worded.0 + other.worded.0, self.worded.1 + other.worded.1);
        self.cases = (self.cases.0 + other.cases.0, self.cases.1 + other.cases.1);
        self.open_questions += other.open_questions;
        for (words, count) in other.confusion {
            *self.confusion.entry(words).or_default() += count;
        }
        self.detection_ms.extend(other.detection_ms);
        self.diagnosis_ms.extend(other.diagnosis_ms);
        self.failing.extend(other.failing);
    }

    /// Share of the cases that name a culprit and nobody else; 1 without cases.
    pub fn precision(&self) -> f64 {
        share(self.cases.0, self.cases.0 + self.cases.1)
    }

    /// Share of the due faults that a case names, at host level or better; 1 without faults.
    pub fn recall(&self) -> f64 {
        share(self.named, self.due)
    }

    /// Share of the due faults that a case names exactly.
    pub fn exact_recall(&self) -> f64 {
        share(self.named_exactly, self.due)
    }

    /// Share of the named faults for which what is wrong and the kind of fault are right.
    pub fn category_accuracy(&self) -> f64 {
        share(self.worded.1, self.worded.0)
    }

    /// From a fault to its case.
    pub fn detection_ms(&self) -> Spread {
        spread(&self.detection_ms)
    }

    /// From a case to its culprit.
    pub fn diagnosis_ms(&self) -> Spread {
        spread(&self.diagnosis_ms)
    }

    /// The runs that were wrong, by seed.
    pub fn failing(&self) -> Vec<Failure> {
        let failure = |((seed, scenario), why): (&(u64, String), &Vec<String>)| Failure {
            seed: *seed,
            scenario: scenario.clone(),
            why: why.clone(),
        };
        self.failing.iter().map(failure).collect()
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}

fn spread(durations: &[u64]) -> Spread {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    let at = |percent: usize| {
        let rank = (sorted.len() * percent).div_ceil(100);
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    };
    Spread { median: at(50), p99: at(99) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Outcome;
    use mycroft_record::What;

    fn run(named: Option<Closeness>, words_right: bool, detection_ms: u64) -> Judgement {
        let outcome = Outcome {
            fault: 0,
            due: true,
            named_by: named.map(|precision| (0, precision)),
            expected: Category::Gpu,
            given: named.map(|_| if words_right { Category::Gpu } else { Category::Peer }),
            said: named.map(|_| What::Slowdown),
            words_right,
            detection_ms: named.map(|_| detection_ms),
            diagnosis_ms: named.map(|_| 7),
        };
        let wrong = if named.is_some() && words_right { vec![] } else { vec!["wrong".to_owned()] };
        let true_cases = usize::from(named.is_some());
        Judgement { outcomes: vec![outcome], true_cases, wrong, ..Judgement::default() }
    }

    #[test]
    fn numbers_are_shares_and_percentiles() {
        let mut tally = Tally::default();
        for seed in 0..200 {
            tally.add(seed, "s", &run(Some(Closeness::Exact), true, seed + 1));
        }
        assert_eq!((tally.precision(), tally.recall(), tally.category_accuracy()), (1.0, 1.0, 1.0));
        assert_eq!(tally.detection_ms(), Spread { median: 100, p99: 198 });
        tally.add(300, "s", &run(None, false, 0));
        tally.add(250, "s", &run(Some(Closeness::Host), false, 5));
        assert_eq!((tally.due, tally.named, tally.named_exactly), (202, 201, 200));
        assert_eq!(tally.category_accuracy(), 200.0 / 201.0);
        assert_eq!(tally.confusion[&(Category::Gpu, Category::Peer)], 1);
        assert_eq!(tally.failing().iter().map(|failure| failure.seed).collect::<Vec<u64>>(), [250, 300]);
    }

    #[test]
    fn the_order_of_the_runs_does_not_show() {
        let runs = [run(Some(Closeness::Exact), true, 9), run(None, false, 0), run(Some(Closeness::Host), false, 3)];
        let mut forth = Tally::default();
        let mut back = Tally::default();
        for (seed, run) in runs.iter().enumerate() {
            forth.add(seed as u64, "s", run);
        }
        for (seed, run) in runs.iter().enumerate().rev() {
            let mut one = Tally::default();
            one.add(seed as u64, "s", run);
            back.merge(one);
        }
        let numbers = |tally: &Tally| (tally.recall(), tally.detection_ms(), tally.diagnosis_ms(), tally.failing());
        assert_eq!(numbers(&forth), numbers(&back));
        assert_eq!(Tally::default().precision(), 1.0);
        assert_eq!(Tally::default().detection_ms(), Spread::default());
    }
}
