//! A host that became crowded while a case is about another that is.
use super::{Bench, Docket};
use crate::blame::{load, own};
use crate::case::CaseEvent;
use crate::case::network::host_place;
use crate::case::weigh::Verdict;
use crate::fact::Fact;
use mycroft_record::{Category, Suspect, What};

/// Threads of another host that wait for so much of what they do where a case is about it slow the job as well.
const ALIKE: f64 = 0.8;
/// How sure that is: nothing else is looked at.
const SURE: f64 = 0.9;

impl Docket {
    //= falcon 3.2
    /// Where the threads of one host wait iterations take seconds, and in a ring they take hardly longer when those of a second
    /// host wait too, or instead: no iteration shows it. The same counters of as many waits mean the same of it, so it has
    /// its own case as soon as they say so in most looks of some seconds, whether or not an iteration ends.
    pub(super) fn crowded_too(&mut self, bench: &Bench<'_>) -> Option<CaseEvent> {
        let known = self.open.iter().filter_map(|open| own::counted_milli(&open.own));
        let least_milli = ALIKE * known.min_by(f64::total_cmp)?;
        let waits = load::lately(bench.timeline, self.usual_until()?).into_iter().filter(|(fact, _)| {
            matches!(fact, Fact::CpuWait { host, now_milli, .. } if *now_milli >= least_milli && !self.is_known(host))
        });
        let (fact, since) = waits.min_by_key(|(_, since)| *since)?;
        let place = host_place(fact.crowded()?);
        let verdict = Verdict {
            category: Category::HostThread,
            suspects: vec![Suspect { place, confidence: SURE }],
            share: 1.0,
            ..Verdict::unknown(What::Slowdown, since)
        };
        let event = self.open_slowdown(bench, verdict, &[fact], None);
        if let Some(open) = self.open.last_mut() {
            open.joined = true; // iterations say nothing of it beside the other
        }
        Some(event)
    }
}
