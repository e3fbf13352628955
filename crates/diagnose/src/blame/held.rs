//! Progress (proxy) threads that somebody holds: the device gets nothing to do and tells nothing, as if it had stopped.
use crate::fact::Fact;
use crate::timeline::{RankState, Timeline};
use mycroft_record::{ProxyHeld, Rank};
use std::collections::{BTreeMap, BTreeSet};

/// Adds the ranks among `ranks` whose progress threads are held, and takes away what that explains. Where most are still, their
/// library does not turn them, and stillness says nothing.
pub(super) fn weigh(timeline: &Timeline, ranks: &BTreeSet<Rank>, facts: &mut Vec<Fact>) {
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
