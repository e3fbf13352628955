//! Since when a slowdown is, and whether it is one yet.
use crate::blame::own;
use crate::case::weigh::Verdict;
use crate::fact::Fact;
use crate::timeline::Timeline;
use mycroft_record::{HostTime, NANOS_PER_SEC, Place};

/// A slowdown has lasted this long: the three rows that `explain` needs too. What is over sooner is jitter, however many short
/// iterations it took.
const LASTS_NS: u64 = 3 * NANOS_PER_SEC;

/// When the first iteration began in which a suspect's own part was slow.
pub(super) fn began(timeline: &Timeline, verdict: &Verdict, facts: &[Fact]) -> HostTime {
    let leads: Vec<Place> = verdict.leads().cloned().collect();
    own::first_slow(timeline, facts, &leads, verdict.category, verdict.since)
}

/// Whether what began then is more than jitter by now.
pub(super) fn has_lasted(since: HostTime, now: HostTime) -> bool {
    now.since_ns(since) >= LASTS_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_short_iterations_are_no_slowdown() {
        let at = |second: u64| HostTime(second * NANOS_PER_SEC);
        assert!(!has_lasted(at(7), at(9)) && has_lasted(at(7), at(10)));
    }
}
