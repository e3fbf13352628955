//! What came of a trace, as Markdown.
use super::job::{Acted, Action, Trace};
use anyhow::{Context, Result};
use mycroft_diagnose::mitigate::rent::Strategy;
use std::fmt::Write as _;

/// Rows of the table of rates.
const BINS: u32 = 20;
/// Names in a line, at most.
const NAMES_MAX: usize = 6;

/// Iterations for a second over the whole trace, and what was lost by what.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Outcome {
    pub(super) healthy: f64,
    pub(super) without: f64,
    pub(super) with: f64,
    /// Seconds lost between an onset or an end of a fault and the first action after it.
    pub(super) waiting_s: f64,
    /// .. for which the job stood still.
    pub(super) pauses_s: f64,
    /// .. that plans left.
    pub(super) left_s: f64,
    /// .. without plans.
    pub(super) without_s: f64,
}

impl Outcome {
    pub(super) fn of(trace: &Trace, without: &Acted, with: &Acted) -> Result<Outcome> {
        let until_s = trace.scenario.duration_s;
        let usual_s = with.usual_s.context("the trace is too short to learn what is usual")?;
        let edges: Vec<f64> = trace
            .scenario
            .all_faults()
            .flat_map(|fault| [Some(fault.after_s), fault.lasts_s().map(|lasts_s| fault.after_s + lasts_s)])
            .flatten()
            .collect();
        let is_waiting = |at_s: f64| {
            let edge = edges.iter().copied().filter(|edge| *edge <= at_s).fold(0.0, f64::max);
            !with.actions.iter().any(|action| (edge..=at_s).contains(&action.at_s))
        };
        let lost_s = |(began, ended): &(f64, f64)| ended - began - usual_s;
        let (waiting, left): (Vec<_>, Vec<_>) = with.iterations.iter().partition(|(began, _)| is_waiting(*began));
        Ok(Outcome {
            healthy: 1.0 / usual_s,
            without: without.rate(0.0, until_s),
            with: with.rate(0.0, until_s),
            waiting_s: waiting.iter().map(lost_s).sum(),
            pauses_s: with.actions.iter().map(|action| action.pause_s).sum(),
            left_s: left.iter().map(lost_s).sum(),
            without_s: without.iterations.iter().map(lost_s).sum(),
        })
    }

    /// Share of the slowdown that plans took away.
    pub(super) fn removed(&self) -> f64 {
        (self.with - self.without) / (self.healthy - self.without)
    }
}

/// A trace: what came of it, what was done when, and the rates.
pub(super) fn one(trace: &Trace, without: &Acted, with: &Acted) -> Result<String> {
    let outcome = Outcome::of(trace, without, with)?;
    let mut page = summary(&outcome);
    page.push_str("\n| s | what is done | who is slow, as measured | stands still, s |\n|---|---|---|---|\n");
    for action in &with.actions {
        let _ = writeln!(
            page,
            "| {:.0} | {} | {} | {:.1} |",
            action.at_s,
            words(action),
            names(&action.slow),
            action.pause_s
        );
    }
    page.push_str("\n| from, s | to | iterations/s without plans | with |\n|---|---|---|---|\n");
    let step_s = trace.scenario.duration_s / f64::from(BINS);
    for bin in 0..BINS {
        let (from_s, to_s) = (f64::from(bin) * step_s, f64::from(bin + 1) * step_s);
        let rates = (without.rate(from_s, to_s), with.rate(from_s, to_s));
        let _ = writeln!(page, "| {from_s:.0} | {to_s:.0} | {:.2} | {:.2} |", rates.0, rates.1);
    }
    Ok(page)
}

fn summary(outcome: &Outcome) -> String {
    let Outcome { healthy, without, with, waiting_s, pauses_s, left_s, without_s } = *outcome;
    let times = |rate: f64| healthy / rate;
    format!(
        "Iterations a minute: {:.1} healthy, {:.1} without plans, {:.1} with: **{:.1} % of the slowdown is removed**; the same work \
         takes {:.2} times as long without, {:.2} times with. Without plans faults cost {without_s:.0} s; with them {waiting_s:.0} s \
         until a plan was due, {pauses_s:.0} s in which the job stood still, {left_s:.0} s that plans left: with the same plans at once and \
         for nothing it would be about {:.0} %.\n",
        60.0 * healthy,
        60.0 * without,
        60.0 * with,
        100.0 * outcome.removed(),
        times(without),
        times(with),
        100.0 * (1.0 - left_s / without_s),
    )
}

fn words(action: &Action) -> String {
    let (least, most) = action.division;
    match action.strategy {
        _ if action.is_back => "S2 taken back".to_owned(),
        Strategy::Ignore => "nothing".to_owned(),
        Strategy::Split => format!("S2: {least} to {most} micro-batches"),
        Strategy::Move => format!("S3: {} hosts move, {least} to {most} micro-batches", action.moved),
        Strategy::Restart => "S4: restart without them".to_owned(),
    }
}

fn names(slow: &[String]) -> String {
    match slow.len() {
        0 => "nobody".to_owned(),
        count if count > NAMES_MAX => format!("{} and {} more", slow[..NAMES_MAX].join(", "), count - NAMES_MAX),
        _ => slow.join(", "),
    }
}
