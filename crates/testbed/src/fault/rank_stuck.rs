//! `rank-stuck`: one rank's main thread never issues its next collective (a lock, a data loader, a slow file system).
use super::site::{Guard, Site};
use crate::error::TestbedError;
use mycroft_sim::Fault;
use std::sync::atomic::Ordering::Relaxed;

/// The rank's next collective call never returns, so there is nothing to undo.
pub(super) fn inject(fault: &Fault, site: &Site) -> Result<Guard, TestbedError> {
    site.rank(fault).main_stop.store(1, Relaxed);
    Ok(Guard::permanent())
}
