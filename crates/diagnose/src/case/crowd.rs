//! Hosts on which the job's threads wait for a processor: the cause of whatever those threads should have done in time.
use crate::fact::{Fact, STARVED_MILLI};
use mycroft_record::HostName;
use std::collections::BTreeSet;

/// Nothing moves for a second because of threads that wait at least so long, thousandths of the time in which they could run:
/// what takes a little less than a core for a moment stops nothing.
const STALLS_MILLI: f64 = 250.0;
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

    fn op() -> OpRef {
        OpRef { meta: NO_META, label: "AllReduce A #0".to_owned() }
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
