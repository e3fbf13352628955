//! When the brain of each job is asked: at the regular tick, and when it said that something becomes due. Pure.
use mycroft_record::{HostTime, JobName, NANOS_PER_MS};
use std::collections::BTreeMap;

/// Shortest time from one look at a job to its next before the tick, so that an engine that is always due cannot take the
/// whole thread.
const GAP_NS: u64 = 5 * NANOS_PER_MS;

/// The plan for all jobs of a server.
#[derive(Debug)]
pub(crate) struct Schedule {
    tick_ns: u64,
    next_tick: HostTime,
    /// When a brain said that something becomes due. It holds until the brain is asked again: records alone do not
    /// change it (`Engine::next_check`).
    checks: BTreeMap<JobName, HostTime>,
    /// Nobody is asked before this.
    rests_until: HostTime,
}

/// Who is asked now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// Every job: the regular tick.
    All,
    /// These, something of which is due.
    Some(Vec<JobName>),
}

impl Schedule {
    /// A plan that begins at `now` and asks every job each `tick_ns` (a nanosecond at least).
    pub(crate) fn new(now: HostTime, tick_ns: u64) -> Schedule {
        let tick_ns = tick_ns.max(1);
        Schedule { tick_ns, next_tick: now + tick_ns, checks: BTreeMap::new(), rests_until: HostTime::NONE }
    }

    /// When somebody is asked next.
    pub(crate) fn next(&self) -> HostTime {
        let check = self.checks.values().copied().min().map(|check| check.max(self.rests_until));
        check.map_or(self.next_tick, |check| check.min(self.next_tick))
    }

    /// Who is asked at `now`; empty before `next`.
    pub(crate) fn due(&mut self, now: HostTime) -> Due {
        if now >= self.next_tick {
            self.next_tick = now + self.tick_ns;
            return Due::All;
        }
        let due =
            |(job, at): (&JobName, &HostTime)| (*at <= now && self.rests_until <= now).then(|| JobName::clone(job));
        Due::Some(self.checks.iter().filter_map(due).collect())
    }

    /// The brain of a job was asked at `now`: when something becomes due. What was due by then comes at the tick.
    pub(crate) fn asked(&mut self, job: &JobName, now: HostTime, check: Option<HostTime>) {
        match check.filter(|&at| at > now) {
            Some(at) => drop(self.checks.insert(JobName::clone(job), at.max(now + GAP_NS))),
            None => self.forget(job),
        }
    }

    /// The job is gone, or has no brain.
    pub(crate) fn forget(&mut self, job: &JobName) {
        self.checks.remove(job);
    }

    /// Brains were asked at `now`, which took so long: as long again is left to records before anybody is asked, at a tick or at a check. With
    /// many jobs that are late, checks alone would take the whole thread.
    pub(crate) fn spent(&mut self, now: HostTime, ns: u64) {
        let until = now + 2 * ns;
        self.next_tick = self.next_tick.max(until);
        self.rests_until = self.rests_until.max(until);
    }

    /// Leaves out the ticks up to `now`: nobody is there to be asked. The rhythm goes on.
    pub(crate) fn skip_to(&mut self, now: HostTime) {
        if now >= self.next_tick {
            let ticks = now.since_ns(self.next_tick) / self.tick_ns + 1;
            self.next_tick = self.next_tick + ticks.saturating_mul(self.tick_ns);
        }
    }

    /// Nothing is due before `at`: what was comes then.
    pub(crate) fn leap_to(&mut self, at: HostTime) {
        self.next_tick = self.next_tick.max(at);
        self.checks.values_mut().for_each(|check| *check = at.max(*check));
    }

    /// The clock was set back by so many nanoseconds: what was to come in a moment still does.
    pub(crate) fn set_back(&mut self, ns: u64) {
        self.next_tick = self.next_tick - ns;
        self.rests_until = self.rests_until - ns;
        self.checks.values_mut().for_each(|at| *at = *at - ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = NANOS_PER_MS;
    const T0: HostTime = HostTime(1_000_000 * MS);

    fn some(jobs: &[&str]) -> Due {
        Due::Some(jobs.iter().map(|job| JobName::from(*job)).collect())
    }

    #[test]
    fn every_job_is_asked_at_the_tick_and_one_at_its_check() {
        let (a, b) = (JobName::from("a"), JobName::from("b"));
        let mut schedule = Schedule::new(T0, 100 * MS);
        assert_eq!(schedule.next(), T0 + 100 * MS);
        schedule.asked(&a, T0, Some(T0 + 30 * MS));
        schedule.asked(&b, T0, Some(T0 + 20 * MS));
        assert_eq!((schedule.next(), schedule.due(T0 + 19 * MS)), (T0 + 20 * MS, some(&[])));
        assert_eq!(schedule.due(T0 + 20 * MS), some(&["b"]));
        schedule.asked(&b, T0 + 20 * MS, None);
        assert_eq!((schedule.next(), schedule.due(T0 + 35 * MS)), (T0 + 30 * MS, some(&["a"])));
        schedule.asked(&a, T0 + 35 * MS, Some(T0 + 500 * MS));
        assert_eq!(
            (schedule.next(), schedule.due(T0 + 100 * MS)),
            (T0 + 100 * MS, Due::All),
            "checks do not shift the tick"
        );
        assert_eq!(schedule.next(), T0 + 200 * MS);
    }

    #[test]
    fn what_is_always_due_does_not_take_the_whole_thread() {
        let job = JobName::from("a");
        let mut schedule = Schedule::new(T0, 100 * MS);
        schedule.asked(&job, T0 + 10 * MS, Some(T0 + 10 * MS));
        assert_eq!(schedule.next(), T0 + 100 * MS);
        schedule.asked(&job, T0 + 10 * MS, Some(T0 + 11 * MS));
        assert_eq!(schedule.next(), T0 + 15 * MS, "nor twice within the gap");
        schedule.forget(&job);
        assert_eq!(schedule.next(), T0 + 100 * MS);
        schedule.spent(T0 + 90 * MS, 30 * MS);
        assert_eq!((schedule.due(T0 + 149 * MS), schedule.due(T0 + 150 * MS)), (some(&[]), Due::All));
    }

    #[test]
    fn looks_of_many_jobs_leave_half_of_the_time_to_records() {
        let jobs: Vec<JobName> = (0..50).map(|job| format!("job-{job}").as_str().into()).collect();
        let mut schedule = Schedule::new(T0, 100 * MS);
        // Each look takes a millisecond, and finds that something is due a millisecond later.
        let (mut now, mut in_looks) = (T0, 0);
        while now < T0 + 10_000 * MS {
            now = schedule.next().max(now);
            let asked = match schedule.due(now) {
                Due::All => jobs.clone(),
                Due::Some(jobs) => jobs,
            };
            let took = asked.len() as u64 * MS;
            asked.iter().for_each(|job| schedule.asked(job, now, Some(now + MS)));
            schedule.spent(now, took);
            in_looks += took;
            now = now + took;
        }
        let share = in_looks as f64 / now.since_ns(T0) as f64;
        assert!((0.45..=0.52).contains(&share), "{share}");
    }

    #[test]
    fn the_rhythm_goes_on_behind_what_is_left_out_and_with_a_clock_that_is_set_back() {
        let mut schedule = Schedule::new(T0, 100 * MS);
        schedule.skip_to(T0 + 99 * MS);
        assert_eq!(schedule.next(), T0 + 100 * MS);
        schedule.skip_to(T0 + 1050 * MS);
        assert_eq!(schedule.next(), T0 + 1100 * MS);
        schedule.asked(&"a".into(), T0 + 1050 * MS, Some(T0 + 1060 * MS));
        schedule.set_back(1000 * MS);
        assert_eq!((schedule.next(), schedule.due(T0 + 60 * MS)), (T0 + 60 * MS, some(&["a"])));
    }
}
