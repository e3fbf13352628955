//! The brain: records in, cases out. Pure and deterministic (design invariant 1): time is an argument, the same batches
//! in the same order give the same report, byte for byte. It reads no clock, file, socket or environment variable.
//!
//! ```text
//! Batch -> timeline -> watch (is something wrong?) -> blame (who started it?) -> fact -> case -> report
//! ```
//!
//! `docs/papers/mycroft.md` says what each room took from the paper; `//= mycroft 4.3` marks the line that does it.
#![forbid(unsafe_code)]

pub mod case;
pub mod config;
pub mod report;

pub use case::{BlastEntry, Case, CaseEvent, CaseId, CaseState, Evidence, Reason};
pub use config::Config;
pub use report::{Caveat, RankSummary, Report, Threshold, render};

use mycroft_record::{Batch, HostTime, JobName};

/// The always-on diagnosis of one job.
#[derive(Debug)]
pub struct Engine {
    job: JobName,
    config: Config,
    cases: Vec<Case>,
}

impl Engine {
    /// An engine that has seen nothing of `job` yet.
    pub fn new(job: JobName, config: Config) -> Engine {
        Engine { job, config, cases: Vec::new() }
    }

    /// Takes in the records of one source. Batches of one source come in order; across sources any order will do.
    pub fn observe(&mut self, _batch: &Batch) {}

    /// Weighs everything known at `now` (the server's clock) and says what changed about the cases.
    pub fn tick(&mut self, _now: HostTime) -> Vec<CaseEvent> {
        Vec::new()
    }

    /// The earliest time at which a tick could find something new although no record arrives; `None`: the regular
    /// tick will do.
    pub fn next_check(&self, _now: HostTime) -> Option<HostTime> {
        None
    }

    /// What is known at `now`, as an immutable snapshot.
    pub fn report(&self, now: HostTime) -> Report {
        Report {
            job: self.job.clone(),
            as_of: now,
            cases: self.cases.clone(),
            transients: Vec::new(),
            caveats: Vec::new(),
            ranks: Vec::new(),
            iteration_ms_median: None,
            iterations: 0,
            thresholds: Vec::new(),
        }
    }

    /// Every case of the job, oldest first, open and closed; pauses that proved transient are not cases.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// The configuration in use.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
