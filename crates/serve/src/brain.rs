//! The always-on loop: one thread owns every engine, takes batches, and weighs each job when something is due.
//!
//! A stall is declared when the engine says it becomes due (`next_check`), not at the next regular tick, so that the
//! time from stall to case is the engine's threshold plus at most [`PLAN_EVERY`].
use crate::alert::Alerts;
use crate::api::CaseJson;
use crate::book::{CaseBook, Change, STALE, WITHDRAWN};
use crate::command::Command;
use crate::config::LogSink;
use crate::inbox::{Event, Inbox};
use crate::job::{BrainMaker, Failed, Job, SILENT_NS};
use crate::stats::{Stats, add};
use mycroft_diagnose::{Case, CaseId, Report};
use mycroft_record::{Batch, Gap, GapCause, HostName, HostTime, JobName, NANOS_PER_MS, NANOS_PER_SEC, Record, Source};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Jobs diagnosed at once. A server for 10,000 GPUs has tens; past the limit records are stored but not diagnosed.
pub(crate) const JOBS_MAX: usize = 256;
/// A job that sent nothing for so long is retired: its engine is freed, its open cases become stale. Longer than a
/// slow checkpoint restore or a requeue of a job under the same name.
pub(crate) const JOB_IDLE_NS: u64 = 15 * 60 * NANOS_PER_SEC;
/// How soon after records arrived the engine is asked when something becomes due: one sampling period of the agent.
const PLAN_EVERY: Duration = Duration::from_millis(100);
/// Shortest time between two rounds, so that an engine that is always due cannot take the whole thread.
const ROUND_GAP: Duration = Duration::from_millis(5);
/// A report younger than this is given out again: HTTP readers cannot make the loop compute more than ten a second.
const REPORT_FRESH_NS: u64 = 100 * NANOS_PER_MS;
/// Hosts remembered for counting those heard lately: 100,000 ranks at 8 a host, eight times over.
const HOSTS_MAX: usize = 100_000;

/// Reads the server's wall clock; tests put their own time behind it.
pub(crate) type Clock = Arc<dyn Fn() -> HostTime + Send + Sync>;

/// Everything the loop touches outside itself.
pub(crate) struct Surroundings {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) keeper: Option<Arc<Inbox>>,
    pub(crate) book: Arc<CaseBook>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) alerts: Option<Arc<Alerts>>,
    pub(crate) clock: Clock,
    pub(crate) tick: Duration,
    pub(crate) make: BrainMaker,
    pub(crate) log: LogSink,
}

/// The loop's state.
pub(crate) struct Loop {
    around: Surroundings,
    jobs: BTreeMap<JobName, Job>,
    reports: BTreeMap<JobName, Arc<Report>>,
    heard: BTreeMap<HostName, HostTime>,
    next_tick: Instant,
    next_plan: Instant,
    lag_ns: u64,
}

impl Loop {
    /// A loop that has seen nothing.
    pub(crate) fn new(around: Surroundings) -> Loop {
        let now = Instant::now();
        Loop {
            next_tick: now + around.tick,
            next_plan: now,
            around,
            jobs: BTreeMap::new(),
            reports: BTreeMap::new(),
            heard: BTreeMap::new(),
            lag_ns: 0,
        }
    }

    /// Runs until the inbox is closed and drained.
    pub(crate) fn run(mut self) {
        let mut deadline = self.next_tick;
        loop {
            match self.around.inbox.next(deadline) {
                Event::Batch(batch) => {
                    self.take(&batch);
                    deadline = deadline.min(self.next_plan.max(Instant::now() + ROUND_GAP));
                }
                Event::Lost(source, records) => self.take_loss(source, records),
                Event::Command(Command::Report { job, reply }) => {
                    // Nobody waits any more when the reader went away: then the answer is not needed.
                    let _ = reply.send(self.report(&job));
                }
                Event::Command(Command::Wake) => {}
                Event::Due => deadline = self.round(),
                Event::Closed => break,
            }
        }
        self.round_of(|_| true);
        self.publish();
    }

    /// Takes in one batch.
    fn take(&mut self, batch: &Arc<Batch>) {
        let now = (self.around.clock)();
        let records = batch.records.len() as u64;
        let stats = &self.around.stats;
        add(&stats.batches, 1);
        add(&stats.records, records);
        self.lag_ns = self.lag_ns.max(now.since_ns(batch.collected_at));
        if self.heard.len() < HOSTS_MAX || self.heard.contains_key(&batch.source.host) {
            self.heard.insert(batch.source.host.clone(), now);
        }
        if let Some(keeper) = &self.around.keeper
            && !keeper.push(Arc::clone(batch), Duration::ZERO)
        {
            add(&stats.dropped_store, records);
        }
        let fresh = !self.jobs.contains_key(&batch.source.job);
        if fresh && !self.begin_job(&batch.source.job, now) {
            add(&self.around.stats.dropped_jobs, records);
            return;
        }
        if let Some(job) = self.jobs.get_mut(&batch.source.job)
            && let Err(failed) = job.observe(batch, now)
        {
            self.brain_failed(&batch.source.job.clone(), &failed, now);
        }
        if fresh {
            self.publish();
        }
    }

    /// Makes room for a new job. False: there are too many.
    fn begin_job(&mut self, name: &JobName, now: HostTime) -> bool {
        if self.jobs.len() >= JOBS_MAX {
            let text = format!(
                "{JOBS_MAX} jobs are being diagnosed, records of further ones are only stored: \
                 give each cluster its own server, or check for agents that invent job names"
            );
            self.problem("jobs", Some(text));
            return false;
        }
        let brain = (self.around.make)(name);
        self.jobs.insert(name.clone(), Job::new(name.clone(), brain, now));
        (self.around.log)(&format!("job {name:?} appeared"));
        true
    }

    /// The inbox dropped records: the engine is told, so that it does not read silence as a stall.
    fn take_loss(&mut self, source: Source, records: u64) {
        let now = (self.around.clock)();
        if let Some(job) = self.jobs.get_mut(&source.job) {
            job.note_queue_loss(records);
            let name = source.job.clone();
            let gap = Record::Gap(Gap { noticed_at: now, lost: records, cause: GapCause::SpoolDropped });
            if let Err(failed) = job.observe(&Batch { source, collected_at: now, records: vec![gap] }, now) {
                self.brain_failed(&name, &failed, now);
            }
        }
    }

    /// One round: weighs what is due and says when to come back.
    fn round(&mut self) -> Instant {
        let begun = Instant::now();
        if begun >= self.next_tick {
            self.round_of(|_| true);
            self.retire_idle();
            self.count_hosts();
            self.publish();
            let spent = begun.elapsed();
            // At least half of the time is left for taking records in, however long a tick takes.
            self.next_tick = (begun + self.around.tick).max(begun + 2 * spent);
        } else {
            let now = (self.around.clock)();
            self.replan(now);
            self.round_of(|job| job.check_at.is_some_and(|at| at <= now));
        }
        let end = Instant::now();
        self.next_plan = end + PLAN_EVERY;
        let now = (self.around.clock)();
        let check = self.jobs.values().filter_map(|job| job.check_at).min();
        let check = check.map(|at| end + Duration::from_nanos(at.since_ns(now)).min(self.around.tick));
        check.map_or(self.next_tick, |at| at.min(self.next_tick)).max(end + ROUND_GAP)
    }

    /// Asks the engines that got records when something becomes due.
    fn replan(&mut self, now: HostTime) {
        let dirty: Vec<JobName> = self.jobs.iter().filter(|(_, job)| job.dirty).map(|(name, _)| name.clone()).collect();
        for name in dirty {
            if let Some(Err(failed)) = self.jobs.get_mut(&name).map(|job| job.plan(now)) {
                self.brain_failed(&name, &failed, now);
            }
        }
    }

    /// Weighs the jobs that `which` picks.
    fn round_of(&mut self, which: impl Fn(&Job) -> bool) {
        let due: Vec<JobName> = self.jobs.iter().filter(|(_, job)| which(job)).map(|(name, _)| name.clone()).collect();
        for name in due {
            let now = (self.around.clock)();
            let begun = Instant::now();
            let Some(outcome) = self.jobs.get_mut(&name).map(|job| job.tick(now)) else { continue };
            self.around.stats.ticked(begun.elapsed());
            match outcome {
                Ok(changes) => {
                    changes.withdrawn.into_iter().for_each(|id| self.withdraw(&name, id, now));
                    changes.changed.into_iter().for_each(|case| self.enter(&name, &case));
                }
                Err(failed) => self.brain_failed(&name, &failed, now),
            }
        }
    }

    /// A case that its engine took back.
    fn withdraw(&mut self, name: &JobName, id: CaseId, now: HostTime) {
        if let Some(number) = self.jobs.get_mut(name).and_then(|job| job.forget_number(id)) {
            self.end(number, WITHDRAWN, "it was a single pause that went away by itself", now);
        }
    }

    /// Enters a new or changed case into the book and tells whoever wants to know.
    fn enter(&mut self, name: &JobName, case: &Case) {
        let Some(job) = self.jobs.get_mut(name) else { return };
        let book = &self.around.book;
        let number = job.number(case.id, || book.number());
        let json = CaseJson::of(number, name, case);
        let change = book.put(json.clone());
        if change == Change::Opened {
            self.around.stats.case_opened(&json.job, &json.what, &json.category);
        }
        self.reports.remove(name);
        self.tell(change, json);
    }

    /// Ends a case that its engine will not end.
    fn end(&mut self, number: u64, state: &str, why: &str, now: HostTime) {
        if let Some(case) = self.around.book.end(number, state, why, now) {
            self.tell(Change::Closed, case);
        }
    }

    /// Log, disk, webhook.
    fn tell(&self, change: Change, case: CaseJson) {
        if let Some(keeper) = &self.around.keeper {
            keeper.ask(Command::Wake); // Refused only when the keeper is stopping or already has wakes waiting.
        }
        if change == Change::Updated {
            return;
        }
        (self.around.log)(&format!(
            "case {} {}: {} {} in job {:?}",
            case.id,
            change.word(),
            case.what,
            case.category,
            case.job
        ));
        if let Some(alerts) = &self.around.alerts {
            alerts.post(change, case);
        }
    }

    /// The engine of a job failed: the others go on.
    fn brain_failed(&mut self, name: &JobName, failed: &Failed, now: HostTime) {
        add(&self.around.stats.engine_panics, 1);
        (self.around.log)(&format!("diagnosis of job {name:?} failed: {}", failed.0));
        let Some(job) = self.jobs.get_mut(name) else { return };
        let orphans = job.replace_brain(&self.around.make);
        self.reports.remove(name);
        for number in orphans {
            self.end(number, STALE, "diagnosis of the job failed and was restarted", now);
        }
    }

    /// Frees the engines of jobs that sent nothing for long.
    fn retire_idle(&mut self) {
        let now = (self.around.clock)();
        let idle = |job: &Job| now.since_ns(job.last_seen) >= JOB_IDLE_NS;
        let names: Vec<JobName> = self.jobs.iter().filter(|(_, job)| idle(job)).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.reports.remove(&name);
            (self.around.log)(&format!("job {name:?} is retired: no records for a long time"));
            for number in self.jobs.remove(&name).map(Job::retire).unwrap_or_default() {
                self.end(number, STALE, "the job sent no records for a long time", now);
            }
        }
        if self.jobs.len() < JOBS_MAX {
            self.problem("jobs", None);
        }
    }

    fn count_hosts(&mut self) {
        let now = (self.around.clock)();
        self.heard.retain(|_, at| now.since_ns(*at) < SILENT_NS);
        self.around.stats.hosts_heard.store(self.heard.len() as u64, Ordering::Relaxed);
        self.around.stats.lag_ms.store(std::mem::take(&mut self.lag_ns) / NANOS_PER_MS, Ordering::Relaxed);
    }

    /// Publishes the jobs for readers that must not wait for this thread.
    fn publish(&self) {
        let now = (self.around.clock)();
        let book = &self.around.book;
        let json = |(name, job): (&JobName, &Job)| job.json(now, book.open_count(Some(name.as_ref())));
        self.around.stats.publish(self.jobs.iter().map(json).collect());
    }

    fn report(&mut self, name: &JobName) -> Option<Arc<Report>> {
        let now = (self.around.clock)();
        if let Some(report) = self.reports.get(name)
            && now.since_ns(report.as_of) < REPORT_FRESH_NS
            && report.as_of <= now
        {
            return Some(Arc::clone(report));
        }
        match self.jobs.get_mut(name)?.report(now) {
            Ok(report) => {
                let report = Arc::new(report);
                self.reports.insert(name.clone(), Arc::clone(&report));
                Some(report)
            }
            Err(failed) => {
                self.brain_failed(name, &failed, now);
                // The new engine knows nothing yet, but says so in its caveats.
                self.jobs.get_mut(name)?.report(now).ok().map(Arc::new)
            }
        }
    }

    fn problem(&self, place: &'static str, text: Option<String>) {
        let line = text.clone();
        if self.around.stats.problem(place, text)
            && let Some(line) = line
        {
            (self.around.log)(&line);
        }
    }
}
