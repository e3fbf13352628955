//! The traces of FALCON's figures 15, 17 and 20.
use super::job::Trace;
use super::page::{Outcome, one};
use anyhow::{Context, Result, anyhow};
use mycroft_sim::{Fault, Scenario};
use std::fmt::Write as _;

/// What another division costs, there and back, of an iteration: 5 of 250 ms each, the most that docs/results/mitigation-testbed.md
/// measured.
const SPLIT_SHARE: f64 = 0.04;

/// What all jobs here have in common: one rank on each host, with a NIC of its own.
fn job(name: &str, (pp, dp): (u32, u32), micro_batches: u32, stage_ms: f64, duration_s: f64) -> Scenario {
    Scenario {
        name: name.to_owned(),
        hosts: pp * dp,
        ranks_per_host: 1,
        tp: 1,
        pp,
        dp,
        micro_batches,
        layers: 1,
        forward_ms: stage_ms / 3.0,
        backward_ms: stage_ms * 2.0 / 3.0,
        optimizer_ms: 1.0,
        pp_bytes: 4 << 10,
        nic_bytes_per_sec: 20_000_000,
        jitter: 0.01,
        warm_up_iterations: 0,
        loss_every: 0,
        duration_s,
        ..Scenario::default()
    }
}

/// Faults by their text, each with its onset and how long it lasts, seconds.
fn faults(texts: &[(&str, f64, f64)]) -> Result<Vec<Fault>> {
    let of = |(text, after_s, lasts_s): &(&str, f64, f64)| {
        let fault: Fault = text.parse().map_err(|why| anyhow!("{text}: {why}"))?;
        Ok(Fault { after_s: *after_s, lasts_s: Some(*lasts_s), ..fault })
    };
    texts.iter().map(of).collect()
}

/// Figure 17: a path slows the job from 1.7 to 1.0 iterations/s at 30 s, a device to 0.5 at 200 s.
fn figure_17() -> Result<Trace> {
    let faults = faults(&[
        ("network-congestion@host4+host5,severity=0.785", 30.0, 600.0),
        ("gpu-power@host10:rank10,severity=4", 200.0, 400.0),
    ])?;
    let scenario = Scenario { dp_bytes: 3_000_000, faults, ..job("figure-17", (4, 4), 16, 24.0, 600.0) };
    Ok(Trace { scenario, costs_s: [SPLIT_SHARE * 0.6, 10.0, 170.0] })
}

/// Figure 20: two congestions and eight devices in 45 minutes of a job of 16 x 4.
fn figure_20(micro_batches: u32, move_s: f64) -> Result<Trace> {
    let faults = faults(&[
        ("gpu-power@host5:rank5,severity=1.3", 150.0, 200.0),
        ("gpu-power@host20:rank20,severity=1.5", 300.0, 150.0),
        ("network-congestion@host33+host34,severity=0.8", 570.0, 430.0),
        ("gpu-power@host41:rank41,severity=1.6", 700.0, 150.0),
        ("gpu-power@host12:rank12,severity=1.2", 1100.0, 200.0),
        ("gpu-power@host58:rank58,severity=1.4", 1250.0, 150.0),
        ("gpu-power@host27:rank27,severity=1.8", 1650.0, 100.0),
        ("network-congestion@host8+host9,severity=0.8", 2070.0, 400.0),
        ("gpu-power@host50:rank50,severity=1.6", 2200.0, 150.0),
        ("gpu-power@host2:rank2,severity=1.3", 2550.0, 100.0),
    ])?;
    let stage_ms = 3150.0 / f64::from(micro_batches + 3);
    let scenario =
        Scenario { dp_bytes: 1_500_000, faults, ..job("figure-20", (4, 16), micro_batches, stage_ms, 2700.0) };
    Ok(Trace { scenario, costs_s: [SPLIT_SHARE * 3.5, move_s, 1800.0] })
}

/// Bandwidth that a path loses in figure 15.
const SEVERITIES_15: [(&str, f64); 3] = [("weak", 0.5), ("middle", 0.7), ("strong", 0.85)];
/// .. from when on, seconds.
const ONSET_15_S: f64 = 15.0;
/// What it costs in figure 20 that hosts change places, seconds.
const MOVES_20_S: [f64; 3] = [60.0, 20.0, 5.0];

/// Figure 15: one slow path in a ring of gradients.
fn figure_15(shape: (u32, u32), severity: f64) -> Result<Trace> {
    let text = format!("network-congestion@host{}+host{},severity={severity}", shape.1, shape.1 + 1);
    let faults = faults(&[(&text, ONSET_15_S, 60.0)])?;
    let scenario = Scenario { dp_bytes: 3_000_000, faults, ..job("figure-15", shape, 8, 24.7, 75.0) };
    Ok(Trace { scenario, costs_s: [SPLIT_SHARE * 0.6, 2.0, 1800.0] })
}

/// One line of figure 15, and percent of the slowdown that the plan takes away.
fn line_15(shape: (u32, u32), word: &str, severity: f64) -> Result<(String, f64)> {
    let acted = figure_15(shape, severity)?.with()?;
    let usual_s = acted.usual_s.context("nothing is usual")?;
    let first = acted.actions.first();
    let changed_s = first.map_or(f64::INFINITY, |action| action.at_s);
    let middle = |from_s: f64, until_s: f64| {
        let inside = acted.iterations.iter().filter(|(began, ended)| *began >= from_s && *ended <= until_s);
        crate::switched::median(inside.map(|(began, ended)| (ended - began) / usual_s))
    };
    let slow = middle(ONSET_15_S, changed_s).context("no slow iteration")?;
    let planned = middle(changed_s, f64::INFINITY).unwrap_or(slow);
    let moved = acted.actions.iter().map(|action| action.moved).max().unwrap_or(0);
    let won = 100.0 * (slow - planned) / (slow - 1.0);
    let (stages, taken, usual_ms) = (shape.0, 100.0 * severity, 1e3 * usual_s);
    let line = format!(
        "| {stages} | {word}, {taken:.0} % | {usual_ms:.0} | {slow:.2} | {planned:.2} | {won:.1} % | {moved} |"
    );
    eprintln!("{line}");
    Ok((line, won))
}

/// The part of figure 15.
fn part_15(page: &mut String) -> Result<()> {
    page.push_str(FIGURE_15);
    for (shape, paper) in [((4, 4), 53.7), ((8, 2), 24.8)] {
        let mut sum = 0.0;
        for (word, severity) in SEVERITIES_15 {
            let (line, won) = line_15(shape, word, severity)?;
            sum += won / SEVERITIES_15.len() as f64;
            let _ = writeln!(page, "{line}");
        }
        let _ = writeln!(page, "| {} | *mean* | | | | **{sum:.1} %**, FALCON {paper} % | |", shape.0);
    }
    Ok(())
}

/// The part of figure 20: one run in full, and others with other costs and other numbers of micro-batches.
fn part_20(page: &mut String) -> Result<()> {
    page.push_str(FIGURE_20);
    let mut others = String::from(OTHERS);
    for micro_batches in [32, 16] {
        let without = figure_20(micro_batches, MOVES_20_S[0])?.without()?;
        for move_s in MOVES_20_S {
            let trace = figure_20(micro_batches, move_s)?;
            let with = trace.with()?;
            if (micro_batches, move_s) == (32, MOVES_20_S[0]) {
                page.push_str(&one(&trace, &without, &with)?);
            }
            let outcome = Outcome::of(&trace, &without, &with)?;
            let Outcome { waiting_s, pauses_s, left_s, without_s, .. } = outcome;
            let removed = 100.0 * outcome.removed();
            let line = format!(
                "| {micro_batches} | {move_s:.0} | {without_s:.0} | {waiting_s:.0} | {pauses_s:.0} | {left_s:.0} | {removed:.1} % |"
            );
            eprintln!("{line}");
            let _ = writeln!(others, "{line}");
        }
    }
    page.push_str(&others);
    Ok(())
}

/// Plays all and gives the page.
pub(super) fn play() -> Result<String> {
    let mut page = String::from(HEAD);
    part_15(&mut page)?;
    page.push_str(FIGURE_17);
    let trace = figure_17()?;
    page.push_str(&one(&trace, &trace.without()?, &trace.with()?)?);
    part_20(&mut page)?;
    Ok(page)
}

const HEAD: &str = "# Mitigation, acted out

Made by `mycroft sim act --write docs/results/mitigation-acted.md`; do not edit. Simulated jobs with faults, each played twice: \
without plans, and with every plan carried out when it is due. Iteration times come out of the simulated operations, not out of the \
planner's model. The brain is given the job's records and nothing else: `diagnose/mitigate/seen` measures hosts and ways, \
`diagnose/mitigate/follow` makes plans and takes them back. From one change to the next there is one simulation. A change takes effect after \
the iteration that is under way, as on the testbed, and for the pause that is given the job stands still: 2 % of an iteration for \
another division (the most that [the testbed](mitigation-testbed.md) measured). The planner is told the same costs. Each rank has \
a host and a NIC of its own (so a plan moves single ranks), and bandwidths are 1,024 times smaller than real ones. *Slowdown \
removed* is of the mean rate, as in FALCON's Table 7. Where FALCON gives no number, ours is \
named; severities and sizes of messages were set by what the job does without plans. The limits by which `follow` takes a path for \
slow were found on these very traces, and what a change loses of the iteration under way (about 1 s each in figure 20 at first) was \
taken out after a first run (54.1, 54.1 and 73.1 % for 32 micro-batches): this is no measurement on fresh traces.
";
const FIGURE_15: &str = "
## Figure 15: one slow path

16 ranks; the path between two neighbours in a ring of gradients loses 50, 70 or 85 % of its bandwidth (FALCON names weak, middle \
and strong, without numbers). Medians before and after hosts change places, as times the healthy iteration. FALCON's job \
is on two hosts; here each rank can move.

| stages | severity | healthy, ms | slow | planned | removed | hosts that move |
|---|---|---|---|---|---|---|
";
const FIGURE_17: &str = "
## Figure 17: a slow path, then a slow device

16 ranks, 4 x 4, 16 micro-batches a replica. FALCON: 1.7 iterations/s, 1.0 from t = 30 on, 1.3 after S3, 0.5 from t = 200 on, 0.9 \
after S2, a restart at t = 450. Here the path loses 78.5 % of its bandwidth and the device gets 4 times slower, which makes rates \
fall about as far. Chosen: places cost 10 s, a restart 170 s (what FALCON's own rates have lost by t = 450).

";
const FIGURE_20: &str = "
## Figure 20: 64 ranks, two congestions, eight slow devices

16 replicas x 4 stages, 32 micro-batches a replica, 45 minutes. FALCON: 17.1 iterations a minute, 14.8 with the faults, 16.2 with \
plans: 60.1 %. It shows severities and times as a picture only; ours were chosen such that the mean without plans is about as far \
from healthy as FALCON's, with pauses near t = 600 and 2100 as there. Places cost 60 s, the most that FALCON says (\"under a \
minute\").

";
const OTHERS: &str = "
The same with other costs of places and other numbers of micro-batches (FALCON does not say how many it had). Bar: 75 %.

What limits it: with 60 s neither congestion costs as much as moving, so hosts stay, rightly, and what the congestions take is *left*. \
With 20 s they move, but only once 20 s are lost, and then the job stands still as long: of a fault that costs little more than its \
remedy, who does not know its end cannot win much. Beside that two to four iterations pass until a device is known to be slow, and \
whole micro-batches leave the rest.

| micro-batches | places cost, s | lost without, s | until a plan was due | standing still | left | removed |
|---|---|---|---|---|---|---|
";
