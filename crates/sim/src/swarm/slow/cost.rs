//! How severe a fault must be to cost so much, by the simulator's own measure.
use crate::engine::Simulation;
use crate::fault::{Fault, FaultKind};
use crate::iteration::Iteration;
use crate::life::Life;
use crate::scenario::Scenario;

/// A cost is near enough within this share of what is wanted.
const NEAR: f64 = 0.08;
/// Most tries.
const TRIES: u32 = 12;
/// Most that a strength changes from one try to the next.
const LEAP: f64 = 20.0;
/// Iterations by which a cost is measured, the first left out: two rounds of four, since every fourth may average the loss.
/// Chance needs some seconds of them.
const ITERATIONS: (usize, usize) = (9, 65);
/// How long chance needs, seconds: some gusts of congestion.
const CHANCE_S: f64 = 3.0;

/// The same job without all that makes its iterations differ for healthy reasons.
pub(super) fn quiet(scenario: &Scenario, duration_s: f64) -> Scenario {
    let Life { sequence_imbalance, routing_imbalance, last_stage, .. } = scenario.life;
    Scenario {
        life: Life { sequence_imbalance, routing_imbalance, last_stage, ..Life::default() },
        warm_up_iterations: 0,
        start_skew_ms: 0,
        checkpoint_every: 0,
        fault: None,
        faults: Vec::new(),
        duration_s,
        ..scenario.clone()
    }
}

/// The severity with which the fault costs `cost` of an iteration, from the first second on; `None`: no severity does.
pub(super) fn severity(scenario: &Scenario, fault: &Fault, iteration_s: f64, cost: f64) -> Option<f64> {
    let count = if has_chance(fault.kind) {
        ((CHANCE_S / iteration_s) as usize).clamp(ITERATIONS.0, ITERATIONS.1)
    } else {
        ITERATIONS.0
    };
    let job = quiet(scenario, 1.0 + iteration_s * (count + 2) as f64 * (3.0 + 2.0 * cost));
    let healthy = mean(&Simulation::untold(&job, count))?;
    let (least, greatest) = fault.kind.severity_range();
    let (mut strength, mut bounds) = (cost, (0.0, f64::INFINITY));
    for _ in 0..TRIES {
        let severity = of_strength(fault.kind, strength, iteration_s * 1e3).clamp(least, greatest);
        let fault = Fault { severity: Some(severity), after_s: 0.0, ramp_s: None, lasts_s: None, ..fault.clone() };
        let slow = Scenario { fault: Some(fault), ..job.clone() };
        let grows = mean(&Simulation::untold(&slow, count)).map_or(f64::INFINITY, |mean| mean / healthy - 1.0);
        if (grows / cost - 1.0).abs() <= NEAR {
            // Five digits are enough and read better.
            return Some((severity * 1e5).round() / 1e5);
        }
        bounds = if grows < cost { (strength, bounds.1) } else { (bounds.0, strength) };
        let next = strength * (cost / grows.max(1e-9)).clamp(1.0 / LEAP, LEAP);
        strength = if next > bounds.0 && next < bounds.1 { next } else { f64::sqrt(bounds.0.max(1e-9) * bounds.1) };
        if !strength.is_finite() || strength > 1e9 || bounds.1 < 1e-9 {
            return None;
        }
    }
    None
}

fn has_chance(kind: FaultKind) -> bool {
    use FaultKind::{CpuContention, CrossNuma, NetworkCongestion, WanderingPauses};
    matches!(kind, CpuContention | CrossNuma | NetworkCongestion | WanderingPauses)
}

/// Mean of the iterations after the first, nanoseconds.
fn mean(iterations: &[Iteration]) -> Option<f64> {
    let (first, last) = (iterations.get(1)?, iterations.last()?);
    Some((last.ended - first.began) as f64 / (iterations.len() - 1) as f64)
}

/// A severity for a strength, which costs about as much where the part is all of the iteration.
fn of_strength(kind: FaultKind, strength: f64, iteration_ms: f64) -> f64 {
    match kind {
        // 700 W and 1.3 are those of the injection: the power at which it just computes at its full rate.
        FaultKind::GpuThrottling => 700.0 / 1.3 / (1.0 + strength),
        FaultKind::BackgroundTraffic | FaultKind::NetworkCongestion | FaultKind::PcieContention => {
            1.0 - 1.0 / (1.0 + strength)
        }
        FaultKind::HostIssue | FaultKind::DataWait | FaultKind::SlowStorage | FaultKind::WanderingPauses => {
            strength * iteration_ms
        }
        // Threads wait from 80 % on.
        FaultKind::CpuContention => 80.0 + 100.0 * strength,
        _ => 1.0 + strength,
    }
}
