//! What faults do to parts.
use super::*;

const S: u64 = 1_000_000_000;

fn effects(text: &str) -> Effects {
    let fault = Fault { after_s: 10.0, ..text.parse().unwrap() };
    let scenario = Scenario { fault: Some(fault), duration_s: 100.0, ..Scenario::default() };
    scenario.check().unwrap();
    Effects::of(&scenario)
}

#[test]
fn a_link_that_is_down_carries_nothing_in_either_direction() {
    let effects = effects("nic-down@host2");
    let host = &effects.hosts[&2];
    assert_eq!((host.nic_tx.rate_at(9 * S), host.nic_tx.rate_at(10 * S)), (1.0, 0.0));
    assert_eq!(host.nic_rx.rate_at(90 * S), 0.0);
    assert_eq!(host.link_down, vec![(10 * S, NEVER)]);
    assert!(effects.ranks.is_empty() && effects.paths.is_empty());
}

#[test]
fn rates_are_what_the_testbed_makes_them() {
    assert_eq!(effects("nic-bandwidth@host1,severity=10").hosts[&1].nic_tx.rate_at(NEVER - 1), 0.1);
    // 64 MB/s / 16 of a healthy 2 GB/s.
    assert_eq!(effects("pcie-downgrade@host1:rank6").ranks[&6].copy.rate_at(50 * S), 0.002);
    assert_eq!(effects("gpu-power@host1:rank6,severity=2").ranks[&6].compute.rate_at(50 * S), 0.5);
    let host = effects("background-compute@host3,severity=4");
    assert_eq!(host.ranks.keys().copied().collect::<Vec<u32>>(), vec![12, 13, 14, 15]);
    let sleepy = effects("proxy-delay@host0:rank1,severity=5");
    assert_eq!(sleepy.ranks[&1].proxy_sleeps, vec![(10 * S, NEVER, 0.05, S)]);
}

#[test]
fn other_traffic_leaves_a_share_at_both_ends() {
    let effects = effects("background-traffic@host0+host2,severity=0.75");
    for host in [0, 2] {
        assert_eq!(effects.hosts[&host].nic_rx.rate_at(20 * S), 0.25);
        assert_eq!(effects.hosts[&host].other_traffic, vec![(10 * S, NEVER, 37_500_000)]);
    }
    assert!(effects.hosts.len() == 2 && effects.paths.is_empty());
}

#[test]
fn congestion_is_of_one_path_and_comes_in_gusts() {
    let effects = effects("network-congestion@host0+host1,severity=0.8,lasts=20");
    let path = &effects.paths[&(1, 0)];
    let rates: Vec<f64> = (10..30).map(|second| path.rate_at(second * S)).collect();
    assert!(rates.iter().all(|rate| (0.14..=0.26).contains(rate)) && rates[0] != rates[1], "{rates:?}");
    assert_eq!((path.rate_at(9 * S), path.rate_at(30 * S)), (1.0, 1.0));
    assert!(effects.hosts.is_empty());
}

#[test]
fn power_limits_and_slow_processors_become_rates() {
    assert_eq!(effects("gpu-throttling@host0,severity=350").ranks[&0].compute.rate_at(20 * S), 0.65);
    let throttled = effects("cpu-throttling@host1,severity=4");
    assert_eq!(throttled.ranks[&5].host.rate_at(20 * S), 0.25);
    // 64 KiB take 1.3 ms at 50 MB/s; the proxy needs 0.29 x 4 of that.
    let rate = throttled.ranks[&5].proxy.rate_at(20 * S);
    assert!((rate - 3_000.0 / (0.29 * 4.0 * 1_310_720.0)).abs() < 1e-9, "{rate}");
    let busy = effects("cpu-contention@host1,severity=90");
    assert_eq!(busy.ranks[&6].proxy_sleeps, vec![(10 * S, NEVER, 0.25, 4_000_000)]);
    // A fifth of the PCIe link of one of four ranks behind a NIC of 50 MB/s, for each of two channels.
    let contended = effects("pcie-contention@host1,severity=0.8").ranks[&4].copy.rate_at(20 * S);
    assert!((contended - 0.2 * 1.28 * 50e6 / 8.0 / 2e9).abs() < 1e-9, "{contended}");
}

#[test]
fn what_is_not_of_the_job_touches_only_what_is_seen() {
    assert_eq!(effects("agent-outage@host1").hosts[&1].agent_out, vec![(10 * S, 15 * S)]);
    assert_eq!(effects("store-outage,lasts=7").store_out, vec![(10 * S, 17 * S)]);
    assert_eq!(effects("record-loss@host2,severity=5").hosts[&2].lost, vec![(10 * S, NEVER, 0.05)]);
}

#[test]
fn every_kind_does_something() {
    for &kind in FaultKind::ALL {
        let mut scenario = Scenario { duration_s: 60.0, ..Scenario::default() };
        scenario.cluster.fabric = crate::Fabric::SpineLeaf;
        scenario.cluster.hosts_per_leaf = 2;
        let peer_host = (kind.level() == FaultLevel::HostPair).then_some(1);
        scenario.fault = Some(Fault { peer_host, ..Fault::new(kind, 0) });
        scenario.check().unwrap();
        assert_ne!(Effects::of(&scenario), Effects::default(), "{kind}");
    }
}

#[test]
fn faults_that_end_a_rank_have_a_moment() {
    assert_eq!(effects("gpu-hang@host0").ranks[&0].hangs_at, Some(10 * S));
    assert_eq!(effects("rank-crash@host1").ranks[&4].killed_at, Some(10 * S));
    assert_eq!(effects("rank-stuck@host1:rank7").ranks[&7].stuck_at, Some(10 * S));
    let failed = &effects("gpu-execution-error@host1,severity=3").ranks[&4];
    assert_eq!((failed.hangs_at, failed.killed_at), (Some(10 * S), Some(13 * S)));
    let lost = effects("host-lost@host1,severity=2");
    assert!((4..12).all(|rank| lost.ranks[&rank].killed_at == Some(10 * S)));
    assert_eq!(lost.hosts[&2].agent_out, vec![(10 * S, NEVER)]);
    let order = effects("collective-order@host0");
    assert!([0, 5].iter().all(|rank| order.ranks[rank].wrong_call == Some((10 * S, WrongCall::OtherOrder))));
}

#[test]
fn several_faults_act_together() {
    let fault = |text: &str, after_s: f64| Fault { after_s, ..text.parse().unwrap() };
    let scenario = Scenario {
        fault: Some(fault("gpu-power@host0,severity=2", 10.0)),
        faults: vec![fault("background-compute@host0,severity=4", 20.0), fault("gpu-hang@host0", 40.0)],
        ..Scenario::default()
    };
    let effects = Effects::of(&scenario);
    assert_eq!(effects.ranks[&0].compute.rate_at(15 * S), 0.5);
    assert_eq!(effects.ranks[&0].compute.rate_at(25 * S), 0.125);
    assert_eq!(effects.ranks[&1].compute.rate_at(25 * S), 0.25);
    assert_eq!(effects.ranks[&0].hangs_at, Some(40 * S));
}

#[test]
fn a_fault_can_come_on_slowly_and_go_and_come_back() {
    let mut fault: Fault = "gpu-power@host0,severity=2,lasts=20,ramp=8,every=60".parse().unwrap();
    fault.after_s = 10.0;
    let scenario = Scenario { fault: Some(fault), duration_s: 100.0, ..Scenario::default() };
    scenario.check().unwrap();
    let compute = &Effects::of(&scenario).ranks[&0].compute;
    let rates: Vec<f64> = (9..20).map(|second| compute.rate_at(second * S)).collect();
    assert_eq!(rates, [1.0, 0.9375, 0.875, 0.8125, 0.75, 0.6875, 0.625, 0.5625, 0.5, 0.5, 0.5]);
    let rates: Vec<f64> = (29..39).map(|second| compute.rate_at(second * S)).collect();
    assert_eq!(rates, [0.5, 0.5625, 0.625, 0.6875, 0.75, 0.8125, 0.875, 0.9375, 1.0, 1.0]);
    assert_eq!(compute.rate_at(69 * S), 1.0);
    assert_eq!(compute.rate_at(80 * S), 0.5);
    assert_eq!(compute.rate_at(99 * S), 1.0);
}
