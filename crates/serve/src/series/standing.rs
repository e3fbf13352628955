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

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_diagnose::{Measured, Stretch};

    const SECOND: u64 = NANOS_PER_SEC;

    fn at(second: u64) -> HostTime {
        HostTime(1_735_689_600 * SECOND + second * SECOND)
    }

    /// Iterations of a second that end at each of these.
    fn goes_on(series: &mut JobSeries, seconds: std::ops::RangeInclusive<u64>, ms: f64) {
        let iterations: Vec<(HostTime, f64)> = seconds.map(|second| (at(second), ms)).collect();
        let (start, end) = (iterations[0].0, iterations[iterations.len() - 1].0);
        let stretch = Stretch { start, end, iterations, ..Stretch::default() };
        series.take(&Measured { ranks: Vec::new(), stretches: vec![stretch] });
    }

    /// A hang that ends with the job is lost as a whole; one after which the job goes on is lost by the iteration that it made longer,
    /// and not twice.
    #[test]
    fn a_standstill_is_lost_once() {
        let mut series = JobSeries::default();
        goes_on(&mut series, 1..=100, 1_000.0);
        assert_eq!(series.lost_rank_s(8, at(101)), 0.0);
        series.stand(Some(at(101)), 8, at(102));
        assert_eq!(series.lost_rank_s(8, at(201)), 800.0, "while it lasts");
        let mut over = JobSeries::default();
        std::mem::swap(&mut over, &mut series);
        over.stand(None, 8, at(301));
        assert_eq!(over.lost_rank_s(8, at(302)), 1_600.0, "after it, of a job that does not go on");
        goes_on(&mut series, 1..=100, 1_000.0);
        series.stand(Some(at(101)), 8, at(102));
        goes_on(&mut series, 301..=301, 200_000.0);
        series.stand(None, 8, at(302));
        // Nothing is measured of ranks here, so that the iteration itself costs nobody anything.
        assert_eq!(series.lost_rank_s(8, at(302)), 0.0, "the iteration tells it");
    }
}
