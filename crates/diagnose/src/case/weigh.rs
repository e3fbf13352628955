//! Weighing: facts of all rooms into one verdict. Nothing else accuses anybody (design invariant 6).
use crate::blame::slow;
use crate::case::{crowd, network, stuck};
use crate::config::Config;
use crate::fact::{Fact, OtherLinks};
use crate::timeline::Timeline;
use mycroft_record::{
    Category, CommId, Direction, HostName, HostTime, NANOS_PER_MS, NANOS_PER_SEC, OpId, Place, Rank, Suspect, What,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Suspects kept in a verdict.
pub(crate) const SUSPECTS_MAX: usize = 8;
/// How much surer of one suspect than of another means anything.
pub(crate) const SURER: f64 = 0.05;
/// A verdict at least this sure is settled at once.
pub(crate) const DECISIVE: f64 = 0.85;

/// Processes that are noticed to be gone within this went at once: agents look every 100 ms.
const AT_ONCE_NS: u64 = 250 * NANOS_PER_MS;
/// How sure it is that hosts of which nothing comes any more are those that stopped: an agent alone does not stop a job.
const SILENT_HOST: f64 = 0.6;
/// How sure it is that a device stopped of those that are inside an operation.
const INSIDE: f64 = 0.9;
/// One of more than six that are equally likely is nobody.
const INSIDE_LEAST: f64 = 0.15;
/// How sure it is that threads which wait for a processor are why data does not move: it may be for another reason too.
const CROWDED: f64 = 0.7;
/// A main thread that gets a tenth of a processor takes so long for a checkpoint of three seconds: no hang yet.
pub(crate) const STARVED_NS: u64 = 30 * NANOS_PER_SEC;
/// Pauses of one rank that are beyond any noise: two of half a second.
const PAUSES_MIN: usize = 2;
/// Share of an iteration's growth that recurring pauses of one rank explain: a flow shows the longest of several only.
const PAUSES_EXPLAIN: f64 = 0.8;

/// How often a proxy thread is needed for a slice that a rank passes on: to take it, to send it, to see it arrive. Only the
/// first of these shows alone.
pub(super) const PROXY_LOOKS: f64 = 3.0;
/// Share of an excess of links or copies from which on proxy threads explain it.
const PROXY_EXPLAINS: f64 = 0.3;
/// Share of the worst link's excess under which another one-rank link is its shadow.
const SHADOW: f64 = 0.5;

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
    let answers = [dead, mismatch, cycle, stopped, crowded, sink, undelivered, no_data, weak_gpu];
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

/// The smaller camp took the other branch; of camps as large the one that does what it never did.
fn mismatch(_: &Timeline, facts: &[Fact]) -> Answer {
    let (camps, kinds_differ, never_before) = facts.iter().find_map(|fact| match fact {
        Fact::Mismatch { camps, kinds_differ, never_before, .. } => Some((camps, *kinds_differ, never_before)),
        _ => None,
    })?;
    let smallest = camps.first()?.1.len();
    let mut small: Vec<_> = camps.iter().filter(|(_, who)| who.len() == smallest).collect();
    let is_new = |(_, who): &&(String, Vec<(Rank, HostName)>)| who.iter().all(|(rank, _)| never_before.contains(rank));
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
            Fact::Stopped { rank, host, since } => Some((*since, *rank, host)),
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
    let mut sinks: Vec<(HostTime, Rank, HostName, Category)> = facts
        .iter()
        .filter_map(|fact| {
            let (rank, host, category) = match fact {
                Fact::NeverIssued { rank, host, .. } => (*rank, host, Category::NotStarted),
                Fact::NeverRan { rank, host, .. } => (*rank, host, Category::Gpu),
                Fact::GpuNotReady { rank, host, strong: true, .. } => (*rank, host, Category::Gpu),
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
    (!places.is_empty()).then(|| (what, Category::HostThread, shared(places, CROWDED)))
}

fn undelivered(_: &Timeline, facts: &[Fact]) -> Answer {
    let (category, suspects) = stuck::undelivered(facts)?;
    Some((What::Hang, category, suspects))
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
    (!suspects.is_empty()).then_some((What::Hang, Category::Gpu, suspects))
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
/// that is silent as a whole is named as one: it has vanished with its agent.
fn no_data(timeline: &Timeline, facts: &[Fact]) -> Answer {
    let mut hosts: BTreeMap<&HostName, Vec<Rank>> = BTreeMap::new();
    for fact in facts {
        if let Fact::NoData { rank, host, .. } = fact {
            hosts.entry(host).or_default().push(*rank);
        }
    }
    let ranks_of = |host: &HostName| timeline.ranks.values().filter(|state| state.host == *host).count();
    let whole = hosts.iter().all(|(host, silent)| silent.len() > 1 && silent.len() == ranks_of(host));
    let suspects = match hosts.len() {
        0 => return None,
        _ if whole => hosts
            .keys()
            .take(SUSPECTS_MAX)
            .map(|host| Suspect { place: Place::Host { host: (*host).clone() }, confidence: SILENT_HOST })
            .collect(),
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
    let mut list = hypotheses(timeline, facts, config, iteration_ms);
    list.sort_by(|a, b| b.excess_ms.total_cmp(&a.excess_ms).then_with(|| a.places.cmp(&b.places)));
    let mut verdict = Verdict::unknown(What::Slowdown, since);
    let Some(best) = list.first() else { return verdict };
    // The same suspect for another reason speaks for it.
    let second = list.iter().find(|other| other.places != best.places).map_or(0.0, |other| other.excess_ms);
    let share = (best.excess_ms / iteration_ms.max(1.0)).min(1.0);
    let margin = 1.0 - (second / best.excess_ms.max(1e-9)).clamp(0.0, 1.0);
    let stands_out = best.ratio >= 1.5
        && second * 3.0 <= best.excess_ms
        && best.excess_ms >= config.noise_ms
        && share >= slow::LEAST_SHARE;
    if share < config.explains_share && !stands_out {
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

fn hypotheses(timeline: &Timeline, facts: &[Fact], config: &Config, iteration_ms: f64) -> Vec<Hypothesis> {
    let mut out = Vec::new();
    let mut by_category: BTreeMap<Category, BTreeMap<Rank, (HostName, f64, f64)>> = BTreeMap::new();
    let mut pauses: BTreeMap<Rank, (HostName, f64, usize)> = BTreeMap::new();
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
                let places = vec![Place::Host { host: host.clone() }];
                let (excess_ms, ratio) = (now_ms - base_ms, now_ms / base_ms.max(1.0));
                out.push(Hypothesis { category: Category::GpuCopy, places, either: false, excess_ms, ratio });
                continue;
            }
            Fact::ProxyPause { rank, host, pause_ms, .. } => {
                let entry = pauses.entry(*rank).or_insert_with(|| (host.clone(), 0.0, 0));
                entry.1 += pause_ms;
                entry.2 += 1;
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
    // Whoever receives from a rank that is slow towards everybody is told late of what it sends: that is no pause.
    let told_late = behind_slow_senders(facts);
    pauses.retain(|rank, _| !told_late.contains(rank));
    // Whom the paused thread does not serve seems to pause with it, on the one link that they share.
    let on_links: BTreeMap<Rank, f64> = pauses.keys().map(|rank| (*rank, on_links_ms(facts, *rank))).collect();
    let worst = on_links.values().copied().fold(0.0, f64::max);
    pauses.retain(|rank, _| on_links.get(rank).is_some_and(|ms| *ms >= SHADOW * worst));
    let most = pauses.values().map(|(_, _, count)| *count).max().unwrap_or(0);
    pauses.retain(|_, (_, _, count)| *count >= PAUSES_MIN && *count == most);
    let mut network = network::of_slowdown(&without_paused(facts, &pauses), config);
    // Data that a proxy thread has and does not pass on is late for no other reason. Those that wait for it look like slow
    // wires, those that send to it wait for room and those behind it for data, which looks like slow copies.
    let proxies = out.iter().filter(|hypothesis| hypothesis.category == Category::HostThread);
    let held = proxies.map(|hypothesis| hypothesis.excess_ms).fold(0.0, f64::max);
    let shadow = |hypothesis: &Hypothesis| held >= PROXY_EXPLAINS * hypothesis.excess_ms;
    out.retain(|hypothesis| hypothesis.category != Category::GpuCopy || !shadow(hypothesis));
    network.retain(|hypothesis| !shadow(hypothesis));
    let wire = network.iter().map(|hypothesis| hypothesis.excess_ms).fold(0.0, f64::max);
    if pauses.is_empty() && held == 0.0 {
        let links = of_links(facts);
        // What waits behind the one slow link is its shadow.
        let worst = links.iter().map(|hypothesis| hypothesis.excess_ms).fold(0.0, f64::max);
        network.retain(|hypothesis| hypothesis.excess_ms >= SHADOW * worst);
        out.extend(links);
    }
    let busy = if wire > 0.0 { network::foreign(facts) } else { Vec::new() };
    for (rank, (host, total_ms, count)) in pauses {
        // Pauses on links that are all slow are the wire's, and so are those where others keep it busy.
        if wire < 0.5 * iteration_ms && !busy.contains(&host) {
            let places = vec![rank_place(rank, &host)];
            let excess_ms = (total_ms / count as f64).max(PAUSES_EXPLAIN * iteration_ms);
            out.push(Hypothesis { category: Category::HostThread, places, either: false, excess_ms, ratio: 10.0 });
        }
    }
    out.extend(network);
    out.extend(crowd::of_slowdown(facts, config, iteration_ms));
    out
}

/// Ranks at the end of a link that is slow alone, whose sender is slow towards others too and who get from others as fast as
/// before.
fn behind_slow_senders(facts: &[Fact]) -> BTreeSet<Rank> {
    let of = |fact: &Fact| match fact {
        Fact::RankLink { to, sends, receives, .. } if sends.slow > 0 && receives.slow == 0 && receives.fast > 0 => {
            Some(to.0)
        }
        _ => None,
    };
    facts.iter().filter_map(of).collect()
}

/// By how much the links grew that are slow alone and lead from or to a rank, milliseconds per iteration.
fn on_links_ms(facts: &[Fact], rank: Rank) -> f64 {
    let of = |fact: &Fact| match fact {
        Fact::RankLink { from, to, now_ms, base_ms, .. } if from.0 == rank || to.0 == rank => now_ms - base_ms,
        _ => 0.0,
    };
    facts.iter().map(of).sum()
}

/// Facts without slow links that are one rank's alone, whose proxy thread pauses: they hold what it did not move.
fn without_paused<'a, T>(facts: &'a [Fact], paused: &BTreeMap<Rank, T>) -> Cow<'a, [Fact]> {
    let touches = |rank: &Rank| paused.contains_key(rank);
    let of_paused: BTreeSet<(&HostName, &HostName)> = facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::RankLink { from, to, .. } if touches(&from.0) || touches(&to.0) => Some((&from.1, &to.1)),
            _ => None,
        })
        .collect();
    let is_theirs = |fact: &&Fact| matches!(fact, Fact::WireExcess { from, to, .. } if of_paused.contains(&(from, to)));
    if of_paused.is_empty() {
        return Cow::Borrowed(facts);
    }
    Cow::Owned(facts.iter().filter(|fact| !is_theirs(fact)).cloned().collect())
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
    /// Which end is slow, if its other links tell: it is slow in them too, or the other end is fast in its own.
    fn slow_end(&self) -> Option<Direction> {
        match (self.sends.slow > 0, self.receives.slow > 0) {
            (true, false) => Some(Direction::Send),
            (false, true) => Some(Direction::Recv),
            (true, true) => None,
            (false, false) => match (self.sends.fast > 0, self.receives.fast > 0) {
                (true, false) => Some(Direction::Recv),
                (false, true) => Some(Direction::Send),
                _ => None,
            },
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
    vec![Hypothesis { category, places, either, excess_ms, ratio }]
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
        let whole = alike.len() >= 2 && alike.len() as f64 >= config.host_share * on_host as f64;
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
mod tests {
    use super::*;
    use crate::blame::hang::NO_META;
    use crate::case::Evidence;
    use crate::fact::OpRef;
    use mycroft_record::FlowCounters;

    fn inside(ops: &[&[(u32, &str, u64)]]) -> Vec<(String, f64)> {
        let of = |members: &&[(u32, &str, u64)]| -> Vec<(Rank, HostName, HostTime)> {
            let member =
                |(rank, host, ms): &(u32, &str, u64)| (Rank(*rank), HostName::from(*host), HostTime(ms * NANOS_PER_MS));
            members.iter().map(member).collect()
        };
        let ops: Vec<_> = ops.iter().map(of).collect();
        let suspects = longest_inside(&ops.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let name = |place: &Place| match place {
            Place::Rank { rank, .. } => rank.to_string(),
            Place::Host { host } => host.to_string(),
            Place::Link { .. } => String::new(),
        };
        suspects.iter().map(|suspect| (name(&suspect.place), (suspect.confidence * 100.0).round())).collect()
    }

    fn pairs(list: &[(&str, f64)]) -> Vec<(String, f64)> {
        list.iter().map(|(name, percent)| ((*name).to_owned(), *percent)).collect()
    }

    #[test]
    fn a_host_is_named_for_several_of_its_ranks_inside_and_not_for_one() {
        assert_eq!(inside(&[&[(10, "c", 1)]]), pairs(&[("10", 90.0)]));
        assert_eq!(inside(&[&[(10, "c", 1), (11, "c", 1)]]), pairs(&[("c", 90.0), ("10", 45.0), ("11", 45.0)]));
        assert_eq!(inside(&[&[(10, "c", 1), (14, "d", 1)]]), pairs(&[("10", 45.0), ("14", 45.0)]));
        assert_eq!(inside(&[&[(10, "c", 1), (14, "d", 9)]]), pairs(&[("10", 81.0), ("14", 9.0)]), "who waited longest");
    }

    #[test]
    fn of_many_that_are_inside_nobody_is_named() {
        let alone: Vec<[(u32, &str, u64); 1]> = (0..8).map(|rank| [(rank, ["a", "b"][rank as usize / 4], 1)]).collect();
        let ops: Vec<&[_]> = alone.iter().map(|members| &members[..]).collect();
        assert_eq!(inside(&ops), []);
        assert_eq!(inside(&ops[3..5]), pairs(&[("3", 45.0), ("4", 45.0)]));
        let none_shared = inside(&ops[..4]);
        assert!(none_shared.iter().all(|(name, _)| name != "a"), "all on one host, each alone: {none_shared:?}");
        assert_eq!(inside(&[]), []);
    }

    /// Of a run in which slow copies had not shown yet: one link of many was a little slower than before.
    #[test]
    fn what_stands_alone_and_explains_next_to_nothing_accuses_nobody() {
        let said = |now_ms: f64| {
            let (from, to) = (HostName::from("d"), HostName::from("c"));
            let fact = Fact::WireExcess { from, to, now_ms, base_ms: 36.0, iteration_ms: 553.0, links: 4, of: 4 };
            slowdown(&Timeline::default(), &[fact], &Config::default(), HostTime(1), 553.0).category
        };
        assert_eq!(said(56.0), Category::Unknown);
        assert_ne!(said(136.0), Category::Unknown);
    }

    /// A link that others fill lets flows stand still for as long as a proxy thread that sleeps.
    #[test]
    fn pauses_at_an_interface_that_others_keep_busy_are_no_proxy_threads() {
        let host = |name: &str| HostName::from(name);
        let pause = |name: &str| Fact::ProxyPause {
            rank: Rank(1),
            host: host(name),
            at: HostTime(1),
            pause_ms: 3_000.0,
            flows: 6,
            inbound: false,
            op: None,
        };
        let wire = |from: &str, to: &str| {
            let (from, to) = (host(from), host(to));
            Fact::WireExcess { from, to, now_ms: 1_090.0, base_ms: 26.0, iteration_ms: 2_783.0, links: 8, of: 8 }
        };
        let foreign = |name: &str| {
            let (nic_mb_s, job_mb_s) = (47.0, 1.6);
            Fact::ForeignTraffic { host: host(name), nic: "eth0".into(), nic_mb_s, job_mb_s }
        };
        let said =
            |facts: &[Fact]| slowdown(&Timeline::default(), facts, &Config::default(), HostTime(1), 2_783.0).category;
        let slow = [pause("a"), pause("a"), wire("a", "b"), wire("c", "a"), wire("c", "d"), foreign("a"), foreign("c")];
        assert_eq!(said(&slow), Category::NetworkCongestion);
        assert_eq!(said(&slow[..5]), Category::HostThread);
        let elsewhere = [&[pause("d"), pause("d")], &slow[2..]].concat();
        assert_eq!(said(&elsewhere), Category::HostThread);
    }

    #[test]
    fn of_two_ranks_that_seem_to_pause_the_one_with_the_slow_links_does() {
        let end = |rank: u32| (Rank(rank), HostName::from(format!("host{}", rank / 4).as_str()));
        let link = |from: u32, to: u32, grew_ms: f64| Fact::RankLink {
            from: end(from),
            to: end(to),
            now_ms: 300.0 + grew_ms,
            base_ms: 300.0,
            iteration_ms: 2_000.0,
            of: 4,
            sends: OtherLinks::default(),
            receives: OtherLinks::default(),
        };
        let pause = |rank: u32| {
            let (at, pause_ms, flows, inbound, op) = (HostTime(1), 1_000.0, 2, true, None);
            Fact::ProxyPause { rank: Rank(rank), host: end(rank).1, at, pause_ms, flows, inbound, op }
        };
        let mut facts = vec![pause(4), pause(4), pause(8), pause(8), link(4, 8, 1_100.0), link(8, 12, 2_100.0)];
        let said = |facts: &[Fact]| {
            let verdict = slowdown(&Timeline::default(), facts, &Config::default(), HostTime(1), 2_000.0);
            assert_eq!(verdict.category, Category::HostThread);
            verdict.suspects[0].place.clone()
        };
        assert_eq!(said(&facts), rank_place(Rank(8), &end(8).1));
        let one_more = [&facts[..], &[pause(4)]].concat();
        assert_eq!(said(&one_more), rank_place(Rank(8), &end(8).1), "however often the other seems to");
        facts[5] = link(0, 4, 2_100.0);
        assert_eq!(said(&facts), rank_place(Rank(4), &end(4).1));
    }

    /// Of a rank whose sends are six times as slow: who received from it was told of pauses of a second.
    #[test]
    fn who_receives_from_a_slow_sender_does_not_pause() {
        let end = |rank: u32| (Rank(rank), HostName::from(format!("host{}", rank / 4).as_str()));
        let said = |receives: OtherLinks| {
            let (from, to, iteration_ms) = (end(4), end(8), 500.0);
            let sends = OtherLinks { slow: 2, fast: 0 };
            let link = Fact::RankLink { from, to, now_ms: 770.0, base_ms: 200.0, iteration_ms, of: 8, sends, receives };
            let (at, pause_ms, flows, inbound, op) = (HostTime(1), 1_000.0, 7, true, None);
            let pause = Fact::ProxyPause { rank: Rank(8), host: end(8).1, at, pause_ms, flows, inbound, op };
            let facts = [link, pause.clone(), pause.clone(), pause];
            let verdict = slowdown(&Timeline::default(), &facts, &Config::default(), HostTime(1), 500.0);
            (verdict.category, verdict.suspects[0].place.clone())
        };
        assert_eq!(said(OtherLinks { slow: 0, fast: 2 }), (Category::NetworkSend, rank_place(Rank(4), &end(4).1)));
        let not_served = (Category::HostThread, rank_place(Rank(8), &end(8).1));
        assert_eq!(said(OtherLinks { slow: 1, fast: 1 }), not_served, "others wait for it as well");
        assert_eq!(said(OtherLinks::default()), not_served, "nothing else tells");
    }

    /// Of a link that flaps: a device behind it had slots to fill and nothing came.
    #[test]
    fn who_does_not_move_behind_a_link_that_is_down_is_not_why() {
        let op = OpRef { meta: NO_META, label: "AllReduce A #0".to_owned() };
        let evidence = Evidence { rank: None, op: None, flow: None, at: HostTime(1) };
        let end = |rank: u32, host: &str| (Rank(rank), HostName::from(host));
        let lost = |from, to| Fact::NotDelivered {
            from,
            to,
            op: op.clone(),
            evidence,
            send: FlowCounters::default(),
            since: HostTime(1),
            served_meanwhile: false,
        };
        let idle = Fact::GpuNotReady {
            rank: Rank(0),
            host: "a".into(),
            op: op.clone(),
            evidence,
            counters: FlowCounters::default(),
            strong: true,
        };
        let down = |host: &str| Fact::NicDown { host: host.into(), nic: "eth0".into(), at: HostTime(1) };
        let both = [idle, lost(end(3, "d"), end(5, "e")), lost(end(5, "e"), end(3, "d"))];
        let said = |more: Option<Fact>| {
            let facts: Vec<Fact> = both.iter().cloned().chain(more).collect();
            let verdict = hang(&Timeline::default(), &facts, HostTime(1));
            (verdict.category, verdict.suspects[0].place.clone())
        };
        assert_eq!(said(None), (Category::Gpu, rank_place(Rank(0), &"a".into())));
        assert_eq!(said(Some(down("e"))).1, Place::Host { host: "e".into() });
        assert_eq!(said(Some(down("f"))).0, Category::Gpu, "nothing is lost at that one");
    }
}
