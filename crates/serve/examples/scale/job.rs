//! The job that is measured: a dense model at any number of ranks.
use mycroft_sim::{Fabric, FaultKind, Scenario};

/// Ranks of a host and of a tensor group.
const TENSOR: u32 = 8;
/// Stages of the pipeline.
const STAGES: u32 = 8;
/// When the fault begins: after eight iterations, from which the brain learns what is usual.
const FAULT_S: f64 = 18.0;

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// A device stops for good.
    Stall,
    /// A device computes at two fifths of its speed.
    Slow,
}

impl Fault {
    /// The fault by its word.
    pub(crate) fn of(word: &str) -> Fault {
        match word {
            "none" => Fault::None,
            "stall" => Fault::Stall,
            "slow" => Fault::Slow,
            other => panic!("`{other}` is no fault: none, stall or slow"),
        }
    }
}

/// Who is to be named.
pub(crate) fn culprit(ranks: u32) -> u32 {
    ranks / 2 + 3
}

/// TP 8 inside a host, 8 pipeline stages, the rest data parallel; an iteration of 2 s with 8 all-reduces, 16 messages (8 at
/// the ends of the pipeline), a reduce-scatter and an all-gather a rank. Eight NICs of 400 Gb/s a host.
pub(crate) fn scenario(ranks: u32, fault: Fault, seconds: u32) -> Scenario {
    assert!(ranks.is_multiple_of(TENSOR * STAGES), "ranks must be a multiple of {}", TENSOR * STAGES);
    let mut scenario = Scenario {
        name: "scale".to_owned(),
        hosts: ranks / TENSOR,
        ranks_per_host: TENSOR,
        tp: TENSOR,
        pp: STAGES,
        dp: ranks / TENSOR / STAGES,
        micro_batches: 4,
        layers: 1,
        forward_ms: 60.0,
        backward_ms: 120.0,
        optimizer_ms: 20.0,
        tp_bytes: 64 << 20,
        pp_bytes: 16 << 20,
        dp_bytes: 1 << 30,
        loss_every: 0,
        warm_up_iterations: 1,
        warm_up_factor: 1.0,
        nic_bytes_per_sec: 50_000_000_000,
        duration_s: f64::from(seconds),
        ..Scenario::default()
    };
    scenario.cluster.nics_per_host = 8;
    scenario.cluster.fabric = Fabric::Rail;
    scenario.cluster.copy_bytes_per_sec = 1_000_000_000_000;
    scenario.cluster.nvlink_bytes_per_sec = 450_000_000_000;
    scenario.cluster.clock_offset_us = 2_000.0;
    let host = culprit(ranks) / TENSOR;
    scenario.fault = match fault {
        Fault::None => None,
        Fault::Stall => Some(mycroft_sim::Fault::new(FaultKind::GpuHang, host)),
        Fault::Slow => {
            Some(mycroft_sim::Fault { severity: Some(2.5), ..mycroft_sim::Fault::new(FaultKind::GpuPower, host) })
        }
    };
    if let Some(fault) = &mut scenario.fault {
        (fault.rank, fault.after_s) = (Some(culprit(ranks)), FAULT_S);
    }
    scenario.check().unwrap_or_else(|why| panic!("{why}"));
    scenario
}
