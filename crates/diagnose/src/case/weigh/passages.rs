//! Ways through a host, whose two ends wait for each other.
use super::{SHADOW, WAY_RATIO, rank_place};
use crate::case::network;
use crate::fact::Fact;
use mycroft_record::{HostName, Place, Rank};
use std::collections::BTreeSet;

/// Whether data waits both on its way into a host and on its way out of it, ready and awaited, about as long as slots at both
/// ends wait inside: then the host's copies wait for its interfaces, and not these for them.
pub(super) fn are_ways_slow(facts: &[Fact], host: &HostName, passage_ms: f64) -> bool {
    let is_slow = |is_its: &dyn Fn(&HostName, &HostName) -> bool| {
        facts.iter().any(|fact| match fact {
            Fact::WireExcess { from, to, now_ms, base_ms, .. } => {
                is_its(from, to) && now_ms - base_ms >= SHADOW * passage_ms
            }
            _ => false,
        })
    };
    is_slow(&|_, to| to == host) && is_slow(&|from, _| from == host)
}

/// Whose copies slow a way through a host: both ends of it do not tell, but a device that is slow is so in all its copies.
pub(super) fn slow_on_way(facts: &[Fact], wanted: &HostName) -> Place {
    let slow: BTreeSet<Rank> = facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::CopyExcess { rank, host, now_ms, base_ms, .. }
                if host == wanted && *now_ms >= WAY_RATIO * base_ms =>
            {
                Some(*rank)
            }
            _ => None,
        })
        .collect();
    match slow.first() {
        Some(rank) if slow.len() == 1 => rank_place(*rank, wanted),
        _ => network::host_place(wanted),
    }
}
