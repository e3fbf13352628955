//! Stops that a job came back from by itself: what it did twice it may do again, and who was late in turn is not at fault.
use crate::watch::REMEMBERED_NS;
use mycroft_record::{HostName, HostTime, Place, Rank};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Stops kept: one a minute.
const KEPT: usize = 64;

/// Ranks that were late in turn, on several hosts, and are not each at fault: two may be by chance.
const WANDER: usize = 3;

/// What is remembered of them.
#[derive(Debug, Default)]
pub(super) struct Stops {
    /// When each was over, and how long it was, nanoseconds.
    lengths: VecDeque<(HostTime, u64)>,
    /// When each was over, and who had not come.
    late: VecDeque<(HostTime, Rank, HostName)>,
}

impl Stops {
    /// Takes in one that is over. Those from before iterations had a baseline do not belong here: a start is longer than anything
    /// that follows.
    pub(super) fn take(&mut self, over_at: HostTime, ns: u64) {
        self.lengths.push_back((over_at, ns));
        if self.lengths.len() > KEPT {
            self.lengths.pop_front();
        }
    }

    /// The second longest of the last hour, nanoseconds: one alone says nothing of the next. 0: there were not two.
    pub(super) fn usual_ns(&self, now: HostTime) -> u64 {
        let lately = self.lengths.iter().filter(|(over_at, _)| now.since_ns(*over_at) < REMEMBERED_NS);
        let mut lengths: Vec<u64> = lately.map(|(_, ns)| *ns).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.get(1).copied().unwrap_or(0)
    }

    /// Notes who had not come to a stop that is over.
    pub(super) fn note(&mut self, over_at: HostTime, place: &Place) {
        let Place::Rank { rank, host } = place else { return };
        self.late.push_back((over_at, *rank, host.clone()));
        if self.late.len() > KEPT {
            self.late.pop_front();
        }
    }

    /// How many stops of the last hour were because of how many ranks, where these came late in turn: none of them in more than
    /// half of the stops, and not all on one host.
    pub(super) fn wander(&self, now: HostTime) -> Option<(usize, usize)> {
        let lately = || self.late.iter().filter(|(over_at, ..)| now.since_ns(*over_at) < REMEMBERED_NS);
        let hosts: BTreeSet<&HostName> = lately().map(|(.., host)| host).collect();
        let mut ranks: BTreeMap<Rank, usize> = BTreeMap::new();
        lately().for_each(|(_, rank, _)| *ranks.entry(*rank).or_default() += 1);
        let stops: usize = ranks.values().sum();
        let is_one = ranks.values().any(|count| 2 * count > stops);
        (ranks.len() >= WANDER && hosts.len() > 1 && !is_one).then_some((stops, ranks.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::NANOS_PER_SEC;

    #[test]
    fn two_stops_of_the_last_hour_make_one_usual() {
        let at = |second: u64| HostTime(second * NANOS_PER_SEC);
        let mut stops = Stops::default();
        stops.take(at(1_000), 9);
        assert_eq!(stops.usual_ns(at(1_001)), 0, "one says nothing");
        stops.take(at(2_000), 2);
        stops.take(at(3_000), 4);
        assert_eq!(stops.usual_ns(at(3_001)), 4);
        assert_eq!(stops.usual_ns(at(5_000)), 2, "the first is an hour old");
        assert_eq!(stops.usual_ns(at(6_000)), 0);
    }

    #[test]
    fn ranks_of_several_hosts_that_are_late_in_turn_wander() {
        let at = |second: u64| HostTime(second * NANOS_PER_SEC);
        let wander = |late: &[(u64, u32)]| {
            let mut stops = Stops::default();
            for (second, rank) in late {
                let host = format!("host{}", rank / 2).as_str().into();
                stops.note(at(*second), &Place::Rank { rank: Rank(*rank), host });
            }
            stops.wander(at(4_000))
        };
        assert_eq!(wander(&[(1_000, 0), (1_100, 5)]), None, "two may be by chance");
        assert_eq!(wander(&[(1_000, 0), (1_100, 5), (1_200, 2)]), Some((3, 3)));
        assert_eq!(wander(&[(100, 0), (1_100, 5), (1_200, 2)]), None, "the first is more than an hour old");
        let one = [(1_000, 0), (1_100, 5), (1_200, 5), (1_300, 2), (1_400, 5), (1_500, 5)];
        assert_eq!(wander(&one), None, "most are one rank's");
        assert_eq!(wander(&[(1_000, 0), (1_100, 1), (1_200, 0), (1_300, 1)]), None, "of one host");
    }
}
