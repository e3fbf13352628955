//! Whether a stall is more of what a case says already.
use crate::case::stuck::CRAWLS_ON;
use crate::case::weigh::Verdict;
use crate::fact::{Fact, STUCK_INSIDE};
use mycroft_record::{Category, Finding, HostName, Place, Suspect, What};

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
