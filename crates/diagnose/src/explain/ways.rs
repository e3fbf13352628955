//! Which NICs, or which path, account for the ways that are slow: each end of a way is one of a host, and what none of its other
//! ways shows is not there.
use crate::evidence::SLOWER;
use mycroft_record::HostName;
use std::collections::{BTreeMap, BTreeSet};

/// Hosts with slow ways among which pairs are looked for: more are all of the network.
const LOOKED_AT: usize = 64;

/// What accounts for the ways that are slow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Ends {
    /// The NICs of these hosts: of one, or of two.
    Nics(Vec<HostName>),
    /// The NICs of these two, whose interfaces others keep busy.
    Shared([HostName; 2]),
    /// The NIC of either, or what is between them: nothing tells.
    Either([HostName; 2]),
    /// The NIC of the first, or what is between it and the second: the first is an end of both.
    Rather([HostName; 2]),
    /// What is between two hosts whose NICs are as fast as before towards others.
    Path([HostName; 2]),
    /// All of the network.
    All,
}

impl Ends {
    pub(super) fn hosts(&self) -> BTreeSet<HostName> {
        match self {
            Ends::Nics(hosts) => hosts.iter().cloned().collect(),
            Ends::Shared(hosts) | Ends::Either(hosts) | Ends::Rather(hosts) | Ends::Path(hosts) => {
                hosts.iter().cloned().collect()
            }
            Ends::All => BTreeSet::new(),
        }
    }
}

/// From one host to another.
type Way = (HostName, HostName);
/// A host's NIC in one direction.
type End<'a> = (&'a HostName, bool);

fn ends(way: &Way) -> [End<'_>; 2] {
    [(&way.0, true), (&way.1, false)]
}

/// The fewest that account for all ways of `slow`, and for none that is as fast as before; `None`: nothing is slow, or nobody knows.
/// Hosts of which every way is slow go before those of which only what they send, or receive, is. Where all slow ways are
/// between two hosts, what is between these accounts for them as well as a NIC, unless `light` ways of one of them are slow too. `times`: how many times as
/// long as before the same bytes are under way, where that is known; `light`: the same of ways that carry little; `least`: of all that are
/// slow, whatever their cause, the least.
pub(super) fn ends_of(
    slow: &[&Way],
    least: f64,
    times: &BTreeMap<Way, f64>,
    light: &BTreeMap<Way, f64>,
) -> Option<Ends> {
    // Nearer to what it was than to the slow ones.
    let is_fast = |times: f64| times < (1.0 + SLOWER / 2.0).max(least.sqrt());
    let fast: BTreeSet<End<'_>> =
        times.iter().filter(|(_, times)| is_fast(**times)).flat_map(|(way, _)| ends(way)).collect();
    if slow.is_empty() {
        return None;
    }
    let hosts: BTreeSet<&HostName> = slow.iter().flat_map(|way| ends(way)).map(|(host, _)| host).collect();
    let pair = || {
        <[&HostName; 2]>::try_from(hosts.iter().copied().collect::<Vec<_>>()).ok().map(|pair| pair.map(Clone::clone))
    };
    if fast.is_empty() {
        let carrying = slow.iter().filter(|way| times.contains_key(**way)).count();
        return match pair() {
            Some(pair) => Some(rather(pair, light)),
            None => (2 * carrying >= times.len() && carrying > 1).then_some(Ends::All),
        };
    }
    let is_whole = |host: &&HostName| !fast.contains(&(*host, true)) && !fast.contains(&(*host, false));
    let whole: Vec<&HostName> = hosts.iter().copied().filter(is_whole).collect();
    let accounts = |named: &[&HostName]| {
        let is_named = |end: &End<'_>| named.contains(&end.0) && !fast.contains(end);
        slow.iter().all(|way| ends(way).iter().any(is_named))
    };
    let any: Vec<&HostName> = hosts.iter().copied().collect();
    if let Some(pair) = pair() {
        // Of one way nobody is told by what else is slow of him: it is all that is.
        let told = if slow.len() > 1 && whole.len() == 1 { &whole } else { &any };
        let accounting: Vec<&HostName> = told.iter().copied().filter(|host| accounts(&[host])).collect();
        return Some(match accounting[..] {
            [] => Ends::Path(pair),
            [one] => Ends::Rather(if *one == pair[0] { pair } else { reversed(pair) }),
            _ => rather(pair, light),
        });
    }
    [&whole, &any].into_iter().find_map(|hosts| fewest(hosts, accounts)).map(Ends::Nics)
}

/// The NICs of the two hosts whose interfaces others keep `busy`, if they account for all ways of `slow`.
pub(super) fn shared(slow: &[&Way], busy: &BTreeSet<HostName>) -> Option<Ends> {
    let is_busy = |host: &&HostName| busy.contains(*host);
    let touched: BTreeSet<&HostName> = slow.iter().flat_map(|(from, to)| [from, to]).filter(is_busy).collect();
    let accounts = slow.iter().all(|(from, to)| touched.contains(from) || touched.contains(to));
    let pair = <[&HostName; 2]>::try_from(touched.into_iter().collect::<Vec<_>>()).ok()?;
    accounts.then(|| Ends::Shared(pair.map(Clone::clone)))
}

/// Of two hosts between which ways are slow the one whose light ways to others are slow too; either, where both have such or none.
fn rather(pair: [HostName; 2], light: &BTreeMap<Way, f64>) -> Ends {
    let is_slow = |host: &HostName| {
        let is_of = |(from, to): &Way| (from == host) != (to == host) && !pair.iter().all(|of| of == from || of == to);
        light.iter().any(|(way, times)| is_of(way) && *times >= 1.0 + SLOWER)
    };
    match (is_slow(&pair[0]), is_slow(&pair[1])) {
        (true, false) => Ends::Rather(pair),
        (false, true) => Ends::Rather(reversed(pair)),
        _ => Ends::Either(pair),
    }
}

fn reversed([one, other]: [HostName; 2]) -> [HostName; 2] {
    [other, one]
}

/// The only host, or the only pair, that accounts for all. Where several do nobody is named.
fn fewest(hosts: &[&HostName], accounts: impl Fn(&[&HostName]) -> bool) -> Option<Vec<HostName>> {
    let ones: Vec<&&HostName> = hosts.iter().filter(|host| accounts(&[host])).collect();
    match ones[..] {
        [one] => return Some(vec![(*one).clone()]),
        [] if hosts.len() <= LOOKED_AT => {}
        _ => return None,
    }
    let pairs = hosts.iter().enumerate().flat_map(|(at, one)| hosts[at + 1..].iter().map(move |other| [*one, *other]));
    let mut found = pairs.filter(|pair| accounts(pair));
    let pair = found.next()?;
    found.next().is_none().then(|| pair.into_iter().cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(times: [f64; 4]) -> Option<Vec<String>> {
        let way = |(at, times): (usize, f64)| {
            let host = |at: usize| HostName::from(format!("host{}", at % 4).as_str());
            ((host(at), host(at + 1)), times)
        };
        let ways: BTreeMap<(HostName, HostName), f64> = times.into_iter().enumerate().map(way).collect();
        let slow: Vec<&Way> = ways.iter().filter(|(_, times)| **times >= 1.0 + SLOWER).map(|(way, _)| way).collect();
        match ends_of(&slow, 2.0, &ways, &BTreeMap::new())? {
            Ends::All => Some(Vec::new()),
            ends => Some(ends.hosts().iter().map(ToString::to_string).collect()),
        }
    }

    /// The last host of a pipeline has one neighbour: its NIC is slow, or the path to it. It is at both, the neighbour at one.
    #[test]
    fn a_host_with_one_neighbour_is_named_before_it() {
        let way = |from: &str, to: &str, times| ((HostName::from(from), HostName::from(to)), times);
        let line = [("a", "b", 1.0), ("b", "a", 1.0), ("b", "c", 2.0), ("c", "b", 2.0)];
        let line: BTreeMap<(HostName, HostName), f64> =
            line.into_iter().map(|(from, to, times)| way(from, to, times)).collect();
        let slow: Vec<&Way> = line.iter().filter(|(_, times)| **times > 1.5).map(|(way, _)| way).collect();
        assert_eq!(ends_of(&slow, 2.0, &line, &BTreeMap::new()), Some(Ends::Rather(["c", "b"].map(HostName::from))));
    }

    /// In a ring of four hosts the NICs of two are on three of four ways.
    #[test]
    fn two_hosts_of_four_are_not_all_of_the_network() {
        assert_eq!(ring([2.7, 2.6, 2.7, 1.0]), Some(vec!["host1".into(), "host2".into()]));
        assert_eq!(ring([2.0, 2.0, 1.0, 1.0]), Some(vec!["host1".into()]));
        assert_eq!(ring([2.0, 2.0, 2.0, 2.0]), Some(Vec::new()), "all of the network");
        assert_eq!(ring([1.0, 1.0, 1.0, 1.0]), None, "nothing is slow");
        assert_eq!(ring([2.0, 1.0, 2.0, 1.0]), None, "of two ways apart either end of each may be slow");
    }

    /// Nobody else sends to the one, and nobody else is sent to by the other: either NIC, whatever else these are slow with.
    #[test]
    fn one_slow_way_of_a_ring_is_at_either_end() {
        let ends = |times| ring(times).map(|hosts| hosts.len());
        assert_eq!(ends([1.0, 1.15, 2.0, 1.0]), Some(2), "that the way before is a little slow tells nothing");
        assert_eq!(ends([1.0, 1.0, 2.0, 1.0]), Some(2));
    }

    /// What carries little tells which of two hosts it is.
    #[test]
    fn light_ways_tell_the_ends_of_a_slow_one_apart() {
        let way = |from: &str, to: &str| (HostName::from(from), HostName::from(to));
        let slow = way("a", "b");
        let times = BTreeMap::from([(slow.clone(), 2.0), (way("c", "d"), 1.0)]);
        let ends = |light: &[(Way, f64)]| ends_of(&[&slow], 2.0, &times, &light.iter().cloned().collect());
        let [a, b] = ["a", "b"].map(HostName::from);
        assert_eq!(ends(&[(way("a", "c"), 1.0)]), Some(Ends::Either([a.clone(), b.clone()])), "latencies");
        assert_eq!(ends(&[(way("d", "b"), 1.7)]), Some(Ends::Rather([b.clone(), a.clone()])));
        assert_eq!(ends(&[(way("d", "b"), 1.7), (way("a", "c"), 1.7)]), Some(Ends::Either([a, b])));
    }

    /// Other traffic that two hosts' counters show is why ways of theirs are slow, if no other way is.
    #[test]
    fn counters_tell_which_two_nics_are_shared() {
        let host = |name: &str| HostName::from(name);
        let (ab, bc, cd) = ((host("a"), host("b")), (host("b"), host("c")), (host("c"), host("d")));
        let busy = BTreeSet::from([host("a"), host("b")]);
        assert_eq!(shared(&[&ab, &bc], &busy), Some(Ends::Shared([host("a"), host("b")])));
        assert_eq!(shared(&[&ab, &bc, &cd], &busy), None, "there is another slow way");
        assert_eq!(shared(&[&bc], &busy), None, "one of them has no slow way");
        assert_eq!(shared(&[&ab], &BTreeSet::from([host("a")])), None, "the other end is quiet");
    }

    /// Between two hosts the way is slow in both directions, and both are as fast as before towards others: it is what is between them.
    #[test]
    fn a_path_is_told_from_the_nics_at_its_ends() {
        let way = |from: &str, to: &str, times| ((HostName::from(from), HostName::from(to)), times);
        let all =
            [("a", "b", 2.0), ("b", "a", 2.0), ("a", "c", 1.0), ("c", "a", 1.0), ("b", "c", 1.0), ("c", "b", 1.0)];
        let all: BTreeMap<Way, f64> = all.into_iter().map(|(from, to, times)| way(from, to, times)).collect();
        let slow: Vec<&Way> = all.iter().filter(|(_, times)| **times > 1.5).map(|(way, _)| way).collect();
        assert_eq!(ends_of(&slow, 2.0, &all, &BTreeMap::new()), Some(Ends::Path(["a", "b"].map(HostName::from))));
    }
}
