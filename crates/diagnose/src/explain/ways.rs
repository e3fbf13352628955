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
    /// The NIC of either, or what is between them: nothing tells.
    Either([HostName; 2]),
    /// What is between two hosts whose NICs are as fast as before towards others.
    Path([HostName; 2]),
    /// All of the network.
    All,
}

impl Ends {
    pub(super) fn hosts(&self) -> BTreeSet<HostName> {
        match self {
            Ends::Nics(hosts) => hosts.iter().cloned().collect(),
            Ends::Either(hosts) | Ends::Path(hosts) => hosts.iter().cloned().collect(),
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
/// Hosts of which every way is slow go before those of which only what they send, or receive, is. `times`: how many times as
/// long as before the same bytes are under way, where that is known; `all`: all ways that carry something.
pub(super) fn ends_of<'a>(
    slow: &[&Way],
    times: &BTreeMap<Way, f64>,
    all: impl Iterator<Item = &'a Way>,
) -> Option<Ends> {
    let is_fast = |times: f64| times < 1.0 + SLOWER / 2.0;
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
        let known = times.len();
        return match pair() {
            Some(pair) => Some(Ends::Either(pair)),
            None => (2 * slow.len() >= known && slow.len() > 1).then_some(Ends::All),
        };
    }
    let is_whole = |host: &&HostName| !fast.contains(&(*host, true)) && !fast.contains(&(*host, false));
    let whole: Vec<&HostName> = hosts.iter().copied().filter(is_whole).collect();
    let accounts = |named: &[&HostName]| {
        let is_named = |end: &End<'_>| named.contains(&end.0) && !fast.contains(end);
        slow.iter().all(|way| ends(way).iter().any(is_named))
    };
    let any: Vec<&HostName> = hosts.iter().copied().collect();
    let Some(found) = [&whole, &any].into_iter().find_map(|hosts| fewest(hosts, accounts)) else {
        let one_way = |host: &&HostName| accounts(&[host]);
        let either = pair().filter(|_| any.iter().filter(|host| one_way(host)).count() == 2);
        return either.map(Ends::Either).or_else(|| pair().map(Ends::Path));
    };
    match &found[..] {
        [one] => match only_neighbour(all, one) {
            Some(other) => Some(Ends::Either([one.clone(), other])),
            None => Some(Ends::Nics(found)),
        },
        _ => Some(Ends::Nics(found)),
    }
}

/// With whom a host exchanges data, where that is one host.
fn only_neighbour<'a>(all: impl Iterator<Item = &'a Way>, host: &HostName) -> Option<HostName> {
    let other = |(from, to): &Way| match (from == host, to == host) {
        (true, _) => Some(to.clone()),
        (_, true) => Some(from.clone()),
        _ => None,
    };
    let others: BTreeSet<HostName> = all.filter_map(other).collect();
    others.first().filter(|_| others.len() == 1).cloned()
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
        match ends_of(&slow, &ways, ways.keys())? {
            Ends::All => Some(Vec::new()),
            ends => Some(ends.hosts().iter().map(ToString::to_string).collect()),
        }
    }

    /// The last host of a pipeline has one neighbour: its NIC is slow, or the path to it.
    #[test]
    fn a_host_with_one_neighbour_is_named_together_with_it() {
        let way = |from: &str, to: &str, times| ((HostName::from(from), HostName::from(to)), times);
        let line = [("a", "b", 1.0), ("b", "a", 1.0), ("b", "c", 2.0), ("c", "b", 2.0)];
        let line: BTreeMap<(HostName, HostName), f64> =
            line.into_iter().map(|(from, to, times)| way(from, to, times)).collect();
        let slow: Vec<&Way> = line.iter().filter(|(_, times)| **times > 1.5).map(|(way, _)| way).collect();
        let ends = ends_of(&slow, &line, line.keys());
        assert_eq!(ends, Some(Ends::Either(["c", "b"].map(HostName::from))));
        let more = way("d", "c", 1.0).0;
        let ends = ends_of(&slow, &line, line.keys().chain([&more]));
        assert_eq!(ends, Some(Ends::Nics(vec!["c".into()])), "of the other nothing is known yet");
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

    /// Between two hosts the way is slow in both directions, and both are as fast as before towards others: it is what is between them.
    #[test]
    fn a_path_is_told_from_the_nics_at_its_ends() {
        let way = |from: &str, to: &str, times| ((HostName::from(from), HostName::from(to)), times);
        let all =
            [("a", "b", 2.0), ("b", "a", 2.0), ("a", "c", 1.0), ("c", "a", 1.0), ("b", "c", 1.0), ("c", "b", 1.0)];
        let all: BTreeMap<Way, f64> = all.into_iter().map(|(from, to, times)| way(from, to, times)).collect();
        let slow: Vec<&Way> = all.iter().filter(|(_, times)| **times > 1.5).map(|(way, _)| way).collect();
        assert_eq!(ends_of(&slow, &all, all.keys()), Some(Ends::Path(["a", "b"].map(HostName::from))));
    }
}
