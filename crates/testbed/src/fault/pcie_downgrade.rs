//! `pcie-downgrade` (Mycroft section 7.1 #3): one rank copies slowly between device memory and the transport's slots.
use super::site::{Guard, Site};
use crate::error::TestbedError;
use mycroft_sim::Fault;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Copy speed that a severity of 1 stands for, bytes per second: about what the emulated device's copies of a busy
/// 16-rank job reach on two cores, so that smaller severities would not show.
const NOMINAL_BYTES_PER_SEC: f64 = 64_000_000.0;

/// The device's copies into the slots run at a set speed.
pub(super) fn inject(fault: &Fault, site: &Site) -> Result<Guard, TestbedError> {
    let rank = site.culprit(fault) as usize;
    let speed = ((NOMINAL_BYTES_PER_SEC / fault.severity()) as u64).max(1);
    site.rank(fault).copy_bytes_per_sec.store(speed, Relaxed);
    let control = Arc::clone(&site.control);
    Ok(Guard::new(move || control.rank(rank).copy_bytes_per_sec.store(0, Relaxed)))
}
