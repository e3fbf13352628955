//! The network's part of a verdict on a slowdown: the cause that fits which ways between hosts are slow and which are not,
//! with the hosts' NIC counters to break ties.
use crate::case::weigh::{Hypothesis, WAY_RATIO};
use crate::config::Config;
use crate::fact::{Fact, OnWay};
use crate::median::median;
use mycroft_record::{Category, HostName, Place};
use std::collections::{BTreeMap, BTreeSet};

/// Share of the worst way's excess under which the hosts of another are not asked about, since it waits behind, and under
/// which it need not be explained in full.
const SHADOW: f64 = 0.1;
/// The same share of explaining where it carries alike: it may be of the same ring, where all wait behind the worst.
const IN_FULL: f64 = 0.3;
/// Share of the worst way's excess under which another needs no explanation.
const NEGLIGIBLE: f64 = 0.02;
/// Wire time under which a way's factor is noise, milliseconds per iteration: some chunks' latencies.
const LEAST_MS: f64 = 0.2;
/// Wire time from which on a way is full evidence, milliseconds per iteration: ten times that.
const WEIGHS_MS: f64 = 2.0;
/// A way so many times slower is no sign that its ends are well, however much slower another is. Who waits behind a slow way
/// takes twice as long.
const SLOW_ANYHOW: f64 = 2.5;
/// A link with less wire time, milliseconds per iteration, is told to be slow by a few of its milliseconds.
const LIGHT_MS: f64 = 20.0;
/// A way on which so much less time passes than before tells nothing: its sender comes so late that nobody sees how fast it
/// is.
const HIDDEN: f64 = 0.25;
/// Data that was on its way for less than so many times as long is as fast as before.
const AS_FAST: f64 = 1.25;
/// A way whose bytes would take less than this share of its time at the speed of the fastest way shows latencies, which are
/// as before however slow its hosts send.
const SENT_SHARE: f64 = 0.2;
/// Ways whose excess is this share of the worst one's tell together how many times slower the slow ones are ..
const TELLS: f64 = 0.5;
/// .. by those that are slower by least: what comes late besides makes others seem slower still.
const BY_LEAST: f64 = 0.25;
/// Of ways that carry alike, one that waits behind the slow one is slower by less than this, by the logarithms, while the two
/// directions of a NIC are slower by more.
const WAITS: f64 = 0.63;
/// So much less, and it surely waits.
const CLEARLY: f64 = 0.13;
/// As slow as the worst, by the logarithms: no waiting behind it.
const NOT_BEHIND: f64 = 0.75;
/// A way that is about as slow as one that leads to it waits with that for somebody further on.
const BEHIND: f64 = 1.25;
/// What comes to a way after the slow one comes more slowly than before, so it is no waiting that makes it take so many times
/// as long.
const FOLLOWS: f64 = 2.0;
/// Half a contradiction: NICs degrade in both directions more often than in one, or than a way between them.
const RARER: f64 = 0.3;
/// A second NIC must explain about a way more than the first does.
const SECOND: f64 = 0.9;
/// What an interface that says itself that it is slower than it was counts for.
const RATED: f64 = 0.5;
/// However little its other ways carry, a host at which a cause is must not be slow on them for another reason: share of
/// what a way says that counts then.
const BESIDES: f64 = 0.5;
/// Share of what a NIC accounts for that speaks for the other end of its only way: the way is as good an explanation, and the
/// rarer one.
const OTHER_END: f64 = 0.5;
/// A way between two hosts is not the cause where as much, or nearly, speaks against it as for it: it is slow in one direction
/// only, and the other carries as much.
const DENIED: f64 = 0.9;
/// Causes whose costs differ by less are not told apart.
const TIE: f64 = 0.15;
/// Of pairs of hosts that explain alike what carries much, one is left out for which what carries little speaks by so much
/// less: a way that is as slow as the worst.
const BACKED_MORE: f64 = 1.0;
/// What the way between two hosts says at most where nothing that slows both is between them.
const APART: f64 = -0.5;
/// What a way that carries little costs a cause that leaves out that its data is on its way for much longer: two of them are
/// more than a second NIC.
const LIGHT: f64 = 0.6;
/// What all of these cost at most.
const LIGHT_MOST: f64 = 1.8;
/// Data of a way that carries little beside the slowest is not as fast as before if it was on its way for so many times as
/// long, however much slower that one is: of one that was seldom waited for before nobody knows how many times slower it is.
const LONGER: f64 = 1.5;
/// Share of the slow ways that a cause may leave unexplained.
const UNEXPLAINED: f64 = 0.4;
/// Ways of one ring carry alike: at least one part in so many of each other.
const CARRY_ALIKE: f64 = 4.0;
/// Hosts with slow ways beyond which pairs of them are not asked about: 32 x 31 / 2 = 496 pairs.
const ENDS_MAX: usize = 32;

pub(crate) fn host_place(host: &HostName) -> Place {
    Place::Host { host: host.clone() }
}

/// One direction between two hosts in a slowdown.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// Milliseconds per iteration of the slowest link now, over before.
    ratio: f64,
    excess_ms: f64,
    /// How much it counts as evidence: a way that carries next to nothing shows little.
    weight: f64,
    /// How much of that counts where it is as fast as before: latencies do not tell how fast data is sent.
    denies: f64,
    /// How many times slower than the ways that lead to it, if it is no slower than what waits behind a slow way may be.
    beyond: Option<f64>,
    /// Megabytes per iteration, and milliseconds that they took before.
    sent: (f64, f64),
    /// It leads on from the slowest way, is of the same ring, and slower too.
    follows: bool,
    /// Ways that carry alike join it to the slowest one.
    is_of_ring: bool,
    /// It is of another ring than the slowest way, and both its ends exchange something else with hosts of that one's that are
    /// at the slowest way or next to it: ranks of a pipeline stage wait for those of the next.
    mirrors: bool,
    /// All ways of one of its ends together take less time than before: what is waited for here was waited for elsewhere.
    moved: bool,
    /// How many times longer its data was on its way, awaited or not.
    on_way: Option<f64>,
    /// Share of the time before that its bytes would have taken at the speed of the fastest way: the rest is latencies.
    sent_share: f64,
}

type Ways<'a> = BTreeMap<(&'a HostName, &'a HostName), Way>;

/// What of the network may be slow: each says of every way whether it must be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Cause<'a> {
    /// The NIC of a host, in both directions.
    Nic(&'a HostName),
    /// What a host sends.
    Sends(&'a HostName),
    /// What a host receives.
    Receives(&'a HostName),
    /// The way between two hosts, whose NICs serve others as before.
    Between(&'a HostName, &'a HostName),
    /// The NICs of two hosts: other traffic between them shares both.
    Both(&'a HostName, &'a HostName),
}

impl Cause<'_> {
    fn slows(&self, from: &HostName, to: &HostName) -> bool {
        match self {
            Cause::Nic(host) => from == *host || to == *host,
            Cause::Sends(host) => from == *host,
            Cause::Receives(host) => to == *host,
            Cause::Between(a, b) => (from == *a && to == *b) || (from == *b && to == *a),
            Cause::Both(a, b) => [from, to].iter().any(|host| host == a || host == b),
        }
    }

    /// Whether it is at a host.
    fn ends_at(&self, host: &HostName) -> bool {
        match self {
            Cause::Nic(of) | Cause::Sends(of) | Cause::Receives(of) => host == *of,
            Cause::Between(a, b) | Cause::Both(a, b) => host == *a || host == *b,
        }
    }

    /// Whether it is at the NICs of two hosts.
    fn is_of_two(&self) -> bool {
        matches!(self, Cause::Both(..))
    }

    /// What it costs to believe it, in ways that contradict: the rarer and the more it can explain, the more.
    fn price(&self, rated: &BTreeSet<&HostName>) -> f64 {
        match self {
            Cause::Nic(host) if rated.contains(host) => -RATED,
            Cause::Sends(host) | Cause::Receives(host) if rated.contains(host) => RARER - RATED,
            Cause::Nic(_) => 0.0,
            Cause::Sends(_) | Cause::Receives(_) | Cause::Between(..) => RARER,
            Cause::Both(..) => SECOND,
        }
    }
}

/// Who is to blame for slow links: the cause that fits what is slow and what is not. A fault slows all that it touches by
/// about the same factor, however little that carries; who only waits behind it is slowed by less.
pub(crate) fn of_slowdown(facts: &[Fact], config: &Config) -> Vec<Hypothesis> {
    let ways = ways(facts);
    let Some(worst) = worst(&ways).filter(|worst| worst.excess_ms > config.noise_ms && worst.ratio > 1.0) else {
        return Vec::new();
    };
    let slow: BTreeSet<&HostName> = ways
        .iter()
        .filter(|(_, way)| way.excess_ms >= SHADOW * worst.excess_ms && slowness(way.ratio, &worst) > 0.5)
        .flat_map(|((from, to), _)| [*from, *to])
        .collect();
    let touched: BTreeSet<HostName> = slow.iter().map(|host| (*host).clone()).collect();
    let found = |category, places: Vec<Place>, either| {
        vec![Hypothesis { category, places, either, excess_ms: worst.excess_ms, ratio: worst.ratio }]
    };
    let foreign: Vec<HostName> = foreign(facts).into_iter().filter(|host| touched.contains(host)).collect();
    if foreign.len() >= 2 {
        let both: BTreeSet<Place> = foreign.iter().take(2).map(host_place).collect();
        return found(Category::NetworkCongestion, both.into_iter().collect(), false);
    }
    let Some(best) = fitting(&ways, &worst, &slow, facts) else { return Vec::new() };
    let sends = |host: &HostName| -> f64 {
        ways.iter().filter(|((from, _), _)| *from == host).map(|(_, way)| way.excess_ms).sum()
    };
    let receives =
        |host: &HostName| -> f64 { ways.iter().filter(|((_, to), _)| *to == host).map(|(_, way)| way.excess_ms).sum() };
    let mut ends: BTreeSet<&HostName> = BTreeSet::new();
    let mut between = false;
    let surer = surer_end(&best);
    if let Some([host, _]) = surer {
        ends.insert(host);
    }
    for cause in best.iter().filter(|_| surer.is_none()) {
        match cause {
            Cause::Nic(host) | Cause::Sends(host) | Cause::Receives(host) => {
                ends.insert(host);
            }
            Cause::Between(a, b) | Cause::Both(a, b) => {
                between = true;
                ends.extend([*a, *b]);
            }
        }
    }
    let places: Vec<Place> = ends.iter().map(|host| host_place(host)).collect();
    match (between, ends.len()) {
        (true, 2) => found(Category::NetworkCongestion, places, false),
        (false, 1 | 2) => {
            let sending = ends.iter().any(|host| sends(host) >= 0.5 * receives(host));
            let category = if sending { Category::NetworkSend } else { Category::NetworkReceive };
            let either = places.len() > 1;
            let ways = surer
                .or_else(|| only_way(&ends, facts))
                .map(|ends| found(category, ends.map(host_place).to_vec(), false));
            let less_sure = |way: Hypothesis| Hypothesis { excess_ms: OTHER_END * way.excess_ms, ..way };
            found(category, places, either).into_iter().chain(ways.into_iter().flatten().map(less_sure)).collect()
        }
        _ => Vec::new(),
    }
}

/// The host whose NIC fits and that every other cause which fits is at too, and the peer that it shares some of these with:
/// the way between the two, or the NICs of both. It is as sure as all of them, its peer is not.
fn surer_end<'a>(best: &[Cause<'a>]) -> Option<[&'a HostName; 2]> {
    let alone = best.iter().find_map(|cause| match cause {
        Cause::Nic(host) => Some(*host),
        _ => None,
    })?;
    let mut peers: BTreeSet<&HostName> = BTreeSet::new();
    for cause in best {
        match cause {
            _ if !cause.ends_at(alone) => return None,
            Cause::Between(a, b) | Cause::Both(a, b) => peers.extend([*a, *b]),
            Cause::Nic(_) | Cause::Sends(_) | Cause::Receives(_) => {}
        }
    }
    peers.remove(alone);
    let peer = *peers.first().filter(|_| peers.len() == 1)?;
    Some([alone, peer])
}

/// Both ends of the only way that a suspect has, and of which its own counters do not say that it is its NIC that is slow.
fn only_way<'a>(ends: &BTreeSet<&'a HostName>, facts: &'a [Fact]) -> Option<[&'a HostName; 2]> {
    let host = *ends.first().filter(|_| ends.len() == 1)?;
    let of_nic =
        |fact: &Fact| matches!(fact, Fact::NicSlow { host: of, .. } | Fact::NicDown { host: of, .. } if of == host);
    facts.iter().find_map(|fact| match fact {
        Fact::OnePeer { host: of, peer, .. } if of == host && !facts.iter().any(of_nic) => Some([host, peer]),
        _ => None,
    })
}

/// Takes out the ways between hosts whose NICs are `known` to be slow and the ends of another way that is many times slower:
/// they were slow before, so they do not show that these ends are well.
pub(crate) fn without_known(facts: &mut Vec<Fact>, known: &BTreeSet<HostName>) {
    let slow = |fact: &Fact| match fact {
        Fact::WireExcess { from, to, now_ms, base_ms, .. } if *now_ms >= WAY_RATIO * base_ms => {
            (!known.contains(from) && !known.contains(to)).then(|| [from.clone(), to.clone()])
        }
        _ => None,
    };
    let ends: BTreeSet<HostName> = facts.iter().filter_map(slow).flatten().collect();
    let mut peers: BTreeMap<&HostName, BTreeSet<&HostName>> = BTreeMap::new();
    for fact in facts.iter() {
        if let Fact::WireExcess { from, to, .. } | Fact::WireOther { from, to, .. } = fact {
            peers.entry(from).or_default().insert(to);
            peers.entry(to).or_default().insert(from);
        }
    }
    let one_peer = |end: &HostName| {
        let (slow, others): (Vec<&HostName>, Vec<&HostName>) =
            peers.get(end)?.iter().copied().partition(|peer| known.contains(*peer));
        let ([besides, ..], [peer]) = (&slow[..], &others[..]) else { return None };
        Some(Fact::OnePeer { host: end.clone(), peer: (*peer).clone(), besides: Some((*besides).clone()) })
    };
    let told: Vec<Fact> = ends.iter().filter_map(one_peer).collect();
    facts.retain(|fact| match fact {
        Fact::WireExcess { from, to, .. } | Fact::WireOther { from, to, .. } => {
            !(known.contains(from) && ends.contains(to) || known.contains(to) && ends.contains(from))
        }
        _ => true,
    });
    facts.extend(told);
}

/// Whether a kind of fault is the network's.
pub(crate) fn is_of_network(category: Category) -> bool {
    matches!(category, Category::NetworkSend | Category::NetworkReceive | Category::NetworkCongestion)
}

/// Whether ways between hosts may be slower only because they wait for somebody that nothing is seen of: they are slower by no
/// more than such a wait makes them, and all of them together, even one after the other, took less than `least_ms` more.
pub(super) fn waits_for_others(of: &Hypothesis, facts: &[Fact], least_ms: f64) -> bool {
    let is_end = |host: &HostName| of.places.contains(&host_place(host));
    let longer_ms = |fact: &Fact| match fact {
        Fact::WireExcess { from, to, now_ms, base_ms, links, of, .. } => {
            let is_of_way = links * 2 >= *of && (is_end(from) || is_end(to));
            if is_of_way { now_ms - base_ms } else { 0.0 }
        }
        _ => 0.0,
    };
    is_of_network(of.category)
        && of.places.iter().all(|place| matches!(place, Place::Host { .. }))
        && of.ratio < WAY_RATIO
        && facts.iter().map(longer_ms).sum::<f64>() < least_ms
}

/// What is told of a way: milliseconds per iteration now and before, megabytes per iteration, of so many links together.
#[derive(Clone, Copy, Debug)]
struct Told {
    now_ms: f64,
    base_ms: f64,
    mb: f64,
    links: usize,
    on_way: OnWay,
}

/// What facts tell of each way between two hosts.
fn told(facts: &[Fact]) -> BTreeMap<(&HostName, &HostName), Told> {
    let mut out = BTreeMap::new();
    for fact in facts {
        let (from, to, now_ms, base_ms, mb, links, on_way) = match fact {
            Fact::WireExcess { from, to, now_ms, base_ms, mb, on_way, links, of, .. } if links * 2 >= *of => {
                (from, to, *now_ms, *base_ms, *mb, 1, *on_way)
            }
            // Few of many links that carry little and are many times slower: what they took is enough to tell, what the
            // others took is not. No sign that the wire is well.
            Fact::WireExcess { now_ms, base_ms, .. } if *now_ms >= SLOW_ANYHOW * base_ms && *now_ms < LIGHT_MS => {
                continue;
            }
            // Few of many links between the same hosts: not the wire, something at one rank.
            Fact::WireExcess { from, to, base_ms, mb, .. } => (from, to, *base_ms, *base_ms, *mb, 1, OnWay::default()),
            Fact::WireOther { from, to, now_ms, base_ms, mb, on_way, links } => {
                (from, to, *now_ms, *base_ms, *mb, *links, *on_way)
            }
            _ => continue,
        };
        if from != to {
            out.insert((from, to), Told { now_ms, base_ms, mb, links, on_way });
        }
    }
    out
}

/// With the time before that a way would have shown had its receiver waited. Data that lies there when its receiver comes was
/// waited for by nobody, however long it took: a way whose receiver came late shows no time, and some when the other end comes
/// late. It took as long as the way back did of which nothing is seen now, or as what carries as much, but no longer than its data
/// was on its way; where it takes less than that now it tells nothing.
fn seen_before<'a>(told: BTreeMap<(&'a HostName, &'a HostName), Told>) -> BTreeMap<(&'a HostName, &'a HostName), Told> {
    let alike = |a: &Told, b: &Told| a.mb * CARRY_ALIKE >= b.mb && b.mb * CARRY_ALIKE >= a.mb;
    let shown = |(key, way): (&(&'a HostName, &'a HostName), &Told)| {
        let turned = told.get(&(key.1, key.0)).filter(|back| alike(back, way) && back.now_ms < HIDDEN * back.base_ms);
        let base_ms = turned.map_or(way.base_ms, |back| back.base_ms.max(way.base_ms));
        let others = told.values().filter(|other| alike(other, way) && other.mb > 0.0);
        let usual_ms = way.mb * median(others.map(|other| other.base_ms / other.mb).collect()).unwrap_or(0.0);
        let usual_ms = way.on_way.times().map_or(usual_ms, |_| usual_ms.min(way.on_way.base_ms));
        let base_ms = if base_ms < HIDDEN * usual_ms { usual_ms } else { base_ms };
        let tells = (base_ms <= way.base_ms || base_ms <= way.now_ms) && way.now_ms >= HIDDEN * base_ms;
        let seen = if tells { Some(Told { base_ms, ..*way }) } else { unawaited(way) };
        Some((*key, seen?))
    };
    told.iter().filter_map(shown).collect()
}

/// A way whose data nobody waited for any more is as fast as before if that was on its way for no longer. If it was, that
/// tells nothing: what is longer may be what nobody waits for.
fn unawaited(way: &Told) -> Option<Told> {
    let base_ms = way.on_way.base_ms;
    way.on_way.times().is_some_and(|times| times < AS_FAST).then_some(Told { now_ms: base_ms, base_ms, ..*way })
}

/// Every way between two hosts that anything is known of.
fn ways(facts: &[Fact]) -> Ways<'_> {
    let told = seen_before(told(facts));
    let mut ways = Ways::new();
    for ((from, to), Told { now_ms, base_ms, mb, links, on_way }) in told {
        let ratio = (now_ms.max(LEAST_MS) / base_ms.max(LEAST_MS)).max(1.0);
        let weight = (now_ms.max(base_ms) / WEIGHS_MS).min(1.0);
        // Links work side by side: of those that are told of together it is what one of them took longer.
        let (excess_ms, sent) = ((now_ms - base_ms) / links.max(1) as f64, (mb, base_ms));
        ways.insert(
            (from, to),
            Way {
                ratio,
                excess_ms,
                weight,
                denies: weight,
                beyond: None,
                sent,
                follows: false,
                is_of_ring: false,
                mirrors: false,
                moved: false,
                on_way: on_way.times(),
                sent_share: 1.0,
            },
        );
    }
    let speed = |way: &Way| way.sent.0 / way.sent.1.max(LEAST_MS);
    let fastest = ways.values().map(speed).fold(0.0, f64::max);
    for way in ways.values_mut() {
        way.sent_share = speed(way) / fastest.max(f64::MIN_POSITIVE);
        way.denies *= (way.sent_share / SENT_SHARE).min(1.0);
    }
    let mut of_host: BTreeMap<&HostName, f64> = BTreeMap::new();
    for ((from, to), way) in &ways {
        *of_host.entry(*from).or_default() += way.excess_ms;
        *of_host.entry(*to).or_default() += way.excess_ms;
    }
    for ((from, to), way) in &mut ways {
        way.moved = of_host[*from] < 0.0 || of_host[*to] < 0.0;
    }
    let slowest = ways.iter().max_by(|a, b| a.1.excess_ms.total_cmp(&b.1.excess_ms)).map(|(key, _)| *key);
    let ring = slowest.map(|slowest| ring_of(&ways, slowest)).unwrap_or_default();
    for ((from, to), way) in &mut ways {
        way.is_of_ring = ring.contains(from) && ring.contains(to);
    }
    let Some(worst) = worst(&ways) else { return ways };
    let mirrors: Vec<_> =
        ways.keys().copied().filter(|key| slowest.is_some_and(|slowest| mirrors(&ways, *key, slowest))).collect();
    for key in mirrors {
        ways.entry(key).and_modify(|way| {
            way.mirrors = way.excess_ms < TELLS * worst.excess_ms && carries_alike(way, &worst);
        });
    }
    for ((from, to), way) in &mut ways {
        let leads_on = slowest.is_some_and(|slowest| *from == slowest.1 && *to != slowest.0);
        way.follows = leads_on && way.ratio >= FOLLOWS && carries_alike(way, &worst);
    }
    ways.values_mut().for_each(|way| way.moved &= way.excess_ms < TELLS * worst.excess_ms);
    let behind: Vec<_> = ways.keys().copied().filter_map(|key| Some((key, beyond(&ways, key, &worst)?))).collect();
    for (key, times) in behind {
        ways.entry(key).and_modify(|way| way.beyond = Some(times));
    }
    ways
}

/// The hosts that ways which carry alike join to the slowest one.
fn ring_of<'a>(ways: &Ways<'a>, slowest: (&'a HostName, &'a HostName)) -> BTreeSet<&'a HostName> {
    let mut ring = BTreeSet::from([slowest.0, slowest.1]);
    let alike: Vec<_> =
        ways.iter().filter(|(_, way)| carries_alike(way, &ways[&slowest])).map(|(key, _)| *key).collect();
    loop {
        let before = ring.len();
        for (from, to) in &alike {
            if ring.contains(from) || ring.contains(to) {
                ring.extend([*from, *to]);
            }
        }
        if ring.len() == before {
            return ring;
        }
    }
}

/// Whether a way is beside the slowest one, or beside one that leads to it or on from it, in a ring of another pipeline stage.
fn mirrors(ways: &Ways<'_>, (from, to): (&HostName, &HostName), slowest: (&HostName, &HostName)) -> bool {
    let Some(worst) = ways.get(&slowest) else { return false };
    let exchange = |a: &HostName, b: &HostName| {
        let both = [ways.get(&(a, b)), ways.get(&(b, a))];
        both.iter().flatten().any(|way| !carries_alike(way, worst))
    };
    let is_near = |key: &(&HostName, &HostName)| key.0 == slowest.0 || key.1 == slowest.0 || key.0 == slowest.1;
    let beside = |(a, b): &(&HostName, &HostName)| exchange(from, a) && exchange(to, b);
    let is_of_another = ![from, to].iter().any(|end| *end == slowest.0 || *end == slowest.1);
    is_of_another && ways.iter().any(|(key, way)| is_near(key) && carries_alike(way, worst) && beside(key))
}

/// Whether two ways may be parts of one ring.
fn carries_alike(a: &Way, b: &Way) -> bool {
    a.sent.0 * CARRY_ALIKE >= b.sent.0 && b.sent.0 * CARRY_ALIKE >= a.sent.0
}

/// Of a way that is slower, but not as slow as the worst: how many times slower than one that leads to it and carries alike,
/// where they are alike. A ring waits behind a slow way, the longer the nearer, and nothing of that is a step but the slow way
/// itself.
fn beyond(ways: &Ways<'_>, (from, to): (&HostName, &HostName), worst: &Way) -> Option<f64> {
    let way = &ways[&(from, to)];
    if way.ratio.ln() >= NOT_BEHIND * worst.ratio.ln() || way.follows || !carries_alike(way, worst) {
        return None;
    }
    let leads = |(key, other): &(&(&HostName, &HostName), &Way)| {
        key.1 == from && key.0 != to && other.ratio > 1.0 && carries_alike(other, way)
    };
    let times = ways.iter().filter(leads).map(|(_, other)| way.ratio / other.ratio);
    times.filter(|times| (1.0 / BEHIND..BEHIND).contains(times)).map(|times| times.max(1.0)).reduce(f64::min)
}

/// The way that grew by most, as many times slower as those are that grew alike.
fn worst(ways: &Ways<'_>) -> Option<Way> {
    let worst = ways.values().max_by(|a, b| a.excess_ms.total_cmp(&b.excess_ms))?;
    let grew_alike = |way: &&Way| beside(way, worst) >= TELLS * worst.excess_ms;
    let mut grown: Vec<(f64, f64)> = ways.values().filter(grew_alike).map(|way| (way.ratio, way.excess_ms)).collect();
    grown.sort_by(|a, b| a.0.total_cmp(&b.0));
    let least_ms = BY_LEAST * grown.iter().map(|(_, excess_ms)| excess_ms).sum::<f64>();
    let mut sum_ms = 0.0;
    let tells = |(_, excess_ms): &&(f64, f64)| {
        sum_ms += excess_ms;
        sum_ms >= least_ms
    };
    let ratio = grown.iter().find(tells).map_or(worst.ratio, |(ratio, _)| *ratio);
    Some(Way { ratio, ..*worst })
}

/// What a way took longer, milliseconds, had it taken as long as the worst one before: of two of a ring one may be the faster
/// wire, and slowed as many times it takes less longer. Other rings wait for that one, each way for as long.
fn beside(way: &Way, worst: &Way) -> f64 {
    let is_alike = way.is_of_ring && carries_alike(way, worst);
    let slower_before = if is_alike { worst.sent.1 / way.sent.1.max(LEAST_MS) } else { 1.0 };
    way.excess_ms * slower_before.max(1.0)
}

/// Of what takes so many times as long, 1: as slow as the worst; 0: as fast as before. Factors are compared by their logarithms.
fn slowness(times: f64, worst: &Way) -> f64 {
    (times.max(1.0).ln() / worst.ratio.ln()).clamp(0.0, 1.0)
}

/// The same by how many times as long a way would take whose sends are as slow as the worst one's, and whose latencies are as
/// before, where it is mostly these and little besides.
fn slowness_of_sent(times: f64, way: &Way, worst: &Way) -> f64 {
    let is_short = way.sent_share < SENT_SHARE && way.sent.1 < LIGHT_MS;
    let share = if is_short { way.sent_share } else { 1.0 };
    slowness(times, &Way { ratio: 1.0 + share * (worst.ratio - 1.0), ..*worst })
}

/// What a way says, but no more against its being slow than the time that its data was on its way does.
fn lean(way: &Way, worst: &Way) -> f64 {
    let is_light = way.sent.0 * CARRY_ALIKE < worst.sent.0;
    let denies = |times: f64| match is_light && times >= LONGER {
        true => 0.0,
        false => (1.0 - 2.0 * slowness_of_sent(times, way, worst)).max(0.0),
    };
    let denies = way.on_way.map_or(1.0, denies);
    lean_of_awaited(way, worst).max(-denies)
}

/// What a way says with its weight: that it is slow, or below zero that it is not. Half as slow as the worst says nothing, and
/// neither does what is slow by any measure: short messages take their latency besides. What waits behind a slow way is as
/// fast as those that it waits with.
fn lean_of_awaited(way: &Way, worst: &Way) -> f64 {
    let own = Way { ratio: way.beyond.unwrap_or(way.ratio), ..*way };
    let slowness = slowness(own.ratio, worst);
    if way.excess_ms >= SHADOW * worst.excess_ms && carries_alike(way, worst) {
        let over = slowness - WAITS;
        let least = if way.follows { 0.0 } else { -1.0 };
        return if over > 0.0 { over / (1.0 - WAITS) } else { (over / CLEARLY).max(least) };
    }
    let lean = 2.0 * slowness - 1.0;
    let lean = lean * if lean > 0.0 { way.weight } else { way.denies };
    let is_slow = own.ratio >= SLOW_ANYHOW || slowness_of_sent(own.ratio, way, worst) >= 0.5;
    if is_slow { lean.max(0.0) } else { lean }
}

/// How slow a way is, as evidence that must be explained.
fn to_explain(way: &Way, worst: &Way) -> f64 {
    if way.moved || way.mirrors {
        return 0.0;
    }
    let in_full = if carries_alike(way, worst) { IN_FULL } else { SHADOW };
    let share = (beside(way, worst) / worst.excess_ms - NEGLIGIBLE) / (in_full - NEGLIGIBLE);
    lean(way, worst).max(0.0) * share.clamp(0.0, 1.0)
}

/// The causes that fit best; several, if nothing tells them apart. None, if they leave most of what is slow unexplained.
fn fitting<'a>(
    ways: &Ways<'a>,
    worst: &Way,
    slow: &BTreeSet<&'a HostName>,
    facts: &'a [Fact],
) -> Option<Vec<Cause<'a>>> {
    let rated: BTreeSet<&HostName> = facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::NicSlow { host, .. } | Fact::NicDown { host, .. } => Some(host),
            _ => None,
        })
        .collect();
    let mut causes: Vec<Cause<'a>> = Vec::new();
    for host in slow {
        causes.extend([Cause::Nic(host), Cause::Sends(host), Cause::Receives(host)]);
        let others = slow.iter().filter(|other| *other > host).take(if slow.len() > ENDS_MAX { 0 } else { ENDS_MAX });
        causes.extend(others.clone().map(|other| Cause::Both(host, other)));
        let joined =
            others.filter(|other| ways.contains_key(&(*host, **other)) || ways.contains_key(&(**other, *host)));
        causes.extend(joined.map(|other| Cause::Between(host, other)));
    }
    let speaks = |cause: &Cause<'_>| -> [f64; 4] {
        let [mut missed, mut besides, mut denied, mut backed] = [0.0; 4];
        for ((from, to), way) in ways {
            if cause.slows(from, to) {
                denied += (-lean(way, worst)).max(0.0);
                backed += lean(way, worst).max(0.0);
            } else {
                let to_explain = to_explain(way, worst);
                missed += to_explain;
                if cause.ends_at(from) || cause.ends_at(to) {
                    besides += (BESIDES * lean(way, worst).max(0.0) * way.denies - to_explain).max(0.0);
                }
            }
        }
        [missed, besides, denied, backed]
    };
    let light = light_and_slow(facts, worst);
    let left_out = |cause: &Cause<'_>| LIGHT * light.iter().filter(|(from, to)| !cause.slows(from, to)).count() as f64;
    let slow_in_all: f64 = ways.values().map(|way| to_explain(way, worst)).sum();
    // What leaves too much unexplained is no cause however cheap, and neither is what more speaks against than for.
    let mut all: Vec<(f64, Cause<'a>, f64)> = causes
        .into_iter()
        .filter(|cause| !is_apart(cause, ways, worst))
        .filter_map(|cause| {
            let [missed, besides, denied, backed] = speaks(&cause);
            let most = if matches!(cause, Cause::Between(..)) { DENIED * backed } else { backed };
            let fits = missed <= UNEXPLAINED * slow_in_all && denied <= most;
            fits.then(|| {
                (missed + besides + denied + left_out(&cause).min(LIGHT_MOST) + cause.price(&rated), cause, backed)
            })
        })
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
    let least = all.first()?.0;
    all.retain(|(cost, _, _)| *cost <= least + TIE);
    let backed_most =
        all.iter().filter(|(_, cause, _)| cause.is_of_two()).map(|(_, _, backed)| *backed).fold(0.0, f64::max);
    all.retain(|(_, cause, backed)| !cause.is_of_two() || *backed > backed_most - BACKED_MORE);
    Some(all.into_iter().map(|(_, cause, _)| cause).collect())
}

/// Whether two hosts are named for what is between them although data between them is as fast as before: two faults look so.
fn is_apart(cause: &Cause<'_>, ways: &Ways<'_>, worst: &Way) -> bool {
    let Cause::Both(a, b) = cause else { return false };
    let direct = [ways.get(&(*a, *b)), ways.get(&(*b, *a))];
    direct.into_iter().flatten().any(|way| lean(way, worst) <= APART)
}

/// Ways that carry little beside the slowest and whose data was on its way for so much longer that no waiting explains it: of
/// what is sent at once, however seldom, that is how slow the wire is.
fn light_and_slow<'a>(facts: &'a [Fact], worst: &Way) -> BTreeSet<(&'a HostName, &'a HostName)> {
    let is_slow = |way: &Told| {
        way.mb * CARRY_ALIKE < worst.sent.0 && way.on_way.times().is_some_and(|times| times >= SLOW_ANYHOW)
    };
    told(facts).into_iter().filter(|(_, way)| is_slow(way)).map(|(key, _)| key).collect()
}

/// Hosts whose interfaces carry far more than the job sends over them, the busiest first.
pub(crate) fn foreign(facts: &[Fact]) -> Vec<HostName> {
    let mut loads: BTreeMap<HostName, f64> = BTreeMap::new();
    for fact in facts {
        if let Fact::ForeignTraffic { host, nic_mb_s, job_mb_s, .. } = fact {
            let load = loads.entry(host.clone()).or_insert(0.0);
            *load = load.max(nic_mb_s - job_mb_s);
        }
    }
    let mut out: Vec<(f64, HostName)> = loads.into_iter().map(|(host, load)| (load, host)).collect();
    out.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    out.into_iter().map(|(_, host)| host).collect()
}

#[cfg(test)]
mod tests;
