//! Scoring of a whole run: several faults, several cases. Each fault that is there long enough must be named by a case,
//! and no case may name an innocent. Place and category are counted apart, and so are hosts and ranks.
use crate::due::Due;
use crate::fault::{FaultKind, FaultLevel};
use crate::score::{Truth, culprits_named, expected, is_other_end, least_sure, places};
use mycroft_record::{Category, Finding, NANOS_PER_MS, Place, What};
use std::collections::BTreeSet;

/// A fault that is there for less than this need not be noticed, milliseconds: a case takes some iterations.
const NOTICED_MS: u64 = 8_000;
/// A fault that makes iterations take less than this many times as long need not be noticed: what is promised of slowdowns
/// begins at 1.25, and healthy iterations are not all alike.
const FELT: f64 = 1.3;
/// Suspects whose confidences differ by no more are as likely as each other.
const AS_SURE: f64 = 0.05;
/// A case that begins this long after a fault's end may still be about it, milliseconds.
const AFTERMATH_MS: u64 = 15_000;
/// Onsets are estimates: a case's may lie this much before the fault, milliseconds.
const EARLY_MS: u64 = 3_000;
/// The same in iterations, where their length was measured: the one that the fault came in, and the one before.
const EARLY_ITERATIONS: f64 = 2.0;

/// How exactly a case names a culprit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Closeness {
    /// Its host, for a fault of a rank.
    Host,
    /// Exactly what the fault is of.
    Exact,
}

/// What became of one fault of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Which of the truths.
    pub fault: usize,
    /// It was there long enough, and the job felt it enough, to be noticed.
    pub due: bool,
    /// The case that names it, and how exactly.
    pub named_by: Option<(usize, Closeness)>,
    /// The kind of fault that should have been given.
    pub expected: Category,
    /// The one that was; `None` if it was not noticed.
    pub given: Option<Category>,
    /// What was said to be wrong.
    pub said: Option<What>,
    /// What is wrong and the kind of fault are right.
    pub words_right: bool,
    /// From the fault to the case, milliseconds; `None` too where it joined a case that was open.
    pub detection_ms: Option<u64>,
    /// From the case to its settled culprit, milliseconds.
    pub diagnosis_ms: Option<u64>,
}

/// What became of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Judgement {
    /// Each fault of the job.
    pub outcomes: Vec<Outcome>,
    /// Cases that name an innocent or come without a fault, with the reason in one line.
    pub false_cases: Vec<(usize, String)>,
    /// Cases that name a culprit.
    pub true_cases: usize,
    /// Cases opened during a fault that name nobody.
    pub open_questions: usize,
    /// What is wrong with the run, one line each; empty: nothing.
    pub wrong: Vec<String>,
}

impl Judgement {
    /// Adds whether it was said that somebody outside ended the job, and whether that is so.
    pub fn with_ending(mut self, truths: &[Truth], said_outside: bool) -> Judgement {
        let is_end = |truth: &Truth| truth.fault.as_ref().is_some_and(|fault| fault.kind == FaultKind::JobEnded);
        if truths.iter().any(is_end) != said_outside {
            self.wrong.push(format!("that the job was ended from outside was said: {said_outside}, which is wrong"));
        }
        self
    }

    /// Whether every due fault was named with the right words, and nobody else was.
    pub fn correct(&self) -> bool {
        self.wrong.is_empty()
    }
}

/// Scores the cases of a run, in the order in which they were opened, against what was really done. `end_ms` is when the
/// job's time was over, milliseconds since the Unix epoch.
pub fn judge(truths: &[Truth], cases: &[&Finding], end_ms: u64) -> Judgement {
    let real: Vec<(usize, &Truth)> = truths.iter().enumerate().filter(|(_, truth)| is_of_job(truth)).collect();
    let mut judgement = Judgement::default();
    // Which faults each case names.
    let mut names: Vec<Vec<(usize, Closeness)>> = Vec::new();
    for (number, finding) in cases.iter().enumerate() {
        // A case that a fault opened may come to be about one that joined it later.
        let rightly = real.iter().any(|(_, truth)| overlaps(truth, finding));
        let joins = |truth: &Truth| rightly && truth.at_ms > finding.detected_at.0 / NANOS_PER_MS;
        let about = |truth: &Truth| overlaps(truth, finding) || joins(truth);
        let around: Vec<(usize, &Truth)> = real.iter().copied().filter(|(_, truth)| about(truth)).collect();
        let active: Vec<&Truth> = around.iter().map(|(_, truth)| *truth).collect();
        let named: Vec<(usize, Closeness)> =
            around.iter().filter_map(|(at, truth)| Some((*at, names_it(truth, &active, finding)?))).collect();
        if !named.is_empty() {
            judgement.true_cases += 1;
        } else if finding.suspects.is_empty() && !active.is_empty() {
            judgement.open_questions += 1;
        } else {
            let why = match active.first() {
                None => format!("case {number}: {} ({}) without a fault", finding.what, finding.category),
                Some(truth) => format!("case {number}: {}", why_not(truth, finding)),
            };
            judgement.false_cases.push((number, why));
        }
        names.push(named);
    }
    for (at, truth) in &real {
        judgement.outcomes.push(outcome(*at, truth, truths, cases, &names, end_ms));
    }
    judgement.wrong = complaints(&judgement, truths);
    judgement
}

fn is_of_job(truth: &Truth) -> bool {
    truth.fault.as_ref().is_some_and(|fault| fault.kind.is_of_job())
}

/// Whether a case can be about a fault: it begins before the fault's aftermath is over and is opened after the fault.
fn overlaps(truth: &Truth, finding: &Finding) -> bool {
    let (since, opened) = (finding.since.0 / NANOS_PER_MS, finding.detected_at.0 / NANOS_PER_MS);
    let iterations_ms = truth.due.as_ref().map_or(0, |due| (EARLY_ITERATIONS * due.iteration_ns) as u64 / NANOS_PER_MS);
    opened >= truth.at_ms
        && since + EARLY_MS.max(iterations_ms) >= truth.at_ms.min(opened)
        && truth.until_ms.is_none_or(|until| since <= until + AFTERMATH_MS)
}

/// Whether, and how exactly, a case names a fault: its culprits are as likely as anybody, and no innocent is. Culprits of other
/// faults that are there at the same time are no innocents, but where one of them is surer the case is about that.
fn names_it(truth: &Truth, active: &[&Truth], finding: &Finding) -> Option<Closeness> {
    let of_alike = || {
        let alike = truth.alike.as_deref()?;
        let active: Vec<&Truth> = active.iter().copied().chain([alike]).collect();
        names_exactly_or_host(alike, &active, finding).map(|_| Closeness::Host)
    };
    names_exactly_or_host(truth, active, finding).or_else(of_alike)
}

fn names_exactly_or_host(truth: &Truth, active: &[&Truth], finding: &Finding) -> Option<Closeness> {
    let level = truth.fault.as_ref()?.kind.level();
    if level == FaultLevel::All {
        return names_nobody_before_others(truth, finding).then_some(Closeness::Exact);
    }
    let level_of = |truth: &Truth| truth.fault.as_ref().map_or(FaultLevel::Nobody, |fault| fault.kind.level());
    let others = finding.suspects.iter().filter(|suspect| culprits_named(truth, level, &suspect.place).is_empty());
    let surest = others.map(|suspect| suspect.confidence).fold(0.0, f64::max);
    let leads = |sure: &f64| *sure >= surest - AS_SURE;
    if let Some(least) = least_sure(truth, level, finding).filter(leads) {
        let known =
            |place: &Place| active.iter().any(|other| !culprits_named(other, level_of(other), place).is_empty());
        let mut as_sure = finding.suspects.iter().filter(|suspect| suspect.confidence >= least);
        if as_sure.all(|suspect| known(&suspect.place) || is_other_end(truth, &suspect.place)) {
            return Some(Closeness::Exact);
        }
    }
    if level != FaultLevel::Rank {
        return None;
    }
    // Its host, or another rank of it.
    let is_on = |place: &Place, hosts: &[String]| {
        let of = hosts_of(place);
        !of.is_empty() && of.iter().all(|host| hosts.iter().any(|culprit| culprit == host))
    };
    let on_host = finding.suspects.iter().filter(|suspect| is_on(&suspect.place, &truth.hosts));
    let best = on_host.map(|suspect| suspect.confidence).max_by(f64::total_cmp).filter(leads)?;
    let mut as_sure = finding.suspects.iter().filter(|suspect| suspect.confidence >= best);
    as_sure.all(|suspect| active.iter().any(|other| is_on(&suspect.place, &other.hosts))).then_some(Closeness::Host)
}

/// Whether a case about the whole job singles nobody out: it names nobody, or at least half of the hosts as surely as each
/// other.
fn names_nobody_before_others(truth: &Truth, finding: &Finding) -> bool {
    let surest = finding.suspects.iter().map(|suspect| suspect.confidence).fold(0.0, f64::max);
    let leading = finding.suspects.iter().filter(|suspect| suspect.confidence >= surest - AS_SURE);
    let hosts: BTreeSet<&str> = leading.flat_map(|suspect| hosts_of(&suspect.place)).collect();
    finding.suspects.is_empty() || (hosts.len() > 1 && 2 * hosts.len() >= truth.hosts.len())
}

/// The hosts of a place.
fn hosts_of(place: &Place) -> Vec<&str> {
    match place {
        Place::Rank { host, .. } | Place::Host { host } => vec![host],
        Place::Link { from, to } => vec![from, to],
    }
}

fn why_not(truth: &Truth, finding: &Finding) -> String {
    match truth.fault.as_ref().map(|fault| places(truth, fault.kind.level(), finding)) {
        Some(Err(why)) => why,
        _ => "names somebody else".to_owned(),
    }
}

fn outcome(
    at: usize,
    truth: &Truth,
    truths: &[Truth],
    cases: &[&Finding],
    names: &[Vec<(usize, Closeness)>],
    end_ms: u64,
) -> Outcome {
    let kind_of = |truth: &Truth| truth.fault.as_ref().map(|fault| fault.kind);
    let answer = kind_of(truth).map(expected);
    let fits = |truth: &Truth, finding: &Finding| {
        kind_of(truth)
            .map(expected)
            .is_some_and(|answer| answer.whats.contains(&finding.what) && answer.categories.contains(&finding.category))
    };
    let fits_alike = |alike: &Truth, finding: &Finding| {
        fits(alike, finding) && names_exactly_or_host(alike, &[truth, alike], finding).is_some()
    };
    let right = |finding: &Finding| {
        fits(truth, finding) || truth.alike.as_deref().is_some_and(|alike| fits_alike(alike, finding))
    };
    // What stopped for good before hides what comes later.
    let hidden = truths.iter().any(|other| {
        other.at_ms <= truth.at_ms
            && other != truth
            && other.until_ms.is_none_or(|until| until > truth.at_ms)
            && kind_of(other).is_some_and(|kind| kind.stops_job())
    });
    let there_ms = truth.until_ms.unwrap_or(end_ms).min(end_ms).saturating_sub(truth.at_ms);
    // The case with the right words, else the most exact, else the first.
    let best = names
        .iter()
        .enumerate()
        .filter_map(|(number, named)| {
            let (_, precision) = named.iter().find(|(fault, _)| *fault == at)?;
            Some((right(cases[number]), *precision, std::cmp::Reverse(number)))
        })
        .max();
    let finding = best.map(|(_, _, number)| cases[number.0]);
    let after = |later: u64, earlier: u64| later.checked_sub(earlier).map(|ns| ns / NANOS_PER_MS);
    let settled = finding.filter(|finding| finding.diagnosed_at.0 > 0);
    Outcome {
        fault: at,
        due: !hidden && is_due(truth, there_ms),
        named_by: best.map(|(_, precision, number)| (number.0, precision)),
        expected: answer.map_or(Category::Unknown, |answer| answer.categories[0]),
        given: finding.map(|finding| finding.category),
        said: finding.map(|finding| finding.what),
        words_right: best.is_some_and(|(right, _, _)| right),
        detection_ms: finding.and_then(|finding| after(finding.detected_at.0, truth.at_ms * NANOS_PER_MS)),
        diagnosis_ms: settled.and_then(|finding| after(finding.diagnosed_at.0, finding.detected_at.0)),
    }
}

/// Whether a fault that was there for so long deserves a case: as measured, else by length and growth. What stops a job is
/// noticed by time alone.
fn is_due(truth: &Truth, there_ms: u64) -> bool {
    let felt = || there_ms >= NOTICED_MS && truth.slowdown.is_none_or(|times| times >= FELT);
    truth.due.as_ref().filter(|due| due.cost.is_finite()).map_or_else(felt, Due::is_due)
}

fn complaints(judgement: &Judgement, truths: &[Truth]) -> Vec<String> {
    let mut wrong: Vec<String> = judgement.false_cases.iter().map(|(_, why)| why.clone()).collect();
    for outcome in &judgement.outcomes {
        let Some(fault) = &truths[outcome.fault].fault else { continue };
        let facts = fault.kind.facts();
        let trap = facts.tempting;
        match (outcome.said, outcome.given) {
            (Some(said), Some(given)) if !outcome.words_right => {
                let (what, expected) = (facts.whats[0], outcome.expected);
                wrong.push(format!("{fault}: expected {what}, {expected}, got {said}, {given} (tempting: {trap})"));
            }
            (None, _) if outcome.due => wrong.push(match &truths[outcome.fault].due {
                Some(due) => format!("MISSED: {fault} was not named: {} (tempting: {trap})", due.text()),
                None => format!("{fault} was not named (tempting: {trap})"),
            }),
            _ => {}
        }
    }
    wrong
}

#[cfg(test)]
mod tests;
