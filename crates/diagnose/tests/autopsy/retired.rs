//! Recorders that retire what was only issued, as those of a backend in Python do.
use crate::build::{Call, Job, REDUCE};
use mycroft_diagnose::stacks::{Question, autopsy};
use mycroft_record::dump::EntryState::{Completed, Scheduled};

const WORLD: &[u32] = &[0, 1, 2, 3];

/// The outcome where all have issued the same, and so many of them wait.
fn outcome(waiting: &[u32], tells_ends: bool) -> String {
    let mut job = Job::new(4, &[("world", WORLD)]);
    for _ in 0..4 {
        job.all(WORLD, 0, Call { state: Scheduled, ..REDUCE });
    }
    for rank in WORLD {
        match waiting.contains(rank) {
            true => job.waits(*rank, "all_reduce"),
            false => job.stack(*rank, &[("forward", "/home/me/train.py", 20), ("step", "/home/me/train.py", 10)]),
        }
    }
    let mut bundle = job.bundle();
    for entry in bundle.dumps.iter_mut().flat_map(|dump| &mut dump.entries) {
        entry.retired = true;
        entry.state = if tells_ends { Completed } else { Scheduled };
    }
    let answer = autopsy(&bundle, &Question::default());
    let doubts = answer.caveats.iter().any(|caveat| caveat.rule == "no-ends");
    format!("{} {doubts}", answer.outcome.as_str())
}

#[test]
fn a_job_in_which_all_wait_is_not_healthy_because_everything_is_retired() {
    assert_eq!(outcome(WORLD, false), "unknown true");
    assert_eq!(outcome(&[0, 1, 2], false), "healthy false", "one computes");
    assert_eq!(outcome(WORLD, true), "healthy false", "what is told to be complete is");
}
