//! The always-on loop: one thread owns every engine, takes batches, and weighs each job when something is due.
//!
//! A stall is declared when the engine says it becomes due (`next_check`), not at the next regular tick (`schedule`), so
//! that the time from stall to case is the engine's threshold plus at most [`ROUND_GAP`].
mod warming;

use crate::alert::Alerts;
use crate::book::{CaseBook, Change};
use crate::case::{BookState, BookedCase};
use crate::census::Census;
use crate::command::Command;
use crate::dump::Dumps;
use crate::inbox::{Event, Inbox};
use crate::job::{BrainMaker, Failed, Job, SILENT_NS};
use crate::keep_queue::Storage;
use crate::lately::{DROPS_TEXT, LIMITS_TEXT, Lately};
use crate::schedule::{Due, Schedule};
use crate::stats::{Stats, add, get};
use crate::warm::{Orphans, Past, keep_beginning};
use mycroft_diagnose::{Case, CaseId, Report};
use mycroft_record::{Batch, Gap, GapCause, HostName, HostTime, JobName, NANOS_PER_MS, NANOS_PER_SEC, Record, Source};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// Jobs diagnosed at once. A server for 10,000 GPUs has tens; past the limit records are stored but not diagnosed.
pub(crate) const JOBS_MAX: usize = 256;
/// A job that sent nothing for so long is retired: its engine is freed, its open cases become stale. Longer than a
/// slow checkpoint restore or a requeue of a job under the same name.
pub(crate) const JOB_IDLE_NS: u64 = 15 * 60 * NANOS_PER_SEC;
/// Most batches, and records behind the first, that are taken before the clock is looked at: a millisecond of work.
const TOGETHER_BATCHES: usize = 64;
const TOGETHER_RECORDS: usize = 2048;
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
    pub(crate) storage: Option<Storage>,
    pub(crate) book: Arc<CaseBook>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) alerts: Option<Arc<Alerts>>,
    pub(crate) dumps: Arc<Dumps>,
    pub(crate) clock: Clock,
    pub(crate) tick: Duration,
    pub(crate) make: BrainMaker,
}

/// The loop's state.
pub(crate) struct Loop {
    around: Surroundings,
    jobs: BTreeMap<JobName, Job>,
    reports: BTreeMap<JobName, Arc<Report>>,
    heard: BTreeMap<HostName, HostTime>,
    orphans: Orphans,
    /// Records dropped by queue or store.
    drops: Lately,
    /// Records beyond the limits.
    limits: Lately,
    schedule: Schedule,
    /// Zero of the schedule's clock, which does not go back when somebody sets the wall clock.
    begun: Instant,
    lag_ns: u64,
}

impl Loop {
    /// A loop that knows what the newest records of the past tell.
    pub(crate) fn warmed(around: Surroundings, mut past: Past) -> Loop {
        let begun = Instant::now();
        let now = (around.clock)();
        let (batches, unreadable) = past.recent(now);
        let mut warm = Loop {
            schedule: Schedule::new(HostTime::NONE, nanos(around.tick)),
            begun,
            around,
            jobs: BTreeMap::new(),
            reports: BTreeMap::new(),
            heard: BTreeMap::new(),
            orphans: Orphans::new(past.cases, now),
            drops: Lately::default(),
            limits: Lately::default(),
            lag_ns: 0,
        };
        if unreadable > 0 {
            warn!(unreadable, "{unreadable} stored pieces cannot be read and were passed over");
        }
        if !batches.is_empty() {
            warm.live_through(&batches);
            warm.recognize();
            warm.publish();
            let (batches, spent) = (batches.len(), begun.elapsed());
            info!(batches, "warmed up with {batches} stored batches in {} ms", spent.as_millis());
        }
        warm
    }

    /// The time of the schedule's clock.
    fn base(&self) -> HostTime {
        HostTime(nanos(self.begun.elapsed()))
    }

    /// Runs until the inbox is closed and drained.
    pub(crate) fn run(mut self) {
        let mut deadline = self.next_round();
        loop {
            match self.around.inbox.next(deadline) {
                Event::Batch(at, batch) => self.take_all(at, batch),
                Event::Lost(source, records) => self.take_loss(source, records),
                Event::Command(Command::Report { job, reply }) => {
                    // Nobody waits any more when the reader went away: then the answer is not needed.
                    let _ = reply.send(self.report(&job));
                }
                Event::Due => {
                    self.round();
                    deadline = self.next_round();
                }
                Event::Closed => break,
            }
        }
        self.round_of(|_| true);
        self.publish();
    }

    /// Takes in a batch, and some of those that wait behind it.
    fn take_all(&mut self, at: HostTime, first: Arc<Batch>) {
        let mut batches = vec![(at, first)];
        batches.extend(self.around.inbox.more(TOGETHER_BATCHES - 1, TOGETHER_RECORDS));
        batches.iter().for_each(|(_, batch)| self.take(batch));
    }

    /// Takes in one batch.
    fn take(&mut self, batch: &Batch) {
        let now = (self.around.clock)();
        let records = batch.records.len() as u64;
        let stats = &self.around.stats;
        add(&stats.batches, 1);
        add(&stats.records, records);
        stats.clocks.take(batch);
        let collected_at = stats.clocks.server_time(&batch.source.host, batch.collected_at);
        self.lag_ns = self.lag_ns.max(now.since_ns(collected_at));
        if self.heard.len() < HOSTS_MAX || self.heard.contains_key(&batch.source.host) {
            self.heard.insert(batch.source.host.clone(), now);
        }
        let fresh = !self.jobs.contains_key(&batch.source.job);
        if fresh && !self.begin_job(&batch.source.job, now) {
            add(&self.around.stats.dropped_jobs, records);
            return;
        }
        if let Some(job) = self.jobs.get_mut(&batch.source.job)
            && let Err(failed) = job.observe(batch, now, &self.around.stats)
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
        let census = Census::new(Arc::clone(&self.around.stats.named));
        self.jobs.insert(name.clone(), Job::new(name.clone(), brain, census, now));
        info!(job = %name, "job {name:?} appeared");
        true
    }

    /// The inbox dropped records: the engine is told, so that it does not read silence as a stall.
    fn take_loss(&mut self, source: Source, records: u64) {
        let now = (self.around.clock)();
        let name = source.job.clone();
        let gap = Record::Gap(Gap { noticed_at: now, lost: records, cause: GapCause::ServerDropped });
        let told = Arc::new(Batch { source, collected_at: now, records: vec![gap] });
        // A replay of the store must not read the silence as a stall either.
        if let Some(storage) = &self.around.storage
            && !storage.say(now, &told)
        {
            add(&self.around.stats.dropped_store, 1);
        }
        if let Some(job) = self.jobs.get_mut(&name) {
            job.note_queue_loss(records);
            if let Err(failed) = job.observe(&told, now, &self.around.stats) {
                self.brain_failed(&name, &failed, now);
            }
        }
    }

    /// One round: asks whom the schedule names.
    fn round(&mut self) {
        let begun = self.base();
        match self.schedule.due(begun) {
            Due::All => {
                self.round_of(|_| true);
                self.retire_idle();
                self.end_orphans();
                self.look_for_drops();
                self.count_hosts();
                self.publish();
                // At least half of the time is left for taking records in, however long a tick takes.
                let spent = self.base().since_ns(begun);
                self.schedule.not_before(begun + 2 * spent);
            }
            Due::Some(names) => self.round_of(|job| names.iter().any(|name| job.is_named(name))),
        }
    }

    /// When the next round is, at least [`ROUND_GAP`] from now.
    fn next_round(&self) -> Instant {
        let next = self.begun + Duration::from_nanos(self.schedule.next().0);
        next.max(Instant::now() + ROUND_GAP)
    }

    /// Weighs the jobs that `which` picks.
    fn round_of(&mut self, which: impl Fn(&Job) -> bool) {
        let due: Vec<JobName> = self.jobs.iter().filter(|(_, job)| which(job)).map(|(name, _)| name.clone()).collect();
        for name in due {
            let now = (self.around.clock)();
            let begun = Instant::now();
            let Some(outcome) = self.jobs.get_mut(&name).map(|job| job.tick(now)) else { continue };
            self.around.stats.ticked(begun.elapsed());
            self.plan(&name, now);
            match outcome {
                Ok(changes) => {
                    changes.withdrawn.into_iter().for_each(|id| self.withdraw(&name, id, now));
                    changes.changed.into_iter().for_each(|case| self.enter(&name, &case));
                }
                Err(failed) => self.brain_failed(&name, &failed, now),
            }
        }
    }

    /// Notes when something becomes due in a job that was asked at `now`. The server's clock may be set meanwhile: how
    /// long it takes counts.
    fn plan(&mut self, name: &JobName, now: HostTime) {
        let (base, check) = (self.base(), self.jobs.get(name).and_then(|job| job.check_at));
        let check = check.filter(|at| *at > now).map(|at| base + at.since_ns(now));
        self.schedule.asked(name, base, check);
    }

    /// A case that its engine took back.
    fn withdraw(&mut self, name: &JobName, id: CaseId, now: HostTime) {
        if let Some(number) = self.jobs.get_mut(name).and_then(|job| job.forget_number(id)) {
            self.end(number, BookState::Withdrawn, "it was a single pause that went away by itself", now);
        }
    }

    /// Enters a new or changed case into the book and tells whoever wants to know.
    fn enter(&mut self, name: &JobName, case: &Case) {
        let Some(job) = self.jobs.get_mut(name) else { return };
        let (book, orphans) = (&self.around.book, &mut self.orphans);
        let number = job.number(case.id, || orphans.adopt(name, case).unwrap_or_else(|| book.number()));
        let mut booked = BookedCase::of(number, name, case);
        if self.orphans.is_adopted(number)
            && let Some(old) = book.get(number)
        {
            keep_beginning(&mut booked.case, &old.case);
        }
        let change = book.put(booked.clone());
        if change == Change::Opened {
            self.around.stats.case_opened(name, &case.finding);
        }
        self.reports.remove(name);
        self.tell(change, booked);
    }

    /// Ends a case that its engine will not end.
    fn end(&mut self, number: u64, state: BookState, why: &str, now: HostTime) {
        if let Some(case) = self.around.book.end(number, state, why, now) {
            self.tell(Change::Closed, case);
        }
    }

    /// Log, disk, webhook.
    fn tell(&self, change: Change, case: BookedCase) {
        if let Some(storage) = &self.around.storage {
            storage.cases_changed();
        }
        if change == Change::Updated {
            return;
        }
        let (number, job, word) = (case.number, &case.job, change.word());
        let (what, category) = (case.case.finding.what, case.case.finding.category);
        info!(case = number, %job, change = word, "case {number} {word}: {what} {category} in job {job:?}");
        if change == Change::Opened {
            self.around.dumps.case_opened(&case);
        }
        if let Some(alerts) = &self.around.alerts {
            alerts.post(change, case);
        }
    }

    /// The engine of a job failed: the others go on.
    fn brain_failed(&mut self, name: &JobName, failed: &Failed, now: HostTime) {
        add(&self.around.stats.engine_panics, 1);
        error!(job = %name, error = failed.0, "diagnosis of job {name:?} failed: {}", failed.0);
        let Some(job) = self.jobs.get_mut(name) else { return };
        let orphans = job.replace_brain(&self.around.make);
        self.schedule.forget(name);
        self.reports.remove(name);
        for number in orphans {
            self.end(number, BookState::Stale, "diagnosis of the job failed and was restarted", now);
        }
    }

    /// Frees the engines of jobs that sent nothing for long.
    fn retire_idle(&mut self) {
        let now = (self.around.clock)();
        let idle = |job: &Job| now.since_ns(job.last_seen) >= JOB_IDLE_NS;
        let names: Vec<JobName> = self.jobs.iter().filter(|(_, job)| idle(job)).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.reports.remove(&name);
            self.schedule.forget(&name);
            info!(job = %name, "job {name:?} is retired: no records for a long time");
            for number in self.jobs.remove(&name).map(Job::retire).unwrap_or_default() {
                self.end(number, BookState::Stale, "the job sent no records for a long time", now);
            }
        }
        if self.jobs.len() < JOBS_MAX {
            self.problem("jobs", None);
        }
    }

    /// Ends cases of an earlier run whose fault did not show again.
    fn end_orphans(&mut self) {
        let now = (self.around.clock)();
        for number in self.orphans.overdue(now) {
            self.end(number, BookState::Stale, "the server restarted and the fault did not show again", now);
        }
    }

    /// A server that drops records is not well until it has kept up for a while.
    fn look_for_drops(&mut self) {
        let now = (self.around.clock)();
        let dropped = self.around.inbox.fill().dropped + get(&self.around.stats.dropped_store);
        let limited = get(&self.around.stats.dropped_limits);
        let (drops, limits) = (self.drops.is_lately(dropped, now), self.limits.is_lately(limited, now));
        self.problem("drops", drops.then(|| DROPS_TEXT.to_owned()));
        self.problem("limits", limits.then(|| LIMITS_TEXT.to_owned()));
    }

    fn count_hosts(&mut self) {
        let now = (self.around.clock)();
        self.heard.retain(|_, at| now.since_ns(*at) < SILENT_NS);
        self.around.stats.clocks.keep(|host| self.heard.contains_key(host));
        self.problem("clock", self.around.stats.clocks.problem());
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
            warn!(place, "{line}");
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
