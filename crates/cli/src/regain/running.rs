//! A running job whose iterations are timed before and after a change.
use crate::switched::median;
use anyhow::{Context, Result};
use mycroft_sim::{Scenario, Transport};
use mycroft_testbed::{Change, Running};
use std::ffi::OsString;
use std::time::Duration;

/// Micro-batches of each replica in the even division.
pub(super) const EACH: u32 = 16;
/// Longest wait for so many iterations as are measured.
pub(super) const LIMIT: Duration = Duration::from_secs(180);

/// What a rank runs.
pub(super) fn rank_command() -> Result<Vec<OsString>> {
    let own = std::env::current_exe().context("cannot find this executable")?;
    Ok(vec![own.into_os_string(), "testbed".into(), "rank".into()])
}

/// Changes the job, and gives the median of the iterations after that, and the iteration of the change, milliseconds.
pub(super) fn measured(running: &mut Running, iterations: u64, change: &Change) -> Result<(f64, f64)> {
    let at = running.change(change)?;
    // One more iteration has begun before what was injected or healed just now.
    running.wait_for_iteration(at + 2 + iterations, LIMIT)?;
    let laps = running.laps();
    let ms = |from: u64, to: u64| {
        let laps = laps.iter().filter(|(number, _)| (from..to).contains(number));
        median(laps.map(|(_, lap)| lap.ms)).context("iterations that nobody keeps")
    };
    Ok((ms(at + 2, at + 2 + iterations)?, ms(at, at + 1)?))
}

/// A job of so many replicas, each one rank on a host of its own.
pub(super) fn scenario(replicas: u32) -> Scenario {
    Scenario {
        name: format!("mitigate-{replicas}"),
        hosts: replicas,
        ranks_per_host: 1,
        tp: 1,
        pp: 1,
        dp: replicas,
        micro_batches: EACH,
        layers: 1,
        forward_ms: 5.0,
        backward_ms: 10.0,
        optimizer_ms: 1.0,
        dp_bytes: 64 << 10,
        jitter: 0.01,
        transport: Transport::Loopback,
        ..Scenario::default()
    }
}
