//! Right and wrong verdicts.
use super::*;
use mycroft_record::time::HostTime;
use mycroft_record::{Rank, Suspect};

fn truth(text: &str) -> Truth {
    Truth::of(&text.parse().unwrap(), &Scenario::default(), 1)
}

fn rank(rank: u32, confidence: f64) -> Suspect {
    Suspect { place: Place::Rank { rank: Rank(rank), host: "".into() }, confidence }
}

fn host(host: &str, confidence: f64) -> Suspect {
    Suspect { place: Place::Host { host: host.into() }, confidence }
}

fn finding(what: What, category: Category, suspects: Vec<Suspect>) -> Finding {
    Finding { what, category, suspects, since: HostTime(1), detected_at: HostTime(2), diagnosed_at: HostTime(3) }
}

#[test]
fn a_rank_fault_needs_its_rank() {
    let truth = truth("gpu-power@host1:rank6");
    let right = |suspects| score(&truth, Some(&finding(What::Slowdown, Category::Gpu, suspects))).correct;
    assert!(right(vec![rank(6, 0.9)]));
    assert!(right(vec![rank(6, 0.9), rank(7, 0.2)]));
    assert!(!right(vec![rank(6, 0.9), rank(7, 0.9)]));
    assert!(!right(vec![rank(7, 0.9), rank(6, 0.5)]));
    assert!(!right(vec![host("host1", 0.9)]));
    assert!(!right(vec![]));
}

#[test]
fn words_must_be_right() {
    let truth = truth("gpu-hang@host0");
    assert!(score(&truth, Some(&finding(What::Hang, Category::Gpu, vec![rank(0, 1.0)]))).correct);
    assert!(!score(&truth, Some(&finding(What::Slowdown, Category::Gpu, vec![rank(0, 1.0)]))).correct);
    let wrong = score(&truth, Some(&finding(What::Hang, Category::Peer, vec![rank(0, 1.0)])));
    assert!(!wrong.correct);
    assert!(wrong.why.contains("expected gpu, got peer"), "{}", wrong.why);
}

#[test]
fn a_host_fault_takes_the_host_or_ranks_of_it() {
    let truth = truth("nic-down@host2");
    let right = |suspects| score(&truth, Some(&finding(What::Hang, Category::NetworkSend, suspects))).correct;
    assert!(right(vec![host("host2", 0.8)]));
    assert!(right(vec![rank(8, 0.8), rank(11, 0.8)]));
    assert!(!right(vec![rank(8, 0.8), rank(12, 0.8)]));
    assert!(!right(vec![host("host1", 0.8)]));
}

#[test]
fn shared_nics_need_both_hosts() {
    let truth = truth("background-traffic@host0+host2");
    let right = |suspects| score(&truth, Some(&finding(What::Slowdown, Category::NetworkCongestion, suspects))).correct;
    assert!(right(vec![host("host0", 0.8), host("host2", 0.7)]));
    assert!(right(vec![rank(1, 0.8), rank(9, 0.7)]));
    assert!(!right(vec![host("host0", 0.8)]));
    assert!(!right(vec![host("host0", 0.8), host("host2", 0.7), host("host1", 0.75)]));
    let link =
        |from: &str, to: &str| Suspect { place: Place::Link { from: from.into(), to: to.into() }, confidence: 0.9 };
    assert!(right(vec![link("host2", "host0")]));
    assert!(!right(vec![link("host2", "host1")]));
}

#[test]
fn silence_is_right_only_when_healthy() {
    assert!(score(&Truth::healthy(), None).correct);
    let case = finding(What::Hang, Category::Gpu, vec![rank(0, 1.0)]);
    assert!(!score(&Truth::healthy(), Some(&case)).correct);
    assert!(!score(&truth("rank-crash@host0"), None).correct);
}

#[test]
fn the_other_end_of_the_only_wire_may_be_named_too() {
    let two = Scenario { hosts: 2, pp: 1, ..Scenario::default() };
    let truth = Truth::of(&Fault::new(FaultKind::NicBandwidth, 1), &two, 1);
    assert_eq!(truth.either, vec!["host0".to_owned()]);
    let right = |suspects| score(&truth, Some(&finding(What::Slowdown, Category::NetworkSend, suspects))).correct;
    assert!(right(vec![host("host0", 0.45), host("host1", 0.45)]));
    assert!(right(vec![host("host1", 0.9)]));
    assert!(!right(vec![host("host0", 0.9), host("host1", 0.45)]));
    assert!(!right(vec![host("host0", 0.9)]));
    // Four hosts in two dimensions: each has a second neighbour that clears it.
    assert!(Truth::of(&Fault::new(FaultKind::NicBandwidth, 1), &Scenario::default(), 1).either.is_empty());
}

#[test]
fn the_only_receiver_of_a_slow_sender_may_be_named_too() {
    let ring = Scenario { hosts: 8, ranks_per_host: 8, dp: 16, tp: 4, pp: 1, ..Scenario::default() };
    let fault: Fault = "memory-alignment@host0:rank7".parse().unwrap();
    let truth = Truth::of(&fault, &ring, 1);
    assert_eq!(truth.either_ranks, vec![11]);
    let right = |suspects| score(&truth, Some(&finding(What::Slowdown, Category::NetworkSend, suspects))).correct;
    assert!(right(vec![rank(7, 0.45), rank(11, 0.45)]));
    assert!(!right(vec![rank(11, 0.9), rank(7, 0.45)]));
    assert!(!right(vec![rank(11, 0.9)]));
    // What it sends to the other stage tells which end it is, and so does a tree.
    for other in
        [Scenario { dp: 8, pp: 2, ..ring.clone() }, Scenario { algo: Algo::Tree, dp_mode: DpMode::AllReduce, ..ring }]
    {
        assert!(Truth::of(&fault, &other, 1).either_ranks.is_empty());
    }
}

#[test]
fn slow_sends_on_the_only_wire_between_two_hosts_look_like_its_path() {
    let ring = Scenario { hosts: 8, ranks_per_host: 4, dp: 32, tp: 1, pp: 1, ..Scenario::default() };
    let fault: Fault = "memory-alignment@host0:rank3".parse().unwrap();
    let right = |scenario: &Scenario, category, suspects| {
        score(&Truth::of(&fault, scenario, 1), Some(&finding(What::Slowdown, category, suspects))).correct
    };
    let (path, sends) = (Category::NetworkCongestion, Category::NetworkSend);
    assert!(right(&ring, path, vec![host("host0", 0.8), host("host1", 0.8)]));
    assert!(!right(&ring, path, vec![host("host0", 0.8)]), "a path has two ends");
    assert!(!right(&ring, path, vec![host("host1", 0.8), host("host2", 0.8)]));
    assert!(right(&ring, sends, vec![rank(3, 0.8)]));
    // A second ring beside it has a link on the same path, which is as fast as before.
    let two = Scenario { tp: 2, dp: 16, ..ring };
    assert!(!right(&two, path, vec![host("host0", 0.8), host("host1", 0.8)]));
    assert!(right(&two, sends, vec![rank(3, 0.8)]));
}

#[test]
fn of_hosts_that_fail_together_two_must_be_named() {
    let truth = truth("host-crash@host1,severity=3");
    let right = |suspects| score(&truth, Some(&finding(What::Crash, Category::ProcessExit, suspects))).correct;
    assert!(right(vec![host("host1", 0.5), rank(12, 0.5)]));
    assert!(!right(vec![host("host1", 0.5), rank(5, 0.5)]));
    assert!(!right(vec![host("host1", 0.5), host("host2", 0.5), host("host0", 0.5)]));
}

#[test]
fn what_disturbs_only_the_view_deserves_no_case() {
    let truth = truth("agent-outage@host1");
    assert!(score(&truth, None).correct);
    assert!(!score(&truth, Some(&finding(What::Hang, Category::Unknown, vec![host("host1", 0.4)]))).correct);
}

#[test]
fn the_truth_says_when_it_is_over() {
    let over = |text: &str| truth(text).until_ms;
    assert_eq!(over("gpu-power,lasts=5,ramp=1"), Some(6_001));
    assert_eq!(over("agent-outage"), Some(5_001));
    assert_eq!((over("gpu-power"), over("link-flap,every=9")), (None, None));
}

#[test]
fn every_kind_has_an_expectation() {
    for kind in FaultKind::TESTBED {
        let expectation = expected(kind);
        assert_eq!(kind.stops_job(), expectation.whats[0] != What::Slowdown, "{kind}");
        assert!(!expectation.categories.is_empty());
    }
}
