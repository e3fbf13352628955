//! Whether a verdict is more of what a case says already, and whether it is good enough for a case of its own.
use crate::case::network::{host_place, is_of_network};
use crate::case::stuck::CRAWLS_ON;
use crate::case::weigh::Verdict;
use crate::evidence::Evidence;
use crate::explain;
use crate::fact::{Fact, STUCK_INSIDE};
use mycroft_record::{Category, Finding, HostName, Place, Rank, Suspect, What};
use std::collections::BTreeSet;

/// Share of a step that a fault must account for to have a case besides others: the rest may be theirs, so most of it.
const STEP_SHARE: f64 = 0.5;
/// How sure the first suspects must be together: more than half, since the known faults disturb what others show.
pub(super) const STEP_SURE: f64 = 0.6;
/// The same where the copies of one rank are said to be slow.
const COPY_SURE: f64 = 0.8;

/// Whether a stall is the next slot of a device that is known to be slow with them: it once left them for `stood_ns`.
pub(super) fn is_slow_device(finding: &Finding, stood_ns: u64, stall: &Verdict, waited_ns: u64) -> bool {
    let is_it = |place: &Place| finding.suspects.first().is_some_and(|named| named.place == *place);
    finding.what == What::Slowdown
        && finding.category == Category::GpuCopy
        && stall.category == Category::Gpu
        && stall.leads().all(is_it)
        && waited_ns <= CRAWLS_ON * stood_ns
}

/// Whether a stall is more of what the case says: the threads of a whole host get the processor seldom, and now its ranks
/// are late to issue as well.
pub(super) fn is_starved(finding: &Finding, stall: &Verdict) -> bool {
    let is_named = |host: &HostName| {
        finding.suspects.iter().any(|named| matches!(&named.place, Place::Host { host: other } if other == host))
    };
    finding.category == Category::HostThread
        && stall.category == Category::NotStarted
        && stall.suspects.iter().all(|suspect| match &suspect.place {
            Place::Rank { host, .. } | Place::Host { host } => is_named(host),
            Place::Link { .. } => false,
        })
}

/// Whether a stall that began with one rank that did not come is because of its host by now: the others there come no more
/// either, and its counters say why.
pub(super) fn is_of_whole_host(finding: &Finding, stall: &Verdict) -> bool {
    let mut named = finding.suspects.iter().map(|suspect| &suspect.place);
    finding.category == Category::NotStarted
        && stall.category == Category::HostThread
        && named.all(|named| stall.leads().any(|place| meets(place, named)))
}

/// Whether a stall shows nobody who made it: at most who is inside an operation and does not move.
pub(super) fn is_inside_only(stall: &Verdict, facts: &[Fact]) -> bool {
    stall.suspects.is_empty()
        || (stall.category == Category::Gpu && facts.iter().any(|fact| fact.rule() == STUCK_INSIDE))
}

/// Whether a rank's proxy thread pauses again and again: when pauses follow each other, nothing moves for seconds.
pub(super) fn naps(finding: &Finding) -> bool {
    let of_rank = |suspect: &Suspect| matches!(suspect.place, Place::Rank { .. });
    finding.what == What::Slowdown
        && finding.category == Category::HostThread
        && finding.suspects.first().is_some_and(of_rank)
}

/// Whether a place is this rank.
pub(super) fn names(place: &Place, wanted: Rank) -> bool {
    matches!(place, Place::Rank { rank, .. } if *rank == wanted)
}

/// Whether a verdict is good enough for a case besides others.
pub(super) fn stands_out(verdict: &Verdict) -> bool {
    // Slots stay full, or come late, wherever others wait: a slow copy has to stand alone.
    let sure = if verdict.category == Category::GpuCopy { COPY_SURE } else { STEP_SURE };
    verdict.share >= STEP_SHARE && is_sure(verdict, sure)
}

/// Whether it is about a host of which its own counters say that threads wait there: that is not by chance.
pub(super) fn is_about_crowd(verdict: &Verdict, facts: &[Fact]) -> bool {
    verdict.leads().all(|place| facts.iter().filter_map(Fact::crowded).any(|host| *place == host_place(host)))
}

/// Whether its first suspects are at least so sure together.
pub(super) fn is_sure(verdict: &Verdict, least: f64) -> bool {
    verdict.confidence() * verdict.leads().count() as f64 >= least
}

/// Kinds of slowdowns of which `explain` opens the cases, and the one that names nobody.
pub(super) fn is_explained(category: Category) -> bool {
    matches!(category, Category::Gpu | Category::GpuCopy | Category::NotStarted | Category::Unknown)
}

/// Kinds of stops that are told only from somebody's not having come, or from nothing.
pub(super) fn is_absence(category: Category) -> bool {
    matches!(category, Category::NotStarted | Category::Gpu | Category::HostThread | Category::Unknown)
}

/// Whether two places may be one: the same rank, the same host, a host and a rank on it.
pub(super) fn meets(a: &Place, b: &Place) -> bool {
    let hosts = |place: &Place| match place {
        Place::Rank { host, .. } | Place::Host { host } => vec![host.clone()],
        Place::Link { from, to } => vec![from.clone(), to.clone()],
    };
    match (a, b) {
        (Place::Rank { rank: a, .. }, Place::Rank { rank: b, .. }) => a == b,
        _ => hosts(a).iter().any(|host| hosts(b).contains(host)),
    }
}

/// Whether a fault of one kind may show as the other. Slices go from the device through slots, a proxy thread and a NIC:
/// what is slow on this way makes the next part look slow.
pub(super) fn hangs_together(a: Category, b: Category) -> bool {
    let on_the_way = |category: Category| {
        matches!(
            category,
            Category::GpuCopy
                | Category::HostThread
                | Category::NetworkSend
                | Category::NetworkReceive
                | Category::NetworkCongestion
        )
    };
    let unknown = a == Category::Unknown || b == Category::Unknown;
    a == b || unknown || (on_the_way(a) && on_the_way(b))
}

/// Whether the ways between hosts speak against a verdict on the network, of one rank's links of which they say nothing; or against
/// one on pauses: data that is long under way stands still as if nobody took it.
pub(super) fn is_denied(evidence: &Evidence, verdict: &Verdict, facts: &[Fact]) -> bool {
    let of_network = is_of_network(verdict.category);
    let hosts_of = |place: &Place| match place {
        Place::Rank { .. } if of_network => None,
        Place::Rank { host, .. } | Place::Host { host } => Some(vec![host.clone()]),
        Place::Link { from, to } => Some(vec![from.clone(), to.clone()]),
    };
    let named: Option<Vec<Vec<HostName>>> = verdict.leads().map(hosts_of).collect();
    let Some(named) = named else { return false };
    let named: BTreeSet<HostName> = named.into_iter().flatten().collect();
    if !of_network {
        let is_pause = |fact: &Fact| matches!(fact, Fact::ProxyPause { .. });
        let of_pauses = verdict.category == Category::HostThread && facts.iter().any(is_pause);
        return of_pauses && explain::ways_are_of_others(evidence, &named);
    }
    let shown = facts.iter().filter_map(|fact| match fact {
        Fact::WireExcess { from, to, .. } => Some((from.clone(), to.clone())),
        _ => None,
    });
    explain::ways_deny(evidence, &named, &shown.collect())
}
