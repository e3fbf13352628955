//! Warming up: the newest stored batches through the loop's engines before the first live one.
use super::{Loop, nanos};
use crate::job::{Failed, Job};
use crate::schedule::{Due, Schedule};
use crate::stats::add;
use mycroft_diagnose::{Case, CaseState};
use mycroft_record::{Batch, JobName};
use std::collections::BTreeSet;
use std::sync::Arc;
use tracing::error;

impl Loop {
    /// Feeds recorded batches with the recorded times for a clock, asking as live. Nobody is told anything.
    pub(super) fn live_through(&mut self, batches: &[Batch]) {
        let Some((first, last)) = batches.first().zip(batches.last()) else { return };
        let mut schedule = Schedule::new(first.collected_at, nanos(self.around.tick));
        let mut failed = BTreeSet::new();
        for batch in batches {
            let now = batch.collected_at;
            while schedule.next() <= now {
                let at = schedule.next();
                match schedule.due(at) {
                    Due::All => self.quietly(&mut failed, |_| true, |job| job.tick(at).map(drop)),
                    Due::Some(names) => self.quietly(
                        &mut failed,
                        |job| names.iter().any(|name| job.is_named(name)),
                        |job| job.tick(at).map(drop),
                    ),
                }
                self.jobs.iter().for_each(|(name, job)| schedule.asked(name, at, job.check_at));
                failed.iter().for_each(|name| schedule.forget(name));
            }
            let name = &batch.source.job;
            if !failed.contains(name) && (self.jobs.contains_key(name) || self.begin_job(name, now)) {
                let stats = Arc::clone(&self.around.stats);
                self.quietly(&mut failed, |job| job.is_named(name), |job| job.observe(batch, now, &stats));
            }
        }
        self.quietly(&mut failed, |_| true, |job| job.tick(last.collected_at).map(drop));
        let (base, now) = (self.base(), last.collected_at);
        for (name, job) in &self.jobs {
            self.schedule.asked(name, base, job.check_at.map(|at| base + at.since_ns(now)));
        }
    }

    /// Does something with jobs and tells nobody. A job whose engine fails on the past is taken out: it begins anew with
    /// its first live batch, or its records would switch its diagnosis off at every start.
    fn quietly(
        &mut self,
        failed: &mut BTreeSet<JobName>,
        which: impl Fn(&Job) -> bool,
        act: impl Fn(&mut Job) -> Result<(), Failed>,
    ) {
        let stats = &self.around.stats;
        self.jobs.retain(|name, job| {
            let Some(Err(why)) = which(job).then(|| act(job)) else { return true };
            add(&stats.engine_panics, 1);
            let why = &why.0;
            error!(job = %name, error = why, "diagnosis of job {name:?} failed on its stored records: {why}");
            failed.insert(name.clone());
            false
        });
    }

    /// After warming up: cases that are known keep their number, open ones that are not are new, and closed ones that
    /// are not are left out: without a baseline of before, they may be none.
    pub(super) fn recognize(&mut self) {
        let names: Vec<JobName> = self.jobs.keys().cloned().collect();
        for name in names {
            let now = (self.around.clock)();
            match self.jobs.get_mut(&name).map(Job::cases) {
                Some(Ok(cases)) => cases.iter().for_each(|case| self.recognize_one(&name, case)),
                Some(Err(failed)) => self.brain_failed(&name, &failed, now),
                None => {}
            }
        }
    }

    fn recognize_one(&mut self, name: &JobName, case: &Case) {
        let known = self.orphans.adopt(name, case);
        if let Some(number) = known
            && let Some(job) = self.jobs.get_mut(name)
        {
            job.number(case.id, || number);
        }
        let was_open = known.and_then(|number| self.around.book.get(number)).is_some_and(|case| case.is_open());
        if was_open || case.state == CaseState::Open {
            self.enter(name, case);
        }
    }
}
