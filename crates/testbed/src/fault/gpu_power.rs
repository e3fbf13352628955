//! `gpu-power` (Mycroft section 7.1 #4): one rank's device computes slower.
use super::site::{Guard, Site, milli};
use crate::error::TestbedError;
use mycroft_sim::Fault;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The rank's compute kernels last longer.
pub(super) fn inject(fault: &Fault, site: &Site) -> Result<Guard, TestbedError> {
    let rank = site.culprit(fault) as usize;
    site.rank(fault).compute_scale_milli.store(milli(fault.severity()), Relaxed);
    let control = Arc::clone(&site.control);
    Ok(Guard::new(move || control.rank(rank).compute_scale_milli.store(milli(1.0), Relaxed)))
}
