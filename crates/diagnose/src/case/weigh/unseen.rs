//! Copies in a tree of ranks whose parent is not seen.
use super::{COPY_SHADOW, Hypothesis, WAY_RATIO};
use crate::case::network;
use crate::fact::Fact;
use mycroft_record::{Category, HostName, Place};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The facts without copies of ranks that may wait for a parent in their own host, where those of a rank whose parent is seen
/// are slow: its slots wait for nobody unseen, and those of who waits for it from elsewhere do so for as long as all takes. The
/// other way around it shows nothing: of both directions to all that a rank waits for, one is quick.
pub(super) fn without(facts: &[Fact]) -> Cow<'_, [Fact]> {
    let copies = |of_unseen: bool| {
        facts.iter().filter_map(move |fact| match fact {
            Fact::CopyExcess { now_ms, base_ms, unseen, .. } if *unseen == of_unseen => Some((*now_ms, *base_ms)),
            _ => None,
        })
    };
    let most_ms = copies(true).map(|(now_ms, base_ms)| now_ms - base_ms).fold(0.0, f64::max);
    let tells = |(now_ms, base_ms): (f64, f64)| {
        now_ms >= WAY_RATIO * base_ms.max(1.0) || now_ms - base_ms > COPY_SHADOW * most_ms
    };
    if most_ms == 0.0 || !copies(false).any(tells) {
        return Cow::Borrowed(facts);
    }
    let is_left = |fact: &&Fact| !matches!(fact, Fact::CopyExcess { unseen: true, .. });
    Cow::Owned(facts.iter().filter(is_left).cloned().collect())
}

/// Whether the copies of all ranks at these places may be waiting for a parent that is not seen.
pub(super) fn may_wait(facts: &[Fact], places: &[Place]) -> bool {
    let mut theirs = facts.iter().filter_map(|fact| match fact {
        Fact::CopyExcess { rank, host, unseen, .. } => {
            let is_at = |place: &Place| match place {
                Place::Rank { rank: of, .. } => of == rank,
                Place::Host { host: of } => of == host,
                Place::Link { .. } => false,
            };
            places.iter().any(is_at).then_some(*unseen)
        }
        _ => None,
    });
    theirs.next() == Some(true) && theirs.all(|unseen| unseen)
}

/// Makes one of several ranks of a host whose copies take about as long and may be waiting for each other: nothing tells them
/// apart, but one of the host's it is.
pub(super) fn together(facts: &[Fact], list: &mut Vec<Hypothesis>) {
    let host = |of: &Hypothesis| match &of.places[..] {
        [Place::Rank { host, .. }] if of.category == Category::GpuCopy && may_wait(facts, &of.places) => {
            Some(host.clone())
        }
        _ => None,
    };
    let mut hosts: BTreeMap<HostName, Vec<Hypothesis>> = BTreeMap::new();
    for (host, of) in list.iter().filter_map(|of| Some((host(of)?, of))) {
        hosts.entry(host).or_default().push(of.clone());
    }
    for (host, of_host) in hosts.into_iter().filter(|(_, of_host)| of_host.len() > 1) {
        list.retain(|of| !of_host.contains(of));
        let most = of_host.into_iter().max_by(|a, b| a.excess_ms.total_cmp(&b.excess_ms));
        list.extend(most.map(|most| Hypothesis { places: vec![network::host_place(&host)], ..most }));
    }
}
