//! Hosts on which the job's threads wait for a processor: the cause of whatever those threads should have done in time.
use crate::blame::slow;
use crate::case::network::host_place;
use crate::case::weigh::{Hypothesis, PROXY_LOOKS};
use crate::config::Config;
use crate::fact::{Fact, STARVED_MILLI};
use mycroft_record::{Category, HostName};
use std::collections::BTreeSet;

/// Share of an iteration's growth that a crowded host explains whose own parts grew: what its threads do late shows at
/// itself only in part, and at all who wait for it.
const EXPLAINS: f64 = 0.8;
/// Where a thread is late with every slice a ring has one of them under way at a time, and not as many as there are slots:
/// it shows so many times less at the way that is the slowest of all.
const AT_A_TIME: f64 = 8.0;
/// Nothing moves for a second because of threads that wait at least so long, thousandths of the time in which they could run:
/// what takes a little less than a core for a moment stops nothing.
const STALLS_MILLI: f64 = 250.0;
/// Now over before, where shares of time are compared: beyond any doubt that it is no noise.
const RATIO: f64 = 10.0;

//= falcon 3.2
/// Crowded hosts of which a part became slower that their threads, or who waits for them, are in. Where threads wait longer than
/// they run and nothing grew by more than that, any growth will do: what they are late with may not have ended, and shows later.
pub(crate) fn of_slowdown(facts: &[Fact], config: &Config, iteration_ms: f64) -> Vec<Hypothesis> {
    let worst_way_ms = facts.iter().filter_map(way_ms).fold(0.0, f64::max);
    let is_starved = |host: &HostName| facts.iter().filter_map(Fact::starved).any(|starved| starved == host);
    let of = |host: &HostName| {
        let grew_ms = facts.iter().filter_map(|fact| late_ms(fact, host, iteration_ms)).fold(0.0, f64::max);
        let share = match grew_ms >= worst_way_ms {
            true if is_starved(host) => 0.0,
            true => slow::LEAST_SHARE / AT_A_TIME,
            false => slow::LEAST_SHARE,
        };
        (grew_ms >= config.noise_ms.max(share * iteration_ms)).then(|| Hypothesis {
            category: Category::HostThread,
            places: vec![host_place(host)],
            either: false,
            excess_ms: grew_ms.max(EXPLAINS * iteration_ms),
            ratio: RATIO,
        })
    };
    facts.iter().filter_map(Fact::crowded).filter_map(of).collect()
}

/// By how much a way between hosts grew, milliseconds per iteration.
fn way_ms(fact: &Fact) -> Option<f64> {
    match fact {
        Fact::WireExcess { now_ms, base_ms, .. } => Some(now_ms - base_ms),
        _ => None,
    }
}

/// By how much something grew that threads on this host may be late with, milliseconds per iteration.
fn late_ms(fact: &Fact, wanted: &HostName, iteration_ms: f64) -> Option<f64> {
    match fact {
        Fact::HostExcess { host, now_ms, base_ms, .. }
        | Fact::HandoverExcess { host, now_ms, base_ms, .. }
        | Fact::CopyExcess { host, now_ms, base_ms, .. }
        | Fact::PassageExcess { host, now_ms, base_ms, .. }
            if host == wanted =>
        {
            Some(now_ms - base_ms)
        }
        Fact::ProxyExcess { host, now_ms, base_ms, .. } if host == wanted => Some(PROXY_LOOKS * (now_ms - base_ms)),
        Fact::ProxyPause { host, .. } if host == wanted => Some(EXPLAINS * iteration_ms),
        Fact::WireExcess { from, to, now_ms, base_ms, .. } if from == wanted || to == wanted => Some(now_ms - base_ms),
        Fact::RankLink { from, to, now_ms, base_ms, .. } if from.1 == *wanted || to.1 == *wanted => {
            Some(now_ms - base_ms)
        }
        _ => None,
    }
}

/// Crowded hosts that a stall may be due to: they are the ends of what does not move, or all that do not come are theirs,
/// or nothing shows who does not. A link that is down, or a device that has all it needs, is reason enough.
pub(crate) fn of_stall(facts: &[Fact]) -> Vec<&HostName> {
    let others = |fact: &Fact| {
        matches!(fact, Fact::NicDown { .. } | Fact::NeverRan { .. } | Fact::GpuNotReady { strong: true, .. })
    };
    if facts.iter().any(others) {
        return Vec::new();
    }
    let crowded = |least_milli: f64| {
        facts.iter().filter_map(move |fact| match fact {
            Fact::CpuWait { host, now_milli, .. } if *now_milli >= least_milli => Some(host),
            _ => None,
        })
    };
    let absent: Vec<&HostName> = facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::NeverIssued { host, .. } => Some(host),
            _ => None,
        })
        .collect();
    if !absent.is_empty() {
        // Threads that get full cores and come no further: all of a host, or they work on something else. One may be as slow
        // as those beside it are with what they do.
        let full = facts.iter().filter_map(|fact| match fact {
            Fact::CpuFull { host, .. } if absent.iter().filter(|other| **other == host).count() > 1 => Some(host),
            Fact::SlowCalls { host, .. } if absent.contains(&host) => Some(host),
            _ => None,
        });
        let starved = crowded(STARVED_MILLI).filter(|host| absent.contains(host));
        let theirs: BTreeSet<&HostName> = starved.chain(full).collect();
        return if absent.iter().all(|host| theirs.contains(host)) { Vec::from_iter(theirs) } else { Vec::new() };
    }
    let ends: Vec<&HostName> = facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::NotDelivered { from, to, .. } => Some([&from.1, &to.1]),
            _ => None,
        })
        .flatten()
        .collect();
    let inside = facts.iter().any(|fact| matches!(fact, Fact::StuckInside { .. } | Fact::GpuNotReady { .. }));
    crowded(STALLS_MILLI).filter(|host| if ends.is_empty() { inside } else { ends.contains(host) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blame::hang::NO_META;
    use crate::case::Evidence;
    use crate::fact::OnWay;
    use crate::fact::OpRef;
    use mycroft_record::{FlowCounters, HostTime, Rank};

    fn host(name: &str) -> HostName {
        HostName::from(name)
    }

    fn crowded(name: &str) -> Fact {
        waits(name, 500.0)
    }

    fn waits(name: &str, now_milli: f64) -> Fact {
        Fact::CpuWait { host: host(name), now_milli, base_milli: 20.0, busy_milli: 1000.0 }
    }

    fn wire(from: &str, to: &str, grew_ms: f64) -> Fact {
        let (from, to) = (host(from), host(to));
        Fact::WireExcess {
            from,
            to,
            now_ms: 100.0 + grew_ms,
            base_ms: 100.0,
            iteration_ms: 400.0,
            mb: 9.0,
            on_way: OnWay::default(),
            links: 8,
            of: 8,
        }
    }

    fn op() -> OpRef {
        OpRef { meta: NO_META, label: "AllReduce A #0".to_owned() }
    }

    fn slowed(facts: &[Fact]) -> Vec<(Vec<mycroft_record::Place>, f64)> {
        let found = of_slowdown(facts, &Config::default(), 400.0).into_iter();
        found.map(|hypothesis| (hypothesis.places, hypothesis.excess_ms)).collect()
    }

    #[test]
    fn a_crowded_host_explains_what_grew_at_it_and_who_waits_for_that() {
        assert_eq!(slowed(&[wire("a", "b", 60.0), crowded("b")]), [(vec![host_place(&host("b"))], 320.0)]);
        assert_eq!(slowed(&[wire("b", "a", 390.0), crowded("b")]), [(vec![host_place(&host("b"))], 390.0)]);
    }

    #[test]
    fn a_crowded_host_at_which_nothing_grew_is_nobodys_fault() {
        assert_eq!(slowed(&[crowded("b")]), []);
        assert_eq!(slowed(&[wire("a", "c", 390.0), crowded("b")]), []);
        let others = [wire("a", "b", 30.0), wire("c", "d", 40.0), crowded("b")];
        assert_eq!(slowed(&others), [], "a thirteenth of what the iteration grew, and less than others");
        assert_eq!(
            slowed(&others[..1].iter().chain(&others[2..]).cloned().collect::<Vec<_>>()).len(),
            1,
            "none is worse"
        );
        assert_eq!(slowed(&[wire("a", "b", 390.0)]), []);
    }

    #[test]
    fn a_host_whose_threads_get_no_processor_is_named_however_little_of_an_iteration_has_ended() {
        let named = |facts: &[Fact]| of_slowdown(facts, &Config::default(), 4000.0).len();
        assert_eq!(named(&[wire("b", "a", 39.0), waits("b", 860.0)]), 1);
        assert_eq!(named(&[wire("b", "a", 39.0), waits("b", 300.0)]), 0, "they run for most of the time");
        assert_eq!(named(&[wire("b", "a", 39.0), wire("c", "d", 40.0), waits("b", 860.0)]), 0, "more grew elsewhere");
        assert_eq!(named(&[waits("b", 860.0)]), 0, "nothing grew");
    }

    fn stalled(facts: &[Fact]) -> Vec<&str> {
        of_stall(facts).into_iter().map(|host| &**host).collect()
    }

    fn never_issued(rank: u32, name: &str) -> Fact {
        let (waiting, idle_since) = (vec![Rank(9)], HostTime(1));
        Fact::NeverIssued { rank: Rank(rank), host: host(name), op: op(), waiting, idle_since, finalized: false }
    }

    #[test]
    fn of_a_stall_it_explains_what_its_own_threads_do_not_do() {
        let evidence = Evidence { rank: None, op: None, flow: None, at: HostTime(1) };
        let lost = Fact::NotDelivered {
            from: (Rank(0), host("a")),
            to: (Rank(1), host("b")),
            op: op(),
            evidence,
            send: FlowCounters::default(),
            since: HostTime(1),
            longest_ns: 0,
            served_meanwhile: false,
        };
        assert_eq!(stalled(&[lost.clone(), crowded("b")]), ["b"]);
        assert_eq!(stalled(&[lost.clone(), crowded("c")]), [""; 0], "data is stuck elsewhere");
        let down = Fact::NicDown { host: host("a"), nic: "eth0".into(), at: HostTime(1) };
        assert_eq!(stalled(&[lost.clone(), crowded("b"), down]), [""; 0], "a link that is down is reason enough");
        let idle = Fact::GpuNotReady {
            rank: Rank(1),
            host: host("b"),
            op: op(),
            evidence,
            counters: FlowCounters::default(),
            strong: true,
        };
        assert_eq!(stalled(&[lost, crowded("b"), idle]), [""; 0], "and so is a device that has all it needs");
        let inside = Fact::StuckInside { op: op(), members: vec![(Rank(0), host("a"), HostTime(1))] };
        assert_eq!(stalled(&[inside.clone(), crowded("c")]), ["c"], "nobody else is known to be late");
        assert_eq!(stalled(&[inside, waits("c", 240.0)]), [""; 0], "a chore stops nothing");
        assert_eq!(
            stalled(&[never_issued(2, "b"), waits("b", 300.0)]),
            [""; 0],
            "nor makes it a thread late for a second"
        );
        assert_eq!(stalled(&[never_issued(2, "b"), never_issued(3, "b"), crowded("b")]), ["b"]);
        assert_eq!(stalled(&[never_issued(2, "a"), crowded("b")]), [""; 0]);
        assert_eq!(stalled(&[never_issued(2, "a"), never_issued(3, "b"), crowded("b")]), [""; 0]);
    }

    #[test]
    fn several_ranks_of_a_host_whose_cores_are_full_are_late_because_of_that() {
        let full = |name: &str| Fact::CpuFull { host: host(name), now_milli: 1000.0, base_milli: 200.0 };
        assert_eq!(stalled(&[never_issued(2, "b"), never_issued(3, "b"), full("b")]), ["b"]);
        assert_eq!(stalled(&[never_issued(2, "b"), full("b")]), [""; 0], "one may be at something else");
        let slow =
            |name: &str| Fact::SlowCalls { host: host(name), ranks: 3, now_us: 900.0, base_us: 4.0, beside: false };
        assert_eq!(stalled(&[never_issued(2, "b"), full("b"), slow("b")]), ["b"], "all calls are as slow there");
        assert_eq!(stalled(&[never_issued(2, "a"), full("b"), slow("b")]), [""; 0]);
        let both = [never_issued(2, "b"), never_issued(3, "b"), full("b"), crowded("b")];
        assert_eq!(stalled(&both), ["b"], "named once, though its counters say it twice");
        assert_eq!(stalled(&[never_issued(2, "b"), never_issued(3, "b"), full("a")]), [""; 0]);
        let others = [never_issued(2, "b"), never_issued(3, "b"), never_issued(5, "a"), full("b")];
        assert_eq!(stalled(&others), [""; 0], "one is late elsewhere");
    }
}
