//! Explain: the smallest set of causes for what the evidence shows.
//!
//! Computation and issue are measured free of waiting, so each rank or host that stands out in them is a cause. What the
//! transport takes is coupled: copies wait for who comes late, behind a slow NIC copies wait, and behind a slow copy NICs idle.
//! So copies, proxy threads and ways are causes only where nobody computes or issues late, and of them what stands out most, in
//! multiples of what counts.
mod found;
mod job;
mod onset;
mod ways;
mod words;

use crate::evidence::{COST, Evidence, SLOWER, Subject, Track};
use crate::measure::Component;
use crate::timeline::Timeline;
use found::{Found, counts};
use mycroft_record::{Category, HostName, Place, Suspect};
use std::collections::BTreeSet;

pub(crate) use found::{Cause, Key, Told};

/// Surest: one case in thirty that nothing speaks against is another's.
const SURE: f64 = 0.97;
/// Nobody is told of whom it is less sure: something else stands out nearly as much.
const SURE_ENOUGH: f64 = 0.6;
/// More that stand out as much are nobody.
const ALIKE_MAX: usize = 3;
/// Causes told at a time.
const CAUSES_MAX: usize = 3;
/// The causes of what is slow now, the one that stands out most first.
pub(crate) fn causes(timeline: &Timeline, evidence: &Evidence) -> Vec<Cause> {
    if !evidence.is_enough() {
        return Vec::new();
    }
    let needed = evidence.needed(timeline.ranks.len());
    let mut found: Vec<Found<'_>> =
        evidence.tracks.iter().filter_map(|((component, subject), track)| found(*component, subject, track)).collect();
    found.sort_by(|a, b| b.is_own().cmp(&a.is_own()).then(b.times.total_cmp(&a.times)));
    let is_told = |found: &&Found<'_>| {
        found.times >= 1.0
            && found.is_due()
            && found.track.log_odds >= needed
            && costs(evidence, found.track)
            && !is_end_of_host(found, evidence)
    };
    // Copies wait for whoever is about to be known to come late.
    let is_likely = |found: &&Found<'_>| found.is_own() && found.times >= 1.0 && found.track.log_odds >= needed / 2.0;
    let awaits = found.iter().any(|found| is_likely(&found));
    let mut causes: Vec<Cause> = Vec::new();
    for of in found.iter().filter(is_told) {
        let is_there = causes.iter().any(|cause| same_host(timeline, &cause.key.1, of.subject));
        if is_there || (!of.is_own() && (awaits || !causes.is_empty())) || causes.len() >= CAUSES_MAX {
            continue;
        }
        let alike: Vec<&Found<'_>> = found.iter().filter(|other| other.is_as(of)).collect();
        if alike.len() > ALIKE_MAX {
            continue; // nobody stands out
        }
        // The next that is not about the same places nor their ends, and has no case of its own.
        let is_there = |other: &&Found<'_>| alike.iter().any(|of| same_host(timeline, other.subject, of.subject));
        // What the transport takes does not speak against who comes late: it may wait for it.
        let speaks = |other: &&Found<'_>| if of.is_own() { other.is_own() && !is_told(other) } else { true };
        let next = found.iter().filter(speaks).find(|other| !is_there(other));
        let confidence = confidence(of, next);
        if confidence >= SURE_ENOUGH {
            causes.push(cause(timeline, evidence, &alike, confidence));
        }
    }
    if causes.is_empty() {
        causes.extend(job::cause(timeline, evidence, needed));
    }
    causes
}

/// Whether the ways between hosts speak against a verdict that names these hosts and rests on these ways: the ways that it rests on,
/// or all of its hosts, are known and none takes longer than it should; or the slow ones are those of other hosts.
pub(crate) fn ways_deny(
    evidence: &Evidence,
    hosts: &BTreeSet<HostName>,
    rests_on: &BTreeSet<(HostName, HostName)>,
) -> bool {
    let slow = || ways::hosts(&evidence.way_times(), evidence.all_ways());
    evidence.denies(rests_on)
        || evidence.denies_ways(hosts)
        || slow().is_some_and(|ends| ends.hosts.into_iter().collect::<BTreeSet<_>>() != *hosts)
}

fn found<'a>(component: Component, subject: &'a Subject, track: &'a Track) -> Option<Found<'a>> {
    let is_one = !matches!(subject, Subject::Job) && component != Component::Rest;
    is_one.then(|| Found { component, subject, track, times: track.mean() / counts(component) })
}

/// A way of a host of which more than this way is slow.
fn is_end_of_host(found: &Found<'_>, evidence: &Evidence) -> bool {
    let Subject::Way(from, to) = found.subject else { return false };
    let is_slow = |host: &HostName| {
        evidence.tracks.get(&(Component::Wire, Subject::Host(host.clone()))).is_some_and(|track| track.mean() >= SLOWER)
    };
    is_slow(from) || is_slow(to)
}

/// Whether iterations take longer since, or nobody knows how long they took before.
fn costs(evidence: &Evidence, track: &Track) -> bool {
    match evidence.grown_ms(track.since) {
        (now_ms, Some(more_ms)) => more_ms >= COST * (now_ms - more_ms),
        (now_ms, None) => track.more_ms >= COST * now_ms,
    }
}

fn same_host(timeline: &Timeline, a: &Subject, b: &Subject) -> bool {
    let hosts = |subject: &Subject| match subject {
        Subject::Rank(slot) => vec![timeline.ranks.at(*slot).host.clone()],
        Subject::Host(host) => vec![host.clone()],
        Subject::Way(from, to) => vec![from.clone(), to.clone()],
        Subject::Job => Vec::new(),
    };
    let others = hosts(b);
    hosts(a).iter().any(|host| others.contains(host))
}

/// How sure it is that something is the cause, where something else stands out too.
fn confidence(found: &Found<'_>, next: Option<&Found<'_>>) -> f64 {
    let next_times = next.map_or(0.0, |next| next.times.max(0.0));
    (found.times / (found.times + next_times)).min(SURE)
}

fn cause(timeline: &Timeline, evidence: &Evidence, alike: &[&Found<'_>], confidence: f64) -> Cause {
    let found = alike[0];
    let mut places: Vec<Place> = Vec::new();
    for of in alike {
        let new =
            places_of(timeline, of.subject).into_iter().filter(|place| !places.contains(place)).collect::<Vec<_>>();
        places.extend(new);
    }
    let each = confidence / places.len().max(1) as f64;
    Cause {
        key: (found.component, found.subject.clone()),
        category: category(evidence, found),
        suspects: places.into_iter().map(|place| Suspect { place, confidence: each }).collect(),
        since: onset::of(timeline, found),
        because: words::because(timeline, evidence, found),
    }
}

/// Of a way both ends: nothing tells them apart.
fn places_of(timeline: &Timeline, subject: &Subject) -> Vec<Place> {
    match subject {
        Subject::Rank(slot) => {
            let state = timeline.ranks.at(*slot);
            vec![Place::Rank { rank: state.rank, host: state.host.clone() }]
        }
        Subject::Host(host) => vec![Place::Host { host: host.clone() }],
        Subject::Way(from, to) => [from, to].map(|host| Place::Host { host: host.clone() }).to_vec(),
        Subject::Job => Vec::new(),
    }
}

/// The kind of fault: Table 4 of the paper, by what of the rank or host takes longer.
fn category(evidence: &Evidence, found: &Found<'_>) -> Category {
    match (found.component, found.subject) {
        (Component::Computation | Component::Rest | Component::Iteration, _) => Category::Gpu,
        (Component::Issue, Subject::Rank(_)) => Category::NotStarted,
        (Component::Issue | Component::Proxy | Component::Handover, _) => Category::HostThread,
        (Component::Copy, _) => Category::GpuCopy,
        (Component::Wire, Subject::Host(host)) => {
            let of = |is_its: &dyn Fn(&Subject) -> bool| {
                let ways = evidence
                    .tracks
                    .iter()
                    .filter(|((component, subject), _)| *component == Component::Wire && is_its(subject));
                ways.map(|(_, track)| track.mean()).fold(0.0, f64::max)
            };
            let out = of(&|subject| matches!(subject, Subject::Way(from, _) if from == host));
            let into = of(&|subject| matches!(subject, Subject::Way(_, to) if to == host));
            if out < SLOWER / 2.0 && into >= SLOWER { Category::NetworkReceive } else { Category::NetworkSend }
        }
        (Component::Wire, _) => Category::NetworkSend,
    }
}

#[cfg(test)]
mod tests;
