//! The always-on loop: one thread that owns the core, hands it what arrives and the time, and tells everybody what came of
//! it.
//!
//! A stall is declared when the engine says it becomes due (`next_check`), not at the next regular tick (`schedule`). Looks
//! bear the time at which they are due, and everything that had arrived by then was taken in before: a replay of the store
//! does the same.
mod lost;

use crate::alert::Alerts;
use crate::book::{CaseBook, Change};
use crate::bus::held::Held;
use crate::case::BookedCase;
use crate::clock::Clock;
use crate::command::Command;
use crate::core::{Core, JOBS_MAX, Parts, Stopwatch, Told};
use crate::dump::Dumps;
use crate::inbox::{Event, Inbox};
use crate::job::{BrainMaker, Job, SILENT_NS};
use crate::keep_queue::Storage;
use crate::lately::{DROPS_TEXT, LIMITS_TEXT, Lately};
use crate::series::SeriesTold;
use crate::stats::{Stats, add, get};
use crate::stored::SeriesMaker;
use mycroft_diagnose::Report;
use mycroft_record::{Batch, Gap, GapCause, HostName, HostTime, JobName, NANOS_PER_MS, NANOS_PER_SEC, Record, Source};
use mycroft_store::Delivery;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// Most batches, and records behind the first, that are taken before the clock is looked at: a millisecond of work.
const TOGETHER_BATCHES: usize = 64;
const TOGETHER_RECORDS: usize = 2048;
/// Longest sleep: a clock that is set forward is noticed by then.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// A report younger than this is given out again: HTTP readers cannot make the loop compute more than ten a second.
const REPORT_FRESH_NS: u64 = 100 * NANOS_PER_MS;
/// One that took long to make is fresh for so many times as long, so that readers take a fiftieth of the loop's time at most; and
/// at most until the next regular tick.
const REPORT_FRESH_TIMES: u64 = 50;
const REPORT_FRESH_NS_MAX: u64 = NANOS_PER_SEC;
/// Hosts remembered for counting those heard lately: 100,000 ranks at 8 a host, eight times over.
const HOSTS_MAX: usize = 100_000;

/// Everything the loop touches outside itself.
pub(crate) struct Surroundings {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) storage: Option<Storage>,
    pub(crate) book: Arc<CaseBook>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) alerts: Option<Arc<Alerts>>,
    pub(crate) dumps: Arc<Dumps>,
    pub(crate) clock: Clock,
    pub(crate) held: Arc<Held>,
    pub(crate) stopwatch: fn() -> Stopwatch,
}

/// The loop's state.
pub(crate) struct Loop {
    around: Surroundings,
    core: Core,
    /// The last report of each job, and for how long it is fresh, nanoseconds.
    reports: BTreeMap<JobName, (Arc<Report>, u64)>,
    heard: BTreeMap<HostName, HostTime>,
    /// Records dropped by queue or store.
    drops: Lately,
    /// Records beyond the limits.
    limits: Lately,
    /// Cases of which alerts are withheld, as of the last tick.
    silent: BTreeSet<u64>,
    lag_ns: u64,
}

/// When the server started, and what arrived lately before.
pub(crate) struct Beginning {
    pub(crate) at: HostTime,
    pub(crate) past: Vec<Delivery>,
    /// Stored pieces that cannot be read.
    pub(crate) unreadable: usize,
}

impl Loop {
    /// A loop that knows what the newest records of the past tell.
    pub(crate) fn warmed(
        around: Surroundings,
        (make, series): (BrainMaker, SeriesMaker),
        tick: Duration,
        beginning: &Beginning,
    ) -> Loop {
        let begun = Instant::now();
        let parts = Parts {
            make,
            tick_ns: nanos(tick),
            book: Arc::clone(&around.book),
            named: Arc::clone(&around.stats.named),
            series,
            stopwatch: Some((around.stopwatch)()),
            is_live: true,
        };
        let mut warm = Loop {
            around,
            core: Core::new(parts),
            reports: BTreeMap::new(),
            heard: BTreeMap::new(),
            drops: Lately::default(),
            limits: Lately::default(),
            lag_ns: 0,
            silent: BTreeSet::new(),
        };
        if beginning.unreadable > 0 {
            let unreadable = beginning.unreadable;
            warn!(unreadable, "{unreadable} stored pieces cannot be read and were passed over");
        }
        let past = beginning.past.iter();
        past.for_each(|delivery| warm.around.stats.fleet.take(delivery.arrives_at, &delivery.batch));
        warm.core.start(beginning.at, &beginning.past);
        warm.tell_all();
        if !beginning.past.is_empty() {
            warm.publish();
            let (batches, spent) = (beginning.past.len(), begun.elapsed());
            info!(batches, "warmed up with {batches} stored batches in {} ms", spent.as_millis());
        }
        warm
    }

    /// Runs until the inbox is closed and drained.
    pub(crate) fn run(mut self) {
        loop {
            self.let_go_lost();
            match self.around.inbox.next(self.deadline(), &self.around.clock) {
                Event::Batch(at, batch) => self.take_all(at, batch),
                Event::Lost(source, records) => self.take_loss(source, records),
                Event::Command(Command::Report { job, reply }) => {
                    // Nobody waits any more when the reader went away: then the answer is not needed.
                    let _ = reply.send(self.report(&job));
                }
                Event::Command(Command::Series { job, what, from, to, reply }) => {
                    let told = self.core.jobs().get(&job).map(|job| SeriesTold::of(job.series(), what, from, to));
                    let _ = reply.send(told.map(Box::new));
                }
                Event::Command(Command::Operations { job, wanted, reply }) => {
                    let now = (self.around.clock)().max(self.core.now());
                    let _ = reply.send(self.core.operations(&job, &wanted, now).map(Box::new));
                }
                Event::Command(Command::Join(joining)) => {
                    self.core.join(*joining.core);
                    let _ = joining.reply.send(());
                }
                Event::Command(Command::LetGo { part, reply }) => {
                    self.around.held.lose(part);
                    let _ = reply.send(self.let_go());
                }
                Event::Due(now) => self.core.advance(now),
                Event::Closed => break,
            }
            self.tell_all();
        }
        let at = (self.around.clock)().max(self.core.now());
        self.core.stop(at);
        self.tell_all();
        self.save_series();
        if let Some(storage) = &self.around.storage {
            storage.stopped(at);
        }
        self.publish();
    }

    /// When something is due next.
    fn deadline(&self) -> Instant {
        let left = self.core.next().since_ns((self.around.clock)());
        Instant::now() + Duration::from_nanos(left).min(SLEEP_MAX)
    }

    /// Takes in a batch, and some of those that wait behind it.
    fn take_all(&mut self, at: HostTime, first: Arc<Batch>) {
        self.take(at, &first);
        for (at, batch) in self.around.inbox.more(TOGETHER_BATCHES - 1, TOGETHER_RECORDS) {
            self.take(at, &batch);
        }
    }

    /// Takes in one batch.
    fn take(&mut self, at: HostTime, batch: &Batch) {
        if !self.around.held.may_judge(&batch.source.job) {
            return;
        }
        let now = (self.around.clock)();
        let stats = &self.around.stats;
        add(&stats.batches, 1);
        add(&stats.records, batch.records.len() as u64);
        stats.clocks.take(batch);
        stats.fleet.take(at, batch);
        let collected_at = stats.clocks.server_time(&batch.source.host, batch.collected_at);
        self.lag_ns = self.lag_ns.max(now.since_ns(collected_at));
        if self.heard.len() < HOSTS_MAX || self.heard.contains_key(&batch.source.host) {
            self.heard.insert(batch.source.host.clone(), now);
        }
        self.core.deliver(at, batch);
    }

    /// The inbox dropped records: the engine is told, so that it does not read silence as a stall.
    fn take_loss(&mut self, source: Source, records: u64) {
        let now = (self.around.clock)().max(self.core.now());
        let gap = Record::Gap(Gap { noticed_at: now, lost: records, cause: GapCause::ServerDropped });
        let told = Batch { source, collected_at: now, records: vec![gap] };
        // A replay of the store must not read the silence as a stall either.
        if let Some(storage) = &self.around.storage
            && !storage.say(now, &told)
        {
            add(&self.around.stats.dropped_store, 1);
        }
        self.around.stats.fleet.lost(now, &told.source, records);
        self.core.lost(now, &told, records);
    }

    /// Tells what came of the last events.
    fn tell_all(&mut self) {
        let (mut is_fresh, mut is_tick, mut refused) = (false, false, 0);
        for told in self.core.take_told() {
            let stats = &self.around.stats;
            match told {
                Told::Began(name) => {
                    info!(job = %name, "job {name:?} appeared");
                    is_fresh = true;
                }
                Told::Refused(records) => {
                    refused += records;
                    let text = format!(
                        "{JOBS_MAX} jobs are being diagnosed, records of further ones are only stored: \
                         give each cluster its own server, or check for agents that invent job names"
                    );
                    self.problem("jobs", Some(text));
                }
                Told::NotKept(records) => add(&stats.dropped_limits, records),
                Told::Retired(name, _) => {
                    self.reports.remove(&name);
                    info!(job = %name, "job {name:?} is retired: no records for a long time");
                }
                Told::Failed { job, why, on_stored } => {
                    add(&stats.engine_panics, 1);
                    let on = if on_stored { " on its stored records" } else { "" };
                    error!(job = %job, error = why, "diagnosis of job {job:?} failed{on}: {why}");
                    self.reports.remove(&job);
                }
                Told::Asked { took, .. } => stats.ticked(took),
                // The lease ended while it was weighed.
                Told::Case(_, _, case) if !self.around.held.may_judge(&case.job) => {}
                Told::Case(at, change, case) => {
                    if change == Change::Opened {
                        stats.case_opened(&case.job, &case.case.finding);
                    }
                    self.reports.remove(&case.job);
                    self.tell(at, change, *case);
                }
                Told::Ticked => is_tick = true,
            }
        }
        if is_tick {
            self.look_around();
        }
        if is_tick || is_fresh {
            self.publish();
        }
        // After the jobs: whoever sees that there were too many sees all that there are.
        add(&self.around.stats.dropped_jobs, refused);
    }

    /// After a regular tick.
    fn look_around(&mut self) {
        self.save_series();
        if self.core.jobs().len() < JOBS_MAX {
            self.problem("jobs", None);
        }
        self.look_for_drops();
        self.count_hosts();
        self.unsilence();
    }

    /// Log, disk, webhook.
    fn tell(&self, at: HostTime, change: Change, case: BookedCase) {
        if let Some(storage) = &self.around.storage {
            storage.cases_changed(at);
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
        // The engine's case has neither captures nor what tests and people said.
        let case = self.around.book.get(number).unwrap_or(case);
        // That it is over is told in any case: an incident that somebody else keeps open would stay.
        if let Some(alerts) = &self.around.alerts
            && (change == Change::Closed || !case.is_silent(at))
        {
            alerts.post(change, case);
        }
    }

    /// Tells of cases that are open when the time is over in which nobody was to be told.
    fn unsilence(&mut self) {
        let silent = self.around.book.silent((self.around.clock)());
        for number in std::mem::replace(&mut self.silent, silent.clone()).difference(&silent) {
            let Some(case) = self.around.book.get(*number).filter(BookedCase::is_open) else { continue };
            self.around.book.feed().add(Change::Unsilenced, &case);
            if let Some(alerts) = &self.around.alerts {
                alerts.post(Change::Unsilenced, case);
            }
        }
    }

    /// Hands what of series is over to the thread that writes.
    fn save_series(&mut self) {
        let unsaved = self.core.unsaved();
        if let Some(storage) = self.around.storage.as_ref().filter(|_| !unsaved.is_empty()) {
            storage.bell.save(unsaved);
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
        self.around.stats.fleet.forget(now);
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
        let sums = self.core.jobs().values().map(|job| job.series().sums.clone()).collect();
        self.around.stats.publish(self.core.jobs().iter().map(json).collect(), sums);
    }

    fn report(&mut self, name: &JobName) -> Option<Arc<Report>> {
        let now = (self.around.clock)();
        if let Some((report, fresh_ns)) = self.reports.get(name)
            && now.since_ns(report.as_of) < *fresh_ns
            && report.as_of <= now
        {
            return Some(Arc::clone(report));
        }
        let begun = Instant::now();
        let report = self.core.report(name, now).map(Arc::new)?;
        self.reports.insert(name.clone(), (Arc::clone(&report), fresh_ns(begun.elapsed())));
        Some(report)
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

/// For how long a report is fresh that took so long to make, nanoseconds.
fn fresh_ns(took: Duration) -> u64 {
    nanos(took).saturating_mul(REPORT_FRESH_TIMES).clamp(REPORT_FRESH_NS, REPORT_FRESH_NS_MAX)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_fresh_for_as_long_as_it_is_dear() {
        let fresh_ms = |took_ms| fresh_ns(Duration::from_millis(took_ms)) / NANOS_PER_MS;
        assert_eq!([0, 2, 10, 20, 5_000].map(fresh_ms), [100, 100, 500, 1_000, 1_000]);
    }
}
