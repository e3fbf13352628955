//! Replay: batches through the brain at full speed, with the time at which each arrives for a clock. Recorded stores,
//! exported files and simulated jobs all take this way, through the same core as a live server.
mod series;

use crate::api::SeriesJson;
use crate::book::{CaseBook, Change as Said, Filter};
use crate::case::BookedCase;
use crate::core::{Core, Parts, Told};
use crate::series::{JobSeries, KeptSeries};
use crate::warm::recent;
use mycroft_diagnose::{Case, CaseEvent, CaseId, Config, Engine, Report};
use mycroft_record::{Batch, HostTime, JobName};
use mycroft_store::runs::{Happening, before};
use mycroft_store::{Delivery, StoreAt, StoreError};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use crate::core::Stopwatch;
pub use crate::warm::WARM_NS;

/// Time after the last batch that is still weighed: long enough for any stall to be declared.
pub const TAIL: Duration = Duration::from_secs(3);
/// Moments kept per job: a case opens, is strengthened a few times and closes, a thousand times over. 100 B each.
const MOMENTS_MAX: usize = 10_000;

/// Feeds `batches` to one engine per job in the order they were collected, ticking as the server would (every `tick`
/// and whenever an engine says that something becomes due), and gives each job's last report. The same batches give
/// the same reports, byte for byte, in whatever order they are given.
pub fn replay(mut batches: Vec<Batch>, tick: Duration) -> BTreeMap<JobName, Report> {
    mycroft_record::batch::sort_as_collected(&mut batches);
    let mut player = Player::new(tick);
    for batch in &batches {
        player.deliver(batch.collected_at, batch);
    }
    player.finish(TAIL).into_iter().map(|(name, played)| (name, played.report)).collect()
}

/// Something that a tick said of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// Recorded time of the tick.
    pub at: HostTime,
    /// What it said.
    pub event: CaseEvent,
    /// How long that tick took of the caller's stopwatch; zero without one.
    pub took: Duration,
}

/// A case as it was told of when it was opened, settled, revised or closed.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// When, by the recorded clock.
    pub at: HostTime,
    /// `opened`, `settled`, `revised` or `closed`.
    pub word: &'static str,
    /// What it said then.
    pub case: BookedCase,
}

/// What came of one job.
#[derive(Clone, PartialEq, Debug)]
pub struct Played {
    /// The last report, with the cases of all engines that the job had; as of the last batch of all jobs, or of the last
    /// of this one where the job was gone before.
    pub report: Report,
    /// Its cases, oldest first, withdrawn ones left out.
    pub cases: Vec<BookedCase>,
    /// What ticks said of cases, in order; the first 10,000.
    pub moments: Vec<Moment>,
    /// Times the brain was asked.
    pub ticks: u64,
    /// The longest of them by the caller's stopwatch; zero without one.
    pub slowest_tick: Duration,
    /// Its series; `None`: they are not wanted ([`Player::with_series`]).
    pub series: Option<SeriesJson>,
}

/// What is told of a job while it is played.
#[derive(Default)]
struct Story {
    /// The last report of an engine that is gone.
    report: Option<Box<Report>>,
    moments: Vec<Moment>,
    ticks: u64,
    slowest_tick: Duration,
}

/// A replay in progress: the core of a server and the recorded time. Batches are not kept.
pub struct Player {
    core: Option<Core>,
    parts: Option<Parts>,
    book: Arc<CaseBook>,
    stories: BTreeMap<JobName, Story>,
    /// What was told of cases and not taken yet.
    changes: Vec<Change>,
    /// Series of before; `None`: they are not wanted.
    kept: Option<Arc<KeptSeries>>,
    /// When the newest batch arrived.
    last: HostTime,
    /// A server that has stopped weighs nothing more.
    has_stopped: bool,
}

impl fmt::Debug for Player {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Player").field("jobs", &self.stories.len()).field("last", &self.last).finish_non_exhaustive()
    }
}

impl Player {
    /// A player that ticks every `tick` of recorded time (a nanosecond at least).
    pub fn new(tick: Duration) -> Player {
        let book = Arc::new(CaseBook::reopen(Vec::new(), 0));
        let parts = Parts {
            make: Arc::new(|job| Box::new(Engine::new(job.clone(), Config::default()))),
            tick_ns: u64::try_from(tick.as_nanos()).unwrap_or(u64::MAX),
            book: Arc::clone(&book),
            named: Arc::default(),
            series: Arc::new(|_| JobSeries::default()),
            stopwatch: None,
            is_live: false,
        };
        Player {
            core: None,
            parts: Some(parts),
            book,
            stories: BTreeMap::new(),
            changes: Vec::new(),
            kept: None,
            last: HostTime::NONE,
            has_stopped: false,
        }
    }

    /// Times each tick: the brain itself reads no clock.
    #[must_use]
    pub fn with_stopwatch(mut self, stopwatch: Stopwatch) -> Player {
        if let Some(parts) = &mut self.parts {
            parts.stopwatch = Some(stopwatch);
        }
        self
    }

    /// What happened to the servers of a store's folder: starts, deliveries and stops, in their order; of one job only,
    /// or of all.
    ///
    /// # Errors
    /// When the store cannot be listed again for what arrived before a start.
    pub fn happened(&mut self, store: &StoreAt, happening: &Happening, job: Option<&str>) -> Result<(), StoreError> {
        let is_wanted = |batch: &Batch| job.is_none_or(|job| job == &*batch.source.job);
        match happening {
            Happening::Started(run) => {
                let past = before(store, run, run.at - WARM_NS)?;
                let past = past.filter(|one| one.as_ref().map_or(true, |delivery| is_wanted(&delivery.batch)));
                self.start(run.at, run.next_case, past);
            }
            Happening::Delivered(delivery) if !is_wanted(&delivery.batch) => {}
            Happening::Delivered(delivery) => self.deliver(delivery.arrives_at, &delivery.batch),
            Happening::ToldUntil(at) => self.told_until(*at),
            Happening::Stopped(at) => self.stop(*at),
        }
        Ok(())
    }

    /// The server starts at `at`, after an earlier one stopped or ended without a word: fresh engines, and of what is
    /// stored (`past`, in the order of arrival) the newest as it arrived. Cases get numbers from `next_case` on.
    pub fn start(&mut self, at: HostTime, next_case: u64, past: impl Iterator<Item = Result<Delivery, StoreError>>) {
        self.keep_reports();
        self.book.go_on_at(next_case);
        let (past, _) = recent(past, at);
        (self.last, self.has_stopped) = (at, false);
        if let Some(core) = self.core_begun(at) {
            core.start(at, &past);
        }
        self.listen();
    }

    /// What the server told until `at` is told: it ended without a word after that.
    pub fn told_until(&mut self, at: HostTime) {
        if let Some(core) = &mut self.core
            && at > core.now()
        {
            core.advance(at);
        }
        self.listen();
    }

    /// The server stops at `at`: it weighs everything once more and nothing after that.
    pub fn stop(&mut self, at: HostTime) {
        if let Some(core) = &mut self.core {
            core.stop(at.max(core.now()));
            self.has_stopped = true;
        }
        self.listen();
    }

    /// A batch reaches the brain, after everything that is due before. Batches come in the order of arrival; one that
    /// is said to arrive before its predecessor arrives with it.
    pub fn deliver(&mut self, arrives_at: HostTime, batch: &Batch) {
        let arrives_at = arrives_at.max(self.last);
        self.last = arrives_at;
        if let Some(core) = self.core_begun(arrives_at) {
            core.deliver(arrives_at, batch);
        }
        self.listen();
    }

    /// Recorded time of the newest batch; `NONE` before the first.
    pub fn now(&self) -> HostTime {
        self.last
    }

    /// What was told of cases since the last call, in order; the first 10,000.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Weighs another `tail` of silence, unless the server has stopped, and gives what came of each job. Reports are as of
    /// the newest batch.
    pub fn finish(mut self, tail: Duration) -> BTreeMap<JobName, Played> {
        if let Some(core) = self.core.as_mut().filter(|_| !self.has_stopped) {
            let until = self.last + u64::try_from(tail.as_nanos()).unwrap_or(u64::MAX);
            core.advance(until.max(core.now()));
        }
        self.listen();
        self.keep_reports();
        let mut series = self.series();
        let mut played = BTreeMap::new();
        for (name, story) in std::mem::take(&mut self.stories) {
            let series = series.remove(&name);
            played.extend(self.played(&name, story).map(|played| (name, Played { series, ..played })));
        }
        played
    }

    /// The core, which begins at `at` where nobody said when the server started.
    fn core_begun(&mut self, at: HostTime) -> Option<&mut Core> {
        if let Some(parts) = self.parts.take() {
            let mut core = Core::new(parts);
            core.start(at, &[]);
            self.core = Some(core);
        }
        self.core.as_mut()
    }

    /// Keeps the last reports of engines that go, and what of series is over.
    fn keep_reports(&mut self) {
        self.keep_series();
        let Some(core) = &mut self.core else { return };
        let names: Vec<JobName> = core.jobs().keys().cloned().collect();
        for name in names {
            let report = core.report(&name, self.last).map(Box::new);
            self.stories.entry(name).or_default().report = report;
        }
    }

    fn listen(&mut self) {
        let Some(core) = &mut self.core else { return };
        let told = core.take_told();
        if told.iter().any(|told| matches!(told, Told::Ticked)) {
            self.keep_series();
        }
        for told in told {
            match told {
                Told::Began(name) => drop(self.stories.entry(name).or_default()),
                Told::Retired(name, report) => self.stories.entry(name).or_default().report = report,
                Told::Asked { job, at, took, events } => {
                    let story = self.stories.entry(job).or_default();
                    story.ticks += 1;
                    story.slowest_tick = story.slowest_tick.max(took);
                    let room = MOMENTS_MAX.saturating_sub(story.moments.len());
                    story.moments.extend(events.into_iter().take(room).map(|event| Moment { at, event, took }));
                }
                Told::Case(at, change, case) if change != Said::Updated && self.changes.len() < MOMENTS_MAX => {
                    self.changes.push(Change { at, word: change.word(), case: *case });
                }
                Told::Case(..) => {}
                Told::Refused(_) | Told::NotKept(_) | Told::Failed { .. } | Told::Ticked => {}
            }
        }
    }

    /// What came of a job: its last report, and the cases that its last engine does not know any more.
    fn played(&self, name: &JobName, story: Story) -> Option<Played> {
        let Story { report, moments, ticks, slowest_tick } = story;
        let mut report = *report?;
        let (mut cases, _) = self.book.list(&Filter { job: Some(name.clone()), state: None }, usize::MAX);
        cases.reverse();
        let is_told = |booked: &&BookedCase| report.cases.iter().any(|case| case.id.0 == booked.number);
        let numbered = |booked: &BookedCase| Case { id: CaseId(booked.number), ..booked.case.clone() };
        let earlier: Vec<Case> = cases.iter().filter(|booked| !is_told(booked)).map(numbered).collect();
        report.cases.splice(0..0, earlier);
        Some(Played { report, cases, moments, ticks, slowest_tick, series: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::{NANOS_PER_SEC, Record, Source, StepMark};

    /// One batch of 1970 or 2200 (a wrong clock, in what an older release has kept) must not be ticked through.
    #[test]
    fn the_clock_jumps_over_what_is_longer_than_a_job_may_be_silent() {
        let mut player = Player::new(Duration::from_secs(1));
        let times =
            [1, 1_700_000_000, 1_700_000_001, 7_258_118_400, 7_258_118_401].map(|s| HostTime(s * NANOS_PER_SEC));
        for at in times {
            let mark = Record::StepMark(StepMark { at, step: 1 });
            let source = Source { job: "train".into(), host: "host0".into(), process: None };
            player.deliver(at, &Batch { source, collected_at: at, records: vec![mark] });
        }
        let played = player.finish(TAIL);
        let ticks = played["train"].ticks;
        assert!((2 * 900..2 * 900 + 100).contains(&ticks), "{ticks}");
        assert_eq!(played["train"].report.as_of, times[4]);
    }
}
