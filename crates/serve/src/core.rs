//! Everything between a delivery with its time of arrival and the cases that come of it: jobs, when their brains are asked,
//! cases of earlier runs, numbers, the book, and the end of jobs. Pure: the live server drives it with its clock, the warm
//! start and a replay with recorded times, and the same starts, deliveries and stops give the same cases.
pub(crate) mod joined;

use crate::book::{CaseBook, Change};
use crate::case::{BookState, BookedCase};
use crate::census::{Census, Totals};
use crate::job::{BrainMaker, Changes, Failed, Job, id_of};
use crate::schedule::{Due, Schedule};
use crate::stored::SeriesMaker;
use crate::warm::{Orphans, keep_beginning};
use mycroft_diagnose::operations::{Operations, Wanted};
use mycroft_diagnose::{Case, CaseEvent, CaseId, CaseState, Report};
use mycroft_record::{Batch, HostTime, JobName, NANOS_PER_SEC};
use mycroft_store::series::SeriesRows;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Jobs diagnosed at once. A server for 10,000 GPUs has tens; past the limit records are stored but not diagnosed.
pub(crate) const JOBS_MAX: usize = 256;
/// A job that sent nothing for so long is retired: its engine is freed, its open cases become stale. Longer than a
/// slow checkpoint restore or a requeue of a job under the same name.
pub(crate) const JOB_IDLE_NS: u64 = 15 * 60 * NANOS_PER_SEC;

/// A live server that was not asked for so long was held up, or its clock was set: it does not take the looks that it
/// missed one by one, as a replay of a silence does.
const HELD_UP_NS: u64 = 10 * NANOS_PER_SEC;

/// Reads a monotonic clock: time since any fixed moment.
pub type Stopwatch = Box<dyn FnMut() -> Duration + Send>;

/// What came of a delivery or of the time, in order.
pub(crate) enum Told {
    /// A job's first batch is here.
    Began(JobName),
    /// So many records are not diagnosed because there are too many jobs.
    Refused(u64),
    /// So many records are not diagnosed because they name too much.
    NotKept(u64),
    /// A job that sent nothing for long is not diagnosed any more: the last that is known of it.
    Retired(JobName, Option<Box<Report>>),
    /// The engine of a job failed.
    Failed { job: JobName, why: String, on_stored: bool },
    /// The brain of a job was asked at that time.
    Asked { job: JobName, at: HostTime, took: Duration, events: Vec<CaseEvent> },
    /// A case is new or different, as of that time.
    Case(HostTime, Change, Box<BookedCase>),
    /// A regular tick is over.
    Ticked,
}

/// What a core is made of.
pub(crate) struct Parts {
    /// Makes the engine of a job.
    pub(crate) make: BrainMaker,
    /// Time between two regular ticks, nanoseconds.
    pub(crate) tick_ns: u64,
    pub(crate) book: Arc<CaseBook>,
    /// What all jobs have named together.
    pub(crate) named: Arc<Totals>,
    /// What is known of a job's series from before; nothing where nobody kept them.
    pub(crate) series: SeriesMaker,
    /// Times each look: the core itself reads no clock.
    pub(crate) stopwatch: Option<Stopwatch>,
    /// Leaves at least half of the time for taking records in, however long a look takes, and does not make up for looks
    /// that it missed.
    pub(crate) is_live: bool,
}

/// The core.
pub(crate) struct Core {
    parts: Parts,
    jobs: BTreeMap<JobName, Job>,
    orphans: Orphans,
    schedule: Schedule,
    now: HostTime,
    /// While stored deliveries are lived through: jobs whose engines failed on them. Nobody is told of cases then.
    warming: Option<BTreeSet<JobName>>,
    told: Vec<Told>,
}

impl Core {
    /// A core that has not started.
    pub(crate) fn new(parts: Parts) -> Core {
        let schedule = Schedule::new(HostTime::NONE, parts.tick_ns);
        let orphans = Orphans::new(Vec::new(), HostTime::NONE);
        let (jobs, told) = (BTreeMap::new(), Vec::new());
        Core { parts, jobs, orphans, schedule, now: HostTime::NONE, warming: None, told }
    }

    fn begin_rhythm(&mut self, at: HostTime) {
        self.now = at;
        self.schedule = Schedule::new(at, self.parts.tick_ns);
    }

    /// The server stops at `at`: everything is weighed once more.
    pub(crate) fn stop(&mut self, at: HostTime) {
        self.advance(at);
        self.ask(at, None);
    }

    /// A batch arrives, after everything that is due before.
    pub(crate) fn deliver(&mut self, at: HostTime, batch: &Batch) {
        self.advance(at);
        let name = &batch.source.job;
        if self.warming.as_ref().is_some_and(|failed| failed.contains(name)) {
            return;
        }
        if !self.jobs.contains_key(name) && !self.begin_job(name) {
            self.told.push(Told::Refused(batch.records.len() as u64));
            return;
        }
        let Some(job) = self.jobs.get_mut(name) else { return };
        let before = job.not_kept();
        let outcome = job.observe(batch, at);
        let not_kept = job.not_kept() - before;
        if not_kept > 0 {
            self.told.push(Told::NotKept(not_kept));
        }
        if let Err(failed) = outcome {
            self.failed(&JobName::clone(name), failed, at);
        }
    }

    /// The server itself dropped records of a job, which `gap` says.
    pub(crate) fn lost(&mut self, at: HostTime, gap: &Batch, records: u64) {
        if let Some(job) = self.jobs.get_mut(&gap.source.job) {
            job.note_queue_loss(records);
            self.deliver(at, gap);
        }
    }

    /// When something is due next.
    pub(crate) fn next(&self) -> HostTime {
        self.schedule.next()
    }

    /// The newest time it was told.
    pub(crate) fn now(&self) -> HostTime {
        self.now
    }

    /// Asks everybody who is due up to `until`, each at the time at which it is due. A clock that was set back is gone on
    /// with.
    pub(crate) fn advance(&mut self, until: HostTime) {
        self.schedule.set_back(self.now.since_ns(until));
        self.now = until;
        if self.parts.is_live && self.warming.is_none() && until.since_ns(self.schedule.next()) > HELD_UP_NS {
            self.schedule.leap_to(until);
        }
        while self.schedule.next() <= until {
            if self.jobs.is_empty() && !self.orphans.are_waiting() {
                self.schedule.skip_to(until);
                self.told.push(Told::Ticked);
                return;
            }
            let at = self.schedule.next();
            match self.schedule.due(at) {
                Due::Some(names) => {
                    let spent = self.ask(at, Some(&names));
                    self.rest(at, spent);
                }
                Due::All => self.tick(at),
            }
        }
    }

    /// The regular tick.
    fn tick(&mut self, at: HostTime) {
        let spent = self.ask(at, None);
        if self.warming.is_some() {
            return;
        }
        self.retire_idle(at);
        for number in self.orphans.overdue(at) {
            self.end(number, BookState::Stale, "the server restarted and the fault did not show again", at);
        }
        self.told.push(Told::Ticked);
        self.rest(at, spent);
    }

    /// Leaves time to records after brains were asked. Recorded ones wait for nobody.
    fn rest(&mut self, at: HostTime, spent: Duration) {
        if self.parts.is_live && self.warming.is_none() {
            self.schedule.spent(at, nanos(spent));
        }
    }

    /// The jobs that are diagnosed.
    pub(crate) fn jobs(&self) -> &BTreeMap<JobName, Job> {
        &self.jobs
    }

    /// What of the series of all jobs is over and was not asked for yet.
    pub(crate) fn unsaved(&mut self) -> Vec<SeriesRows> {
        self.jobs.values_mut().filter_map(Job::unsaved).collect()
    }

    /// What came of everything so far and was not taken yet.
    pub(crate) fn take_told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.told)
    }

    /// What is known of a job; `None`: it is not diagnosed.
    pub(crate) fn report(&mut self, name: &JobName, now: HostTime) -> Option<Report> {
        match self.jobs.get_mut(name)?.report(now) {
            Ok(report) => Some(report),
            Err(failed) => {
                self.failed(name, failed, now);
                // The new engine knows nothing yet, but says so in its caveats.
                self.jobs.get_mut(name)?.report(now).ok()
            }
        }
    }

    /// What the ranks of a job have done lately; `None`: it is not diagnosed.
    pub(crate) fn operations(&mut self, name: &JobName, wanted: &Wanted, now: HostTime) -> Option<Operations> {
        match self.jobs.get_mut(name)?.operations(wanted) {
            Ok(told) => Some(told),
            Err(failed) => {
                self.failed(name, failed, now);
                None
            }
        }
    }

    /// Makes room for a new job. False: there are too many.
    fn begin_job(&mut self, name: &JobName) -> bool {
        if self.jobs.len() >= JOBS_MAX {
            return false;
        }
        let census = Census::new(Arc::clone(&self.parts.named));
        let series = (self.parts.series)(name);
        self.jobs.insert(name.clone(), Job::new(name.clone(), (self.parts.make)(name), census, series, self.now));
        self.told.push(Told::Began(name.clone()));
        true
    }

    /// Asks the brains of these jobs, or of all that do not rest; how long that took of the stopwatch.
    fn ask(&mut self, at: HostTime, which: Option<&[JobName]>) -> Duration {
        let names: Vec<JobName> = match which {
            Some(names) => names.to_vec(),
            None => self.jobs.iter().filter(|(_, job)| !job.rests).map(|(name, _)| name.clone()).collect(),
        };
        let mut spent = Duration::ZERO;
        for name in names {
            let began = self.read();
            let Some(outcome) = self.jobs.get_mut(&name).map(|job| job.tick(at)) else { continue };
            let took = self.read().saturating_sub(began);
            spent += took;
            let check = self.jobs.get(&name).and_then(|job| job.check_at);
            self.schedule.asked(&name, at, check);
            match outcome {
                Ok(changes) => self.changed(name, at, took, changes),
                Err(failed) => self.failed(&name, failed, at),
            }
        }
        spent
    }

    fn read(&mut self) -> Duration {
        self.parts.stopwatch.as_mut().map_or(Duration::ZERO, |stopwatch| stopwatch())
    }

    /// Enters what a look changed.
    fn changed(&mut self, name: JobName, at: HostTime, took: Duration, changes: Changes) {
        if self.warming.is_some() {
            return;
        }
        let mut numbers: BTreeMap<CaseId, u64> = BTreeMap::new();
        for id in changes.withdrawn {
            // A case that its engine took back.
            if let Some(number) = self.jobs.get_mut(&name).and_then(|job| job.forget_number(id)) {
                numbers.insert(id, number);
                self.end(number, BookState::Withdrawn, "it was a single pause that went away by itself", at);
            }
        }
        for case in &changes.changed {
            self.enter(&name, case, at);
        }
        let number = |id: CaseId| {
            let known = self.jobs.get(&name).and_then(|job| job.known_number(id));
            known.or_else(|| numbers.get(&id).copied()).map(CaseId)
        };
        let events = changes.events.into_iter().filter_map(|event| numbered(event, number(id_of(event))?)).collect();
        self.told.push(Told::Asked { job: name, at, took, events });
    }

    /// Enters a new or changed case into the book.
    fn enter(&mut self, name: &JobName, case: &Case, at: HostTime) {
        let Some(job) = self.jobs.get_mut(name) else { return };
        let (book, orphans) = (&self.parts.book, &mut self.orphans);
        let number = job.number(case.id, || orphans.adopt(name, case).unwrap_or_else(|| book.number()));
        let mut booked = BookedCase::of(number, name, case);
        if self.orphans.is_adopted(number)
            && let Some(old) = book.get(number)
        {
            keep_beginning(&mut booked.case, &old.case);
        }
        let change = book.put(booked.clone());
        self.told.push(Told::Case(at, change, Box::new(booked)));
    }

    /// Ends a case that its engine will not end.
    fn end(&mut self, number: u64, state: BookState, why: &str, at: HostTime) {
        if let Some(case) = self.parts.book.end(number, state, why, at) {
            self.told.push(Told::Case(at, Change::Closed, Box::new(case)));
        }
    }

    /// The engine of a job failed: the others go on. One that fails on the past is taken out: it begins anew with its first
    /// live batch, or its records would switch its diagnosis off at every start.
    fn failed(&mut self, name: &JobName, failed: Failed, at: HostTime) {
        let on_stored = self.warming.is_some();
        self.told.push(Told::Failed { job: name.clone(), why: failed.0, on_stored });
        self.schedule.forget(name);
        if let Some(names) = &mut self.warming {
            names.insert(name.clone());
            self.jobs.remove(name);
            return;
        }
        let Some(job) = self.jobs.get_mut(name) else { return };
        for number in job.replace_brain(&self.parts.make) {
            self.end(number, BookState::Stale, "diagnosis of the job failed and was restarted", at);
        }
    }

    /// Frees the engines of jobs that sent nothing for long.
    fn retire_idle(&mut self, at: HostTime) {
        let idle = |job: &Job| at.since_ns(job.last_seen) >= JOB_IDLE_NS;
        let names: Vec<JobName> = self.jobs.iter().filter(|(_, job)| idle(job)).map(|(name, _)| name.clone()).collect();
        for name in names {
            let last_seen = self.jobs.get(&name).map_or(at, |job| job.last_seen);
            let report = self.report(&name, last_seen).map(Box::new);
            self.schedule.forget(&name);
            let numbers = self.jobs.remove(&name).map(Job::retire).unwrap_or_default();
            self.told.push(Told::Retired(name, report));
            for number in numbers {
                self.end(number, BookState::Stale, "the job sent no records for a long time", at);
            }
        }
    }

    /// After warming up: cases that are known keep their number, open ones that are not are new, and closed ones that
    /// are not are left out: without a baseline of before, they may be none.
    fn recognize(&mut self) {
        let (names, at): (Vec<JobName>, HostTime) = (self.jobs.keys().cloned().collect(), self.now);
        for name in names {
            match self.jobs.get_mut(&name).map(Job::cases) {
                Some(Ok(cases)) => cases.iter().for_each(|case| self.recognize_one(&name, case)),
                Some(Err(failed)) => self.failed(&name, failed, at),
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
        let was_open = known.and_then(|number| self.parts.book.get(number)).is_some_and(|case| case.is_open());
        if was_open || case.state == CaseState::Open {
            self.enter(name, case, self.now);
        }
    }
}

/// The event with the server's number of its case.
fn numbered(event: CaseEvent, number: CaseId) -> Option<CaseEvent> {
    Some(match event {
        CaseEvent::Opened(_) => CaseEvent::Opened(number),
        CaseEvent::Strengthened(_) => CaseEvent::Strengthened(number),
        CaseEvent::Revised(_) => CaseEvent::Revised(number),
        CaseEvent::Closed(_) => CaseEvent::Closed(number),
        CaseEvent::Withdrawn(_) => CaseEvent::Withdrawn(number),
    })
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
