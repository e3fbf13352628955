//! What a suspect's own parts cost: before its fault, at its worst, and lately. A fault is gone when its own parts are as
//! fast as before, whatever others keep the job slow.
use crate::blame::load::LOOK_NS;
use crate::blame::slow::{CommonIdle, SLACK_NS, middle, per_iteration};
use crate::fact::Fact;
use crate::median::median;
use crate::timeline::{Iteration, Link, Timeline};
use mycroft_record::{Category, HostName, HostTime, Place, Rank};

/// Of a suspect's parts, those that grew by this share of the one that grew most carry its fault.
const CARRIES: f64 = 0.5;
/// An iteration that is longer than the one before by so many times what a part grew is long for another reason.
const LONG: f64 = 4.0;
/// What may be left of a part's growth when its fault is gone: the same as what no fault explains
/// (`Config::explains_share`).
const LEFT: f64 = 0.3;

/// Something whose time is its own, free of waiting for others.
#[derive(Clone, PartialEq, Debug)]
enum Part {
    Compute(Rank),
    Host(Rank),
    Proxy(Rank),
    /// The most that its proxy thread held on one link.
    Handover(Rank),
    /// The slowest link from one host to another.
    Wire(HostName, HostName),
    Link(Rank, Rank),
    /// Thousandths of the time in which the job's threads on a host could run that they wait for a processor.
    Wait(HostName),
}

/// A part that carries a fault.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Own {
    part: Part,
    base_ms: f64,
    worst_ms: f64,
}

/// The parts of the suspects at `places` that the facts say have grown. None where copies have: several ranks show them
/// together, and one alone does not say when they are fast again. Where its `category` is that the threads of a host wait for a
/// processor, what the host's counters say is one, and ways between hosts are none.
pub(crate) fn of(facts: &[Fact], places: &[Place], category: Category) -> Vec<Own> {
    let copies = |fact: &Fact| matches!(fact, Fact::CopyExcess { rank, host, .. } if is_on(places, *rank, host));
    if facts.iter().any(copies) { Vec::new() } else { parts(facts, places, category) }
}

/// Whether a rank, or its host, is one of these places.
fn is_on(places: &[Place], rank: Rank, host: &HostName) -> bool {
    places.iter().any(|place| match place {
        Place::Rank { rank: suspect, .. } => *suspect == rank,
        Place::Host { host: suspect } => suspect == host,
        Place::Link { .. } => false,
    })
}

/// The same although copies have grown: enough to tell when a fault began that is not one of copies.
fn parts(facts: &[Fact], places: &[Place], category: Category) -> Vec<Own> {
    let on = |rank: Rank, host: &HostName| is_on(places, rank, host);
    let touches = |host: &HostName| places.iter().any(|place| matches!(place, Place::Host { host: of } if of == host));
    let mut out: Vec<Own> = facts
        .iter()
        .filter_map(|fact| {
            let (part, base_ms, worst_ms) = match fact {
                Fact::ComputeExcess { rank, host, now_ms, base_ms, .. } if on(*rank, host) => {
                    (Part::Compute(*rank), *base_ms, *now_ms)
                }
                Fact::HostExcess { rank, host, now_ms, base_ms, .. } if on(*rank, host) => {
                    (Part::Host(*rank), *base_ms, *now_ms)
                }
                Fact::ProxyExcess { rank, host, now_ms, base_ms, .. } if on(*rank, host) => {
                    (Part::Proxy(*rank), *base_ms, *now_ms)
                }
                Fact::HandoverExcess { rank, host, now_ms, base_ms, .. } if on(*rank, host) => {
                    (Part::Handover(*rank), *base_ms, *now_ms)
                }
                Fact::RankLink { from, to, now_ms, base_ms, .. } if on(from.0, &from.1) || on(to.0, &to.1) => {
                    (Part::Link(from.0, to.0), *base_ms, *now_ms)
                }
                Fact::WireExcess { from, to, now_ms, base_ms, .. } if touches(from) || touches(to) => {
                    (Part::Wire(from.clone(), to.clone()), *base_ms, *now_ms)
                }
                _ => return None,
            };
            Some(Own { part, base_ms, worst_ms })
        })
        .collect();
    let most = out.iter().map(Own::grew_ms).fold(0.0, f64::max);
    out.retain(|own| own.grew_ms() >= CARRIES * most);
    let wait = facts.iter().find_map(|fact| match fact {
        Fact::CpuWait { host, now_milli, base_milli, .. } if touches(host) && category == Category::HostThread => {
            Some(Own { part: Part::Wait(host.clone()), base_ms: *base_milli, worst_ms: *now_milli })
        }
        _ => None,
    });
    // Ways may be slow for another reason then: the host's counters tell when it is over.
    if wait.is_some() {
        out.retain(|own| !matches!(own.part, Part::Wire(..) | Part::Link(..)));
    }
    out.extend(wait);
    out
}

/// How long the threads of a suspect's host waited at the worst, thousandths, if one of these parts is what its counters say.
pub(crate) fn counted_milli(own: &[Own]) -> Option<f64> {
    own.iter().find(|own| matches!(own.part, Part::Wait(_))).map(|own| own.worst_ms)
}

impl Own {
    fn grew_ms(&self) -> f64 {
        self.worst_ms - self.base_ms
    }

    /// When computing, or what links show, had become slow in an iteration that was long for another reason too, so that its
    /// beginning says little: as what was computed or carried until then took no longer, it was not before.
    fn slow_in(&self, timeline: &Timeline, lap: &Iteration) -> Option<HostTime> {
        if let Part::Compute(_) = self.part {
            return Some(lap.computes_more_at).filter(|at| at.is_some());
        }
        let carries = |link: &&Link| match &self.part {
            Part::Link(from, to) => link.from == *from && link.to == *to,
            Part::Wire(from, to) => timeline.host(link.from) == *from && timeline.host(link.to) == *to,
            Part::Handover(rank) => link.from == *rank,
            _ => false,
        };
        let is_held = matches!(self.part, Part::Handover(_));
        let of = |link: &Link| {
            let mut ms = 0.0;
            let inside = link.samples().filter(|sample| sample.at > lap.start && sample.at <= lap.end);
            let mut took = inside.map(|sample| (sample.at, if is_held { sample.held_us } else { sample.wire_us }));
            let (at, us) = took.find(|(_, us)| {
                ms += us / 1e3;
                !self.is_over(&[ms])
            })?;
            Some(at - (us * 1e3) as u64)
        };
        timeline.links.all(&timeline.ranks).filter(carries).filter_map(of).min()
    }

    /// See [`is_slow`]; of the iterations since the fault began.
    fn is_slow_in(&self, since: &[f64], count: usize) -> bool {
        let is_slow = |ms: f64| ms > self.base_ms + CARRIES * self.grew_ms();
        let is_mostly = |list: &[f64]| median(list.to_vec()).is_some_and(is_slow);
        let (before, last) = since.split_at(since.len().saturating_sub(count));
        let was_always = before.len() >= 2 * count && before.iter().all(|ms| is_slow(*ms));
        is_mostly(last) || (was_always && last.iter().any(|ms| is_slow(*ms)))
    }

    /// In which of these iterations it was slow first. A device that straggles once, and not in the next one, is slow from where
    /// it stays so.
    fn first_slow_in(&self, since: &[f64]) -> Option<usize> {
        let is_slow = |ms: &f64| !self.is_over(&[*ms]);
        let stays = match self.part {
            Part::Compute(_) => since.windows(2).position(|pair| pair.iter().all(is_slow)),
            _ => None,
        };
        stays.or_else(|| since.iter().position(is_slow))
    }

    fn is_over(&self, ms: &[f64]) -> bool {
        ms.iter().all(|ms| *ms <= self.base_ms + LEFT * self.grew_ms())
    }
}

/// Since when all of these parts have been as fast as before in each of at least `needed` iterations, the newest
/// included; `None`: they are not, or nobody knows.
pub(crate) fn over_since(timeline: &Timeline, own: &[Own], needed: usize, onset: HostTime) -> Option<HostTime> {
    let newest = timeline.ranks.values().filter_map(|state| Some(state.iterations.list().back()?.end)).max()?;
    let idle = CommonIdle::of(timeline, newest);
    let since = own.iter().map(|own| {
        let (laps, ms) = lately(timeline, &own.part, needed, &idle)?;
        let first = laps.first().filter(|first| laps.len() >= needed && first.start >= onset)?;
        own.is_over(&ms).then_some(first.start)
    });
    since.collect::<Option<Vec<HostTime>>>()?.into_iter().max()
}

/// Whether one of these parts is slow: in most of the last `count` iterations, or in one of them still where it was in all since
/// `onset` before, as a fault's that has just ended.
pub(crate) fn is_slow(timeline: &Timeline, own: &[Own], count: usize, onset: HostTime, until: HostTime) -> bool {
    let idle = CommonIdle::of(timeline, until);
    own.iter().any(|own| {
        let Some((laps, ms)) = lately(timeline, &own.part, usize::MAX, &idle) else { return false };
        let since = laps.partition_point(|lap| middle(lap) <= onset);
        own.is_slow_in(&ms[since.min(ms.len())..], count)
    })
}

/// Where the first iteration from `onset` on began in which a part of the suspects at `places` was slow: those before were
/// long for another reason. `onset` itself where none was, or where nobody knows, as with copies. What a sender's proxy held is
/// no slow way: its thread may have been late for another fault.
pub(crate) fn first_slow(
    timeline: &Timeline,
    facts: &[Fact],
    places: &[Place],
    category: Category,
    onset: HostTime,
) -> HostTime {
    if category == Category::GpuCopy {
        return onset;
    }
    let idle = CommonIdle::of(timeline, HostTime(u64::MAX));
    let own_parts = parts(facts, places, category);
    if own_parts.is_empty() {
        // Pauses of a proxy thread say themselves when they were.
        let paused = (category == Category::HostThread).then(|| first_pause(facts, places)).flatten();
        return paused.map_or(onset, |begin| begin.max(onset));
    }
    let of = |own: &Own| {
        let (laps, ms) = match &own.part {
            Part::Wire(from, to) => of_wire(timeline, (from, to), usize::MAX, Held::Without)?,
            part => lately(timeline, part, usize::MAX, &idle)?,
        };
        let from = laps.partition_point(|lap| middle(lap) <= onset);
        let first = own.first_slow_in(&ms[from.min(ms.len())..]);
        let slow = first.and_then(|at| Some((at, (laps.get(from + at)?, ms.get(from + at)?))));
        slow.map(|(at, (lap, ms))| {
            let start = if at == 0 { onset } else { lap.start.max(onset) };
            let before = laps.iter().rfind(|before| before.end <= lap.start + SLACK_NS);
            let grew_ms = before.map_or(0.0, |before| (lap.ns() as f64 - before.ns() as f64) / 1e6);
            let is_long = grew_ms >= LONG * (ms - own.base_ms);
            let within = || own_parts.iter().filter_map(|own| own.slow_in(timeline, lap)).min();
            if is_long { start.max(within().unwrap_or(start)) } else { start }
        })
    };
    own_parts.iter().filter_map(of).min().unwrap_or(onset)
}

/// When the first pause of a proxy thread of a suspect began.
fn first_pause(facts: &[Fact], places: &[Place]) -> Option<HostTime> {
    let pauses = facts.iter().filter_map(|fact| match fact {
        Fact::ProxyPause { rank, host, at, pause_ms, .. } if is_on(places, *rank, host) => {
            Some(*at - (pause_ms * 1e6) as u64)
        }
        _ => None,
    });
    pauses.min()
}

/// The last iterations of the part's rank, and what the part took in each, milliseconds.
fn lately(timeline: &Timeline, part: &Part, count: usize, idle: &CommonIdle) -> Option<(Vec<Iteration>, Vec<f64>)> {
    let laps = |rank: Rank| last_laps(timeline, rank, count);
    let of_rank = |rank: Rank, us: &dyn Fn(&Iteration) -> f64| {
        let laps = laps(rank)?;
        let ms = laps.iter().map(|it| us(it) / 1e3).collect();
        Some((laps, ms))
    };
    match part {
        Part::Compute(rank) => of_rank(*rank, &|it| it.compute_us),
        Part::Host(rank) => of_rank(*rank, &|it| (it.host_us - idle.us(it)).max(0.0)),
        Part::Proxy(rank) => of_rank(*rank, &|it| it.proxy_us),
        Part::Handover(rank) => of_links(timeline, &|link| link.from == *rank, count, Held::Only),
        Part::Link(from, to) => of_links(timeline, &|link| link.from == *from && link.to == *to, count, Held::With),
        Part::Wait(host) => {
            let state = timeline.ranks.values().find(|state| state.host == *host)?;
            let laps = laps(state.rank)?;
            let wait = |lap: &Iteration| {
                let usual = timeline.loads.usual(host, lap.start - LOOK_NS, lap.end + LOOK_NS)?;
                Some(usual.wait_milli)
            };
            let milli = laps.iter().map(wait).collect::<Option<Vec<f64>>>()?;
            Some((laps, milli))
        }
        Part::Wire(from, to) => of_wire(timeline, (from, to), count, Held::With),
    }
}

/// What of the time that a link was awaited counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    /// All of it.
    With,
    /// What the sender's proxy held.
    Only,
    /// What it did not.
    Without,
}

/// The last `count` iterations of a rank.
fn last_laps(timeline: &Timeline, rank: Rank, count: usize) -> Option<Vec<Iteration>> {
    let list = timeline.ranks.get(&rank)?.iterations.list();
    Some(list.iter().skip(list.len().saturating_sub(count)).copied().collect())
}

/// What the slowest link from one host to another took in each of the last iterations.
fn of_wire(
    timeline: &Timeline,
    (from, to): (&HostName, &HostName),
    count: usize,
    held: Held,
) -> Option<(Vec<Iteration>, Vec<f64>)> {
    let wanted = |link: &Link| timeline.host(link.from) == *from && timeline.host(link.to) == *to;
    of_links(timeline, &wanted, count, held)
}

/// What the slowest of some links took in each of the last iterations.
fn of_links(
    timeline: &Timeline,
    wanted: &dyn Fn(&Link) -> bool,
    count: usize,
    held: Held,
) -> Option<(Vec<Iteration>, Vec<f64>)> {
    let mut all: Option<(Vec<Iteration>, Vec<f64>)> = None;
    for link in timeline.links.all(&timeline.ranks).filter(|link| wanted(link)) {
        let laps = last_laps(timeline, link.from, count)?;
        let refs: Vec<&Iteration> = laps.iter().collect();
        let times = per_iteration(link, &refs);
        let counted = |(wire, of_proxy): (&f64, &f64)| match held {
            Held::With => *wire,
            Held::Only => *of_proxy,
            Held::Without => wire - of_proxy,
        };
        let ms: Vec<f64> = times.wire.iter().zip(&times.held).map(counted).map(|us| us / 1e3).collect();
        let (_, slowest) = all.get_or_insert_with(|| (laps, vec![0.0; ms.len()]));
        slowest.iter_mut().zip(&ms).for_each(|(slowest, ms)| *slowest = slowest.max(*ms));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::NANOS_PER_SEC;

    #[test]
    fn a_part_is_slow_until_its_fault_is_over_for_sure() {
        let own = Own { part: Part::Compute(Rank(1)), base_ms: 10.0, worst_ms: 30.0 };
        let slow = |laps: &str| {
            let ms: Vec<f64> = laps.chars().map(|lap| if lap == 's' { 30.0 } else { 10.0 }).collect();
            own.is_slow_in(&ms, 5)
        };
        assert!(slow("ssss") && slow("sssssssff"));
        assert!(slow("sssssssssssffff"), "it may have ended");
        assert!(!slow("sssssssssssfffff"), "it has");
        assert!(!slow("sssssssfsssffff"), "some iteration or other is by chance");
        assert!(!slow("sssssssffff"), "so were these, perhaps");
        assert!(!slow(""));
    }

    #[test]
    fn a_device_is_slow_from_where_it_stays_so_and_a_way_from_where_it_first_was() {
        let first = |part: Part, laps: &str| {
            let ms: Vec<f64> = laps.chars().map(|lap| if lap == 's' { 30.0 } else { 10.0 }).collect();
            Own { part, base_ms: 10.0, worst_ms: 30.0 }.first_slow_in(&ms)
        };
        let device = || Part::Compute(Rank(1));
        assert_eq!(first(device(), "sfss"), Some(2), "it straggled once");
        assert_eq!(first(device(), "fssfs"), Some(1));
        assert_eq!(first(device(), "fsf"), Some(1), "nothing else is known");
        assert_eq!(first(device(), "ff"), None);
        assert_eq!(first(Part::Wire("a".into(), "b".into()), "sfss"), Some(0), "a way carries now more, now less");
    }

    /// Several pauses in iterations that follow each other are seen as one long stretch, and that begins with an iteration.
    #[test]
    fn what_pauses_now_and_then_began_with_its_first_pause() {
        let at = |second: u64| HostTime(second * NANOS_PER_SEC);
        let pause = |rank: u32, second: u64| {
            let (host, at) = (HostName::from("a"), at(second));
            Fact::ProxyPause { rank: Rank(rank), host, at, pause_ms: 1_000.0, flows: 5, inbound: false, op: None }
        };
        let facts = [pause(2, 9), pause(1, 21), pause(1, 18)];
        let places = [Place::Rank { rank: Rank(1), host: "a".into() }];
        let since = |onset| first_slow(&Timeline::default(), &facts, &places, Category::HostThread, at(onset));
        assert_eq!(since(13), at(17));
        assert_eq!(since(20), at(20), "no earlier than the job was slow");
        assert_eq!(first_slow(&Timeline::default(), &[], &places, Category::HostThread, at(13)), at(13));
        let slow_sends = first_slow(&Timeline::default(), &facts, &places, Category::NetworkSend, at(13));
        assert_eq!(slow_sends, at(13), "no thread that pauses");
    }
}
