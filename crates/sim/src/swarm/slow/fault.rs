//! The fault of a slow scenario: when, what, where, how bad.
use super::cost;
use crate::fault::{Fault, FaultKind, FaultLevel};
use crate::random::Random;
use crate::scenario::Scenario;
use crate::swarm::chance::{between, log_between, pick};

/// Healthy iterations and seconds before an onset.
const BEFORE: (f64, f64) = (25.0, 12.0);
/// Iterations with the fault at its full strength, as they are with it.
const SHOWN_ITERATIONS: (f64, f64) = (30.0, 60.0);
/// The same in seconds.
const SHOWN_S: f64 = 20.0;
/// A ramp, seconds.
const RAMP_S: (f64, f64) = (5.0, 300.0);
/// A ramp is at most so many iterations long: a run is bounded by its records.
const RAMP_ITERATIONS: f64 = 1_000.0;
/// Percent of a host's records that are lost, where some are.
const LOST_PERCENT: (f64, f64) = (0.1, 2.0);
/// Places and kinds that are tried before a scenario stays without a fault.
const TRIES: u32 = 24;

/// One component after the other; several kinds of one are as likely together as one of another.
const COMPONENTS: [&[FaultKind]; 10] = [
    &[FaultKind::GpuPower, FaultKind::GpuThrottling],
    &[FaultKind::BackgroundCompute],
    &[FaultKind::HostIssue, FaultKind::DataWait],
    &[FaultKind::PcieContention],
    &[FaultKind::ProxySlow],
    &[FaultKind::NicBandwidth, FaultKind::NicSend, FaultKind::NicReceive],
    &[FaultKind::NetworkCongestion],
    &[FaultKind::CpuContention],
    &[FaultKind::BackgroundTraffic],
    &[FaultKind::AllDevices, FaultKind::AllNics, FaultKind::SlowStorage, FaultKind::WanderingPauses],
];

/// When a fault begins and how it comes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    iteration_s: f64,
    after_s: f64,
    ramp_s: Option<f64>,
}

/// Draws when a fault of this cost begins, and how long the run is.
pub(super) fn times(scenario: &mut Scenario, chance: &mut Random, iteration_s: f64, cost: f64) -> Times {
    let warm_up = f64::from(scenario.warm_up_iterations) * scenario.warm_up_factor * iteration_s;
    let start = (scenario.life.first_connect_ms + scenario.start_skew_ms as f64) / 1e3 + warm_up;
    let healthy_s = start + f64::max(BEFORE.0 * iteration_s, BEFORE.1) * between(chance, 1.0, 1.3);
    let ramp = log_between(chance, RAMP_S.0, RAMP_S.1).min((RAMP_ITERATIONS * iteration_s).max(RAMP_S.0));
    let (after_s, ramp_s) = match chance.below(10) {
        0..=4 => (healthy_s, None),
        5..=7 => (healthy_s, Some(millis(ramp))),
        _ => (0.0, None),
    };
    let shown = between(chance, SHOWN_ITERATIONS.0, SHOWN_ITERATIONS.1) * iteration_s * (1.0 + cost);
    let from_s = if after_s > 0.0 { after_s } else { start };
    scenario.duration_s = millis(from_s + ramp_s.unwrap_or(0.0) + shown.max(SHOWN_S));
    Times { iteration_s, after_s: millis(after_s), ramp_s }
}

/// Draws a fault of this cost; gives it where one fits the job.
pub(super) fn draw(scenario: &mut Scenario, chance: &mut Random, times: Times, wanted: f64) -> Option<f64> {
    for _ in 0..TRIES {
        let kinds = *pick(chance, &COMPONENTS);
        let kind = *pick(chance, kinds);
        let Some(fault) = place(scenario, chance, kind) else { continue };
        let fault = Fault { after_s: times.after_s, ramp_s: times.ramp_s, ..fault };
        if fault.check(scenario).is_err() {
            continue;
        }
        if let Some(severity) = cost::severity(scenario, &fault, times.iteration_s, wanted) {
            scenario.fault = Some(Fault { severity: Some(severity), ..fault });
            return Some(wanted);
        }
    }
    None
}

fn place(scenario: &Scenario, chance: &mut Random, kind: FaultKind) -> Option<Fault> {
    let host = match kind.level() {
        FaultLevel::All => 0,
        _ => chance.below(u64::from(scenario.hosts)) as u32,
    };
    let mut fault = Fault::new(kind, host);
    match kind.level() {
        FaultLevel::Rank => {
            let per_host = scenario.ranks_per_host;
            fault.rank = Some(host * per_host + chance.below(u64::from(per_host)) as u32);
        }
        FaultLevel::HostPair if kind == FaultKind::BackgroundTraffic => {
            let others = u64::from(scenario.hosts - 1);
            fault.peer_host = Some((host + 1 + chance.below(others) as u32) % scenario.hosts);
        }
        FaultLevel::HostPair => {
            let peers: Vec<u32> = scenario.neighbours(host).into_iter().collect();
            if peers.is_empty() {
                return None;
            }
            fault.peer_host = Some(*pick(chance, &peers));
        }
        _ => {}
    }
    Some(fault)
}

/// Records of a host are lost in one run of four.
pub(super) fn disturb(scenario: &mut Scenario, chance: &mut Random) {
    if chance.below(4) == 0 {
        let host = chance.below(u64::from(scenario.hosts)) as u32;
        let percent = millis(log_between(chance, LOST_PERCENT.0, LOST_PERCENT.1));
        let loss = Fault { severity: Some(percent), after_s: 0.0, ..Fault::new(FaultKind::RecordLoss, host) };
        scenario.faults.push(loss);
    }
}

/// Three digits are enough and read better.
fn millis(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
