//! An iteration that does not end although the job moves: what has ended in it shows who is slow, or who holds up the operation
//! that all are in does.
use super::{Bench, Docket, is_about_crowd, is_sure};
use crate::blame::hang;
use crate::case::CaseEvent;
use crate::case::network::host_place;
use crate::case::weigh::{DECISIVE, Verdict};
use crate::fact::Fact;
use crate::watch::Slow;
use mycroft_record::{Algorithm, Category, Place, Rank, Suspect, What};

/// How sure it is that a device which leaves its slots untouched in look after look, while the job goes on, is slow with them.
const SLOW_DEVICE: f64 = 0.9;

impl Docket {
    /// The iteration that runs takes many times as long as usual: a case if one suspect is sure, twice. Besides open
    /// slowdowns only of a host of which its own counters say that threads wait there.
    pub(crate) fn crawl(&mut self, bench: &Bench<'_>, crawl: &Slow) -> Option<CaseEvent> {
        let is_stopped = self.open.iter().any(|open| self.case(open.id).finding.what != What::Slowdown);
        let (mut verdict, mut facts) = self.slowed(bench, crawl);
        let is_one = |verdict: &Verdict| verdict.leads().count() == 1 && is_sure(verdict, DECISIVE);
        if !is_one(&verdict) && !self.has_open() {
            (verdict, facts) = held_up(bench, crawl)?;
        }
        // Counters over seconds need no second look, which an iteration may end before.
        let is_counted = is_about_crowd(&verdict, &facts);
        let is_new = !self.has_open() || (is_counted && self.same_fault(&verdict).is_none());
        if is_stopped || !is_one(&verdict) || !is_new || !(self.is_told_again(&verdict) || is_counted) {
            return None;
        }
        let step = self.has_open().then(|| crawl.clone());
        let event = self.open_slowdown(bench, verdict, &facts, step)?;
        if let Some(open) = self.open.last_mut() {
            open.crawls = true;
        }
        Some(event)
    }
}

//= mycroft 5.3
/// Nothing that has ended shows who is slow: but all wait for one operation that all are in, and in that for one device, which
/// has data and room, or for one host. It does go on, so it is slow to fill and drain its slots.
fn held_up(bench: &Bench<'_>, crawl: &Slow) -> Option<(Verdict, Vec<Fact>)> {
    let all: Vec<Rank> = bench.timeline.ranks.keys().collect();
    let found = hang::blame(bench.timeline, bench.timeline.graph(), bench.config, &all).facts;
    let [Fact::GpuNotReady { rank, host, op, counters, strong, .. }] = &found[..] else { return None };
    // In a ring what has come into a host and does not leave it is held by one of its devices, whichever it is.
    let is_inside = op.meta.algorithm == Algorithm::Ring && counters.transmitted > counters.done;
    let place = match strong {
        true => Place::Rank { rank: *rank, host: host.clone() },
        false if is_inside => host_place(host),
        false => return None,
    };
    let verdict = Verdict {
        category: Category::GpuCopy,
        suspects: vec![Suspect { place, confidence: SLOW_DEVICE }],
        share: 1.0,
        group: Some(op.meta.id.comm),
        op: Some(op.meta.id),
        ..Verdict::unknown(What::Slowdown, crawl.onset)
    };
    Some((verdict, [crawl.fact()].into_iter().chain(found).collect()))
}
