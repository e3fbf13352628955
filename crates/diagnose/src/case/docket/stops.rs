//! Stops that a job came back from by itself: what it did twice it may do again.
use mycroft_record::{HostTime, NANOS_PER_SEC};
use std::collections::VecDeque;

/// For so long they are remembered: as waits are (`watch/waits`).
const REMEMBERED_NS: u64 = 3_600 * NANOS_PER_SEC;
/// Stops kept: one a minute.
const KEPT: usize = 64;

/// When each was over, and how long it was, nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Stops(VecDeque<(HostTime, u64)>);

impl Stops {
    /// Takes in one that is over. Those from before iterations had a baseline do not belong here: a start is longer than anything
    /// that follows.
    pub(super) fn take(&mut self, over_at: HostTime, ns: u64) {
        self.0.push_back((over_at, ns));
        if self.0.len() > KEPT {
            self.0.pop_front();
        }
    }

    /// The second longest of the last hour, nanoseconds: one alone says nothing of the next. 0: there were not two.
    pub(super) fn usual_ns(&self, now: HostTime) -> u64 {
        let lately = self.0.iter().filter(|(over_at, _)| now.since_ns(*over_at) < REMEMBERED_NS);
        let mut lengths: Vec<u64> = lately.map(|(_, ns)| *ns).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.get(1).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
