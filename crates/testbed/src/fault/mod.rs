//! Faults: one file for each kind (Mycroft section 7.1, and three more). Injecting gives a guard; dropping the guard
//! undoes what can be undone.
mod background_compute;
mod background_traffic;
mod gpu_hang;
mod gpu_power;
mod nic_bandwidth;
mod nic_down;
mod pcie_downgrade;
mod proxy_delay;
mod rank_crash;
mod rank_stuck;
pub(crate) mod traffic;

use crate::error::TestbedError;
use crate::hosts::Hosts;
use mycroft_sim::{Fault, FaultKind, Scenario};
use mycroft_testbed_nccl::control::{ControlFile, HostRecord, RankRecord};
use std::sync::Arc;

/// Where faults act.
#[derive(Clone, Debug)]
pub struct Site {
    /// The scenario that runs.
    pub scenario: Arc<Scenario>,
    /// The live fault control block of the run's ranks.
    pub control: Arc<ControlFile>,
    /// The hosts.
    pub hosts: Arc<Hosts>,
    /// Process id of each rank.
    pub pids: Arc<Vec<u32>>,
}

impl Site {
    /// The control record of the culprit host.
    fn host(&self, fault: &Fault) -> &HostRecord {
        self.control.host(fault.host as usize)
    }

    /// The culprit rank. Faults of one rank have one; a fault of a host counts as its first rank.
    fn culprit(&self, fault: &Fault) -> u32 {
        let first = fault.host * self.scenario.ranks_per_host;
        fault.culprit_ranks(&self.scenario).first().copied().unwrap_or(first)
    }

    /// The control record of the culprit rank.
    fn rank(&self, fault: &Fault) -> &RankRecord {
        self.control.rank(self.culprit(fault) as usize)
    }
}

/// An active fault. Dropping it undoes the fault, except that a killed process stays dead.
#[must_use = "a fault lasts as long as its guard"]
pub struct Guard {
    undo: Option<Box<dyn FnOnce() + Send>>,
}

impl Guard {
    fn new(undo: impl FnOnce() + Send + 'static) -> Guard {
        Guard { undo: Some(Box::new(undo)) }
    }

    /// For what cannot be undone.
    fn permanent() -> Guard {
        Guard { undo: None }
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("undoable", &self.undo.is_some()).finish()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(undo) = self.undo.take() {
            undo();
        }
    }
}

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
        kind => Err(wrong(format!("only the simulator plays {kind}"))),
    }
}

/// Whether an injected fault has done anything yet.
pub(crate) fn shows(fault: &Fault, site: &Site) -> bool {
    fault.kind != FaultKind::ProxyDelay || proxy_delay::shows(fault, site)
}

/// A severity as thousandths of the healthy value, for `compute_scale_milli`.
fn milli(severity: f64) -> u64 {
    (severity * 1000.0).round() as u64
}
