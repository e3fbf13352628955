//! The brain: records in, cases out. Pure and deterministic (invariant 1): time is an argument, the same batches
//! in the same order give the same report, byte for byte. It reads no clock, file, socket or environment variable.
//!
//! ```text
//! Batch -> clocks (one for all) -> timeline -> watch (is something wrong?) -> blame (who started it?)
//!       -> fact -> case -> report
//! ```
//!
//! `docs/papers/mycroft.md` says what each room took from the paper; `//= mycroft 4.3` marks the line that does it.
#![forbid(unsafe_code)]

mod blame;
pub mod case;
pub mod change;
mod clocks;
pub mod config;
mod evidence;
mod explain;
mod fact;
pub mod flow;
mod life;
mod measure;
mod measured;
mod median;
pub mod mitigate;
pub mod operations;
pub mod render;
pub mod report;
pub mod stacks;
mod timeline;
mod uses;
pub mod validate;
mod watch;

pub use case::{BlastEntry, Case, CaseEvent, CaseId, CaseState, Evidence, Gain, Reason, Said};
pub use config::Config;
pub use life::{Ending, How, Life};
pub use measured::{Carried, Measured, Part, Seat, Spent, Stretch};
pub use render::render;
pub use report::{Caveat, RankSummary, Report, Split, Threshold};
pub use timeline::Parallelism;

use case::docket::{Bench, Docket};
use clocks::{Clocks, Limit};
use life::LIVES_KEPT;
use mycroft_record::{Batch, HostName, HostTime, JobName, Rank};
use timeline::Timeline;
use timeline::ending::Exits;
use watch::Watch;

/// The always-on diagnosis of one job.
#[derive(Debug)]
pub struct Engine {
    job: JobName,
    config: Config,
    clocks: Clocks,
    timeline: Timeline,
    measure: measure::Measure,
    /// For whoever shows where the time goes, until it is taken.
    measured: Measured,
    evidence: evidence::Evidence,
    watch: Watch,
    docket: Docket,
    lives: Vec<Life>,
    /// Looks in which iterations were measured. What communicators are for is told anew when there are twice as many.
    looks: u32,
}

impl Engine {
    /// An engine that has seen nothing of `job` yet.
    pub fn new(job: JobName, config: Config) -> Engine {
        let (clocks, timeline, measure, measured, evidence, watch, docket) = Default::default();
        Engine {
            job,
            config,
            clocks,
            timeline,
            measure,
            measured,
            evidence,
            watch,
            docket,
            lives: Vec::new(),
            looks: 0,
        }
    }

    /// Takes in the records of one source. Batches of one source come in order; across sources any order will do, but that
    /// what a server measured of a host's clock (`ClockOffset`) comes before what it holds for: the times of everything
    /// else are corrected by it here, and nowhere else.
    pub fn observe(&mut self, batch: &Batch) {
        if let Some(error_ns) = self.clocks.take(batch) {
            self.timeline.on_clock(&batch.source.host, error_ns);
        }
        let batch = &self.clocks.correct(batch);
        if self.timeline.begins_anew(batch, self.config.no_data_after_ns) {
            self.begin_anew(batch);
        } else if self.lives.is_empty() {
            self.lives.push(Life { number: 1, began: batch.collected_at, ended: None });
        }
        self.timeline.observe(batch, self.config.pause_stage_us);
    }

    /// The job is started again: those that are gone are forgotten, and with them what was usual.
    fn begin_anew(&mut self, first: &Batch) {
        let ending = self.timeline.replaced(self.docket.has_crash());
        let number = self.lives.last().map_or(0, |life| life.number) + 1;
        if let Some(life) = self.lives.last_mut() {
            life.ended.get_or_insert(ending);
        }
        self.lives.push(Life { number, began: first.collected_at, ended: None });
        if self.lives.len() > LIVES_KEPT {
            self.lives.remove(0);
        }
        self.timeline = self.timeline.anew(first, self.config.no_data_after_ns);
        self.watch = Watch::default();
        self.docket.begin_anew();
        (self.measure, self.evidence, self.looks) = Default::default();
    }

    /// Weighs everything known at `now` (the server's clock) and says what changed about the cases.
    pub fn tick(&mut self, now: HostTime) -> Vec<CaseEvent> {
        self.timeline.settle();
        let (rows, is_other) = self.measure.rows(&self.timeline, self.config.pause_stage_us);
        if is_other {
            self.evidence = evidence::Evidence::default();
        }
        self.evidence.tell(self.docket.usual_until(), self.docket.slowed_by());
        let hosts: Vec<HostName> = self.timeline.ranks.by_slot().iter().map(|state| state.host.clone()).collect();
        rows.iter().for_each(|row| self.evidence.take(&hosts, &self.measure.roles, row));
        if !rows.is_empty() {
            self.measured.add(&self.timeline, &self.measure.roles, &rows);
            self.looks += 1;
            if self.looks.is_power_of_two() {
                self.timeline.comms.learn(&uses::told(&self.timeline));
            }
        }
        let open = self.docket.has_open();
        let seen = self.watch.look(&self.timeline, &self.config, open, self.docket.raised_at(), now);
        let running = seen.crawl.and_then(|until| {
            let (measure, pause_us) = (&self.measure, self.config.pause_stage_us);
            self.timeline.with_running(until, self.config.no_data_after_ns, |timeline| {
                measure.running(timeline, until, pause_us)
            })
        });
        running.iter().for_each(|row| self.evidence.take_running(&hosts, &self.measure.roles, row));
        let (config, watch, docket, seen) = (&self.config, &self.watch, &mut self.docket, &seen);
        let exits = &docket.exits(&self.timeline, now);
        if let Some(life) = self.lives.last_mut() {
            life.ended = if let Exits::Over(ending) = exits { Some(ending.clone()) } else { None };
        }
        let mut events = docket.step(&Bench { timeline: &self.timeline, config, watch, seen, exits, now });
        if (!rows.is_empty() || running.is_some()) && !matches!(exits, Exits::Over(_)) {
            let causes = explain::causes(&self.timeline, config, &self.evidence);
            events.extend(docket.explained(&causes, &self.evidence, now));
        }
        self.docket.with_revised(now, events)
    }

    /// The earliest time at which a tick could find something new; `None`: the regular tick will do. Valid until the
    /// next tick.
    pub fn next_check(&self, now: HostTime) -> Option<HostTime> {
        let (one, other) = (self.watch.next_check(now), self.docket.next_check(&self.timeline, now));
        one.into_iter().chain(other).min()
    }

    /// What is known at `now`, as an immutable snapshot.
    pub fn report(&self, now: HostTime) -> Report {
        let mut report =
            report::make(&self.job, &self.timeline, &self.watch, &self.docket, &self.lives, &self.config, now);
        report.iteration_ms_spread = self.evidence.usual_ms().map(|(_, spread_ms)| spread_ms);
        for rank in &mut report.ranks {
            let slot = self.timeline.ranks.slot(rank.rank);
            rank.computation_ms = slot.and_then(|slot| self.evidence.computation_ms(slot as usize));
        }
        report.caveats.extend(self.clocks.caveats().into_iter().map(|Limit { rule, text, hosts }| {
            let on = |rank: &&RankSummary| hosts.contains(&rank.host);
            let ranks: Vec<Rank> = report.ranks.iter().filter(on).map(|rank| rank.rank).collect();
            Caveat::new(rule, text).about(&ranks)
        }));
        report
    }

    /// What ranks have done lately, and what they are in.
    pub fn operations(&self, wanted: &operations::Wanted) -> operations::Operations {
        operations::look(&self.timeline, wanted)
    }

    /// Every case of the job, oldest first, open and closed; pauses that proved transient are not cases.
    pub fn cases(&self) -> &[Case] {
        &self.docket.cases
    }

    /// The lives of the job, oldest first; the last goes on, or says how it ended. Empty before the first batch.
    pub fn lives(&self) -> &[Life] {
        &self.lives
    }

    /// Where the time of iterations went, as far as it was not taken yet.
    pub fn take_measured(&mut self) -> Measured {
        std::mem::take(&mut self.measured)
    }

    /// The configuration in use.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
