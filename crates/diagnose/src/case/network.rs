//! The network's part of a verdict on a slowdown: the cause that fits which ways between hosts are slow and which are not,
//! with the hosts' NIC counters to break ties.
use crate::case::weigh::Hypothesis;
use crate::config::Config;
use crate::fact::Fact;
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
/// Causes whose costs differ by less are not told apart.
const TIE: f64 = 0.15;
/// Share of the slow ways that a cause may leave unexplained.
const UNEXPLAINED: f64 = 0.4;
/// Ways of one ring carry alike: at least one part in so many of each other.
const CARRY_ALIKE: f64 = 4.0;
/// Hosts with slow ways beyond which pairs of them are not asked about: 32 x 31 / 2 = 496 pairs.
const ENDS_MAX: usize = 32;

pub(super) fn host_place(host: &HostName) -> Place {
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
    /// All ways of one of its ends together take less time than before: what is waited for here was waited for elsewhere.
    moved: bool,
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
        .filter(|(_, way)| way.excess_ms >= SHADOW * worst.excess_ms && slowness(way, &worst) > 0.5)
        .flat_map(|((from, to), _)| [*from, *to])
        .collect();
    let touched: BTreeSet<HostName> = slow.iter().map(|host| (*host).clone()).collect();
    let found = |category, places: Vec<Place>, either| {
        vec![Hypothesis { category, places, either, excess_ms: worst.excess_ms, ratio: worst.ratio }]
    };
    let foreign: Vec<HostName> = foreign(facts).into_iter().filter(|host| touched.contains(host)).collect();
    if foreign.len() >= 2 {
        return found(Category::NetworkCongestion, foreign.iter().take(2).map(host_place).collect(), false);
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
        Fact::OnePeer { host: of, peer } if of == host && !facts.iter().any(of_nic) => Some([host, peer]),
        _ => None,
    })
}

/// What is told of a way: milliseconds per iteration now and before, megabytes per iteration.
#[derive(Clone, Copy, Debug)]
struct Told {
    now_ms: f64,
    base_ms: f64,
    mb: f64,
}

/// What facts tell of each way between two hosts.
fn told(facts: &[Fact]) -> BTreeMap<(&HostName, &HostName), Told> {
    let mut out = BTreeMap::new();
    for fact in facts {
        let (from, to, now_ms, base_ms, mb) = match fact {
            Fact::WireExcess { from, to, now_ms, base_ms, mb, links, of, .. } if links * 2 >= *of => {
                (from, to, *now_ms, *base_ms, *mb)
            }
            // Few of many links that carry little and are many times slower: what they took is enough to tell, what the
            // others took is not. No sign that the wire is well.
            Fact::WireExcess { now_ms, base_ms, .. } if *now_ms >= SLOW_ANYHOW * base_ms && *now_ms < LIGHT_MS => {
                continue;
            }
            // Few of many links between the same hosts: not the wire, something at one rank.
            Fact::WireExcess { from, to, base_ms, mb, .. } => (from, to, *base_ms, *base_ms, *mb),
            Fact::WireOther { from, to, now_ms, base_ms, mb } => (from, to, *now_ms, *base_ms, *mb),
            _ => continue,
        };
        if from != to {
            out.insert((from, to), Told { now_ms, base_ms, mb });
        }
    }
    out
}

/// With the time before that a way would have shown had its receiver waited. Data that lies there when its receiver comes was
/// waited for by nobody, however long it took: a way whose receiver came late shows no time, and some when the other end comes
/// late. It took as long as the way back did of which nothing is seen now, or as what carries as much; where it takes less than
/// that now it tells nothing.
fn seen_before<'a>(told: BTreeMap<(&'a HostName, &'a HostName), Told>) -> BTreeMap<(&'a HostName, &'a HostName), Told> {
    let alike = |a: &Told, b: &Told| a.mb * CARRY_ALIKE >= b.mb && b.mb * CARRY_ALIKE >= a.mb;
    let shown = |(key, way): (&(&'a HostName, &'a HostName), &Told)| {
        let turned = told.get(&(key.1, key.0)).filter(|back| alike(back, way) && back.now_ms < HIDDEN * back.base_ms);
        let base_ms = turned.map_or(way.base_ms, |back| back.base_ms.max(way.base_ms));
        let others = told.values().filter(|other| alike(other, way) && other.mb > 0.0);
        let usual_ms = way.mb * median(others.map(|other| other.base_ms / other.mb).collect()).unwrap_or(0.0);
        let base_ms = if base_ms < HIDDEN * usual_ms { usual_ms } else { base_ms };
        let tells = base_ms <= way.base_ms || base_ms <= way.now_ms;
        tells.then_some((*key, Told { base_ms, ..*way }))
    };
    told.iter().filter_map(shown).collect()
}

/// Every way between two hosts that anything is known of.
fn ways(facts: &[Fact]) -> Ways<'_> {
    let told = seen_before(told(facts));
    let mut ways = Ways::new();
    for ((from, to), Told { now_ms, base_ms, mb }) in told {
        if now_ms < HIDDEN * base_ms {
            continue;
        }
        let ratio = (now_ms.max(LEAST_MS) / base_ms.max(LEAST_MS)).max(1.0);
        let weight = (now_ms.max(base_ms) / WEIGHS_MS).min(1.0);
        let (excess_ms, sent) = (now_ms - base_ms, (mb, base_ms));
        ways.insert(
            (from, to),
            Way { ratio, excess_ms, weight, denies: weight, beyond: None, sent, follows: false, moved: false },
        );
    }
    let speed = |way: &Way| way.sent.0 / way.sent.1.max(LEAST_MS);
    let fastest = ways.values().map(speed).fold(0.0, f64::max);
    for way in ways.values_mut() {
        way.denies *= (speed(way) / (SENT_SHARE * fastest).max(f64::MIN_POSITIVE)).min(1.0);
    }
    let mut of_host: BTreeMap<&HostName, f64> = BTreeMap::new();
    for ((from, to), way) in &ways {
        *of_host.entry(*from).or_default() += way.excess_ms;
        *of_host.entry(*to).or_default() += way.excess_ms;
    }
    for ((from, to), way) in &mut ways {
        way.moved = of_host[*from] < 0.0 || of_host[*to] < 0.0;
    }
    let Some(worst) = worst(&ways) else { return ways };
    let slowest = ways.iter().max_by(|a, b| a.1.excess_ms.total_cmp(&b.1.excess_ms)).map(|(key, _)| *key);
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
    let grew_alike = |way: &&Way| way.excess_ms >= TELLS * worst.excess_ms;
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

/// 1: as slow as the worst; 0: as fast as before. Factors are compared by their logarithms.
fn slowness(way: &Way, worst: &Way) -> f64 {
    (way.ratio.ln() / worst.ratio.ln()).clamp(0.0, 1.0)
}

/// What a way says with its weight: that it is slow, or below zero that it is not. Half as slow as the worst says nothing, and
/// neither does what is slow by any measure: short messages take their latency besides. What waits behind a slow way is as
/// fast as those that it waits with.
fn lean(way: &Way, worst: &Way) -> f64 {
    let own = Way { ratio: way.beyond.unwrap_or(way.ratio), ..*way };
    let slowness = slowness(&own, worst);
    if way.excess_ms >= SHADOW * worst.excess_ms && carries_alike(way, worst) {
        let over = slowness - WAITS;
        let least = if way.follows { 0.0 } else { -1.0 };
        return if over > 0.0 { over / (1.0 - WAITS) } else { (over / CLEARLY).max(least) };
    }
    let lean = 2.0 * slowness - 1.0;
    let lean = lean * if lean > 0.0 { way.weight } else { way.denies };
    if own.ratio >= SLOW_ANYHOW { lean.max(0.0) } else { lean }
}

/// How slow a way is, as evidence that must be explained.
fn to_explain(way: &Way, worst: &Way) -> f64 {
    if way.moved {
        return 0.0;
    }
    let in_full = if carries_alike(way, worst) { IN_FULL } else { SHADOW };
    let share = (way.excess_ms / worst.excess_ms - NEGLIGIBLE) / (in_full - NEGLIGIBLE);
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
    let slow_in_all: f64 = ways.values().map(|way| to_explain(way, worst)).sum();
    // What leaves too much unexplained is no cause however cheap, and neither is what more speaks against than for.
    let mut all: Vec<(f64, Cause<'a>)> = causes
        .into_iter()
        .filter_map(|cause| {
            let [missed, besides, denied, backed] = speaks(&cause);
            let fits = missed <= UNEXPLAINED * slow_in_all && denied <= backed;
            fits.then(|| (missed + besides + denied + cause.price(&rated), cause))
        })
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
    let least = all.first()?.0;
    all.retain(|(cost, _)| *cost <= least + TIE);
    Some(all.into_iter().map(|(_, cause)| cause).collect())
}

/// Hosts whose interfaces carry far more than the job sends over them, the busiest first.
pub(super) fn foreign(facts: &[Fact]) -> Vec<HostName> {
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
mod tests {
    use super::*;

    /// From one host to another: milliseconds per iteration now and before.
    type Told<'a> = (&'a str, &'a str, f64, f64);

    /// So many of the links that carry alike are slow.
    fn excess((from, to, now_ms, base_ms): Told<'_>, links: usize, of: usize) -> Fact {
        let (from, to) = (HostName::from(from), HostName::from(to));
        Fact::WireExcess { from, to, now_ms, base_ms, iteration_ms: 500.0, mb: base_ms, links, of }
    }

    fn facts(list: &[Told<'_>]) -> Vec<Fact> {
        let one = |&(from, to, now_ms, base_ms): &Told<'_>| {
            if now_ms - base_ms > 5.0 {
                return excess((from, to, now_ms, base_ms), 4, 4);
            }
            Fact::WireOther { from: HostName::from(from), to: HostName::from(to), now_ms, base_ms, mb: base_ms }
        };
        list.iter().map(one).collect()
    }

    fn said(facts: &[Fact]) -> Option<(Category, Vec<String>, bool)> {
        let found = of_slowdown(facts, &Config::default()).pop()?;
        let hosts = found.places.iter().map(|place| match place {
            Place::Host { host } => host.to_string(),
            other => format!("{other:?}"),
        });
        Some((found.category, hosts.collect(), found.either))
    }

    fn hosts(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    /// b's NIC: both directions of the ring, and what little it exchanges with d.
    const NIC: [Told<'_>; 6] = [
        ("a", "b", 600.0, 150.0),
        ("b", "c", 580.0, 150.0),
        ("c", "d", 160.0, 150.0),
        ("d", "a", 158.0, 150.0),
        ("b", "d", 6.0, 2.0),
        ("d", "b", 5.0, 2.0),
    ];

    #[test]
    fn a_nic_is_slow_towards_all() {
        assert_eq!(said(&facts(&NIC)), Some((Category::NetworkSend, hosts(&["b"]), false)));
    }

    /// Of a ring whose hosts send a little to other pipeline stages, which waits for whoever is late: one of the two slow
    /// ways alone would cost less to believe, but explains half.
    #[test]
    fn a_cause_that_explains_half_does_not_stand_in_the_way_of_one_that_explains_all() {
        let ring = [
            ("8", "9", 1030.0, 252.0),
            ("9", "10", 1045.0, 267.0),
            ("10", "11", 117.7, 258.0),
            ("11", "8", 120.4, 259.7),
            ("10", "14", 2.4, 1.6),
            ("10", "6", 3.2, 3.1),
            ("12", "8", 0.8, 2.6),
            ("13", "9", 1.1, 2.6),
            ("14", "10", 0.8, 2.4),
            ("4", "8", 0.8, 1.6),
            ("5", "9", 1.1, 1.7),
            ("6", "10", 0.8, 1.7),
            ("8", "12", 2.4, 1.4),
            ("8", "4", 3.2, 3.2),
            ("9", "13", 3.3, 1.4),
            ("9", "5", 4.3, 2.7),
        ];
        assert_eq!(said(&facts(&ring)), Some((Category::NetworkSend, hosts(&["9"]), false)));
    }

    /// Of a ring in which the hosts before the slow one wait for it, and which exchange small messages besides: some of these
    /// take several times as long by chance.
    #[test]
    fn what_hardly_grew_needs_no_explanation() {
        let ring = [
            ("54", "55", 862.0, 148.0),
            ("55", "56", 590.0, 107.0),
            ("52", "53", 174.0, 121.0),
            ("51", "52", 159.0, 100.0),
            ("19", "20", 156.0, 147.0),
            ("20", "18", 2.0, 0.4),
            ("17", "21", 3.2, 0.5),
            ("14", "12", 2.9, 0.2),
            ("13", "12", 4.5, 0.2),
        ];
        assert_eq!(said(&facts(&ring)), Some((Category::NetworkSend, hosts(&["55"]), false)));
    }

    /// Of a leaf of a tree: most of what it moves goes to one host and back, which serves all others as before.
    #[test]
    fn who_is_slow_by_less_elsewhere_is_slow() {
        let leaf = [
            ("4", "9", 353.0, 11.0),
            ("9", "4", 520.0, 24.0),
            ("8", "9", 18.1, 6.7),
            ("9", "8", 28.3, 9.0),
            ("1", "4", 11.3, 11.2),
            ("4", "2", 106.5, 187.1),
            ("4", "8", 74.4, 73.8),
        ];
        assert_eq!(said(&facts(&leaf)), Some((Category::NetworkSend, hosts(&["9"]), false)));
    }

    #[test]
    fn a_way_is_slow_and_both_of_its_ends_serve_others() {
        let way = [
            ("a", "b", 120.0, 60.0), // waits behind
            ("b", "c", 900.0, 70.0),
            ("c", "d", 100.0, 170.0),
            ("d", "a", 150.0, 150.0),
        ];
        assert_eq!(said(&facts(&way)), Some((Category::NetworkCongestion, hosts(&["b", "c"]), false)));
    }

    #[test]
    fn traffic_between_two_hosts_slows_both_towards_all() {
        let both = [
            ("a", "b", 800.0, 200.0),
            ("b", "a", 810.0, 200.0),
            ("c", "d", 790.0, 200.0),
            ("d", "c", 820.0, 200.0),
            ("b", "d", 16.0, 4.0),
            ("b", "e", 15.0, 4.0),
            ("e", "d", 14.0, 4.0),
            ("a", "c", 4.1, 4.0),
        ];
        assert_eq!(said(&facts(&both)), Some((Category::NetworkCongestion, hosts(&["b", "d"]), false)));
    }

    /// The one way that two hosts have in both directions: what else they carry tells, else nothing does.
    #[test]
    fn two_ends_are_told_apart_by_the_little_that_they_carry_elsewhere() {
        let pair = [("a", "b", 640.0, 150.0), ("b", "a", 650.0, 150.0)];
        assert_eq!(said(&facts(&pair)), Some((Category::NetworkSend, hosts(&["a", "b"]), true)));
        let told = [&pair[..], &[("b", "c", 7.0, 2.0), ("c", "b", 6.5, 2.0), ("a", "d", 2.1, 2.0)]].concat();
        assert_eq!(said(&facts(&told)), Some((Category::NetworkSend, hosts(&["b"]), false)));
        let little = [&pair[..], &[("b", "c", 0.1, 0.02), ("a", "d", 0.02, 0.02)]].concat();
        assert_eq!(said(&facts(&little)), Some((Category::NetworkSend, hosts(&["a", "b"]), true)), "that is noise");
    }

    #[test]
    fn what_no_cause_explains_names_nobody() {
        let all = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let ring: Vec<Told<'_>> = (0..all.len()).map(|at| (all[at], all[(at + 1) % all.len()], 400.0, 100.0)).collect();
        assert_eq!(said(&facts(&ring)), None);
    }

    /// Few of the links that carry alike are one rank's, not the wire's: the others show that it is as fast as before.
    #[test]
    fn few_links_of_many_are_not_the_wire() {
        let few = |to| excess(("a", to, 600.0, 150.0), 1, 8);
        assert_eq!(said(&[few("b"), few("c")]), None);
        let one = [few("b"), excess(("c", "a", 600.0, 150.0), 8, 8)];
        assert_eq!(said(&one), Some((Category::NetworkSend, hosts(&["c"]), false)), "a's NIC sends as before");
    }

    /// Ring b -> c -> d through a host whose processors' sockets are joined badly: all of it takes three times as long, the
    /// way from b twice that. What a and e send to c comes so late that nobody sees how long it takes.
    #[test]
    fn what_is_not_seen_is_no_sign_that_a_host_is_well() {
        let mut facts = facts(&[
            ("b", "c", 823.0, 125.0),
            ("c", "d", 531.0, 144.0),
            ("a", "b", 152.0, 133.0),
            ("b", "e", 3.1, 3.1),
            ("c", "a", 9.6, 3.0),
            ("c", "e", 9.8, 3.1),
            ("a", "c", 0.0, 2.7),
            ("e", "c", 0.0, 3.0),
        ]);
        assert_eq!(said(&facts), Some((Category::NetworkSend, hosts(&["c"]), false)));
        facts.push(excess(("f", "c", 6.0, 1.0), 3, 8));
        facts.push(excess(("g", "c", 7.0, 1.0), 3, 8));
        assert_eq!(said(&facts), Some((Category::NetworkSend, hosts(&["c"]), false)), "nor what carries little");
    }

    /// Ring a -> b -> c -> d whose hosts exchange small messages besides, the way from b to c is congested. c came late to them
    /// before, so of what is sent to it nothing was seen, and the others come late now.
    #[test]
    fn a_way_shows_its_time_only_where_its_receiver_waits() {
        let mut facts = facts(&[("b", "c", 1269.0, 169.0), ("c", "d", 238.0, 348.0), ("a", "b", 170.0, 168.0)]);
        assert_eq!(said(&facts), Some((Category::NetworkCongestion, hosts(&["b", "c"]), false)));
        let small = [
            ("c", "a", 0.0, 2.5),
            ("c", "e", 0.1, 2.5),
            ("a", "c", 1.9, 0.0),
            ("e", "c", 2.2, 0.0),
            ("d", "c", 2.6, 0.0),
        ];
        let others = [("b", "e", 2.4, 2.4), ("b", "d", 2.3, 2.4), ("d", "b", 2.5, 2.4)];
        facts.extend(small.iter().chain(&others).map(|way| carrying(*way, 2.4)));
        assert_eq!(said(&facts), Some((Category::NetworkCongestion, hosts(&["b", "c"]), false)));
        let slow = |way: &Told<'_>| carrying((way.0, way.1, 7.0 * way.2, way.3), 2.4);
        facts.extend(small.iter().map(slow));
        assert_eq!(
            said(&facts),
            Some((Category::NetworkReceive, hosts(&["c"]), false)),
            "slow as the others never were"
        );
    }

    /// With so many megabytes per iteration.
    fn carrying((from, to, now_ms, base_ms): Told<'_>, mb: f64) -> Fact {
        Fact::WireOther { from: HostName::from(from), to: HostName::from(to), now_ms, base_ms, mb }
    }

    /// Ring a -> b -> c, b's NIC is slow. Its small messages to others take a latency each, as before.
    #[test]
    fn latencies_do_not_deny_that_a_nic_is_slow() {
        let ring = facts(&[("a", "b", 280.0, 44.0), ("b", "c", 1088.0, 97.0), ("c", "d", 80.0, 87.0)]);
        let said_with = |mb: f64| {
            let small = ["d", "e", "f"].map(|to| carrying(("b", to, 2.0, 2.0), mb));
            said(&[&ring[..], &small].concat())
        };
        assert_eq!(said_with(0.01), Some((Category::NetworkSend, hosts(&["b"]), false)));
        assert_eq!(
            said_with(2.0),
            Some((Category::NetworkCongestion, hosts(&["b", "c"]), false)),
            "they are sent as fast"
        );
    }

    /// Ring .. a -> b -> c -> d -> e, the way from d to e is congested: the nearer, the longer others wait behind it.
    #[test]
    fn what_waits_behind_a_way_is_no_step_but_the_way_is() {
        let ring = |two_before: f64, before: f64| {
            let (first, last) = (("a", "b", 170.0, 50.0), ("e", "f", 51.0, 65.0));
            [first, ("b", "c", two_before, 50.0), ("c", "d", before, 50.0), ("d", "e", 555.0, 53.0), last]
        };
        let way = Some((Category::NetworkCongestion, hosts(&["d", "e"]), false));
        assert_eq!(said(&facts(&ring(178.0, 180.0))), way);
        assert_eq!(said(&facts(&ring(250.0, 260.0))), way, "longer, but so does who is before it");
        let nic = Some((Category::NetworkSend, hosts(&["d"]), false));
        assert_eq!(said(&facts(&ring(100.0, 260.0))), nic, "that is no waiting");
        assert_eq!(said(&facts(&ring(178.0, 430.0))), nic, "d in both directions");
    }

    /// Ring a -> b -> c -> d -> e: data comes slowly to c, which passes it on slowly as well.
    #[test]
    fn what_leads_on_from_a_slow_way_does_not_wait_behind_it() {
        let ring = |before: f64, after: f64| {
            facts(&[("a", "b", before, 42.0), ("b", "c", 438.0, 84.0), ("c", "d", after, 39.0), ("d", "e", 40.0, 39.0)])
        };
        assert_eq!(said(&ring(78.0, 93.0)), Some((Category::NetworkReceive, hosts(&["c"]), false)));
        assert_eq!(said(&ring(93.0, 50.0)), Some((Category::NetworkCongestion, hosts(&["b", "c"]), false)));
    }

    /// Ring a -> b -> c -> d, b's NIC is slow: what leads on from the slowest way took less before and is longer by less, and
    /// who is next is no longer waited for.
    #[test]
    fn what_leads_on_is_not_behind_though_it_is_longer_by_less() {
        let ring = [("a", "b", 1572.0, 372.0), ("b", "c", 700.0, 137.0), ("c", "d", 355.0, 1310.0)];
        let elsewhere = [("b", "e", 7.4, 3.1), ("e", "b", 11.0, 5.0), ("a", "e", 2.2, 2.2)];
        let told = facts(&[&ring[..], &elsewhere].concat());
        assert_eq!(said(&told), Some((Category::NetworkReceive, hosts(&["b"]), false)));
    }

    /// Of a tree in which what b sends on to c is not told: it is b's NIC, what b receives, or the way from a.
    #[test]
    fn the_host_that_all_causes_are_at_is_surer_than_its_peer() {
        let told = [
            ("a", "b", 176.0, 17.7),
            ("e", "b", 4.6, 1.5),
            ("b", "f", 7.8, 3.9),
            ("b", "g", 11.4, 4.0),
            ("b", "e", 4.5, 1.7),
            ("g", "b", 9.0, 3.2),
            ("a", "h", 2.6, 2.6),
            ("d", "a", 35.0, 34.0),
        ];
        let found = of_slowdown(&facts(&told), &Config::default());
        let told: Vec<_> = found.iter().map(|of| (of.category, of.excess_ms.round(), of.places.clone())).collect();
        let [a, b] = ["a", "b"].map(|host| host_place(&HostName::from(host)));
        let word = Category::NetworkReceive;
        assert_eq!(told, [(word, 158.0, vec![b.clone()]), (word, 79.0, vec![b, a])]);
    }

    /// Two NICs that are slow four times. A way that waits for both besides seems slower still, and in another group of the
    /// job time goes elsewhere.
    #[test]
    fn the_least_slow_ways_tell_how_slow_a_nic_is() {
        let both = [
            ("a", "c", 660.0, 165.0),
            ("c", "a", 640.0, 155.0),
            ("a", "d", 650.0, 162.0),
            ("b", "e", 600.0, 150.0),
            ("e", "b", 680.0, 26.0),
            ("b", "d", 620.0, 155.0),
            ("c", "d", 160.0, 160.0),
        ];
        let elsewhere = |[f, g, h]: [&'static str; 3]| [(f, g, 200.0, 640.0), (g, h, 150.0, 25.0)];
        let groups = [["f", "g", "h"], ["i", "j", "k"], ["l", "m", "n"], ["o", "p", "q"], ["r", "s", "t"]];
        let both = [&both[..], &groups.map(elsewhere).concat()].concat();
        assert_eq!(said(&facts(&both)), Some((Category::NetworkCongestion, hosts(&["a", "b"]), false)));
    }

    /// The last of a line of stages: whether it is its NIC or the way to the one before it shows nowhere.
    #[test]
    fn the_only_way_of_a_host_may_be_slow_as_well_as_its_nic() {
        let line = [("a", "b", 46.0, 30.0), ("b", "a", 47.0, 30.0), ("b", "c", 339.0, 36.0), ("c", "b", 350.0, 30.0)];
        let (peer, nic) = (HostName::from("b"), std::sync::Arc::from("eth0"));
        let mut facts = facts(&line);
        facts.push(Fact::OnePeer { host: HostName::from("c"), peer });
        let told: Vec<_> =
            of_slowdown(&facts, &Config::default()).into_iter().map(|of| (of.excess_ms, of.places)).collect();
        let [c, b] = ["c", "b"].map(|host| host_place(&HostName::from(host)));
        assert_eq!(told, [(320.0, vec![c.clone()]), (160.0, vec![c.clone(), b])]);
        facts.push(Fact::NicSlow { host: HostName::from("c"), nic, now_mb_s: 10.0, other_mb_s: 100.0 });
        assert_eq!(of_slowdown(&facts, &Config::default()).len(), 1, "it says itself that it is slower");
    }

    /// The two of a tree that exchange most; what one of them exchanges with others is slow as well, however little it is.
    #[test]
    fn what_an_end_carries_elsewhere_is_slow_for_the_same_reason() {
        let pair = [("a", "b", 1870.0, 230.0), ("b", "a", 1849.0, 230.0)];
        let told = [&pair[..], &[("a", "c", 22.7, 1.8), ("c", "a", 45.0, 21.3), ("b", "d", 28.7, 16.8)]].concat();
        assert_eq!(said(&facts(&told)), Some((Category::NetworkSend, hosts(&["a"]), false)));
    }

    #[test]
    fn an_interface_that_says_that_it_is_slower_breaks_a_tie() {
        let mut facts = facts(&[("a", "b", 640.0, 150.0), ("b", "a", 650.0, 150.0)]);
        let nic = std::sync::Arc::from("eth0");
        facts.push(Fact::NicSlow { host: HostName::from("b"), nic, now_mb_s: 10.0, other_mb_s: 100.0 });
        assert_eq!(said(&facts), Some((Category::NetworkSend, hosts(&["b"]), false)));
    }
}
