//! What became of one seed.
use super::play::Run;
use mycroft_record::NANOS_PER_MS;
use mycroft_sim::{Closeness, Fault, Scenario, expected};
use serde_json::{Value, json};

/// How a fault comes on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Onset {
    Sharp,
    Ramp,
    FromTheStart,
}

impl Onset {
    fn of(fault: &Fault) -> Onset {
        match (fault.ramp_s, fault.after_s > 0.0) {
            (Some(_), _) => Onset::Ramp,
            (None, true) => Onset::Sharp,
            (None, false) => Onset::FromTheStart,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Onset::Sharp => "sharp",
            Onset::Ramp => "ramp",
            Onset::FromTheStart => "from the start",
        }
    }
}

/// What became of the fault of a seed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Felt {
    pub(crate) text: String,
    pub(crate) kind: &'static str,
    pub(crate) onset: Onset,
    /// As measured, a share of an iteration.
    pub(crate) cost: f64,
    pub(crate) spread: f64,
    pub(crate) due: bool,
    pub(crate) seen_after: Option<usize>,
    pub(crate) found: bool,
    pub(crate) exactly: bool,
    pub(crate) category_right: bool,
    pub(crate) said: Option<&'static str>,
    /// By how many iterations the case's onset is off.
    pub(crate) onset_off: Option<f64>,
    pub(crate) detection_ms: Option<u64>,
}

/// What became of one seed.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Line {
    pub(crate) family: &'static str,
    pub(crate) seed: u64,
    pub(crate) ranks: u32,
    pub(crate) iteration_ms: f64,
    pub(crate) duration_s: f64,
    pub(crate) felt: Option<Felt>,
    pub(crate) true_cases: u64,
    pub(crate) false_cases: u64,
    pub(crate) unnamed_cases: u64,
    /// Of each case that names somebody: how sure it is of the first suspect, and whether it is right in place and category.
    pub(crate) verdicts: Vec<(f64, bool)>,
    pub(crate) wrong: Vec<String>,
}

/// What a run was worth.
pub(super) fn line(family: &'static str, scenario: &Scenario, run: &Run) -> Line {
    let judgement = &run.judgement;
    let answers: Vec<_> =
        run.truths.iter().filter_map(|truth| truth.fault.as_ref()).map(|f| expected(f.kind)).collect();
    let cases = run.report.cases.iter().enumerate();
    let verdicts = cases.filter_map(|(number, case)| {
        let finding = &case.finding;
        let surest = finding.suspects.iter().map(|suspect| suspect.confidence).reduce(f64::max)?;
        let is_false = judgement.false_cases.iter().any(|(of, _)| *of == number);
        let fits = answers.iter().any(|answer| answer.categories.contains(&finding.category));
        Some((surest, !is_false && fits))
    });
    Line {
        family,
        seed: scenario.seed,
        ranks: scenario.world(),
        iteration_ms: run.progress.iteration_ms_median,
        duration_s: scenario.duration_s,
        felt: felt(run),
        true_cases: judgement.true_cases as u64,
        false_cases: judgement.false_cases.len() as u64,
        unnamed_cases: judgement.open_questions as u64,
        verdicts: verdicts.collect(),
        wrong: judgement.wrong.clone(),
    }
}

/// The fault of a run, if it has one whose cost was measured.
fn felt(run: &Run) -> Option<Felt> {
    let outcome = run.judgement.outcomes.first()?;
    let truth = &run.truths[outcome.fault];
    let (fault, due) = (truth.fault.as_ref()?, truth.due.as_ref()?);
    let case = outcome.named_by.map(|(number, _)| &run.report.cases[number].finding);
    let iteration_ms = (due.iteration_ns / 1e6).max(1e-3);
    let off = case.map(|finding| ((finding.since.0 / NANOS_PER_MS) as f64 - truth.at_ms as f64).abs() / iteration_ms);
    Some(Felt {
        text: fault.to_string(),
        kind: fault.kind.as_str(),
        onset: Onset::of(fault),
        cost: due.cost,
        spread: due.spread,
        due: outcome.due,
        seen_after: due.seen_after,
        found: outcome.named_by.is_some(),
        exactly: outcome.named_by.is_some_and(|(_, closeness)| closeness == Closeness::Exact),
        category_right: outcome.words_right,
        said: outcome.given.map(|given| given.as_str()),
        onset_off: off,
        detection_ms: outcome.detection_ms,
    })
}

/// One line of `--lines`.
pub(super) fn json_of(line: &Line) -> Value {
    let felt = line.felt.as_ref().map(|felt| {
        json!({
            "fault": felt.text,
            "kind": felt.kind,
            "onset": felt.onset.as_str(),
            "cost": felt.cost,
            "spread": felt.spread,
            "due": felt.due,
            "seen_after_iterations": felt.seen_after,
            "found": felt.found,
            "exactly": felt.exactly,
            "category_right": felt.category_right,
            "said": felt.said,
            "onset_off_iterations": felt.onset_off,
            "detection_ms": felt.detection_ms,
        })
    });
    json!({
        "family": line.family,
        "seed": line.seed,
        "ranks": line.ranks,
        "iteration_ms": line.iteration_ms,
        "duration_s": line.duration_s,
        "felt": felt,
        "cases": {"true": line.true_cases, "false": line.false_cases, "unnamed": line.unnamed_cases},
        "verdicts": line.verdicts.iter().map(|(sure, right)| json!({"confidence": sure, "right": right})).collect::<Vec<_>>(),
        "wrong": line.wrong,
    })
}
