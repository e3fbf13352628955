//! Faults: one file for each kind (Mycroft section 7.1, and three more). Injecting gives a guard; dropping the guard
//! undoes what can be undone.
mod background_compute;
mod background_traffic;
mod gpu_hang;
mod gpu_power;
mod job_ended;
mod nic_bandwidth;
mod nic_down;
mod pcie_downgrade;
mod proxy_delay;
mod rank_crash;
mod rank_stuck;
mod site;
pub(crate) mod slow_path;
pub(crate) mod traffic;

use crate::error::TestbedError;
use mycroft_sim::{Fault, FaultKind};
pub use site::{Guard, Site};

/// Breaks what `fault` says; it must have passed [`Fault::check`] for the scenario.
///
/// # Errors
/// What the fault needs (a tool, a right, a process) is not there.
pub fn inject(fault: &Fault, site: &Site) -> Result<Guard, TestbedError> {
    let wrong = |message| TestbedError::Fault { fault: fault.to_string(), message };
    fault.check(&site.scenario).map_err(wrong)?;
    match fault.kind {
        FaultKind::NicDown => nic_down::inject(fault, site),
        FaultKind::NicBandwidth => nic_bandwidth::inject(fault, site),
        FaultKind::PcieDowngrade => pcie_downgrade::inject(fault, site),
        FaultKind::GpuPower => gpu_power::inject(fault, site),
        FaultKind::BackgroundCompute => background_compute::inject(fault, site),
        FaultKind::BackgroundTraffic => background_traffic::inject(fault, site),
        FaultKind::ProxyDelay => proxy_delay::inject(fault, site),
        FaultKind::GpuHang => gpu_hang::inject(fault, site),
        FaultKind::RankCrash => rank_crash::inject(fault, site),
        FaultKind::RankStuck => rank_stuck::inject(fault, site),
        FaultKind::JobEnded => job_ended::inject(fault, site),
        kind => Err(wrong(format!("only the simulator plays {kind}"))),
    }
}

/// Whether an injected fault has done anything yet.
pub(crate) fn shows(fault: &Fault, site: &Site) -> bool {
    fault.kind != FaultKind::ProxyDelay || proxy_delay::shows(fault, site)
}
