//! What is wrong with a plan, before anybody is held for it.
use super::{Pair, Plan, Work};
use mycroft_record::Rank;
use std::collections::BTreeSet;
use std::fmt;

/// Something that a plan must not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Problem {
    /// It tests nothing.
    Empty,
    /// A pass in which nobody does anything.
    EmptyPass {
        /// Number of the pass.
        pass: usize,
    },
    /// A rank that is not there.
    Unknown {
        /// Number of the pass.
        pass: usize,
        /// Who.
        rank: Rank,
    },
    /// A rank that does two things at once, or tests the way to itself.
    Twice {
        /// Number of the pass.
        pass: usize,
        /// Who.
        rank: Rank,
    },
    /// A pair that was tested in an earlier pass.
    Again {
        /// Number of the pass.
        pass: usize,
        /// Who.
        pair: (Rank, Rank),
    },
    /// A pass without an end.
    Endless {
        /// Number of the pass.
        pass: usize,
    },
    /// It usually takes longer than ranks may be held.
    TooLong {
        /// What it takes, nanoseconds.
        usual_ns: u64,
        /// What there is, nanoseconds.
        most_ns: u64,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Empty => write!(f, "nothing is tested"),
            Problem::EmptyPass { pass } => write!(f, "nobody does anything in pass {pass}"),
            Problem::Unknown { pass, rank } => write!(f, "rank {rank} of pass {pass} is not there"),
            Problem::Twice { pass, rank } => write!(f, "rank {rank} does two things in pass {pass}"),
            Problem::Again { pass, pair } => {
                write!(f, "the way between ranks {} and {} is tested again in pass {pass}", pair.0, pair.1)
            }
            Problem::Endless { pass } => write!(f, "pass {pass} has no end"),
            Problem::TooLong { usual_ns, most_ns } => {
                write!(
                    f,
                    "it takes {} ms, and ranks are held for {} ms at most",
                    usual_ns / 1_000_000,
                    most_ns / 1_000_000
                )
            }
        }
    }
}

/// Everything that is wrong with a plan for these ranks, which may be held for `most_ns`; empty: it may be run.
pub fn lint(plan: &Plan, known: &BTreeSet<Rank>, most_ns: u64) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut tested: BTreeSet<(Rank, Rank)> = BTreeSet::new();
    if plan.passes.is_empty() {
        problems.push(Problem::Empty);
    }
    for (pass, step) in plan.passes.iter().enumerate() {
        let ranks: Vec<Rank> = match &step.work {
            Work::Alone { ranks, .. } => ranks.clone(),
            Work::Pairs(pairs) => pairs.iter().flat_map(|pair| [pair.one.rank, pair.other.rank]).collect(),
        };
        if ranks.is_empty() {
            problems.push(Problem::EmptyPass { pass });
        }
        let mut busy = BTreeSet::new();
        for rank in ranks {
            if !known.contains(&rank) {
                problems.push(Problem::Unknown { pass, rank });
            }
            if !busy.insert(rank) {
                problems.push(Problem::Twice { pass, rank });
            }
        }
        if let Work::Pairs(pairs) = &step.work {
            let again = pairs.iter().map(Pair::ranks).filter(|pair| !tested.insert(*pair));
            problems.extend(again.map(|pair| Problem::Again { pass, pair }));
        }
        if step.usual_ns == 0 || step.at_most_ns < step.usual_ns || step.at_most_ns == u64::MAX {
            problems.push(Problem::Endless { pass });
        }
    }
    if plan.usual_ns() > most_ns {
        problems.push(Problem::TooLong { usual_ns: plan.usual_ns(), most_ns });
    }
    problems
}
