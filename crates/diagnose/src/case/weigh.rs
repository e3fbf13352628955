//! Weighing: facts of all rooms into one verdict. Nothing else accuses anybody (invariant 6).
mod passages;
mod pauses;
mod unseen;

use self::pauses::Paused;
use crate::blame::slow;
use crate::case::{crowd, inside, network, stuck};
use crate::config::Config;
use crate::fact::{Fact, OtherLinks};
use crate::timeline::{RankState, Timeline};
use mycroft_record::{
    Category, CommId, Direction, Finding, HostName, HostTime, NANOS_PER_MS, NANOS_PER_SEC, OpId, Place, Rank, Suspect,
    What,
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
/// Share of an iteration's growth that recurring pauses of one rank explain: a flow shows the longest of several only.
const PAUSES_EXPLAIN: f64 = 0.8;

/// How often a proxy thread is needed for a slice that a rank passes on: to take it, to send it, to see it arrive. Only the
/// first of these shows alone.
pub(super) const PROXY_LOOKS: f64 = 3.0;
/// Proxy threads of so many ranks that are late together, all on one host, are so because of the host.
const THREADS: usize = 3;
/// Share of an excess of links or copies from which on proxy threads explain it.
const PROXY_EXPLAINS: f64 = 0.3;
/// So many ways that are many times slower are no shadow of a copy at another host.
const SEVERAL_WAYS: usize = 3;
/// Share of an iteration's growth from which on what a rank does itself explains the copies of other hosts.
const OWN_EXPLAINS: f64 = 0.9;
/// Share of an iteration's growth for which what a device computes more must account: all wait for that, whole.
const COMPUTED: f64 = 0.5;
/// Links that grew by this share of what another one did are as slow.
const AS_SLOW: f64 = 0.9;
/// A way between hosts that is so many times slower is slow itself: who waits behind one takes twice as long.
pub(super) const WAY_RATIO: f64 = 3.0;
/// Share of the worst link's excess under which another one-rank link is its shadow.
const SHADOW: f64 = 0.5;
/// Who waits for a slow copy elsewhere waits now for data and now for room, never for both at once: so for one of the two
/// half of the time at most, which is all that its own copies seem to take.
const COPY_SHADOW: f64 = 0.5;
/// The same on the host of the slowest: of one that has neighbours there, in a tree, less than all is surely its own, so half of
/// the time may be a little more than half of what is seen of it.
const COPY_SHADOW_AT_HOME: f64 = 0.6;

/// What the facts say together.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Verdict {
    pub what: What,
    pub category: Category,
    pub suspects: Vec<Suspect>,
    pub since: HostTime,
    /// Share of an iteration's growth that the first suspects account for; 0 where nothing grew.
    pub share: f64,
    pub group: Option<CommId>,
    pub op: Option<OpId>,
}

impl Verdict {
    pub(crate) fn unknown(what: What, since: HostTime) -> Verdict {
        Verdict { what, category: Category::Unknown, suspects: Vec::new(), since, share: 0.0, group: None, op: None }
    }

    pub(crate) fn confidence(&self) -> f64 {
        self.suspects.first().map_or(0.0, |suspect| suspect.confidence)
    }

    /// How sure it must be at least to take the place of what a case says: about as sure. How fast ways were before is forgotten
    /// first, and the copies that wait behind a slow one are left: those must be surer. That what stood still time and again was
    /// all that a rank sends tells more than that it stood still.
    pub(crate) fn least_against(&self, finding: &Finding, facts: &[Fact]) -> f64 {
        let sure = finding.suspects.first().map_or(0.0, |suspect| suspect.confidence);
        let are_left = network::is_of_network(finding.category) && self.category == Category::GpuCopy;
        let only_sends = |place: &Place| match place {
            Place::Rank { rank, .. } => pauses::only_sends_slowly(facts, *rank),
            Place::Host { .. } | Place::Link { .. } => false,
        };
        let were_sends = finding.category == Category::HostThread && self.category == Category::NetworkSend;
        match finding.suspects.first() {
            Some(Suspect { place, .. }) if were_sends && self.leads().eq([place]) && only_sends(place) => 0.0,
            _ if are_left => sure + SURER,
            _ => sure - SURER,
        }
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
    let places: Vec<Place> = crowd::of_stall(facts).into_iter().map(network::host_place).collect();
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

/// A possible explanation of a slowdown.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Hypothesis {
    pub category: Category,
    pub places: Vec<Place>,
    /// One of the places, and nothing tells which; else all of them.
    pub either: bool,
    /// Milliseconds of the iteration it accounts for.
    pub excess_ms: f64,
    /// Now over before.
    pub ratio: f64,
}

/// The verdict on a slowdown: the explanation that accounts for most of what the iteration grew.
pub(crate) fn slowdown(
    timeline: &Timeline,
    facts: &[Fact],
    config: &Config,
    since: HostTime,
    iteration_ms: f64,
) -> Verdict {
    let facts = &unseen::without(facts)[..];
    let mut list = hypotheses(timeline, facts, config, iteration_ms);
    list.retain(|one| one.places.iter().all(|place| timeline.knows_clocks_at(place)));
    // Of a host whose threads wait and the one rank that shows it the host is meant.
    let crowd = |of: &Hypothesis| {
        of.category == Category::HostThread && of.places.iter().all(|place| matches!(place, Place::Host { .. }))
    };
    list.sort_by(|a, b| {
        let order = b.excess_ms.total_cmp(&a.excess_ms).then_with(|| crowd(b).cmp(&crowd(a)));
        order.then_with(|| a.places.cmp(&b.places))
    });
    let mut verdict = Verdict::unknown(What::Slowdown, since);
    let Some(best) = list.first() else { return verdict };
    // The same suspect for another reason speaks for it, and so does a part of it for the same, or what it is a part of.
    let is_part = |place: &Place| best.places.iter().any(|whole| is_on(place, whole));
    let speaks_for = |other: &Hypothesis| {
        let is_wider = || best.places.iter().all(|place| other.places.contains(place));
        other.places == best.places
            || (other.category == best.category && (other.places.iter().all(is_part) || is_wider()))
    };
    let mut others = list.iter().filter(|other| !speaks_for(other));
    let second = others.clone().next().map_or(0.0, |other| other.excess_ms);
    let beside = others.find(|way| !may_be_because_of(way, best, facts)).map_or(0.0, |other| other.excess_ms);
    let share = (best.excess_ms / iteration_ms.max(1.0)).min(1.0);
    let margin = 1.0 - (second / best.excess_ms.max(1e-9)).clamp(0.0, 1.0);
    let stands_out = best.ratio >= 1.5
        && beside * 3.0 <= best.excess_ms
        && best.excess_ms >= config.noise_ms
        && share >= slow::LEAST_SHARE
        && !network::waits_for_others(best, facts, config.explains_share * iteration_ms);
    let least =
        if best.category == Category::Gpu { COMPUTED.max(config.explains_share) } else { config.explains_share };
    if share < least && !stands_out {
        return verdict;
    }
    let sure = (0.35 + 0.35 * share + 0.29 * margin).clamp(0.05, 0.99);
    let confidence = if best.either { sure / best.places.len() as f64 } else { sure };
    verdict.category = best.category;
    verdict.share = share;
    verdict.suspects =
        best.places.iter().take(SUSPECTS_MAX).map(|place| Suspect { place: place.clone(), confidence }).collect();
    for other in list.iter().skip(1).take(3) {
        let less = confidence * (other.excess_ms / best.excess_ms).clamp(0.0, 1.0) * 0.8;
        for place in other.places.iter().take(2) {
            if !verdict.suspects.iter().any(|suspect| suspect.place == *place) {
                verdict.suspects.push(Suspect { place: place.clone(), confidence: less });
            }
        }
    }
    verdict
}

/// Whether a place is a rank on a host.
fn is_on(place: &Place, whole: &Place) -> bool {
    matches!((place, whole), (Place::Rank { host: of, .. }, Place::Host { host }) if of == host)
}

fn hypotheses(timeline: &Timeline, facts: &[Fact], config: &Config, iteration_ms: f64) -> Vec<Hypothesis> {
    let mut out = Vec::new();
    let mut by_category: BTreeMap<Category, BTreeMap<Rank, (HostName, f64, f64)>> = BTreeMap::new();
    for fact in facts {
        let (category, rank, host, now, base) = match fact {
            Fact::ComputeExcess { rank, host, now_ms, base_ms, .. } => (Category::Gpu, *rank, host, *now_ms, *base_ms),
            Fact::CopyExcess { rank, host, now_ms, base_ms, .. } => (Category::GpuCopy, *rank, host, *now_ms, *base_ms),
            Fact::HostExcess { rank, host, now_ms, base_ms, .. } => {
                (Category::NotStarted, *rank, host, *now_ms, *base_ms)
            }
            Fact::ProxyExcess { rank, host, now_ms, base_ms, .. } => {
                (Category::HostThread, *rank, host, PROXY_LOOKS * now_ms, PROXY_LOOKS * base_ms)
            }
            Fact::HandoverExcess { rank, host, now_ms, base_ms, .. } => {
                (Category::HostThread, *rank, host, *now_ms, *base_ms)
            }
            Fact::PassageExcess { host, now_ms, base_ms, .. } => {
                if passages::are_ways_slow(facts, host, now_ms - base_ms) {
                    continue;
                }
                let places = vec![passages::slow_on_way(facts, host)];
                let (excess_ms, ratio) = (now_ms - base_ms, now_ms / base_ms.max(1.0));
                out.push(Hypothesis { category: Category::GpuCopy, places, either: false, excess_ms, ratio });
                continue;
            }
            _ => continue,
        };
        // What one thread takes too long for shows in several places.
        let ranks = by_category.entry(category).or_default();
        let (_, excess, ratio) = ranks.entry(rank).or_insert_with(|| (host.clone(), 0.0, 0.0));
        (*excess, *ratio) = (excess.max(now - base), ratio.max(now / base.max(1.0)));
    }
    for (category, ranks) in by_category {
        let ranks: Vec<_> =
            ranks.into_iter().map(|(rank, (host, excess, ratio))| (rank, host, excess, ratio)).collect();
        out.extend(of_ranks(timeline, config, category, &ranks));
    }
    let is_copy = |hypothesis: &Hypothesis| hypothesis.category == Category::GpuCopy;
    let copies = out.iter().filter(|hypothesis| is_copy(hypothesis));
    if let Some(slowest) = copies.max_by(|a, b| a.excess_ms.total_cmp(&b.excess_ms)).cloned() {
        out.retain(|hypothesis| {
            let at_home = hypothesis.places != slowest.places && hosts(hypothesis) == hosts(&slowest);
            let shadow = if at_home { COPY_SHADOW_AT_HOME } else { COPY_SHADOW };
            !is_copy(hypothesis) || hypothesis.excess_ms > shadow * slowest.excess_ms
        });
    }
    unseen::together(facts, &mut out);
    // What a device computes, or a main thread does, waits for nobody; slots wait for whoever is late with it.
    let is_own = |hypothesis: &&Hypothesis| matches!(hypothesis.category, Category::Gpu | Category::NotStarted);
    let own = out.iter().filter(is_own).max_by(|a, b| a.excess_ms.total_cmp(&b.excess_ms)).cloned();
    if let Some(own) = own.filter(|own| own.excess_ms >= OWN_EXPLAINS * iteration_ms) {
        out.retain(|hypothesis| !is_copy(hypothesis) || !hosts(hypothesis).is_disjoint(&hosts(&own)));
    }
    let pauses = pauses::of(facts);
    let mut network = network::of_slowdown(&pauses::without(timeline, facts, &pauses), config);
    // Data that a proxy thread has and does not pass on is late for no other reason. Those that wait for it look like slow
    // wires, those that send to it wait for room and those behind it for data, which looks like slow copies.
    let proxies = out.iter().filter(|hypothesis| hypothesis.category == Category::HostThread);
    let held = proxies.map(|hypothesis| hypothesis.excess_ms).fold(0.0, f64::max);
    let shadow = |hypothesis: &Hypothesis| held >= PROXY_EXPLAINS * hypothesis.excess_ms;
    out.retain(|hypothesis| hypothesis.category != Category::GpuCopy || !shadow(hypothesis));
    network.retain(|hypothesis| !shadow(hypothesis));
    out.retain(|hypothesis| !network.iter().any(|way| is_behind(hypothesis, way, facts)));
    let wire = network.iter().map(|hypothesis| hypothesis.excess_ms).fold(0.0, f64::max);
    if pauses.is_empty() {
        let mut links = of_links(facts);
        links.retain(|link| !shadow(link));
        let may_wait = |of: &Hypothesis| unseen::may_wait(facts, &of.places);
        out.retain(|of| !may_wait(of) || !links.iter().any(|link| is_behind(of, link, facts)));
        // What waits behind the one slow link is its shadow.
        let worst = links.iter().map(|hypothesis| hypothesis.excess_ms).fold(0.0, f64::max);
        network.retain(|hypothesis| hypothesis.excess_ms >= SHADOW * worst);
        out.extend(links);
    }
    let busy = if wire > 0.0 { network::foreign(facts) } else { Vec::new() };
    for (rank, Paused { host, mean_ms, .. }) in pauses {
        // Pauses on links that are all slow are the wire's, and so are those where others keep it busy.
        if wire < 0.5 * iteration_ms && !busy.contains(&host) {
            let places = vec![rank_place(rank, &host)];
            let excess_ms = mean_ms.max(PAUSES_EXPLAIN * iteration_ms);
            out.push(Hypothesis { category: Category::HostThread, places, either: false, excess_ms, ratio: 10.0 });
        }
    }
    out.extend(network);
    out.extend(crowd::of_slowdown(facts, config, iteration_ms));
    out
}

/// Whether copies are of hosts that wait behind a slow way between others: their slots stay full, or come late, and copies last.
/// Copies that are slow themselves slow no way but those of their host, where both ends would wait for the wire. The only
/// ones that are slow, by more than the way, do not wait behind it, unless there are several such ways, or the rank may wait
/// for its parent in a tree, inside its own host: whoever waits there does so for all that the way takes longer.
fn is_behind(copies: &Hypothesis, way: &Hypothesis, facts: &[Fact]) -> bool {
    let (ends, theirs) = (hosts(way), hosts(copies));
    let is_elsewhere = |fact: &&Fact| match fact {
        Fact::WireExcess { from, to, now_ms, base_ms, .. } => {
            *now_ms >= WAY_RATIO * base_ms
                && now_ms - base_ms >= SHADOW * copies.excess_ms
                && !theirs.contains(from)
                && !theirs.contains(to)
        }
        _ => false,
    };
    let may_wait = unseen::may_wait(facts, &copies.places);
    let is_first = is_only_copy(facts) && !may_wait && facts.iter().filter(is_elsewhere).count() < SEVERAL_WAYS;
    let shadow = if is_first { 1.0 } else { SHADOW };
    let least_ms = if may_wait { SHADOW * way.excess_ms } else { way.excess_ms };
    let is_slow = |fact: &Fact| match fact {
        Fact::WireExcess { from, to, now_ms, base_ms, .. } => {
            (ends.contains(from) || ends.contains(to)) && *now_ms >= WAY_RATIO * base_ms && now_ms - base_ms >= least_ms
        }
        _ => false,
    };
    copies.category == Category::GpuCopy
        && (way.ratio >= WAY_RATIO || facts.iter().any(is_slow))
        && way.excess_ms >= shadow * copies.excess_ms
        && theirs.is_disjoint(&ends)
}

/// Whether ways may be slow because of the only rank whose copies are: those that wait for it send at once when it has come.
fn may_be_because_of(way: &Hypothesis, copies: &Hypothesis, facts: &[Fact]) -> bool {
    copies.category == Category::GpuCopy && network::is_of_network(way.category) && is_only_copy(facts)
}

/// Whether the copies of one rank are slow, and nobody else's.
fn is_only_copy(facts: &[Fact]) -> bool {
    facts.iter().filter(|fact| matches!(fact, Fact::CopyExcess { .. })).count() == 1
}

/// The hosts of the places of a hypothesis.
fn hosts(of: &Hypothesis) -> BTreeSet<HostName> {
    let host = |place: &Place| match place {
        Place::Rank { host, .. } | Place::Host { host } => Some(host.clone()),
        Place::Link { .. } => None,
    };
    of.places.iter().filter_map(host).collect()
}

/// One link that is slow alone.
struct SlowLink<'a> {
    from: &'a (Rank, HostName),
    to: &'a (Rank, HostName),
    excess_ms: f64,
    ratio: f64,
    sends: &'a OtherLinks,
    receives: &'a OtherLinks,
}

impl SlowLink<'_> {
    /// Which end is slow, if its other links tell: it is slow in them too, or the other end is fast in its own. Where others of
    /// both are slow, those of the end that is so in all: what else the other one has waits for it.
    fn slow_end(&self) -> Option<Direction> {
        match (self.sends.slow > 0, self.receives.slow > 0) {
            (true, false) => Some(Direction::Send),
            (false, true) => Some(Direction::Recv),
            (true, true) => match (self.sends.fast > 0, self.receives.fast > 0) {
                (true, false) => Some(Direction::Recv),
                (false, true) => Some(Direction::Send),
                _ => None,
            },
            (false, false) => match (self.sends.fast > 0, self.receives.fast > 0) {
                (true, false) => Some(Direction::Recv),
                (false, true) => Some(Direction::Send),
                (true, true) => None,
                (false, false) => self.slow_end_by_short(),
            },
        }
    }

    /// The same by links that carry too little to be slower in proportion: those of one end are slower, those of the other are
    /// not. Where each message takes longer nothing of the other end has to be seen: it comes late, and what it receives lies
    /// there by then.
    fn slow_end_by_short(&self) -> Option<Direction> {
        let is_slow = |end: &OtherLinks, other: &OtherLinks| {
            let tells = end.by_message > 0 || (end.less_slow > 0 && other.short_fast > 0);
            tells && other.less_slow + other.by_message == 0
        };
        match (is_slow(self.sends, self.receives), is_slow(self.receives, self.sends)) {
            (true, _) => Some(Direction::Send),
            (_, true) => Some(Direction::Recv),
            _ => None,
        }
    }
}

/// One rank's connections are slow and its neighbours' on the same wire are not: its own sends, or its own receives. The
/// sender is told from the receiver by what else they send and receive: the one that is slow is slow in that too.
fn of_links(facts: &[Fact]) -> Vec<Hypothesis> {
    let links: Vec<_> = facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::RankLink { from, to, now_ms, base_ms, sends, receives, .. } => Some(SlowLink {
                from,
                to,
                excess_ms: now_ms - base_ms,
                ratio: now_ms / base_ms.max(1.0),
                sends,
                receives,
            }),
            _ => None,
        })
        .collect();
    let Some(worst) = links.iter().max_by(|a, b| a.excess_ms.total_cmp(&b.excess_ms)) else { return Vec::new() };
    let alike: Vec<&SlowLink<'_>> = links.iter().filter(|link| link.excess_ms >= SHADOW * worst.excess_ms).collect();
    let place = |end: &(Rank, HostName)| rank_place(end.0, &end.1);
    let sends = alike.iter().all(|link| link.from == worst.from);
    let receives = alike.iter().all(|link| link.to == worst.to);
    let sender = (Category::NetworkSend, vec![place(worst.from)], false);
    let receiver = (Category::NetworkReceive, vec![place(worst.to)], false);
    let (category, places, either) = match (sends, receives) {
        (true, true) => match worst.slow_end() {
            Some(Direction::Send) => sender,
            Some(Direction::Recv) => receiver,
            None => (Category::NetworkSend, vec![place(worst.from), place(worst.to)], true),
        },
        (true, false) => sender,
        (false, true) => receiver,
        (false, false) => return Vec::new(),
    };
    let (excess_ms, ratio) = (worst.excess_ms, worst.ratio);
    if !either && is_of_others_too(worst, category, facts) {
        return Vec::new();
    }
    vec![Hypothesis { category, places, either, excess_ms, ratio }]
}

/// Whether most links between the slow end's host and another one are as slow: what slows those is no single rank's.
fn is_of_others_too(slow: &SlowLink<'_>, category: Category, facts: &[Fact]) -> bool {
    let is_beside = |from: &HostName, to: &HostName| match category {
        Category::NetworkSend => *from == slow.from.1 && *to != slow.to.1,
        _ => *to == slow.to.1 && *from != slow.from.1,
    };
    facts.iter().any(|fact| match fact {
        Fact::WireExcess { from, to, now_ms, base_ms, links, of, .. } => {
            let are_most = *links >= 2 && links * 2 >= *of;
            is_beside(from, to) && are_most && now_ms - base_ms >= AS_SLOW * slow.excess_ms
        }
        _ => false,
    })
}

/// Ranks with an excess of one kind: those of one host that are all alike are the host's.
fn of_ranks(
    timeline: &Timeline,
    config: &Config,
    category: Category,
    ranks: &[(Rank, HostName, f64, f64)],
) -> Vec<Hypothesis> {
    let mut hosts: BTreeMap<HostName, Vec<&(Rank, HostName, f64, f64)>> = BTreeMap::new();
    for entry in ranks {
        hosts.entry(entry.1.clone()).or_default().push(entry);
    }
    let worst = ranks.iter().map(|entry| entry.2).fold(0.0, f64::max);
    // Everybody a little slower is weather: an excess counts by how far it stands above the job's median.
    let mut all: Vec<f64> = ranks.iter().map(|entry| entry.2).collect();
    all.resize(all.len().max(timeline.ranks.len()), 0.0);
    all.sort_by(f64::total_cmp);
    let usual = all[(all.len() - 1) / 2];
    let mut out = Vec::new();
    let senders = if category == Category::HostThread { senders(timeline) } else { BTreeMap::new() };
    for (host, entries) in hosts {
        let on_host = match category {
            Category::HostThread => senders.get(&host).copied().unwrap_or(0),
            _ => timeline.ranks.by_slot().iter().filter(|state| state.host == host).count(),
        };
        let alike: Vec<_> = entries.iter().filter(|entry| entry.2 >= 0.4 * worst).collect();
        // Threads of several ranks are late for one reason where nobody else's are: not all of a host have as much to do.
        let only_here = category == Category::HostThread && alike.len() >= THREADS && alike.len() == ranks.len();
        let whole = alike.len() >= 2 && alike.len() as f64 >= config.host_share * on_host as f64 || only_here;
        if whole && category != Category::NotStarted {
            let excess = alike.iter().map(|entry| entry.2).fold(f64::MAX, f64::min);
            let ratio = alike.iter().map(|entry| entry.3).fold(f64::MAX, f64::min);
            let places = vec![Place::Host { host }];
            out.push(Hypothesis {
                category,
                places,
                either: false,
                excess_ms: (excess - usual).max(0.0) * 1.05,
                ratio,
            });
            continue;
        }
        out.extend(entries.iter().map(|entry| Hypothesis {
            category,
            places: vec![rank_place(entry.0, &entry.1)],
            either: false,
            excess_ms: (entry.2 - usual).max(0.0),
            ratio: entry.3,
        }));
    }
    out
}

/// How many ranks of each host send over links: of no others anything is known of their proxy threads.
fn senders(timeline: &Timeline) -> BTreeMap<HostName, usize> {
    let mut ranks: Vec<Rank> = timeline.links.all(&timeline.ranks).map(|link| link.from).collect();
    ranks.dedup();
    let mut hosts = BTreeMap::new();
    ranks.into_iter().for_each(|rank| *hosts.entry(timeline.host(rank)).or_default() += 1);
    hosts
}

#[cfg(test)]
mod tests;
