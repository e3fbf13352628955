//! What explains that ranks are still: progress (proxy) threads that somebody holds, so that the device gets nothing to do and tells
//! nothing, as if it had stopped; and somebody else who does not come.
use crate::fact::Fact;
use crate::timeline::{RankState, Timeline};
use mycroft_record::{ProxyHeld, Rank};
use std::collections::{BTreeMap, BTreeSet};

/// Adds the ranks among `ranks` whose progress threads are held, and takes away what that explains. Where most are still, their
/// library does not turn them, and stillness says nothing. `waits`: whether a rank waits for another to enter an operation.
pub(super) fn weigh(timeline: &Timeline, ranks: &BTreeSet<Rank>, waits: impl Fn(&Rank) -> bool, facts: &mut Vec<Fact>) {
    forget_waiting(waits, facts);
    let states = || ranks.iter().filter_map(|rank| timeline.ranks.get(rank));
    let held: BTreeMap<Rank, (&RankState, ProxyHeld)> =
        states().filter_map(|state| Some((state.rank, (state, state.proxy_held?)))).collect();
    if held.is_empty() || held.len() * 2 > states().count() {
        return;
    }
    facts.retain(|fact| match fact {
        Fact::NeverRan { rank, .. } | Fact::GpuNotReady { rank, .. } => !held.contains_key(rank),
        Fact::StuckInside { .. } => false,
        _ => true,
    });
    facts.extend(held.into_values().map(|(state, proxies)| Fact::Stopped {
        rank: state.rank,
        host: state.host.clone(),
        since: proxies.since,
        proxies: Some(proxies),
    }));
}

/// Sends and receives of a group end together: whoever is inside one of them and waits for somebody to enter another is explained by that.
/// Where others are inside and wait for nobody, it stopped there.
fn forget_waiting(waits: impl Fn(&Rank) -> bool, facts: &mut Vec<Fact>) {
    let is_explained = |fact: &Fact| match fact {
        Fact::StuckInside { members, .. } => members.iter().all(|(rank, ..)| waits(rank)),
        _ => false,
    };
    let stopped = |fact: &Fact| matches!(fact, Fact::StuckInside { .. }) && !is_explained(fact);
    if facts.iter().any(stopped) {
        facts.retain(|fact| !is_explained(fact));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blame::hang::NO_META;
    use crate::fact::OpRef;
    use mycroft_record::{HostName, HostTime};

    /// Of two exchanges in a row rank 3 is alone in the first, which all others are through; these are in pairs of the second, in which
    /// rank 3 is not.
    #[test]
    fn what_waits_for_somebody_to_come_is_not_where_it_stopped() {
        let inside = |ranks: &[u32]| {
            let members = ranks.iter().map(|rank| (Rank(*rank), HostName::from("host"), HostTime(1))).collect();
            Fact::StuckInside { op: OpRef { meta: NO_META, label: "Send EP #1".to_owned() }, members }
        };
        let left = |facts: &[Fact], waits: &dyn Fn(&Rank) -> bool| {
            let mut facts = facts.to_vec();
            forget_waiting(waits, &mut facts);
            facts
        };
        let facts = [inside(&[3]), inside(&[1, 2]), inside(&[2, 4]), inside(&[3, 4])];
        assert_eq!(left(&facts, &|rank| *rank != Rank(3)), [inside(&[3]), inside(&[3, 4])]);
        assert_eq!(left(&facts, &|_| true), facts, "a cycle: it stopped in one of these, and nothing tells in which");
        assert_eq!(left(&facts, &|_| false), facts);
    }
}
