//! What a job loses while a case stops it.
use super::JobSeries;
use mycroft_diagnose::{Case, CaseState};
use mycroft_record::{HostTime, NANOS_PER_SEC, What};

/// What a job has lost is told of a day.
const DAY_NS: u64 = 24 * 3_600 * NANOS_PER_SEC;

/// Since when an open case stops the job; `None`: it does not, or is over.
pub(crate) fn stands_since(case: &Case) -> Option<HostTime> {
    let stops = case.state == CaseState::Open && case.finding.what != What::Slowdown;
    stops.then(|| case.finding.since.some().unwrap_or(case.opened_at))
}

impl JobSeries {
    /// Since when the job of so many ranks stands still, or not any more: then what that cost is lost, unless an iteration has ended
    /// that is as much longer.
    pub(crate) fn stand(&mut self, since: Option<HostTime>, ranks: u64, now: HostTime) {
        if let (Some(stood), None) = (self.stands_since, since)
            && self.iterations.last() <= stood
        {
            self.sums.stood(stood, now, ranks);
        }
        self.stands_since = since;
    }

    /// Seconds of so many ranks together that were lost in the last day.
    pub(crate) fn lost_rank_s(&self, ranks: u64, now: HostTime) -> f64 {
        let stands = self.stands_since.filter(|since| self.iterations.last() <= *since);
        let stands_ns = stands.map_or(0, |since| now.since_ns(since).min(DAY_NS));
        self.sums.lost_in_a_day_s(now) + stands_ns as f64 / NANOS_PER_SEC as f64 * ranks as f64
    }
}
