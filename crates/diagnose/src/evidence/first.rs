//! Ways that are slow from the first second on: no past says what they should take, but others that carry the same do (FALCON 4.3).
//!
//! What messages take depends on how many share a line, and on when: so the fastest ones are compared, of ways with as many links that
//! carry about as much in messages of about the same size.
use super::expected::PEERS_MIN;
use super::known::Known;
use super::{BetweenHosts, Evidence, SLOWER};
use crate::measure::{Carries, Row, Way};
use mycroft_record::HostName;
use std::collections::{BTreeMap, BTreeSet};

impl Evidence {
    /// Compares the fastest messages of ways whose past is not known yet.
    pub(super) fn compare_at_first(&mut self, row: &Row) {
        let ways: Vec<BetweenHosts<'_>> = row.ways.iter().filter(|(_, way)| way.fastest_ms.is_normal()).collect();
        if ways.iter().all(|(hosts, _)| self.ways.get(*hosts).is_some_and(Known::is_known)) {
            return;
        }
        let mut alike: BTreeMap<Carries, Vec<f64>> = BTreeMap::new();
        let mut fastest: BTreeMap<&(HostName, HostName), f64> = BTreeMap::new();
        for (hosts, way) in &ways {
            let fastest_ms = self.ways.entry((*hosts).clone()).or_default().fastest_with(way);
            fastest.insert(*hosts, fastest_ms);
            alike.entry(way.carries()).or_default().push(fastest_ms);
        }
        let usual: BTreeMap<Carries, f64> = alike.keys().filter_map(|of| Some((*of, usual(&alike, *of)?))).collect();
        let usual = |way: &Way| usual.get(&way.carries()).copied();
        let mut lines: BTreeMap<(&HostName, bool), Line> = BTreeMap::new();
        let times = |(hosts, way): &BetweenHosts<'_>| usual(way).map_or(1.0, |usual| fastest[*hosts] / usual);
        for of in &ways {
            let ((from, to), way) = of;
            lines.entry((from, true)).or_default().take(way, times(of));
            lines.entry((to, false)).or_default().take(way, times(of));
        }
        // By twice what counts beside a past, which says how much it varies: half of a NIC, or a lane of three, is lost.
        let is_slow = |of: &BetweenHosts<'_>| {
            let ((from, to), times) = (of.0, times(of));
            times >= 1.0 + 2.0 * SLOWER && lines[&(from, true)].is_slow(times) && lines[&(to, false)].is_slow(times)
        };
        let slow: Vec<&(HostName, HostName)> = ways.iter().filter(|of| is_slow(of)).map(|(hosts, _)| *hosts).collect();
        let hosts: BTreeSet<&HostName> = ways.iter().flat_map(|((from, to), _)| [from, to]).collect();
        // One host of four, as the first quarter says what is usual: where more are slow, their ways are of another kind by design.
        let are_few = touch(&slow).is_some_and(|few| 4 * few <= hosts.len());
        for (hosts, way) in ways {
            if let Some(known) = self.ways.get_mut(hosts) {
                known.compare(way, usual(way).filter(|_| are_few && slow.contains(&hosts)));
            }
        }
    }

    /// Whether a way was slow beside others that carry the same when it was first known.
    pub(crate) fn was_slow_at_first(&self, way: &(HostName, HostName)) -> bool {
        self.ways.get(way).is_some_and(Known::was_slow_at_first)
    }
}

/// What ways have in common that come out of a host, or go into it.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    ways: u32,
    /// How long all would take one after the other, as fast as usual, milliseconds an iteration.
    usual_ms: f64,
    /// How long the longest of them takes.
    longest_ms: f64,
}

impl Line {
    fn take(&mut self, way: &Way, times: f64) {
        self.ways += 1;
        self.usual_ms += way.alone_ms / times.max(1.0);
        self.longest_ms = self.longest_ms.max(way.alone_ms);
    }

    /// Whether a way that takes so many `times` as long as usual does not only share the line: as one of so many it would take as many
    /// times as long at most, and none longer than all together.
    fn is_slow(&self, times: f64) -> bool {
        times >= (1.0 + SLOWER) * f64::from(self.ways) || self.longest_ms >= (1.0 + SLOWER) * self.usual_ms
    }
}

/// How many hosts all ways have an end at, the fewest, where that are two at most.
fn touch(ways: &[&(HostName, HostName)]) -> Option<usize> {
    let Some((from, to)) = ways.first() else { return Some(0) };
    let left = [from, to].map(|host| without(ways, host));
    if left.iter().any(Vec::is_empty) {
        return Some(1);
    }
    let is_one = |left: &Vec<&(HostName, HostName)>| {
        [&left[0].0, &left[0].1].into_iter().any(|host| without(left, host).is_empty())
    };
    left.iter().any(is_one).then_some(2)
}

/// The ways without those from or to a host.
fn without<'a>(ways: &[&'a (HostName, HostName)], host: &HostName) -> Vec<&'a (HostName, HostName)> {
    ways.iter().copied().filter(|(from, to)| from != host && to != host).collect()
}

/// What the fastest messages take of ways that carry about the same: the first quarter says it, so that most ways of a few hosts may be
/// slow. `None`: too few do.
fn usual(alike: &BTreeMap<Carries, Vec<f64>>, of: Carries) -> Option<f64> {
    let mut all: Vec<f64> = of.near().filter_map(|near| alike.get(&near)).flatten().copied().collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len().saturating_sub(1) / 4).copied().filter(|_| all.len() >= PEERS_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::{COST, Component, Subject};
    use mycroft_record::{HostTime, NANOS_PER_SEC};

    /// A job whose ways carry the same from its first row on: so many times as long as usual each.
    fn job(times: &[(&str, &str, f64)]) -> Evidence {
        job_from(0, times)
    }

    /// The same, from a row on; before it all are as fast as usual.
    fn job_from(row: u64, times: &[(&str, &str, f64)]) -> Evidence {
        let mut evidence = Evidence::default();
        for second in 0..12 {
            let start = HostTime((1_000 + second) * NANOS_PER_SEC);
            let way = |(from, to, times): &(&str, &str, f64)| {
                let ms = 50.0 * if second >= row { *times } else { 1.0 };
                let way = Way { sent_ms: ms, mb: 25.0, messages: 10.0, links: 1, alone_ms: ms, fastest_ms: ms / 25.0 };
                ((HostName::from(*from), HostName::from(*to)), way)
            };
            let ways = times.iter().map(way).collect();
            let row = Row { start, end: start + NANOS_PER_SEC, iteration_ms: 300.0, ways, ..Row::default() };
            evidence.take(&[], &[], &row);
        }
        evidence
    }

    fn told(evidence: &Evidence) -> Vec<String> {
        let is_told = |((component, _), track): &(&(Component, Subject), &crate::evidence::Track)| {
            *component == Component::Wire && track.log_odds >= evidence.needed(8) && track.mean() >= SLOWER
        };
        let name = |((_, subject), _): (&(Component, Subject), _)| match subject {
            Subject::Way(from, to) => format!("{from}>{to}"),
            other => format!("{other:?}"),
        };
        evidence.tracks.iter().filter(is_told).map(name).collect()
    }

    #[test]
    fn ways_that_are_slow_from_the_first_second_are_told_from_those_that_carry_the_same() {
        let evidence = job(&[("a", "b", 3.0), ("b", "c", 3.0), ("c", "d", 1.0), ("d", "a", 1.02)]);
        assert_eq!(told(&evidence), ["a>b", "b>c"]);
        let way = |from: &str, to: &str| (HostName::from(from), HostName::from(to));
        assert!(evidence.was_slow_at_first(&way("a", "b")) && !evidence.was_slow_at_first(&way("d", "a")));
        let track = &evidence.tracks[&(Component::Wire, Subject::Way("a".into(), "b".into()))];
        assert_eq!(track.since, HostTime(1_000 * NANOS_PER_SEC), "it never was as fast");
        assert!(!track.by_past && track.more_ms >= COST * 300.0);
        let times = evidence.way_times();
        assert!((times[&way("b", "c")] - 3.0).abs() < 0.1 && times[&way("c", "d")] < 1.1, "{times:?}");
    }

    /// Two ways out of one host at once take twice as long each; three times, and it is not for that alone.
    #[test]
    fn ways_that_share_a_line_are_not_slow() {
        let ring =
            |times| job(&[("a", "b", times), ("a", "c", times), ("b", "d", 1.0), ("c", "e", 1.0), ("e", "a", 1.0)]);
        assert!(told(&ring(2.0)).is_empty());
        assert_eq!(told(&ring(3.0)), ["a>b", "a>c"]);
    }

    /// Between the hosts of each pair ways are another kind: no one host, nor two of eight, account for them.
    #[test]
    fn ways_of_another_kind_are_not_slow() {
        let pairs =
            [("a", "b", 9.0), ("c", "d", 9.0), ("e", "f", 9.0), ("b", "c", 1.0), ("d", "e", 1.0), ("f", "a", 1.0)];
        assert!(told(&job(&pairs)).is_empty());
        assert!(told(&job(&[("a", "b", 9.0), ("b", "c", 1.0), ("c", "a", 1.0)])).is_empty(), "one of three hosts");
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let ring = |slow: [usize; 2]| -> Vec<(&str, &str, f64)> {
            let way = |at: usize| (names[at], names[(at + 1) % 8], if slow.contains(&at) { 3.0 } else { 1.0 });
            (0..8).map(way).collect()
        };
        assert_eq!(told(&job(&ring([1, 5]))), ["b>c", "f>g"], "two of eight hosts");
    }

    #[test]
    fn of_two_ways_neither_says_what_the_other_should_take() {
        assert!(told(&job(&[("a", "b", 3.0), ("c", "d", 1.0)])).is_empty());
        assert_eq!(told(&job(&[("a", "b", 3.0), ("c", "d", 1.0), ("e", "f", 1.0)])), ["a>b"]);
    }

    /// What was as fast as others in the first row was not slow from the start: its past says what it should take.
    #[test]
    fn what_is_slow_later_is_not_slow_from_the_start() {
        let ways = [("a", "b", 3.0), ("c", "d", 1.0), ("e", "f", 1.0)];
        let at_first = |row| job_from(row, &ways).was_slow_at_first(&(HostName::from("a"), HostName::from("b")));
        assert!(at_first(0) && !at_first(1) && !at_first(6));
    }
}
