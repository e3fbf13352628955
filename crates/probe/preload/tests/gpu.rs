//! Ranks whose NCCL works on GPUs are tested with the driver's and cuBLAS's functions. The GPU is `examples/fake_gpu.rs`: it refuses
//! what a driver would refuse, and what would end a CUDA graph that the job is recording. No test here has seen a real one.
mod common;

use common::tests_of_ranks::{WITHIN, run};
use common::{Job, Shape};
use mycroft_ring::gate::hold::{Gates, Order, Terms};
use mycroft_ring::gate::task::{Ending, Kind};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const TERMS: Terms = Terms { agree_within: Duration::from_secs(20), at_most: Duration::from_secs(50) };
const BYTES: u64 = 1 << 18;
const RANKS: usize = 4;
/// A device that takes three times as long: far beyond what other processes of a busy machine make of a millisecond.
const SLOW_MILLI: u64 = 3_000;

#[test]
fn a_gpu_is_tested_by_its_driver_and_cublas_and_results_are_equal() {
    let shape = Shape { ranks: RANKS, job: "groups", apart: true, controlled: true, gpu: true, ..Shape::default() };
    let mut job = Job::start(&shape);
    let mut gates = Gates::open_all(&job.directories(), "gate-test").expect("gates");
    for _ in 0..2 {
        job.control().rank(2).compute_scale_milli.store(SLOW_MILLI, Relaxed);
        job.progress(1);
        let mut held = gates.hold(TERMS).expect("all come");
        let answers = run(&mut held, BYTES).unwrap_or_else(|problem| panic!("{problem}"));
        for of in &answers {
            assert!(of.values().all(|answer| answer.ending == Ending::Done), "{of:?}");
        }
        let fastest = |rank| answers[0][&rank].values[2].fastest_ns;
        for other in (0..RANKS).filter(|rank| *rank != 2) {
            assert!(5 * fastest(2) > 6 * fastest(other), "{:?}", answers[0]);
        }
        let copies: Vec<Order> = (0..RANKS).map(|rank| Order::Alone { rank, kind: Kind::Copy }).collect();
        let copies = held.run(&copies, WITHIN).expect("all live");
        assert_eq!(copies.len(), RANKS);
        assert!(copies.values().all(|copy| copy.ending == Ending::Done && copy.values[0].fastest_ns > 0), "{copies:?}");
        job.control().rank(2).compute_scale_milli.store(1_000, Relaxed);
    }
    job.progress(11);
    let with = job.stop();
    let bare = Job::start(&Shape { bare: true, rounds: Some(with[0].0), ..shape }).results();
    assert_eq!(with, bare, "not a bit differs");
}
