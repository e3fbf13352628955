//! `rank-stuck`: one rank's main thread never issues its next collective (a lock, a data loader, a slow file system).
use super::{Guard, Site};
use crate::error::TestbedError;
use mycroft_sim::Fault;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The rank's next collective call does not return until the fault is undone.
pub(super) fn inject(fault: &Fault, site: &Site) -> Result<Guard, TestbedError> {
    let rank = site.culprit(fault) as usize;
    site.rank(fault).main_stop.store(1, Relaxed);
    let control = Arc::clone(&site.control);
    Ok(Guard::new(move || control.rank(rank).main_stop.store(0, Relaxed)))
}
