//! `proxy-delay` (Mycroft section 7.1 #7): the proxy thread sleeps one second with a small probability per step.
use super::site::{Guard, Site};
use crate::error::TestbedError;
use mycroft_sim::Fault;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// How long the proxy sleeps, milliseconds, as in the paper.
const SLEEP_MS: u64 = 1000;
/// Parts per million in a percent. The paper's probability is 1e-6 with the step counts of GPT on 100 Gb/s NICs; a
/// rank here sends some tens of steps in an iteration, so percents give a comparable number of sleeps.
const PPM_PER_PERCENT: f64 = 10_000.0;

/// The rank's proxy thread falls asleep now and then before it sends a step.
pub(super) fn inject(fault: &Fault, site: &Site) -> Result<Guard, TestbedError> {
    let rank = site.culprit(fault) as usize;
    let record = site.rank(fault);
    record.proxy_delay_ms.store(SLEEP_MS, Relaxed);
    record.proxy_delay_ppm.store(((fault.severity() * PPM_PER_PERCENT) as u64).max(1), Relaxed);
    let control = Arc::clone(&site.control);
    Ok(Guard::new(move || control.rank(rank).proxy_delay_ppm.store(0, Relaxed)))
}

/// Whether the proxy has slept at all: until then the job is healthy.
pub(super) fn shows(fault: &Fault, site: &Site) -> bool {
    site.rank(fault).proxy_sleeps.load(Relaxed) > 0
}
