//! What a validation does to a finding.
use mycroft_diagnose::validate::{Check, CheckResult, LinkMeasure, LinkResult, Outcome, Times, Weighed, judge, weigh};
use mycroft_record::{Category, Finding, HostName, HostTime, Place, Rank, Suspect, What};
use std::collections::BTreeMap;

fn hosts() -> BTreeMap<Rank, HostName> {
    (0..8).map(|rank| (Rank(rank), HostName::from(format!("host{}", rank / 2).as_str()))).collect()
}

fn host(number: u32) -> HostName {
    HostName::from(format!("host{number}").as_str())
}

fn finding(category: Category, place: Place) -> Finding {
    Finding {
        what: What::Slowdown,
        category,
        suspects: vec![Suspect { place, confidence: 0.6 }],
        since: HostTime::NONE,
        detected_at: HostTime::NONE,
        diagnosed_at: HostTime::NONE,
    }
}

fn on(rank: u32) -> Place {
    Place::Rank { rank: Rank(rank), host: host(rank / 2) }
}

/// Eight ranks tested, one slow in this check if any, and the ring of hosts with one slow way if any.
fn weighed(finding: &Finding, slow: Option<(u32, Check)>, way: Option<u32>) -> Weighed {
    let times = |is_slow| Times { fastest_ns: if is_slow { 120 } else { 100 }, median_ns: 130 };
    let check = slow.map_or(Check::Device, |slow| slow.1);
    let result = |rank| CheckResult { rank: Rank(rank), check, part: 0, times: times(slow == Some((rank, check))) };
    let link = |i: u32| LinkResult {
        from: Rank(2 * i),
        to: Rank((2 * i + 2) % 8),
        between_hosts: true,
        measure: LinkMeasure::Bandwidth,
        times: times(way == Some(i)),
    };
    let judgement = judge(&(0..8).map(result).collect::<Vec<_>>(), &(0..4).map(link).collect::<Vec<_>>());
    weigh(finding, &judgement, &hosts())
}

#[test]
fn a_suspect_that_is_slow_is_confirmed() {
    let after = weighed(&finding(Category::Gpu, on(3)), Some((3, Check::Device)), None);
    assert_eq!((after.outcome, after.category, after.suspects.len()), (Outcome::Confirmed, Category::Gpu, 1));
    assert!(after.suspects[0].confidence > 0.95, "{after:?}");
    let of_host = finding(Category::HostThread, Place::Host { host: host(1) });
    let after = weighed(&of_host, Some((3, Check::Device)), None);
    assert_eq!(
        (after.outcome, after.category),
        (Outcome::Confirmed, Category::Gpu),
        "its kind is the one that was shown"
    );
}

#[test]
fn a_suspect_that_is_as_fast_as_its_peers_is_cleared() {
    let after = weighed(&finding(Category::Gpu, on(3)), None, None);
    assert_eq!((after.outcome, after.suspects[0].place.clone()), (Outcome::Cleared, on(3)));
    assert!(after.suspects[0].confidence < 0.2, "{after:?}");
    let link = finding(Category::NetworkCongestion, Place::Link { from: host(1), to: host(2) });
    assert_eq!(weighed(&link, None, None).outcome, Outcome::Cleared);
}

#[test]
fn another_one_is_found() {
    let after = weighed(&finding(Category::NetworkSend, on(3)), Some((6, Check::Device)), None);
    assert_eq!((after.outcome, after.category), (Outcome::Other, Category::Gpu));
    assert_eq!(after.suspects.iter().map(|s| s.place.clone()).collect::<Vec<_>>(), [on(6), on(3)]);
    let after = weighed(&finding(Category::Gpu, on(3)), None, Some(2));
    assert_eq!((after.outcome, after.category), (Outcome::Other, Category::NetworkCongestion));
    assert_eq!(after.suspects[0].place, Place::Link { from: host(2), to: host(3) });
}

#[test]
fn a_slow_way_confirms_the_link_whatever_kind_of_network_fault_was_said() {
    let link = finding(Category::NetworkReceive, Place::Link { from: host(2), to: host(1) });
    let after = weighed(&link, None, Some(1));
    assert_eq!((after.outcome, after.category), (Outcome::Confirmed, Category::NetworkReceive));
}

#[test]
fn what_was_not_tested_stays_as_sure_as_it_was() {
    let elsewhere = Place::Rank { rank: Rank(77), host: HostName::from("other") };
    let after = weighed(&finding(Category::Gpu, elsewhere), None, None);
    assert_eq!(after.outcome, Outcome::Untested);
    assert!((after.suspects[0].confidence - 0.6).abs() < 1e-9);
    let nobody = Finding { suspects: Vec::new(), ..finding(Category::Unknown, on(0)) };
    assert_eq!(weighed(&nobody, None, None).outcome, Outcome::Untested);
    assert_eq!(weighed(&nobody, Some((5, Check::Device)), None).suspects[0].place, on(5));
}
