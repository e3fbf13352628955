//! Real ranks are held at one agreed operation and go on, whatever happens to the requester and to each other.
mod common;

use common::{Job, PATIENCE, Shape};
use mycroft_ring::gate::LaneKind;
use mycroft_ring::gate::hold::{Gates, HoldError, Place, Terms};
use mycroft_ring::segment::SegmentReader;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TERMS: Terms = Terms { agree_within: Duration::from_secs(20), at_most: Duration::from_secs(20) };

fn all_reduces() -> Shape {
    Shape { ranks: 4, job: "all-reduce", ..Shape::default() }
}

fn groups() -> Shape {
    Shape { ranks: 4, job: "groups", ..Shape::default() }
}

/// Of each communicator all members wait before the same operation, and of each pair before the same transfer.
fn check_agreed(places: &[Place]) {
    let lanes = || places.iter().flat_map(|place| &place.next);
    for lane in lanes() {
        for other in lanes().filter(|other| other.key.comm == lane.key.comm) {
            let opposite = (LaneKind::Send, LaneKind::Recv) == (lane.key.kind, other.key.kind)
                && (lane.key.own, lane.key.other) == (other.key.other, other.key.own);
            let both = lane.key.kind == LaneKind::Collective && other.key.kind == LaneKind::Collective;
            if both || opposite {
                assert_eq!(lane.count, other.count, "{lane:?} {other:?}");
            }
        }
    }
}

/// Holds a job again and again; its results are those of a job that nothing stands before.
fn held_and_equal(shape: &Shape, holds: usize) {
    let mut job = Job::start(shape);
    let mut gates = job.gates().expect("gates");
    for i in 0..holds {
        job.progress(1);
        let mut held = gates.hold(TERMS).expect("all come");
        assert_eq!(held.places().len(), shape.ranks);
        check_agreed(held.places());
        held.keep(Duration::from_millis(if i == 0 { 200 } else { 20 })).expect("nobody moves");
    }
    job.progress(11);
    let with = job.stop();
    let rounds = with[0].0;
    let bare = Job::start(&Shape { bare: true, traced: false, rounds: Some(rounds), ..shape.clone() }).results();
    assert_eq!(with, bare, "not a bit differs");
}

#[test]
fn all_reduces_are_held_and_their_results_are_equal() {
    held_and_equal(&all_reduces(), 5);
}

#[test]
fn groups_of_sends_and_smaller_communicators_are_held_and_their_results_are_equal() {
    held_and_equal(&groups(), 5);
}

/// The tracer in the same process sees whether anybody waits inside an operation.
#[test]
fn while_ranks_are_held_nobody_waits_inside_an_operation_and_there_is_one_segment() {
    let shape = Shape { traced: true, ..groups() };
    let mut job = Job::start(&shape);
    let segments = mycroft_ring::segment::list(&job.segments()).expect("readable");
    assert_eq!(segments.len(), 4, "the tracer's, and none besides");
    let mut gates = job.gates().expect("gates in the tracer's segments");
    for _ in 0..5 {
        job.progress(1);
        let mut held = gates.hold(TERMS).expect("all come");
        let begun = Instant::now();
        for path in &segments {
            let reader = SegmentReader::open(path).expect("a segment");
            assert!(reader.state().expect("readable").profiler_abi > 0, "the tracer is at work");
            // What was issued ends, because all have issued it.
            while !reader.ops().expect("readable").items.is_empty() {
                held.keep(Duration::from_millis(1)).expect("nobody moves");
                assert!(begun.elapsed() < Duration::from_secs(10), "an operation waits for who is held");
            }
        }
    }
    job.progress(11);
    job.stop();
}

/// Not a test by itself: a requester in a process of its own.
#[test]
fn requester() {
    let Some(dir) = std::env::var_os("GATE_REQUESTER") else { return };
    let mut gates = Gates::open(dir.as_ref(), "gate-test").expect("gates");
    let mut held = gates.hold(TERMS).expect("all come");
    println!("held");
    let _ = held.keep(TERMS.at_most);
}

#[test]
fn a_killed_requester_lets_all_go_on() {
    let mut job = Job::start(&groups());
    for _ in 0..2 {
        let mut command = Command::new(std::env::current_exe().expect("a test knows its own path"));
        command.args(["requester", "--exact", "--nocapture", "--test-threads=1"]).env("GATE_REQUESTER", job.segments());
        let mut requester = command.stdout(Stdio::piped()).spawn().expect("a process");
        let out = BufReader::new(requester.stdout.take().expect("piped"));
        assert!(out.lines().map_while(Result::ok).any(|line| line.contains("held")), "it holds them");
        assert!(matches!(job.gates(), Err(HoldError::Busy(_))), "one requester at a time");
        requester.kill().expect("it lives");
        requester.wait().expect("a child");
        let killed = Instant::now();
        job.progress(11);
        // Half a second of silence, and what a busy machine adds; the deadline is 40 s away.
        assert!(killed.elapsed() < Duration::from_secs(15), "{:?}", killed.elapsed());
    }
    // Nothing of it is left.
    let mut gates = job.gates().expect("free again");
    drop(gates.hold(TERMS).expect("all come"));
    job.progress(11);
    job.stop();
}

#[test]
fn a_rank_that_is_killed_while_held_lets_the_others_go_on() {
    let mut job = Job::start(&Shape { apart: true, ..all_reduces() });
    let mut gates = job.gates().expect("gates");
    let mut held = gates.hold(TERMS).expect("all come");
    job.ranks[2].child.kill().expect("it lives");
    job.ranks[2].child.wait().expect("a child");
    let ended = held.keep(TERMS.at_most).expect_err("one is gone");
    assert!(matches!(ended, HoldError::Ended(who) if who.rank == 2), "{ended}");
    drop(held);
    // Without it their next operation fails: they came to it.
    for rank in [0, 1, 3] {
        job.ranks[rank].wait("failed", |rank| rank.end.is_some());
        let end = job.ranks[rank].end.clone().expect("waited for");
        assert!(end.starts_with("failed"), "{end}");
    }
}

#[test]
fn a_rank_that_does_not_come_lets_the_others_go_on() {
    let mut job = Job::start(&all_reduces());
    let mut gates = job.gates().expect("gates");
    // Stopped inside an operation that all have issued, it could not be told from those that wait for it.
    let held = gates.hold(TERMS).expect("all come");
    let stopped = job.ranks[1].child.id().cast_signed();
    // SAFETY: a child of ours.
    assert_eq!(unsafe { libc::kill(stopped, libc::SIGSTOP) }, 0);
    drop(held);
    let terms = Terms { agree_within: Duration::from_secs(1), ..TERMS };
    let missing = gates.hold(terms).err().expect("one does not come");
    assert!(matches!(missing, HoldError::Missing(who) if who.rank == 1), "{missing}");
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(stopped, libc::SIGCONT) }, 0);
    job.progress(11);
    job.stop();
}

#[test]
fn a_process_without_a_gate_is_told() {
    let job = Job::start(&Shape { bare: true, traced: true, ..all_reduces() });
    assert!(matches!(job.gates(), Err(HoldError::NoGate(_))));
    let begun = Instant::now();
    job.stop();
    assert!(begun.elapsed() < PATIENCE);
}
