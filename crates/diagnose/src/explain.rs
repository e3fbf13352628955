//! Explain: the smallest set of causes for what the evidence shows.
//!
//! Computation and issue are measured free of waiting, so each rank or host that stands out in them is a cause. What the
//! transport takes is coupled: copies wait for who comes late, behind a slow NIC copies wait, and behind a slow copy NICs idle.
//! So copies, proxy threads and ways are causes only where nobody computes or issues late, and of them what stands out most, in
//! multiples of what counts.
mod found;
mod job;
mod network;
mod onset;
mod ways;
mod words;

use crate::config::Config;
use crate::evidence::{COST, Evidence, Subject, Track};
use crate::fact::STARVED_MILLI;
use crate::measure::Component;
use crate::timeline::Timeline;
use found::{Found, OTHERS, SURE, WORK, counts, hosts_of};
use mycroft_record::{Category, HostName, Place, Suspect};
use network::Network;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) use found::{Cause, Key, Told};

/// Nobody is told of whom less than this share of what stands out is: something else stands out nearly as much.
pub(crate) const SURE_ENOUGH: f64 = 0.6;
/// Causes told at a time, and places that stand out alike: where there are more nobody stands out.
const CAUSES_MAX: usize = 3;

/// The causes of what is slow now, the one that stands out most first.
pub(crate) fn causes(timeline: &Timeline, config: &Config, evidence: &Evidence) -> Vec<Cause> {
    if !evidence.is_enough() {
        return Vec::new();
    }
    let needed = evidence.needed(timeline.ranks.len());
    let found = all(timeline, evidence);
    let network = Network::of(timeline, config, evidence, needed)
        .filter(|network| costs(evidence, network.worst().1, network.worst().1.more_ms))
        .filter(|network| !is_late_issue(evidence, network.worst().1));
    // The ways account for what iterations grew, and what one computes or issues later does not: that may wait for them.
    let is_outweighed = |found: &Found<'_>| network.is_some() && !accounts_for_most(evidence, found);
    let is_told = |found: &&Found<'_>| is_sure(timeline, evidence, found, needed) && !is_outweighed(found);
    // Copies wait for whoever is about to be known to come late.
    let is_likely = |found: &&Found<'_>| {
        let counts = found.times >= 1.0 || (found.component.is_work() && explains_most(evidence, found));
        let is_known = found.track.log_odds >= needed / 2.0 && !waits(timeline, evidence, found, needed);
        found.is_own() && counts && is_known && !is_outweighed(found)
    };
    let awaits = found.iter().any(|found| is_likely(&found));
    let mut causes: Vec<Cause> = Vec::new();
    // Of the transport the ways, or what of a rank stands out more; ways that cost far less are no reason for it.
    let is_way = |found: &&Found<'_>| found.component == Component::Wire && found.track.log_odds >= needed / 2.0;
    let accounts = |way: &Found<'_>, of: &Found<'_>| way.track.more_ms >= WORK * of.track.more_ms;
    let ways = |of| found.iter().filter(is_way).filter(move |way| accounts(way, of));
    for of in found.iter().filter(is_told) {
        let is_there = causes.iter().any(|cause| same_host(timeline, &cause.key.1, of.subject));
        let is_behind_ways = ways(of).any(|way| of.times < way.times) && of.component != Component::Sending;
        let is_behind = !of.is_own() && (awaits || !causes.is_empty() || is_behind_ways);
        if is_there || is_behind || causes.len() >= CAUSES_MAX {
            continue;
        }
        let alike: Vec<&Found<'_>> = found.iter().filter(|other| other.is_as(of)).collect();
        if alike.len() > CAUSES_MAX {
            continue; // nobody stands out
        }
        // The next that is not about the same places nor their ends, and has no case of its own.
        let is_there = |other: &&Found<'_>| alike.iter().any(|of| same_host(timeline, other.subject, of.subject));
        // What the transport takes does not speak against who comes late: it may wait for it.
        let speaks = |other: &&Found<'_>| match of.is_own() {
            true => other.is_own() && !is_told(other),
            false => {
                (other.component != Component::Wire || accounts(other, of)) && !waits(timeline, evidence, other, needed)
            }
        };
        let next = found.iter().filter(speaks).find(|other| !is_there(other));
        let (share, confidence) = confidence(of.times, next);
        if share >= SURE_ENOUGH {
            causes.push(cause(timeline, evidence, &alike, confidence));
        }
    }
    if let Some(network) =
        network.filter(|network| (causes.is_empty() && !awaits) || is_beside(timeline, evidence, network, &causes))
    {
        causes.extend(of_network(timeline, evidence, &network, &found, &causes));
    }
    if causes.is_empty() {
        causes.extend(job::cause(timeline, evidence, needed));
    }
    causes
}

/// Whether it is sure that something takes longer, and that iterations do because of it.
fn is_sure(timeline: &Timeline, evidence: &Evidence, found: &Found<'_>, needed: f64) -> bool {
    found.times >= 1.0
        && found.component != Component::Wire
        && found.track.log_odds >= needed
        && costs(evidence, found.track, more_ms(timeline, evidence, found))
        && accounts(evidence, found)
        && (found.is_own() || !is_late_issue(evidence, found.track))
        && !waits(timeline, evidence, found, needed)
        && (found.component != Component::Pause || !sends_slowly(evidence, found, needed))
        && (found.component != Component::Waiting || is_felt(timeline, evidence, found, needed))
}

/// Whether the ways are a cause beside others: they got slow later, of other hosts, and it is clear whose they are.
fn is_beside(timeline: &Timeline, evidence: &Evidence, network: &Network<'_>, causes: &[Cause]) -> bool {
    let is_apart = |cause: &Cause| !network.is_about(timeline, &cause.key.1) && network.is_later(evidence, cause.since);
    let is_one = network.is_clear() && causes.iter().all(is_apart) && network.accounts_for_step(evidence);
    !causes.is_empty() && causes.len() < CAUSES_MAX && is_one
}

/// The ways as the cause, where nothing else stands out nearly as much but what has its cause.
fn of_network(
    timeline: &Timeline,
    evidence: &Evidence,
    network: &Network<'_>,
    found: &[Found<'_>],
    causes: &[Cause],
) -> Option<Cause> {
    let is_told = |subject: &Subject| causes.iter().any(|cause| same_host(timeline, &cause.key.1, subject));
    let is_other = |other: &&Found<'_>| {
        other.component != Component::Wire && !network.is_about(timeline, other.subject) && !is_told(other.subject)
    };
    let (share, confidence) = confidence(network.times(), found.iter().find(is_other));
    let cost = || words::cost(evidence, network.worst().1);
    (share >= SURE_ENOUGH).then(|| network.cause(confidence, cost()))
}

/// Whether what threads of a host are late with shows: at a rank of it, or on a way from or to it; or they wait longer than they
/// run, or since just when iterations are longer, and nothing else is.
fn is_felt(timeline: &Timeline, evidence: &Evidence, found: &Found<'_>, needed: f64) -> bool {
    let others = || evidence.tracks.iter().filter(|((component, _), _)| *component != Component::Waiting);
    let shows = |((component, subject), track): (&Key, &Track)| {
        track.mean() >= counts(*component) / 2.0 && same_host(timeline, subject, found.subject)
    };
    let is_job = |subject: &Subject| *subject == Subject::Job;
    let began = |((_, subject), track): (&Key, &Track)| is_job(subject) && track.onset() == found.track.onset();
    let is_likely = |((_, subject), track): (&Key, &Track)| !is_job(subject) && track.log_odds >= needed / 2.0;
    let alone = || others().any(began) && !others().any(is_likely);
    found.track.mean() >= STARVED_MILLI / 1e3 || others().any(shows) || alone()
}

/// What stands out: own parts first, and of them and the others what stands out most.
fn all<'a>(timeline: &Timeline, evidence: &'a Evidence) -> Vec<Found<'a>> {
    let of = |((component, subject), track): (&'a Key, &'a Track)| found(*component, subject, track);
    let mut all: Vec<Found<'_>> = evidence.tracks.iter().filter_map(of).collect();
    all.retain(|found| found.component != Component::Through || is_inside(timeline, evidence, found));
    // A rank whose copies surely stand out is told, and not what its host's ranks do together.
    let is_told = |host: &HostName| has_copier(timeline, evidence, host);
    all.retain(|of| !matches!((of.component, of.subject), (Component::Local, Subject::Host(host)) if is_told(host)));
    all.sort_by(|a, b| b.is_own().cmp(&a.is_own()).then(b.times.total_cmp(&a.times)));
    all
}

fn found<'a>(component: Component, subject: &'a Subject, track: &'a Track) -> Option<Found<'a>> {
    let is_one = !matches!(component, Component::Rest | Component::Iteration);
    is_one.then(|| Found { component, subject, track, times: track.mean() / counts(component) })
}

/// Whether what waits on a way through a host is inside it: behind and before slow wires it waits as well.
fn is_inside(timeline: &Timeline, evidence: &Evidence, found: &Found<'_>) -> bool {
    hosts_of(timeline, found.subject).into_iter().all(|host| evidence.denies_ways(&BTreeSet::from([host])))
}

/// Whether what seems to be computed or issued later waits: without kernel events the transport shows when an operation begins, and
/// what of the transport accounts for what iterations grew is why it begins later.
fn waits(timeline: &Timeline, evidence: &Evidence, found: &Found<'_>, needed: f64) -> bool {
    let hosts = hosts_of(timeline, found.subject);
    let mut ranks = timeline.ranks.by_slot().iter().filter(|state| hosts.contains(&state.host));
    if found.component == Component::Waiting || !found.is_own() || ranks.all(|state| state.kernel_events) {
        return false;
    }
    let least_ms = WORK * evidence.grown_ms(found.track.since).1.unwrap_or(found.track.more_ms);
    let is_transport = |component: Component| !component.is_work() && component != Component::Issue;
    let mut of_each: BTreeMap<&Subject, f64> = BTreeMap::new();
    for ((component, subject), track) in &evidence.tracks {
        if is_transport(*component) && *subject != Subject::Job && track.log_odds >= needed / 2.0 {
            *of_each.entry(subject).or_default() += track.more_ms;
        }
    }
    of_each.values().any(|more_ms| *more_ms >= least_ms)
}

/// Whether what a rank or host computes or issues later is enough of what iterations grew.
fn accounts_for_most(evidence: &Evidence, found: &Found<'_>) -> bool {
    let is_work = matches!(found.component, Component::Computation | Component::Issue);
    !is_work || evidence.grown_ms(found.track.since).1.is_none() || explains_most(evidence, found)
}

/// Whether it takes longer by enough of what iterations are known to have grown.
fn explains_most(evidence: &Evidence, found: &Found<'_>) -> bool {
    evidence.grown_ms(found.track.since).1.is_some_and(|grown_ms| found.track.more_ms >= WORK * grown_ms)
}

/// Milliseconds an iteration that it takes more: of threads that wait for a processor, what most is late with of what their host does.
fn more_ms(timeline: &Timeline, evidence: &Evidence, found: &Found<'_>) -> f64 {
    let late = |((_, subject), _): &(&Key, &Track)| same_host(timeline, subject, found.subject);
    match found.component {
        Component::Waiting => evidence.tracks.iter().filter(late).map(|(_, track)| track.more_ms).fold(0.0, f64::max),
        _ => found.track.more_ms,
    }
}

/// Whether iterations take longer since, or nobody knows how long they took before.
fn costs(evidence: &Evidence, track: &Track, more_ms: f64) -> bool {
    match evidence.grown_ms(track.since) {
        (now_ms, Some(grown_ms)) => grown_ms >= COST * (now_ms - grown_ms),
        (now_ms, None) => more_ms >= COST * now_ms,
    }
}

/// Whether what a rank sends is likely to be longer on its way than that of others: then it stands still for that, and no thread sleeps.
fn sends_slowly(evidence: &Evidence, found: &Found<'_>, needed: f64) -> bool {
    let sending = evidence.tracks.get(&(Component::Sending, found.subject.clone()));
    sending.is_some_and(|track| track.log_odds >= needed / 2.0 && track.mean() >= COST)
}

/// Whether iterations grew because devices wait for whichever rank issues last, now this one and now that one: nobody's transport is
/// why then.
fn is_late_issue(evidence: &Evidence, track: &Track) -> bool {
    let grown_ms = evidence.grown_ms(track.since).1;
    grown_ms.zip(evidence.later_ms()).is_some_and(|(grown_ms, later_ms)| later_ms > 0.0 && later_ms >= WORK * grown_ms)
}

/// Whether what the transport of all ranks of a host takes longer at once is enough of what iterations grew: else they wait for the
/// NIC that they share.
fn accounts(evidence: &Evidence, found: &Found<'_>) -> bool {
    let is_host = !found.is_own() && matches!(found.subject, Subject::Host(_));
    let is_shared = is_host || found.component == Component::Sending;
    let grown_ms = evidence.grown_ms(found.track.since).1;
    !is_shared || grown_ms.is_none_or(|grown_ms| found.track.more_ms >= WORK * grown_ms)
}

fn same_host(timeline: &Timeline, a: &Subject, b: &Subject) -> bool {
    let others = hosts_of(timeline, b);
    hosts_of(timeline, a).iter().any(|host| others.contains(host))
}

/// How much of what stands out is of one, where something else does too, and how sure it is then that this one is the cause.
fn confidence(times: f64, next: Option<&Found<'_>>) -> (f64, f64) {
    let next_times = next.map_or(0.0, |next| next.times.max(0.0));
    (times / (times + next_times), (times / (times + OTHERS * next_times)).min(SURE))
}

fn cause(timeline: &Timeline, evidence: &Evidence, alike: &[&Found<'_>], confidence: f64) -> Cause {
    let found = alike[0];
    let mut places: Vec<Place> = Vec::new();
    for of in alike {
        let new = places_of(timeline, of).into_iter().filter(|place| !places.contains(place)).collect::<Vec<_>>();
        places.extend(new);
    }
    let each = confidence / places.len().max(1) as f64;
    Cause {
        key: (found.component, found.subject.clone()),
        category: category(found),
        suspects: places.into_iter().map(|place| Suspect { place, confidence: each }).collect(),
        since: onset::of(timeline, found),
        because: words::because(timeline, evidence, found),
    }
}

/// Of a way both ends: nothing tells them apart. Without kernel events a rank may wait for another of its host that nothing shows: the host.
fn places_of(timeline: &Timeline, found: &Found<'_>) -> Vec<Place> {
    let host = |host: &HostName| Place::Host { host: host.clone() };
    match found.subject {
        Subject::Rank(slot) => {
            let state = timeline.ranks.at(*slot);
            vec![if found.is_own() && !state.kernel_events {
                host(&state.host)
            } else {
                Place::Rank { rank: state.rank, host: state.host.clone() }
            }]
        }
        Subject::Host(of) => vec![host(of)],
        Subject::Way(from, to) => [from, to].map(host).to_vec(),
        Subject::Job => Vec::new(),
    }
}

/// Whether copies of a rank of the host surely stand out: what its host's ranks do together is as slow as it.
fn has_copier(timeline: &Timeline, evidence: &Evidence, host: &HostName) -> bool {
    let needed = evidence.needed(timeline.ranks.len());
    evidence.tracks.iter().any(|((component, subject), track)| match (component, subject) {
        (Component::Copy, Subject::Rank(slot)) => {
            timeline.ranks.at(*slot).host == *host && track.log_odds >= needed && track.mean() >= COST
        }
        _ => false,
    })
}

/// The kind of fault: Table 4 of the paper, by what of the rank or host takes longer.
fn category(found: &Found<'_>) -> Category {
    match (found.component, found.subject) {
        (Component::Computation | Component::Rest | Component::Later | Component::Iteration, _) => Category::Gpu,
        (Component::Issue, Subject::Rank(_)) => Category::NotStarted,
        (Component::Issue | Component::Proxy | Component::Handover | Component::Pause | Component::Waiting, _) => {
            Category::HostThread
        }
        (Component::Copy | Component::Through | Component::Local, _) => Category::GpuCopy,
        (Component::Wire | Component::Sending, _) => Category::NetworkSend,
    }
}

#[cfg(test)]
mod tests;
