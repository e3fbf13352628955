//! Who started a slowdown: each component's own time now, against its own time before, in milliseconds of the iteration
//! (Algorithm 2, `AnalyzeStragglerRootCause`; Table 3: "each component should finish within expected execution time").
use crate::blame::{load, messages, nic, passage};
use crate::config::Config;
use crate::fact::{Fact, OnWay, OtherLinks};
use crate::median::median;
use crate::timeline::{Iteration, Link, Pause, RankState, Timeline};
use mycroft_record::{HostName, HostTime, NANOS_PER_MS, Rank};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Baseline iterations used, newest first.
const BASE_ITERATIONS: usize = 16;
/// With fewer that were no longer than usual the baseline is all there is.
const BASE_LEAST: usize = 4;
/// What grew by less than this share of the iteration's growth explains none of it, however alone it stands.
pub(crate) const LEAST_SHARE: f64 = 0.1;
/// A link whose wire time grew this many times is slow although it carries little.
const SMALL_LINK_RATIO: f64 = 3.0;
/// Least growth of such a link, milliseconds per iteration, and as a share of what the iteration grew.
const SMALL_LINK_MS: f64 = 1.0;
/// See [`SMALL_LINK_MS`].
const SMALL_LINK_SHARE: f64 = 0.02;
/// A link that grew by less than this share of the slowest one between the same hosts is slow for another reason: the
/// wire is the same for all, and what they carry differs less.
const LINKS_ALIKE: f64 = 0.1;
/// A link that grew by less than this share of the slowest waits for the rank that is slow, where all others are that one's.
const ONE_RANKS: f64 = 0.3;
/// Links between the same hosts that carry less than one part in so many of what the busiest does are not counted.
const CARRY_ALIKE: u64 = 4;
/// A transport that takes one slice at a time makes the others of a full FIFO wait before it: 0 + 1 + .. + 7 times what
/// each takes itself, 28 to 8. Held for longer than that, data waits for the proxy thread.
const SERIAL_WIRE: f64 = 3.5;
/// How many times longer than before a proxy holds data when its thread is late.
const HELD_RATIO: f64 = 3.0;
/// Another link of the same rank is slower in proportion when it grew by this share of the slow one's factor: short
/// messages take their latency as before.
const SLOWER_ALIKE: f64 = 0.3;
/// One that is not slower says so only when it carries this share of what the slow one did.
const ENOUGH_TO_SHOW: f64 = 0.1;
/// Ranks from whose idle time it is told what all have in common.
const IDLE_SAMPLE: usize = 10;
/// Pauses whose ends lie within this are one pause.
const PAUSE_MERGE_NS: u64 = 1_500 * NANOS_PER_MS;

/// Which iterations are compared.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Windows {
    /// The baseline is what began after this ..
    pub base_from: HostTime,
    /// .. and ended before this ..
    pub base_until: HostTime,
    /// .. where enough of that took no longer, nanoseconds, without what did: a fault that is over was slow too.
    pub base_ns_max: u64,
    /// The slowdown's first iteration began here.
    pub onset: HostTime,
    /// Iterations that had mostly passed by then are looked at: ranks do not end one together.
    pub until: HostTime,
    /// How much the iteration grew, milliseconds.
    pub iteration_ms: f64,
}

/// Iterations of several ranks that end together may be this far apart.
pub(super) const SLACK_NS: u64 = 5 * NANOS_PER_MS;

impl Windows {
    fn is_base(&self, it: &Iteration) -> bool {
        it.start + SLACK_NS >= self.base_from && it.end <= self.base_until + SLACK_NS
    }

    /// Iterations of the baseline, newest first.
    fn base<'a>(&self, list: &'a VecDeque<Iteration>, oldest: HostTime) -> Vec<&'a Iteration> {
        let all = list.iter().rev().filter(|it| self.is_base(it) && it.start >= oldest);
        let usual: Vec<&Iteration> =
            all.clone().filter(|it| it.ns() <= self.base_ns_max).take(BASE_ITERATIONS).collect();
        if usual.len() >= BASE_LEAST { usual } else { all.take(BASE_ITERATIONS).collect() }
    }

    fn is_now(&self, it: &Iteration) -> bool {
        it.start + SLACK_NS >= self.onset && middle(it) <= self.until
    }
}

//= mycroft 5.2
/// Facts about components whose own time grew.
pub(crate) fn blame(timeline: &Timeline, config: &Config, windows: &Windows) -> Vec<Fact> {
    let mut facts = of_ranks(timeline, config, windows);
    facts.extend(passage::facts(timeline, config, windows));
    facts.extend(wires(timeline, config, windows));
    facts.extend(nic::facts(timeline, config, windows.onset, windows.until));
    facts.extend(load::facts(timeline, windows));
    facts
}

/// What happens on ranks, without what happens between them.
pub(crate) fn of_ranks(timeline: &Timeline, config: &Config, windows: &Windows) -> Vec<Fact> {
    let idle = CommonIdle::of(timeline, windows.until);
    let of = |state: &RankState| of_rank(state, config, windows, &idle);
    // An operation whose end was lost looks like time of the rank's own.
    timeline.ranks.values().filter(|state| !timeline.has_fresh_gap(state)).flat_map(of).collect()
}

/// How long all ranks' devices idled together in each iteration (checkpoint, evaluation): it accuses nobody.
#[derive(Debug, Default)]
pub(super) struct CommonIdle {
    /// Begin and end of an iteration, and microseconds.
    slots: Vec<(HostTime, HostTime, f64)>,
    /// What came later and only some have ended: what these have in common is nobody's own so far.
    newest: Vec<Iteration>,
}

impl CommonIdle {
    /// From ranks spread over the job; the least of them is what all have in common.
    pub(super) fn of(timeline: &Timeline, until: HostTime) -> CommonIdle {
        let step = timeline.ranks.len().div_ceil(IDLE_SAMPLE).max(1);
        let lists: Vec<&VecDeque<Iteration>> = timeline
            .ranks
            .values()
            .step_by(step)
            .map(|state| state.iterations.list())
            .filter(|list| list.len() >= 2)
            .collect();
        let [first, others @ ..] = lists.as_slice() else { return CommonIdle::default() };
        if others.is_empty() {
            return CommonIdle::default();
        }
        let least = |it: &Iteration| -> f64 {
            let of = |list: &&VecDeque<Iteration>| at(list, middle(it)).map(|other| other.host_us);
            others.iter().filter_map(of).fold(it.host_us, f64::min)
        };
        let slots: Vec<_> = first.iter().filter(|it| it.end <= until).map(|it| (it.start, it.end, least(it))).collect();
        let known = slots.last().map_or(HostTime::NONE, |(_, end, _)| *end);
        let later = others.iter().flat_map(|list| list.iter().rev().take_while(|it| middle(it) >= known));
        let newest = later.filter(|it| it.end <= until).copied().collect();
        CommonIdle { slots, newest }
    }

    pub(super) fn us(&self, it: &Iteration) -> f64 {
        let at = middle(it);
        let slot = self.slots.partition_point(|(_, end, _)| *end <= at);
        if let Some((start, _, us)) = self.slots.get(slot) {
            return if *start <= at { *us } else { 0.0 };
        }
        let ended = self.newest.iter().filter(|other| other.start <= at && at < other.end);
        ended.map(|other| other.host_us).reduce(f64::min).unwrap_or(0.0)
    }
}

pub(super) fn middle(it: &Iteration) -> HostTime {
    it.start + it.ns() / 2
}

/// The iteration of a rank that contains a moment.
pub(super) fn at(list: &VecDeque<Iteration>, at: HostTime) -> Option<&Iteration> {
    let place = list.partition_point(|it| it.end <= at);
    list.get(place).filter(|it| it.start <= at)
}

/// The iterations before the slowdown, newest first, and those since.
pub(super) fn compared<'a>(
    list: &'a VecDeque<Iteration>,
    windows: &Windows,
) -> (Vec<&'a Iteration>, Vec<&'a Iteration>) {
    (windows.base(list, HostTime::NONE), list.iter().filter(|it| windows.is_now(it)).collect())
}

fn of_rank(state: &RankState, config: &Config, windows: &Windows, idle: &CommonIdle) -> Vec<Fact> {
    let (rank, host) = (state.rank, &state.host);
    let (base, now) = compared(state.iterations.list(), windows);
    if base.len() < 2 || now.is_empty() {
        return Vec::new();
    }
    let iteration_ms = windows.iteration_ms;
    let compare = |value: &dyn Fn(&Iteration) -> f64| -> Option<(f64, f64)> {
        let of = |list: &[&Iteration]| list.iter().map(|it| value(it) / 1e3).collect();
        grown(of(&now), of(&base), config, LEAST_SHARE * iteration_ms)
    };
    let host = host.clone();
    let mut out = Vec::new();
    if let Some((now_ms, base_ms)) = compare(&|it| it.compute_us) {
        out.push(Fact::ComputeExcess { rank, host: host.clone(), now_ms, base_ms, iteration_ms });
    }
    if let Some((now_ms, base_ms)) = compare(&|it| (it.host_us - idle.us(it)).max(0.0)) {
        out.push(Fact::HostExcess { rank, host: host.clone(), now_ms, base_ms, iteration_ms });
    }
    if let Some((now_ms, base_ms)) = compare(&|it| it.copy_us) {
        let unseen = state.iterations.has_unseen_parent();
        out.push(Fact::CopyExcess { rank, host: host.clone(), now_ms, base_ms, iteration_ms, unseen });
    }
    if let Some((now_ms, base_ms)) = compare(&|it| it.proxy_us) {
        out.push(Fact::ProxyExcess { rank, host, now_ms, base_ms, iteration_ms });
    }
    out
}

/// Medians now and before, if the growth is beyond the component's own restlessness: most of the iterations that were
/// picked because they are slow must be above nearly all before, or chance would find somebody every time.
pub(super) fn grown(now: Vec<f64>, base: Vec<f64>, config: &Config, least_ms: f64) -> Option<(f64, f64)> {
    let (now_ms, base_ms) = (median(now.clone())?, median(base.clone())?);
    let mad = median(base.iter().map(|value| (value - base_ms).abs()).collect())?;
    let mut sorted = base;
    sorted.sort_by(f64::total_cmp);
    let high = sorted[(sorted.len() - 1) * 9 / 10];
    let above = now.iter().filter(|value| **value > high).count();
    let least = config.noise_ms.max(least_ms).max(config.component_mads * mad);
    (now_ms - base_ms > least && above * 4 >= now.len() * 3).then_some((now_ms, base_ms))
}

/// What one link costs per iteration.
#[derive(Clone, Copy, Debug)]
struct LinkCost {
    from: Rank,
    to: Rank,
    /// Milliseconds of wire time.
    now_ms: f64,
    base_ms: f64,
    /// Bytes of the samples that are remembered.
    bytes: u64,
    /// Megabytes per iteration before.
    mb: f64,
    on_way: OnWay,
}

impl LinkCost {
    fn excess_ms(&self) -> f64 {
        self.now_ms - self.base_ms
    }

    /// Beyond noise. A link that carries little shows the same fault in few milliseconds.
    fn grown(&self, config: &Config, iteration_ms: f64) -> bool {
        let least_ms = SMALL_LINK_MS.max(SMALL_LINK_SHARE * iteration_ms);
        let small = self.now_ms > SMALL_LINK_RATIO * self.base_ms && self.excess_ms() > least_ms;
        self.excess_ms() > config.noise_ms || small
    }

    fn factor(&self) -> f64 {
        self.now_ms / self.base_ms.max(1e-3)
    }

    /// However little it carries.
    fn is_much_slower(&self) -> bool {
        self.factor() > SMALL_LINK_RATIO && self.excess_ms() > SMALL_LINK_MS
    }

    /// Whether another link became slower in proportion.
    fn is_alike(&self, link: &LinkCost) -> bool {
        link.factor() - 1.0 >= SLOWER_ALIKE * (self.factor() - 1.0) && link.excess_ms() > SMALL_LINK_MS
    }

    /// Whether its sender has another link that is much slower too while those of its host's other ranks beside it, which do
    /// as much, are as fast as before: so it is not the host's. Less need wait in line there, so it need not be in proportion.
    fn is_the_senders(&self, host: &HostName, all: &Pairs) -> bool {
        let beside = |links: &[LinkCost]| {
            let is_mine = |link: &&LinkCost| link.from == self.from && (self.is_alike(link) || link.is_much_slower());
            let Some(mine) = links.iter().find(is_mine) else { return false };
            let as_before = |link: &LinkCost| !self.is_alike(link) && !mine.is_alike(link);
            let mut others = links.iter().filter(|link| link.from != self.from).peekable();
            others.peek().is_some() && others.all(|link| as_before(link) && link.bytes * CARRY_ALIKE >= mine.bytes)
        };
        all.iter().any(|((from, _), links)| from == host && beside(links))
    }

    /// How the other links of one of its ends compare; `slow` are known to be.
    fn others<'a>(&self, links: impl Iterator<Item = &'a LinkCost>, slow: &[&LinkCost]) -> OtherLinks {
        let mut others = OtherLinks::default();
        for link in links {
            if self.is_alike(link) || slow.iter().any(|slow| std::ptr::eq(*slow, link)) {
                others.slow += 1;
            } else if link.is_much_slower() {
                others.less_slow += 1;
            } else if link.base_ms >= ENOUGH_TO_SHOW * self.base_ms {
                others.fast += 1;
            } else if link.base_ms > SMALL_LINK_MS {
                others.short_fast += 1;
            }
        }
        others
    }
}

/// Links by the hosts that they lead from and to.
type Pairs = BTreeMap<(HostName, HostName), Vec<LinkCost>>;

/// Per iteration wire time of each host pair: the slowest of its rank pairs, since they run side by side. What a sender's
/// proxy has held of it is no wire's (Pulse 7.2.2: longer operations, transmission rates as before).
fn wires(timeline: &Timeline, config: &Config, windows: &Windows) -> Vec<Fact> {
    let mut pairs = Pairs::new();
    let mut held: BTreeMap<Rank, (f64, f64)> = BTreeMap::new();
    for link in timeline.links.all(&timeline.ranks) {
        let Some(time) = wire_of(timeline, link, windows) else { continue };
        let (mut now_ms, mut base_ms) = (time.now_ms, time.base_ms);
        if time.is_held(config, windows.iteration_ms) {
            let worst = held.entry(link.from).or_insert((time.held_now_ms, time.held_base_ms));
            if time.held_ms() > worst.0 - worst.1 {
                *worst = (time.held_now_ms, time.held_base_ms);
            }
            now_ms -= time.held_ms();
        } else if time.was_held(config) {
            base_ms += time.held_ms();
        }
        let bytes = link.samples().map(|sample| sample.bytes).sum();
        let cost = LinkCost { from: link.from, to: link.to, now_ms, base_ms, bytes, mb: time.mb, on_way: time.on_way };
        pairs.entry((timeline.host(link.from), timeline.host(link.to))).or_default().push(cost);
    }
    let iteration_ms = windows.iteration_ms;
    let handover = |(rank, (now_ms, base_ms))| Fact::HandoverExcess {
        rank,
        host: timeline.host(rank),
        now_ms,
        base_ms,
        iteration_ms,
    };
    let mut facts: Vec<Fact> = held.into_iter().map(handover).collect();
    let most_ms = pairs.values().flatten().map(LinkCost::excess_ms).fold(0.0, f64::max);
    let sends_slowly = |link: &LinkCost| {
        if link.excess_ms() < most_ms {
            return false; // who waits behind another sends as ever
        }
        let host = timeline.host(link.from);
        let own = pairs.iter().filter(|((from, _), _)| *from == host).flat_map(|(_, links)| links);
        let mates = own.map(|own| own.from).filter(|rank| *rank != link.from).collect();
        messages::are_the_senders(timeline, windows, (link.from, link.to), &mates)
    };
    let mut touched: BTreeSet<HostName> = BTreeSet::new();
    for (hosts, links) in &pairs {
        let found = of_pair(hosts, links, &pairs, config, iteration_ms, &sends_slowly);
        if !found.is_empty() {
            touched.extend([hosts.0.clone(), hosts.1.clone()]);
        }
        facts.extend(found);
    }
    messages::count(timeline, windows, &mut facts);
    let steady = pairs.iter().filter(|((from, to), links)| {
        (touched.contains(from) || touched.contains(to))
            && !links.iter().any(|link| link.grown(config, windows.iteration_ms))
    });
    facts.extend(steady.map(|((from, to), links)| {
        let sum = |of: &dyn Fn(&LinkCost) -> f64| links.iter().map(of).sum();
        let (now_ms, base_ms, mb) = (sum(&|link| link.now_ms), sum(&|link| link.base_ms), sum(&|link| link.mb));
        let on_way = OnWay { now_ms: sum(&|link| link.on_way.now_ms), base_ms: sum(&|link| link.on_way.base_ms) };
        Fact::WireOther { from: from.clone(), to: to.clone(), now_ms, base_ms, mb, on_way, links: links.len() }
    }));
    let mut peers: BTreeMap<&HostName, BTreeSet<&HostName>> = BTreeMap::new();
    for (from, to) in pairs.keys().filter(|(from, to)| from != to) {
        peers.entry(from).or_default().insert(to);
        peers.entry(to).or_default().insert(from);
    }
    let only = |host: &HostName| peers.get(host).filter(|peers| peers.len() == 1)?.first().copied();
    let ends = touched.iter().filter_map(|host| Some((host, only(host)?)));
    // Of two that have each other only, neither end tells; that is seen without being said.
    let ends = ends.filter(|(_, peer)| only(peer).is_none());
    facts.extend(ends.map(|(host, peer)| Fact::OnePeer { host: host.clone(), peer: peer.clone(), besides: None }));
    facts
}

/// Facts about slow links from one host to another. Those that carry much less than the others say nothing about the wire:
/// they are not counted.
fn of_pair(
    (from, to): &(HostName, HostName),
    links: &[LinkCost],
    all: &Pairs,
    config: &Config,
    iteration_ms: f64,
    sends_slowly: &dyn Fn(&LinkCost) -> bool,
) -> Vec<Fact> {
    let most = links.iter().map(|link| link.bytes).max().unwrap_or(0);
    let slow: Vec<&LinkCost> = links.iter().filter(|link| link.grown(config, iteration_ms)).collect();
    let Some(worst) = slow.iter().max_by(|a, b| a.excess_ms().total_cmp(&b.excess_ms())) else { return Vec::new() };
    let counts = |link: &LinkCost| link.bytes * CARRY_ALIKE >= most || link.excess_ms() >= worst.excess_ms();
    let alike = |link: &&&LinkCost| link.excess_ms() >= LINKS_ALIKE * worst.excess_ms() && counts(link);
    let alike: Vec<&LinkCost> = slow.iter().filter(alike).copied().collect();
    let (count, of) = (alike.len(), links.iter().filter(|link| counts(link)).count());
    let (now_ms, base_ms) = (worst.now_ms, worst.base_ms);
    let mut facts = Vec::new();
    // Several are one rank's where they are all that it has here, and others only wait for it.
    let clear: Vec<&LinkCost> =
        alike.iter().filter(|link| link.excess_ms() >= ONE_RANKS * worst.excess_ms()).copied().collect();
    let are_all = |end: &dyn Fn(&LinkCost) -> bool| {
        let counted = links.iter().filter(|link| counts(link) && end(link)).count();
        clear.iter().all(|link| end(link)) && counted == clear.len()
    };
    let is_one_ends = are_all(&|link| link.from == worst.from) || are_all(&|link| link.to == worst.to);
    let is_alone = of > clear.len() && (count == 1 || is_one_ends);
    let count = if is_alone { clear.len() } else { count };
    let is_the_senders = of == 1 && (worst.is_the_senders(from, all) || sends_slowly(worst));
    if (is_alone || is_the_senders) && worst.excess_ms() >= config.explains_share * iteration_ms {
        let (from, to) = ((worst.from, from.clone()), (worst.to, to.clone()));
        let others =
            |of: &dyn Fn(&LinkCost) -> bool| worst.others(all.values().flatten().filter(|link| of(link)), &alike);
        let sends = others(&|link| link.from == worst.from && link.to != worst.to);
        let receives = others(&|link| link.to == worst.to && link.from != worst.from);
        let returns = others(&|link| link.from == worst.to);
        let links = count;
        facts.push(Fact::RankLink { from, to, now_ms, base_ms, iteration_ms, links, of, sends, receives, returns });
        if is_the_senders {
            return facts; // it says nothing of the way that it is alone on
        }
    }
    facts.push(Fact::WireExcess {
        from: from.clone(),
        to: to.clone(),
        now_ms,
        base_ms,
        iteration_ms,
        mb: worst.mb,
        on_way: worst.on_way,
        links: count,
        of,
    });
    facts
}

/// What a link cost per iteration of its sender, medians in milliseconds.
#[derive(Clone, Copy, Debug)]
struct WireTime {
    now_ms: f64,
    base_ms: f64,
    /// Of it, what the sender's proxy held.
    held_now_ms: f64,
    held_base_ms: f64,
    /// Megabytes per iteration before.
    mb: f64,
    on_way: OnWay,
}

impl WireTime {
    /// How much longer the sender's proxy held data.
    fn held_ms(&self) -> f64 {
        self.held_now_ms - self.held_base_ms
    }

    /// Whether it grew because the sender's proxy held data for which the receiver had given credit, while what was handed
    /// over arrived as fast as before.
    fn is_held(&self, config: &Config, iteration_ms: f64) -> bool {
        let held = self.held_ms();
        let sent = (self.now_ms - self.base_ms) - held;
        held > config.noise_ms.max(LEAST_SHARE * iteration_ms)
            && held > SERIAL_WIRE * sent
            && self.held_now_ms > HELD_RATIO * self.held_base_ms
    }

    /// Whether the sender's proxy held data before and does no longer: a thread that gets its processor again hides, of the
    /// iteration before, that the wire is slow now.
    fn was_held(&self, config: &Config) -> bool {
        -self.held_ms() > config.noise_ms && self.held_base_ms > HELD_RATIO * self.held_now_ms
    }
}

fn wire_of(timeline: &Timeline, link: &Link, windows: &Windows) -> Option<WireTime> {
    let list = timeline.ranks.get(&link.from)?.iterations.list();
    let oldest = link.oldest()?.at;
    let mut base = windows.base(list, oldest);
    base.reverse();
    let now: Vec<&Iteration> = list.iter().filter(|it| windows.is_now(it)).collect();
    let bytes: u64 =
        link.samples().filter(|sample| place_in(&base, sample.at).is_some()).map(|sample| sample.bytes).sum();
    let mb = bytes as f64 / 1e6 / base.len().max(1) as f64;
    wire_time(per_iteration(link, &now), per_iteration(link, &base), mb)
}

/// What a link cost now and before, of which nobody may have waited for as much as now: data was on its way as well, and of what
/// is awaited now, as much as takes no longer is no growth. An iteration that runs has sent some of what others do.
fn wire_time(now: LinkTimes, base: LinkTimes, mb: f64) -> Option<WireTime> {
    let ms = |us: Vec<f64>| Some(median(us)? / 1e3);
    let (now_ms, base_ms, held_now_ms, held_base_ms) = (ms(now.wire)?, ms(base.wire)?, ms(now.held)?, ms(base.held)?);
    let carried = (median(now.bytes)? / median(base.bytes)?.max(1.0)).min(1.0);
    let on_way = OnWay { now_ms: ms(now.sent)?, base_ms: carried * ms(base.sent)? };
    let longer_ms = (on_way.now_ms - on_way.base_ms).max(0.0) + (held_now_ms - held_base_ms).max(0.0);
    let base_ms = base_ms.max(now_ms - longer_ms);
    Some(WireTime { now_ms, base_ms, held_now_ms, held_base_ms, mb, on_way })
}

/// What a link cost in each of several iterations, microseconds, and how much it carried.
pub(super) struct LinkTimes {
    /// Ready data was awaited.
    pub wire: Vec<f64>,
    /// The part of it that the sender's proxy held.
    pub held: Vec<f64>,
    /// Data was on its way, awaited or not.
    sent: Vec<f64>,
    bytes: Vec<f64>,
}

/// Iterations are in order and do not overlap.
pub(super) fn per_iteration(link: &Link, list: &[&Iteration]) -> LinkTimes {
    let none = || vec![0.0; list.len()];
    let mut times = LinkTimes { wire: none(), held: none(), sent: none(), bytes: none() };
    let (Some(first), Some(last)) = (list.first(), list.last()) else { return times };
    let (start, end) = (first.start, last.end);
    for sample in link.samples().filter(|sample| sample.at > start && sample.at <= end) {
        if let Some(at) = place_in(list, sample.at) {
            times.wire[at] += sample.wire_us;
            times.held[at] += sample.held_us;
            times.sent[at] += sample.sent_us;
            times.bytes[at] += sample.bytes as f64;
        }
    }
    times
}

/// The place of the iteration, of several in order, that what ended at `at` belongs to.
fn place_in(list: &[&Iteration], at: HostTime) -> Option<usize> {
    let place = list.partition_point(|it| it.end < at);
    list.get(place).is_some_and(|it| at > it.start).then_some(place)
}

/// A proxy thread that stopped for a while, from the pauses it left in its flows.
//= mycroft 7.1
pub(crate) fn pauses(timeline: &Timeline, config: &Config, from: HostTime, until: HostTime) -> Vec<Fact> {
    let mut events: Vec<Vec<&Pause>> = Vec::new();
    let mut all: Vec<&Pause> =
        timeline.links.pauses.iter().filter(|pause| pause.at >= from && pause.at <= until).collect();
    all.sort_by_key(|pause| (pause.at, pause.from, pause.to, pause.channel));
    for pause in all {
        match events.last_mut() {
            Some(event) if pause.at.since_ns(event[0].at) < PAUSE_MERGE_NS => event.push(pause),
            _ => events.push(vec![pause]),
        }
    }
    events.iter().filter_map(|event| paused_rank(timeline, config, event)).collect()
}

/// What a way that stood still shows, the clearest last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Mark {
    /// The sender found late that its data had arrived.
    ToldLate,
    /// Data was on its way while the receiver waited for it: a receiver that looks would see it.
    Untaken,
    /// Data was ready while the receiver, who may have given credit, waited for it.
    Unsent,
}

impl Mark {
    /// How much it speaks against the sender's proxy, and against the receiver's.
    fn points(self) -> (u32, u32) {
        match self {
            Mark::ToldLate => (1, 0),
            Mark::Untaken => (2, 3),
            Mark::Unsent => (3, 2),
        }
    }
}

//= mycroft 5.3
/// Which rank's proxy slept, by comparing both ends of every way that stood still. It leaves marks at its neighbours too:
/// data that is ready is not sent by whoever sleeps, and not to whoever sleeps either, who grants no credit meanwhile. So
/// each way speaks against both its ends, a little more against the one whose turn it was, and the rank on most of them
/// slept: who sends to it is on one of its ways only. Where what was received lies there still, the sender had no
/// room: that speaks, a little, against a receiver that something else speaks against. Alone it goes from rank to rank, back
/// to one that has not come.
fn paused_rank(timeline: &Timeline, config: &Config, event: &[&Pause]) -> Option<Fact> {
    let limit = config.pause_stage_us;
    let mut ways: BTreeMap<(Rank, Rank), Mark> = BTreeMap::new();
    let mut without_room: BTreeSet<Rank> = BTreeSet::new();
    for pause in event {
        let (s, r) = (pause.send_max_us, pause.recv_max_us);
        let (untaken, unsent, waiting, full) = (s[2] >= limit, s[1] >= limit, r[0] >= limit, r[2] >= limit);
        let mark = match (unsent, untaken) {
            (true, _) if full => {
                without_room.insert(pause.to); // what came before lies there still: there was no room for more
                continue;
            }
            (true, _) if waiting => Mark::Unsent,
            (_, true) if waiting => Mark::Untaken,
            (_, true) => Mark::ToldLate,
            // One end that waits alone waits for a rank that has not come yet: no pause of anybody's proxy.
            _ => continue,
        };
        let way = ways.entry((pause.from, pause.to)).or_insert(mark);
        *way = mark.max(*way);
    }
    let mut points: BTreeMap<Rank, (u32, bool)> = BTreeMap::new();
    for ((from, to), mark) in ways {
        let (of_sender, of_receiver) = mark.points();
        points.entry(from).or_default().0 += of_sender;
        let entry = points.entry(to).or_default();
        *entry = (entry.0 + of_receiver, entry.1 || of_receiver > 0);
    }
    for rank in without_room {
        points.entry(rank).and_modify(|entry| *entry = (entry.0 + 1, true));
    }
    let mut order: Vec<(u32, Rank, bool)> =
        points.iter().map(|(rank, (value, inbound))| (*value, *rank, *inbound)).collect();
    order.sort_by_key(|(value, rank, _)| (std::cmp::Reverse(*value), *rank));
    let (value, rank, inbound) = *order.first()?;
    let second = order.get(1).map_or(0, |other| other.0);
    if value < 2 || value == second {
        return None;
    }
    let touching: Vec<&&Pause> = event.iter().filter(|pause| pause.from == rank || pause.to == rank).collect();
    let worst = touching.iter().flat_map(|pause| pause.send_max_us.iter().chain(pause.recv_max_us.iter())).max()?;
    Some(Fact::ProxyPause {
        rank,
        host: timeline.host(rank),
        at: event[0].at,
        pause_ms: f64::from(*worst) / 1e3,
        flows: touching.len(),
        inbound,
        op: Some(event[0].op),
    })
}

#[cfg(test)]
mod tests;
