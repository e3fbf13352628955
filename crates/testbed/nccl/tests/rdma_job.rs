//! A small job over RDMA: what its devices send is measured by Mycroft's own meter, which finds each operation and its volume.

mod common;

use common::rdma::{curves, world};
use common::*;
use mycroft_flow::{Curve, limits::Grain};
use mycroft_testbed_nccl::abi::{DType, Func, RedOp};
use mycroft_testbed_nccl::api::mtbLaunchCompute;
use std::time::{Duration, Instant};

const RANKS: usize = 3;
const OPERATIONS: usize = 5;
/// Elements of an operation: 3 MiB.
const COUNT: usize = 3 << 18;
/// Computation between operations, in nanoseconds, and the pause on the wire that shows where one ends.
const COMPUTE_NS: u64 = 200_000_000;
const PAUSE_NS: u64 = COMPUTE_NS / 2;
/// Longer than it takes until a device that has nothing to do writes what it sent.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes between pauses.
fn operations(curve: &Curve, grain: Grain) -> Vec<u64> {
    let mut sums: Vec<u64> = Vec::new();
    let mut last = None;
    for (epoch, bytes) in &curve.points {
        let goes_on = last.is_some_and(|last| (epoch - last) * grain.epoch_ns() < PAUSE_NS);
        match sums.last_mut().filter(|_| goes_on) {
            Some(sum) => *sum += u64::from(*bytes),
            None => sums.push(u64::from(*bytes)),
        }
        last = Some(*epoch);
    }
    sums
}

#[test]
fn a_meter_finds_each_operation_and_its_volume() {
    let folder = tempfile::tempdir().unwrap();
    let job = world(RANKS, 0, &[("MYCROFT_VERBS_PCAP", folder.path().to_str().unwrap())]);
    let case = Case { func: Func::AllReduce, dtype: DType::F32, op: RedOp::Sum, count: COUNT, root: 0 };
    let inputs: Vec<Vec<u8>> = (0..RANKS).map(|rank| case.input(rank, RANKS)).collect();
    let outputs = job.run(|me| {
        let mut out = vec![0u8; COUNT * 4];
        for _ in 0..OPERATIONS {
            me.issue(&case, inputs[me.rank].as_ptr().cast(), out.as_mut_ptr().cast());
            // SAFETY: a live stream.
            assert_eq!(unsafe { mtbLaunchCompute(me.stream, COMPUTE_NS) }, 0);
        }
        me.sync();
        out
    });
    verify(RANKS, &case, &inputs, &outputs);

    let grain = Grain::default();
    // A ring sends 2 (n - 1) / n of the bytes, in equal parts on its channels.
    let expected = (COUNT * 4 * 2 * (RANKS - 1) / RANKS / job.channels) as u64;
    for address in &job.addresses {
        let began = Instant::now();
        let data = loop {
            let flows: Vec<Curve> = curves(folder.path(), *address, grain).flows().values().cloned().collect();
            // Credits go the other way, of 32 bytes each.
            let data: Vec<Curve> = flows.into_iter().filter(|flow| flow.peak_bytes > 4096).collect();
            let sent: u64 = data.iter().map(|flow| flow.epoch_bytes).sum();
            if sent >= expected * (job.channels * OPERATIONS) as u64 * 99 / 100 {
                break data;
            }
            assert!(began.elapsed() < PATIENCE, "{sent} bytes in the file of {address}");
            std::thread::yield_now();
        };
        assert_eq!(data.len(), job.channels, "a queue pair for each channel");
        for flow in data {
            let found = operations(&flow, grain);
            assert_eq!(found.len(), OPERATIONS, "{found:?}");
            assert!(
                found.iter().all(|bytes| bytes.abs_diff(expected) * 100 <= expected),
                "{found:?}, not {expected} each"
            );
        }
    }
}
