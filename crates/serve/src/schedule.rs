//! When the brain of each job is asked: at the regular tick, and when it said that something becomes due. Pure: the live
//! loop drives it with its clock, warm start and replay with the recorded time at which each batch arrived.
use mycroft_record::{HostTime, JobName};
use std::collections::BTreeMap;

/// The plan for all jobs of a server. Times are of one clock that never goes back.
#[derive(Debug)]
pub(crate) struct Schedule {
    tick_ns: u64,
    next_tick: HostTime,
    /// When a brain said that something becomes due. It holds until the brain is asked again: records alone do not
    /// change it (`Engine::next_check`).
    checks: BTreeMap<JobName, HostTime>,
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
        Schedule { tick_ns, next_tick: now + tick_ns, checks: BTreeMap::new() }
    }

    /// When somebody is asked next.
    pub(crate) fn next(&self) -> HostTime {
        self.checks.values().copied().min().map_or(self.next_tick, |check| check.min(self.next_tick))
    }

    /// Who is asked at `now`; empty before `next`.
    pub(crate) fn due(&mut self, now: HostTime) -> Due {
        if now >= self.next_tick {
            self.next_tick = now + self.tick_ns;
            return Due::All;
        }
        let due = |(job, at): (&JobName, &HostTime)| (*at <= now).then(|| JobName::clone(job));
        Due::Some(self.checks.iter().filter_map(due).collect())
    }

    /// The brain of a job was asked at `now`: when something becomes due. What was due by then comes at the tick.
    pub(crate) fn asked(&mut self, job: &JobName, now: HostTime, check: Option<HostTime>) {
        match check.filter(|&at| at > now) {
            Some(at) => drop(self.checks.insert(JobName::clone(job), at)),
            None => self.forget(job),
        }
    }

    /// The job is gone, or has no brain.
    pub(crate) fn forget(&mut self, job: &JobName) {
        self.checks.remove(job);
    }

    /// The next tick comes not before `at`.
    pub(crate) fn not_before(&mut self, at: HostTime) {
        self.next_tick = self.next_tick.max(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: HostTime = HostTime(1_000_000);

    fn some(jobs: &[&str]) -> Due {
        Due::Some(jobs.iter().map(|job| JobName::from(*job)).collect())
    }

    #[test]
    fn every_job_is_asked_at_the_tick_and_one_at_its_check() {
        let (a, b) = (JobName::from("a"), JobName::from("b"));
        let mut schedule = Schedule::new(T0, 100);
        assert_eq!(schedule.next(), T0 + 100);
        schedule.asked(&a, T0, Some(T0 + 30));
        schedule.asked(&b, T0, Some(T0 + 20));
        assert_eq!((schedule.next(), schedule.due(T0 + 19)), (T0 + 20, some(&[])));
        assert_eq!(schedule.due(T0 + 20), some(&["b"]));
        schedule.asked(&b, T0 + 20, None);
        assert_eq!((schedule.next(), schedule.due(T0 + 35)), (T0 + 30, some(&["a"])));
        schedule.asked(&a, T0 + 35, Some(T0 + 500));
        assert_eq!((schedule.next(), schedule.due(T0 + 100)), (T0 + 100, Due::All), "checks do not shift the tick");
        assert_eq!(schedule.next(), T0 + 200);
    }

    #[test]
    fn what_is_always_due_does_not_take_the_whole_thread() {
        let job = JobName::from("a");
        let mut schedule = Schedule::new(T0, 100);
        schedule.asked(&job, T0 + 10, Some(T0 + 10));
        assert_eq!(schedule.next(), T0 + 100);
        schedule.asked(&job, T0 + 10, Some(T0 + 11));
        schedule.forget(&job);
        assert_eq!(schedule.next(), T0 + 100);
        schedule.not_before(T0 + 150);
        assert_eq!((schedule.due(T0 + 149), schedule.due(T0 + 150)), (some(&[]), Due::All));
    }
}
