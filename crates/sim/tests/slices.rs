//! What goes over the wires between hosts: each byte of the job once, in order on a queue pair, and nothing from a NIC that is
//! down.
use mycroft_sim::{Fault, FaultKind, Scenario, Simulation, Slice};
use std::collections::BTreeMap;

fn slices(scenario: &Scenario) -> Vec<Slice> {
    let mut simulation = Simulation::new(scenario);
    simulation.tap_wires();
    let mut all = Vec::new();
    while simulation.next_stretch().is_some() {
        all.extend(simulation.take_slices());
    }
    all
}

/// Four hosts of two ranks, tensor parallel 2 inside of a host, data parallel 4: rings of gradients only.
fn rings() -> Scenario {
    let mut scenario = Scenario {
        hosts: 4,
        ranks_per_host: 2,
        tp: 2,
        pp: 1,
        dp: 4,
        dp_bytes: 4 << 20,
        loss_every: 0,
        duration_s: 4.0,
        ..Scenario::default()
    };
    scenario.cluster.nics_per_host = 2;
    scenario
}

#[test]
fn a_job_that_nobody_taps_keeps_nothing() {
    let mut simulation = Simulation::new(&rings());
    while simulation.next_stretch().is_some() {
        assert_eq!(simulation.take_slices(), []);
    }
}

#[test]
fn each_member_of_a_ring_sends_what_its_operations_are() {
    let scenario = rings();
    let mut sent: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    let mut last: BTreeMap<u32, u64> = BTreeMap::new();
    let mut all = slices(&scenario);
    all.sort_by_key(|slice| slice.begin_ns);
    for slice in &all {
        assert!(slice.end_ns > slice.begin_ns);
        let before = last.insert(slice.queue_pair, slice.end_ns).unwrap_or(0);
        assert!(before <= slice.begin_ns, "two slices at once on queue pair {}", slice.queue_pair);
        *sent.entry((slice.from_nic, slice.to_nic)).or_default() += slice.bytes;
    }
    // Ring of the four hosts on each of two rails, on two channels.
    let ways: Vec<(u32, u32)> = (0..8).map(|nic| (nic, (nic + 2) % 8)).collect();
    assert_eq!(sent.keys().copied().collect::<Vec<_>>(), ways);
    assert_eq!(last.len(), 16);
    // ReduceScatter and AllGather: three quarters of the gradients each; the last iteration may be under way.
    let of_iteration = 2 * 3 * (4 << 20) / 4;
    for (way, bytes) in &sent {
        let first = sent[&(0, 2)];
        assert!(*bytes > 5 * of_iteration && bytes.abs_diff(first) <= of_iteration, "{way:?}: {bytes}, {first}");
    }
}

#[test]
fn a_nic_that_is_down_sends_nothing_and_what_is_for_it_leaves_once() {
    let mut scenario = rings();
    let down_ns = 2_000_000_000;
    scenario.fault = Some(Fault { after_s: 2.0, ..Fault::new(FaultKind::NicDown, 1) });
    let all = slices(&scenario);
    let last = |nic: u32| all.iter().filter(|slice| slice.from_nic == nic).map(|slice| slice.end_ns).max().unwrap_or(0);
    assert!(last(2) <= down_ns && last(3) <= down_ns);
    let sent = |nic: u32| all.iter().filter(|slice| slice.from_nic == nic).map(|slice| slice.bytes).sum::<u64>();
    for nic in [0, 4, 6] {
        assert!(sent(nic) > sent(2), "NIC {nic} sent {}, that which is down {}", sent(nic), sent(2));
    }
}
