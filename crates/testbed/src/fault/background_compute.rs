//! `background-compute` (Mycroft section 7.1 #5): other work on the devices of a host; all its ranks compute slower.
use super::site::{Guard, Site, milli};
use crate::error::TestbedError;
use mycroft_sim::Fault;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The compute kernels of all ranks of the host last longer.
pub(super) fn inject(fault: &Fault, site: &Site) -> Result<Guard, TestbedError> {
    let per_host = site.scenario.ranks_per_host;
    let ranks = (fault.host * per_host) as usize..((fault.host + 1) * per_host) as usize;
    for rank in ranks.clone() {
        site.control.rank(rank).compute_scale_milli.store(milli(fault.severity()), Relaxed);
    }
    let control = Arc::clone(&site.control);
    Ok(Guard::new(move || {
        for rank in ranks {
            control.rank(rank).compute_scale_milli.store(milli(1.0), Relaxed);
        }
    }))
}
