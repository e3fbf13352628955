//! `gpu-hang`: one rank's device stops for good: computing, between kernels, or in a kernel that talks to another host.
use super::site::{Guard, Site};
use crate::error::TestbedError;
use mycroft_sim::Fault;
use std::sync::atomic::Ordering::Relaxed;

/// The rank's device threads stop. A device does not come back, so there is nothing to undo.
pub(super) fn inject(fault: &Fault, site: &Site) -> Result<Guard, TestbedError> {
    site.rank(fault).device_stop.store(1, Relaxed);
    Ok(Guard::permanent())
}
