//! Where a fault acts, and the guard that undoes it.
use crate::hosts::Hosts;
use mycroft_sim::{Fault, Scenario};
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
    pub(super) fn host(&self, fault: &Fault) -> &HostRecord {
        self.control.host(fault.host as usize)
    }

    /// The culprit rank. Faults of one rank have one; a fault of a host counts as its first rank.
    pub(super) fn culprit(&self, fault: &Fault) -> u32 {
        let first = fault.host * self.scenario.ranks_per_host;
        fault.culprit_ranks(&self.scenario).first().copied().unwrap_or(first)
    }

    /// The control record of the culprit rank.
    pub(super) fn rank(&self, fault: &Fault) -> &RankRecord {
        self.control.rank(self.culprit(fault) as usize)
    }
}

/// An active fault. Dropping it undoes the fault, except that a killed process stays dead.
#[must_use = "a fault lasts as long as its guard"]
pub struct Guard {
    undo: Option<Box<dyn FnOnce() + Send>>,
}

impl Guard {
    pub(super) fn new(undo: impl FnOnce() + Send + 'static) -> Guard {
        Guard { undo: Some(Box::new(undo)) }
    }

    /// For what cannot be undone.
    pub(super) fn permanent() -> Guard {
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

/// A severity as thousandths of the healthy value, for `compute_scale_milli`.
pub(super) fn milli(severity: f64) -> u64 {
    (severity * 1000.0).round() as u64
}
