//! Replay: batches through the brain at full speed, with the time at which each arrives for a clock. Recorded stores,
//! exported files and simulated jobs all take this way.
use crate::schedule::{Due, Schedule};
use mycroft_diagnose::{CaseEvent, Config, Engine, Report};
use mycroft_record::{Batch, HostTime, JobName, NANOS_PER_SEC};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Time after the last batch that is still weighed: long enough for any stall to be declared.
pub const TAIL: Duration = Duration::from_secs(3);
/// Longest stretch without a batch that is ticked through; the clock then jumps to the next one. As long as a job may be
/// silent before a server retires it: whatever a silence shows has shown by then. One batch of a clock that is two hundred
/// years wrong would otherwise take as many ticks.
const SILENCE_NS: u64 = 15 * 60 * NANOS_PER_SEC;
/// Moments kept per job: a case opens, is strengthened a few times and closes, a thousand times over. 100 B each.
const MOMENTS_MAX: usize = 10_000;

/// Feeds `batches` to one engine per job in the order they were collected, ticking as the server would (every `tick`
/// and whenever an engine says that something becomes due), and gives each job's last report. The same batches give
/// the same reports, byte for byte, in whatever order they are given.
pub fn replay(mut batches: Vec<Batch>, tick: Duration) -> BTreeMap<JobName, Report> {
    batches.sort_by(|a, b| (a.collected_at, &a.source).cmp(&(b.collected_at, &b.source)));
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

/// What came of one job.
#[derive(Clone, PartialEq, Debug)]
pub struct Played {
    /// The last report, as of the last batch of all jobs.
    pub report: Report,
    /// What ticks said of cases, in order; the first 10,000.
    pub moments: Vec<Moment>,
    /// Times the brain was asked.
    pub ticks: u64,
    /// The longest of them by the caller's stopwatch; zero without one.
    pub slowest_tick: Duration,
}

/// Reads a monotonic clock: time since any fixed moment.
pub type Stopwatch = Box<dyn FnMut() -> Duration + Send>;

/// A replay in progress: one engine per job and the recorded time. Batches are not kept.
pub struct Player {
    jobs: BTreeMap<JobName, Job>,
    /// Begins with the first batch.
    schedule: Option<Schedule>,
    tick_ns: u64,
    /// When the newest batch arrived.
    last: HostTime,
    stopwatch: Option<Stopwatch>,
}

impl fmt::Debug for Player {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Player").field("jobs", &self.jobs.len()).field("last", &self.last).finish_non_exhaustive()
    }
}

impl Player {
    /// A player that ticks every `tick` of recorded time (a nanosecond at least).
    pub fn new(tick: Duration) -> Player {
        let tick_ns = nanos(tick);
        Player { jobs: BTreeMap::new(), schedule: None, tick_ns, last: HostTime::NONE, stopwatch: None }
    }

    /// Times each tick: the brain itself reads no clock.
    #[must_use]
    pub fn with_stopwatch(mut self, stopwatch: Stopwatch) -> Player {
        self.stopwatch = Some(stopwatch);
        self
    }

    /// A batch reaches the brain, after everything that is due before. Batches come in the order of arrival; one that
    /// is said to arrive before its predecessor arrives with it.
    pub fn deliver(&mut self, arrives_at: HostTime, batch: &Batch) {
        let arrives_at = arrives_at.max(self.last);
        let silent_until = self.last + SILENCE_NS;
        self.last = arrives_at;
        let tick_ns = self.tick_ns;
        let schedule = self.schedule.get_or_insert_with(|| Schedule::new(arrives_at, tick_ns));
        if arrives_at <= silent_until {
            self.advance(arrives_at);
        } else if schedule.next() <= arrives_at {
            self.advance(silent_until);
            self.schedule = Some(Schedule::new(arrives_at, tick_ns));
        }
        let name = &batch.source.job;
        if !self.jobs.contains_key(name) {
            self.jobs.insert(name.clone(), Job::new(name));
        }
        if let Some(job) = self.jobs.get_mut(name) {
            job.engine.observe(batch);
        }
    }

    /// Recorded time of the newest batch; `NONE` before the first.
    pub fn now(&self) -> HostTime {
        self.last
    }

    /// Weighs another `tail` of silence and gives what came of each job. Reports are as of the newest batch.
    pub fn finish(mut self, tail: Duration) -> BTreeMap<JobName, Played> {
        let last = self.last;
        self.advance(last + nanos(tail));
        let played = |(name, job): (JobName, Job)| {
            let Job { engine, moments, ticks, slowest_tick } = job;
            (name, Played { report: engine.report(last), moments, ticks, slowest_tick })
        };
        self.jobs.into_iter().map(played).collect()
    }

    /// Asks everybody who is due up to `until`.
    fn advance(&mut self, until: HostTime) {
        let Some(schedule) = &mut self.schedule else { return };
        while schedule.next() <= until {
            let at = schedule.next();
            let due = schedule.due(at);
            for (name, job) in &mut self.jobs {
                if let Due::Some(names) = &due
                    && !names.contains(name)
                {
                    continue;
                }
                job.tick(at, &mut self.stopwatch);
                schedule.asked(name, at, job.engine.next_check(at));
            }
        }
    }
}

/// One job: its engine and what it said.
struct Job {
    engine: Engine,
    moments: Vec<Moment>,
    ticks: u64,
    slowest_tick: Duration,
}

impl Job {
    fn new(name: &JobName) -> Job {
        let engine = Engine::new(name.clone(), Config::default());
        Job { engine, moments: Vec::new(), ticks: 0, slowest_tick: Duration::ZERO }
    }

    fn tick(&mut self, at: HostTime, stopwatch: &mut Option<Stopwatch>) {
        let mut read = || stopwatch.as_mut().map_or(Duration::ZERO, |stopwatch| stopwatch());
        let began = read();
        let events = self.engine.tick(at);
        let took = read().saturating_sub(began);
        self.ticks += 1;
        self.slowest_tick = self.slowest_tick.max(took);
        let room = MOMENTS_MAX.saturating_sub(self.moments.len());
        self.moments.extend(events.into_iter().take(room).map(|event| Moment { at, event, took }));
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::{Record, Source, StepMark};

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
