//! Real ranks are tested while they are held, and go on as if nothing had been, whoever is killed meanwhile.
mod common;

use common::tests_of_ranks::{WITHIN, pair, run};
use common::{Job, Shape};
use mycroft_ring::gate::hold::{Gates, Terms};
use mycroft_ring::gate::task::{Ending, Times};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const TERMS: Terms = Terms { agree_within: Duration::from_secs(20), at_most: Duration::from_secs(35) };
const BYTES: u64 = 1 << 18;

fn shape() -> Shape {
    Shape { ranks: 4, job: "groups", ..Shape::default() }
}

/// What a job gives that nothing stands before.
fn bare(shape: &Shape, rounds: u64) -> Vec<(u64, String)> {
    Job::start(&Shape { bare: true, rounds: Some(rounds), ..shape.clone() }).results()
}

/// Whether values are measured. Small messages of a pair, two of its four, say nothing where threads waited for a processor.
fn are_measured(values: &[Times]) -> bool {
    values.iter().enumerate().all(|(at, times)| {
        let is_not_of_the_way = values.len() == 4 && at % 2 == 1 && times.median_ns == 0;
        is_not_of_the_way || (times.fastest_ns > 0 && times.fastest_ns <= times.median_ns)
    })
}

#[test]
fn ranks_are_tested_while_they_are_held_and_results_are_equal() {
    let traced = Shape { traced: true, apart: true, ..shape() };
    for shape in [shape(), traced, Shape { ranks: 3, job: "all-reduce", ..shape() }] {
        let mut job = Job::start(&shape);
        let mut gates = job.gates().expect("gates");
        for _ in 0..2 {
            job.progress(1);
            let mut held = gates.hold(TERMS).expect("all come");
            // With three ranks the last pair of a pass has a member of the first one.
            let n = held.places().len() & !1;
            let answers = run(&mut held, BYTES).unwrap_or_else(|problem| panic!("{problem}"));
            for (pass, values) in [3, 3, 2, 4, 4].into_iter().enumerate() {
                let done: Vec<_> = answers[pass].values().filter(|answer| answer.ending == Ending::Done).collect();
                assert!(done.len() >= n.min(answers[pass].len()), "pass {pass}: {:?}", answers[pass]);
                assert!(done.iter().all(|answer| are_measured(&answer.values[..values])), "{done:?}");
            }
        }
        job.progress(11);
        let with = job.stop();
        assert_eq!(with, bare(&shape, with[0].0), "not a bit differs");
    }
}

#[test]
fn a_pair_of_which_one_does_not_come_does_nothing_and_results_are_equal() {
    let mut job = Job::start(&shape());
    let mut gates = job.gates().expect("gates");
    job.progress(1);
    let mut held = gates.hold(TERMS).expect("all come");
    let places = held.places().to_vec();
    let pid = job.ranks[1].child.id().cast_signed();
    for (keeper, guest) in [(0, 1), (1, 2)] {
        // SAFETY: a child of ours.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0);
        let orders = [pair(&places, keeper, guest, BYTES)];
        let answers = held.run(&orders, Duration::from_secs(4)).expect("all live");
        let present = if keeper == 1 { guest } else { keeper };
        assert_eq!(answers.keys().copied().collect::<Vec<_>>(), [present]);
        assert_eq!(answers[&present].ending, Ending::Apart);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGCONT) }, 0);
        // It comes too late, and finds that out; the next test of both takes place.
        let answers = held.run(&orders, WITHIN).expect("all live");
        assert!(answers.values().all(|answer| answer.ending == Ending::Done), "{answers:?}");
    }
    drop(held);
    job.progress(11);
    let with = job.stop();
    assert_eq!(with, bare(&shape(), with[0].0), "not a bit differs");
}

/// Not a test by itself: a requester in a process of its own, which holds and tests again and again.
#[test]
fn requester() {
    let Some(dir) = std::env::var_os("TEST_REQUESTER") else { return };
    loop {
        let mut gates = Gates::open(dir.as_ref(), "gate-test").expect("gates");
        let mut held = gates.hold(TERMS).expect("all come");
        println!("held");
        // A rank that was killed ends it.
        run(&mut held, BYTES).expect("all live");
    }
}

/// Numbers that look random, the same for each seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// A requester at work: killed after so long since it held them first.
fn kill_requester(job: &Job, after: Duration) {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own path"));
    command.args(["requester", "--exact", "--nocapture", "--test-threads=1"]).env("TEST_REQUESTER", job.segments());
    let mut requester = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a process");
    let out = BufReader::new(requester.stdout.take().expect("piped"));
    assert!(out.lines().map_while(Result::ok).any(|line| line.contains("held")), "it holds them");
    pause(after);
    requester.kill().expect("it lives");
    requester.wait().expect("a child");
}

/// Nothing is waited for: the moment is random.
fn pause(time: Duration) {
    let (_keep, never) = channel::<()>();
    let _ = never.recv_timeout(time);
}

fn kills(normally: u64) -> u64 {
    std::env::var("MYCROFT_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(normally)
}

/// `MYCROFT_KILLS=500 cargo test -p mycroft-preload --test tested killed` plays so many, in ten minutes.
#[test]
fn requesters_that_are_killed_at_random_moments_of_a_test_cost_nothing() {
    let shape = Shape { apart: true, ..shape() };
    let mut job = Job::start(&shape);
    let mut draw = Draw(1);
    for _ in 0..kills(40) {
        kill_requester(&job, Duration::from_micros(draw.below(400_000)));
        let killed = Instant::now();
        job.progress(1);
        // Half a second of silence, a test that was under way, and what a busy machine adds.
        assert!(killed.elapsed() < Duration::from_secs(20), "{:?}", killed.elapsed());
    }
    let mut gates = job.gates().expect("free again");
    let mut held = gates.hold(TERMS).expect("all come");
    run(&mut held, BYTES).expect("tests go on");
    drop(held);
    job.progress(11);
    let with = job.stop();
    assert_eq!(with, bare(&shape, with[0].0), "not a bit differs");
}

/// A fifth of `MYCROFT_KILLS`, else ten.
#[test]
fn ranks_that_are_killed_at_random_moments_of_a_test_let_the_others_go_on() {
    let shape = Shape { ranks: 3, job: "all-reduce", apart: true, ..shape() };
    let mut draw = Draw(2);
    for number in 0..kills(50) / 5 {
        let mut job = Job::start(&shape);
        let mut gates = job.gates().expect("gates");
        let victim = draw.below(3) as usize;
        let pid = job.ranks[victim].child.id().cast_signed();
        let after = Duration::from_micros(draw.below(300_000));
        let mut held = gates.hold(TERMS).expect("all come");
        let killer = std::thread::spawn(move || {
            pause(after);
            // SAFETY: a child of ours that nobody has waited for.
            assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
        });
        while run(&mut held, BYTES).is_ok() {}
        drop(held);
        killer.join().expect("joins");
        let killed = Instant::now();
        // Their next operation fails: they came to it.
        for (rank, process) in job.ranks.iter_mut().enumerate().filter(|(rank, _)| *rank != victim) {
            process.wait("failed", |rank| rank.end.is_some());
            let end = process.end.clone().expect("waited for");
            assert!(end.starts_with("failed"), "kill {number}: rank {rank} {end}");
        }
        assert!(killed.elapsed() < Duration::from_secs(30), "kill {number}: {:?}", killed.elapsed());
    }
}
