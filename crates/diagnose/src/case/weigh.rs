//! Weighing: facts of all rooms into one verdict. Nothing else accuses anybody (invariant 6).
use crate::case::{crowd, host_place, inside, stuck};
use crate::fact::Fact;
use crate::timeline::{RankState, Timeline};
use mycroft_record::{
    Category, CommId, HostName, HostTime, NANOS_PER_MS, NANOS_PER_SEC, OpId, Place, Rank, Suspect, What,
};
use std::collections::{BTreeMap, BTreeSet};

/// Suspects kept in a verdict.
pub(crate) const SUSPECTS_MAX: usize = 8;
/// How much surer of one suspect than of another means anything.
pub(crate) const SURER: f64 = 0.05;
/// A verdict at least this sure is settled at once.
pub(crate) const DECISIVE: f64 = 0.85;

/// Processes that are noticed to be gone within this went at once: agents look every 100 ms.
const AT_ONCE_NS: u64 = 250 * NANOS_PER_MS;
/// Hosts of which nothing comes any more went together if what came last of them was seen within this: each agent has sent what
/// it saw up to its own last turn.
const SILENT_TOGETHER_NS: u64 = NANOS_PER_SEC;
/// How sure it is that hosts of which nothing comes any more are those that stopped: an agent alone does not stop a job.
const SILENT_HOST: f64 = 0.6;
/// How sure it is that a device stopped of those that are inside an operation.
const INSIDE: f64 = 0.9;
/// One of more than six that are equally likely is nobody.
const INSIDE_LEAST: f64 = 0.15;
/// How sure it is that threads which wait for a processor are why data does not move: it may be for another reason too.
const CROWDED: f64 = 0.7;
/// The same where the host's other threads are slow with every call.
const SLOW_CALLS: f64 = 0.95;
/// A main thread that gets a tenth of a processor takes so long for a checkpoint of three seconds: no hang yet.
pub(crate) const STARVED_NS: u64 = 30 * NANOS_PER_SEC;
/// What the facts say together.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Verdict {
    pub what: What,
    pub category: Category,
    pub suspects: Vec<Suspect>,
    pub since: HostTime,
    pub group: Option<CommId>,
    pub op: Option<OpId>,
}

impl Verdict {
    pub(crate) fn unknown(what: What, since: HostTime) -> Verdict {
        Verdict { what, category: Category::Unknown, suspects: Vec::new(), since, group: None, op: None }
    }

    pub(crate) fn confidence(&self) -> f64 {
        self.suspects.first().map_or(0.0, |suspect| suspect.confidence)
    }

    /// The suspects that are as likely as the first.
    pub(crate) fn leads(&self) -> impl Iterator<Item = &Place> {
        let least = self.confidence() - SURER;
        self.suspects.iter().filter(move |suspect| suspect.confidence >= least).map(|suspect| &suspect.place)
    }
}

fn rank_place(rank: Rank, host: &HostName) -> Place {
    Place::Rank { rank, host: host.clone() }
}

fn one(place: Place, confidence: f64) -> Vec<Suspect> {
    vec![Suspect { place, confidence }]
}

fn shared(places: Vec<Place>, confidence: f64) -> Vec<Suspect> {
    let each = confidence / places.len().max(1) as f64;
    places.into_iter().take(SUSPECTS_MAX).map(|place| Suspect { place, confidence: each }).collect()
}

/// The verdict on a stall. The order of the questions is the order in which an answer excludes the later ones.
pub(crate) fn hang(timeline: &Timeline, facts: &[Fact], since: HostTime) -> Verdict {
    let mut verdict = Verdict::unknown(What::Hang, since);
    for fact in facts {
        if let Fact::NeverIssued { op, .. }
        | Fact::NeverRan { op, .. }
        | Fact::GpuNotReady { op, .. }
        | Fact::NotDelivered { op, .. }
        | Fact::StuckInside { op, .. } = fact
        {
            verdict.group = verdict.group.or(Some(op.meta.id.comm));
            verdict.op = verdict.op.or(Some(op.meta.id));
        }
    }
    let answers = [dead, mismatch, cycle, stopped, crowded, sink, undelivered, no_data, stuck::cut, weak_gpu];
    for answer in answers {
        if let Some((what, category, suspects)) = answer(timeline, facts) {
            (verdict.what, verdict.category, verdict.suspects) = (what, category, suspects);
            break;
        }
    }
    verdict
}

type Answer = Option<(What, Category, Vec<Suspect>)>;

/// The first to go is the culprit; those that a launcher kills afterwards are not. Where all ranks of a host, or of several,
/// go at once while others stay, the hosts are.
fn dead(timeline: &Timeline, facts: &[Fact]) -> Answer {
    let mut gone: Vec<(HostTime, Rank, &HostName)> = facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::Dead { rank, host, at, .. } => Some((*at, *rank, host)),
            _ => None,
        })
        .collect();
    gone.sort();
    let first = *gone.first()?;
    if gone.iter().any(|(_, _, host)| *host != first.2) && !gone.iter().all(|gone| timeline.knows_clock_of(gone.2)) {
        return Some((What::Crash, Category::ProcessExit, Vec::new())); // who of them was first nobody can tell
    }
    let mut hosts: BTreeMap<&HostName, usize> = BTreeMap::new();
    gone.iter().filter(|(at, _, _)| at.since_ns(first.0) <= AT_ONCE_NS).for_each(|(_, _, host)| {
        *hosts.entry(host).or_default() += 1;
    });
    let ranks_of = |host: &HostName| timeline.ranks.values().filter(|state| state.host == *host).count();
    let whole = hosts.iter().all(|(host, count)| *count > 1 && *count == ranks_of(host));
    let others_stay = gone.len() < timeline.ranks.len();
    if whole && others_stay {
        let places: Vec<Place> = hosts.keys().map(|host| Place::Host { host: (*host).clone() }).collect();
        let suspects = places.into_iter().take(SUSPECTS_MAX).map(|place| Suspect { place, confidence: 0.95 }).collect();
        return Some((What::Crash, Category::ProcessExit, suspects));
    }
    Some((What::Crash, Category::ProcessExit, one(rank_place(first.1, first.2), 0.99)))
}

/// The smaller camp took the other branch; of camps as large the one that does what it never did, or not there.
fn mismatch(_: &Timeline, facts: &[Fact]) -> Answer {
    let (camps, kinds_differ, unusual) = facts.iter().find_map(|fact| match fact {
        Fact::Mismatch { camps, kinds_differ, never_before, out_of_turn, .. } => {
            Some((camps, *kinds_differ, if never_before.is_empty() { out_of_turn } else { never_before }))
        }
        _ => None,
    })?;
    let smallest = camps.first()?.1.len();
    let mut small: Vec<_> = camps.iter().filter(|(_, who)| who.len() == smallest).collect();
    let is_new = |(_, who): &&(String, Vec<(Rank, HostName)>)| who.iter().all(|(rank, _)| unusual.contains(rank));
    if small.iter().any(is_new) {
        small.retain(is_new);
    }
    let tied = small.len();
    let places: Vec<Place> =
        small.into_iter().flat_map(|(_, who)| who.iter().map(|(rank, host)| rank_place(*rank, host))).collect();
    let category = if kinds_differ { Category::CodeDivergence } else { Category::ArgumentMismatch };
    let confidence = if tied == 1 { 0.95 } else { 0.9 };
    let suspects =
        if tied == 1 && places.len() == 1 { one(places[0].clone(), confidence) } else { shared(places, confidence) };
    Some((What::Desync, category, suspects))
}

/// Those of a cycle that left their order; all of it where the past does not tell. What was left out is not waited for in
/// turn: ranks are apart by an operation, and nothing is merely in the wrong order.
fn cycle(_: &Timeline, facts: &[Fact]) -> Answer {
    let (edges, hosts, left, left_out) = facts.iter().find_map(|fact| match fact {
        Fact::Cycle { edges, hosts, left, left_out } => Some((edges, hosts, left, *left_out)),
        _ => None,
    })?;
    let what = if left_out { What::Desync } else { What::Deadlock };
    let places: Vec<Place> = match &left[..] {
        [] => edges.iter().zip(hosts).map(|((rank, _, _), host)| rank_place(*rank, host)).collect(),
        left => left.iter().map(|(rank, host)| rank_place(*rank, host)).collect(),
    };
    Some((what, Category::CodeDivergence, shared(places, 0.95)))
}

fn stopped(_: &Timeline, facts: &[Fact]) -> Answer {
    let (_, rank, host) = facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::Stopped { rank, host, since, .. } => Some((*since, *rank, host)),
            _ => None,
        })
        .min()?;
    Some((What::Hang, Category::HostThread, one(rank_place(rank, host), 0.97)))
}

/// A rank that waits for nobody. Of several, the one that stopped first: the others are its shadow.
fn sink(timeline: &Timeline, facts: &[Fact]) -> Answer {
    if is_cut(facts) {
        return None; // whoever does not move is behind that
    }
    let is_behind_sends = sends_to_nobody(facts);
    let mut sinks: Vec<(HostTime, Rank, HostName, Category)> = facts
        .iter()
        .filter_map(|fact| {
            let (rank, host, category) = match fact {
                Fact::NeverIssued { rank, host, .. } => (*rank, host, Category::NotStarted),
                Fact::NeverRan { rank, host, .. } => (*rank, host, Category::Gpu),
                Fact::GpuNotReady { rank, host, strong: true, .. } if !is_behind_sends => (*rank, host, Category::Gpu),
                _ => return None,
            };
            let at = timeline.ranks.get(&rank).map_or(HostTime::NONE, |state| state.progress_at);
            Some((at, rank, host.clone(), category))
        })
        .collect();
    sinks.sort();
    let first = sinks.first()?;
    let category = first.3;
    let confidence = if sinks.len() == 1 { 0.95 } else { 0.6 };
    let mut suspects = one(rank_place(first.1, &first.2), confidence);
    let rest = sinks.len().saturating_sub(1).max(1) as f64;
    suspects.extend(
        sinks
            .iter()
            .skip(1)
            .take(SUSPECTS_MAX - 1)
            .map(|(_, rank, host, _)| Suspect { place: rank_place(*rank, host), confidence: 0.3 / rest }),
    );
    Some((What::Hang, category, suspects))
}

/// What one rank sends reaches none of several hosts: who seems to leave its slots waits for that, in a tree perhaps behind a
/// neighbour inside its own host.
fn sends_to_nobody(facts: &[Fact]) -> bool {
    let undelivered = |fact: &Fact| match fact {
        Fact::NotDelivered { from, to, .. } => Some((from.0, to.1.clone())),
        _ => None,
    };
    let all: BTreeSet<(Rank, HostName)> = facts.iter().filter_map(undelivered).collect();
    let senders: BTreeSet<Rank> = all.iter().map(|(from, _)| *from).collect();
    senders.len() == 1 && all.len() >= 2
}

/// A link is down, and data does not get over it.
fn is_cut(facts: &[Fact]) -> bool {
    let down = |host: &HostName| facts.iter().any(|fact| matches!(fact, Fact::NicDown { host: of, .. } if of == host));
    facts.iter().any(|fact| matches!(fact, Fact::NotDelivered { from, to, .. } if down(&from.1) || down(&to.1)))
}

/// Threads that get a processor seldom come in the end: that is no hang yet.
fn crowded(_: &Timeline, facts: &[Fact]) -> Answer {
    let places: Vec<Place> = crowd::of_stall(facts).into_iter().map(host_place).collect();
    let for_long = |fact: &Fact| matches!(fact, Fact::Stalled { waited_ns, .. } if *waited_ns >= STARVED_NS);
    let what = if facts.iter().any(for_long) { What::Hang } else { What::Slowdown };
    let is_slow = facts.iter().any(|fact| matches!(fact, Fact::SlowCalls { .. }));
    let sure = if is_slow { SLOW_CALLS } else { CROWDED };
    (!places.is_empty()).then(|| (what, Category::HostThread, shared(places, sure)))
}

fn undelivered(_: &Timeline, facts: &[Fact]) -> Answer {
    let (category, suspects) = stuck::undelivered(facts)?;
    let what = if stuck::crawls(facts) && !is_cut(facts) { What::Slowdown } else { What::Hang };
    Some((what, category, suspects))
}

fn weak_gpu(_: &Timeline, facts: &[Fact]) -> Answer {
    let weak = facts.iter().find_map(|fact| match fact {
        Fact::GpuNotReady { rank, host, .. } => Some(one(rank_place(*rank, host), 0.6)),
        _ => None,
    });
    let inside = || {
        let ops = facts.iter().filter_map(|fact| match fact {
            Fact::StuckInside { members, .. } => Some(&members[..]),
            _ => None,
        });
        longest_inside(&ops.collect::<Vec<_>>())
    };
    let suspects = weak.unwrap_or_else(inside);
    (!suspects.is_empty()).then(|| (What::Hang, inside::category(facts), suspects))
}

/// All are inside and nothing shows who stopped. It stopped while it was inside, and the operation would have been over
/// soon after the last one came: so the chance is as the time each had spent inside by then. Of several operations in which
/// somebody is, one is as likely as the other. Where all are on one host, that is the only thing that is sure, unless each is
/// alone in its own: no device stops for others' sake. Where there are many, nothing is sure.
fn longest_inside(ops: &[&[(Rank, HostName, HostTime)]]) -> Vec<Suspect> {
    let mut chances: BTreeMap<(Rank, &HostName), f64> = BTreeMap::new();
    for members in ops {
        let last = members.iter().map(|(_, _, started)| *started).max().unwrap_or_default();
        let spent = |started: HostTime| last.since_ns(started) as f64 + NANOS_PER_MS as f64;
        let total: f64 = members.iter().map(|(_, _, started)| spent(*started)).sum();
        for (rank, host, started) in *members {
            *chances.entry((*rank, host)).or_default() += spent(*started) / total / ops.len() as f64;
        }
    }
    let suspect = |((rank, host), chance): (&(Rank, &HostName), &f64)| Suspect {
        place: rank_place(*rank, host),
        confidence: INSIDE * chance,
    };
    let mut out: Vec<Suspect> = chances.iter().map(suspect).collect();
    out.sort_by(|a, b| b.confidence.total_cmp(&a.confidence).then_with(|| a.place.cmp(&b.place)));
    let mut hosts = chances.keys().map(|(_, host)| *host);
    let share_one = ops.iter().any(|members| members.len() > 1);
    if let Some(host) = hosts.next().filter(|host| share_one && hosts.all(|other| other == *host)) {
        out.insert(0, Suspect { place: Place::Host { host: host.clone() }, confidence: INSIDE });
    }
    if out.first().is_some_and(|first| first.confidence < INSIDE_LEAST) {
        return Vec::new();
    }
    out.truncate(SUSPECTS_MAX);
    out
}

/// Those of whom nothing is known may be the ones who stopped; what idle devices let guess of others comes after. A host
/// that is silent as a whole is named as one: it has vanished with its agent, and so have those that went with it, though
/// nobody waits for them.
fn no_data(timeline: &Timeline, facts: &[Fact]) -> Answer {
    let mut hosts: BTreeMap<&HostName, Vec<Rank>> = BTreeMap::new();
    let mut seen: Vec<HostTime> = Vec::new();
    for fact in facts {
        if let Fact::NoData { rank, host, last_seen, .. } = fact
            && timeline.knows_clock_of(host)
        {
            hosts.entry(host).or_default().push(*rank);
            seen.push(*last_seen);
        }
    }
    let with_them = |state: &&RankState| {
        let near = |seen: &HostTime| {
            state.sampled_at.since_ns(*seen).max(seen.since_ns(state.sampled_at)) <= SILENT_TOGETHER_NS
        };
        !state.dead() && timeline.newest_sample.since_ns(state.sampled_at) > 2 * AT_ONCE_NS && seen.iter().any(near)
    };
    let mut together: BTreeMap<&HostName, usize> = BTreeMap::new();
    timeline.ranks.values().filter(with_them).for_each(|state| *together.entry(&state.host).or_default() += 1);
    let ranks_of = |host: &HostName| timeline.ranks.values().filter(|state| state.host == *host).count();
    let is_silent = |host: &HostName| together.get(host).is_some_and(|count| *count > 1 && *count == ranks_of(host));
    let whole = hosts.keys().all(|host| is_silent(host));
    let suspects = match hosts.len() {
        0 => return None,
        _ if whole => {
            let all = together.keys().copied().filter(|host| is_silent(host));
            let place = |host: &HostName| Place::Host { host: host.clone() };
            let each = |host| Suspect { place: place(host), confidence: SILENT_HOST };
            all.take(SUSPECTS_MAX).map(each).collect()
        }
        _ => {
            let of = |(host, silent): (&&HostName, &Vec<Rank>)| -> Vec<Place> {
                silent.iter().map(|rank| rank_place(*rank, host)).collect()
            };
            shared(hosts.iter().flat_map(of).collect(), 0.4)
        }
    };
    Some((What::Hang, Category::Unknown, suspects))
}

#[cfg(test)]
mod tests;
