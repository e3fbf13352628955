//! A small job over a network that loses packets: what the meter counts as sent for the first time is what the library says that it
//! sent, on every queue pair.

mod common;

use common::rdma::{curves, world};
use common::*;
use mycroft_flow::{Ports, limits::Grain};
use mycroft_testbed_nccl::abi::{DType, Func, RedOp};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

const RANKS: usize = 3;
const OPERATIONS: usize = 4;
/// Elements of an operation: 1 MiB.
const COUNT: usize = 1 << 18;

/// What went to a receiver's queue pair: bytes sent for the first time, and again.
type Sent = BTreeMap<(IpAddr, IpAddr, u32), (u64, u64)>;

fn measured(folder: &Path, address: IpAddr) -> Sent {
    let mut sent = Sent::new();
    for (key, curve) in curves(folder, address, Grain::default()).flows() {
        let Ports::QueuePair(number) = key.ports else { panic!("{key:?}") };
        let again: u64 = curve.epochs().map(|epoch| epoch.again_bytes).sum();
        let all: u64 = curve.epochs().map(|epoch| epoch.bytes).sum();
        assert_eq!(again, curve.exchange.again_bytes, "a sender sees all of what it sends again");
        sent.insert((key.source, key.destination, number), (all + curve.carried_bytes - again, again));
    }
    sent
}

#[test]
fn bytes_without_those_sent_again_are_what_the_library_sent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let settings = [
        ("MYCROFT_VERBS_PCAP", path),
        ("MYCROFT_TESTBED_SENT", path),
        ("MYCROFT_VERBS_FAULTS", "drop=0.01,reorder=0.01,seed=5"),
        ("NCCL_IB_TIMEOUT", "10"),
    ];
    let job = world(RANKS, 0, &settings);
    let case = Case { func: Func::AllReduce, dtype: DType::F32, op: RedOp::Sum, count: COUNT, root: 0 };
    let inputs: Vec<Vec<u8>> = (0..RANKS).map(|rank| case.input(rank, RANKS)).collect();
    job.run(|me| (0..OPERATIONS).for_each(|_| drop(me.collective(&case, &inputs[me.rank], false))));

    // A device writes what is left of its file when a queue pair goes.
    let sent: Sent = job.addresses.iter().flat_map(|address| measured(folder.path(), *address)).collect();
    let told = std::fs::read_to_string(folder.path().join(format!("{}.sent", std::process::id()))).unwrap();
    let mut truth: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for line in told.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let way = (words[0].parse().unwrap(), words[1].parse().unwrap(), words[2].parse().unwrap());
        let (began, done): (u64, u64) = (words[3].parse().unwrap(), words[4].parse().unwrap());
        assert!(began < done, "{line}");
        truth.entry(way).or_default().push(words[5].parse().unwrap());
    }
    assert_eq!(truth.len(), RANKS * job.channels, "a queue pair for each rank and channel");
    for (way, operations) in truth {
        assert_eq!(operations.len(), OPERATIONS, "{way:?}");
        assert_eq!(sent[&way].0, operations.iter().sum::<u64>(), "{way:?}");
    }
    assert!(sent.values().any(|(_, again)| *again > 0), "packets were lost");
}
