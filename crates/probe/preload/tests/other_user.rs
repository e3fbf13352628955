//! An agent that runs as root tests ranks that another user started: they meet in segments that they find by themselves. Skips where the
//! test is not root.
mod common;

use common::tests_of_ranks::run;
use common::{Job, Shape};
use mycroft_ring::gate::hold::Terms;
use mycroft_ring::gate::task::Ending;
use std::time::Duration;

const TERMS: Terms = Terms { agree_within: Duration::from_secs(20), at_most: Duration::from_secs(35) };
/// Nobody, as most systems have it.
const USER: u32 = 65_534;

#[test]
fn ranks_of_another_user_are_tested_by_root_and_results_are_equal() {
    // SAFETY: takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root starts processes of another user");
        return;
    }
    let shape = Shape { ranks: 4, job: "groups", user: Some(USER), ..Shape::default() };
    let mut job = Job::start(&shape);
    let mut gates = job.gates().expect("gates");
    job.progress(1);
    let mut held = gates.hold(TERMS).expect("all come");
    let answers = run(&mut held, 1 << 18).unwrap_or_else(|problem| panic!("{problem}"));
    for of in &answers {
        assert!(of.len() == 4 && of.values().all(|answer| answer.ending == Ending::Done), "{of:?}");
    }
    drop(held);
    job.progress(11);
    let with = job.stop();
    let bare = Shape { bare: true, user: None, rounds: Some(with[0].0), ..shape };
    assert_eq!(with, Job::start(&bare).results(), "not a bit differs");
}
