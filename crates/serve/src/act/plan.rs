//! A plan for whoever asks: what the parameters mean, and what is refused. It reads a report and changes nothing.
use crate::api::{PlanJson, PlanRequest};
use axum::http::StatusCode;
use mycroft_diagnose::Report;
use mycroft_diagnose::mitigate::known::{Asked, known};
use mycroft_diagnose::mitigate::lint::lint;
use mycroft_diagnose::mitigate::place::Waits;
use mycroft_diagnose::mitigate::plan::{Costs, plan};
use mycroft_diagnose::mitigate::rent::Strategy;
use mycroft_record::{HostName, NANOS_PER_SEC};

/// Names of the parameters, for whoever misspelt one.
pub(crate) const KNOWN: &str = "job, micro_batches, tensor, pipeline, micro_batches_max, healthy_ms, gradients_ms, activations_ms, each_micro_batch, \
                     split_cost_s, move_cost_s, restart_cost_s, done and spares";

/// The plan for a report, or the status and what the client is told.
pub(crate) fn planned(report: &Report, asked: &Asked) -> Result<PlanJson, (StatusCode, String)> {
    let not_known = |text: String| (StatusCode::CONFLICT, text);
    let known = known(report, asked).map_err(not_known)?;
    let made = plan(&known.situation).map_err(|error| not_known(error.to_string()))?;
    let wrong = lint(&made, &known.situation);
    if wrong.is_empty() {
        return Ok(PlanJson::of(&made, &known));
    }
    let text = format!("a plan was made that is wrong, and is not shown: {}", wrong.join("; "));
    Err((StatusCode::INTERNAL_SERVER_ERROR, text))
}

/// What the parameters say, or what is wrong with them.
pub(crate) fn told(query: &PlanRequest) -> Result<Asked, String> {
    let numbers = [query.healthy_ms, query.gradients_ms, query.activations_ms];
    let costs = [query.split_cost_s, query.move_cost_s, query.restart_cost_s];
    if numbers.iter().chain(&costs).flatten().any(|number| !(0.0..1e9).contains(number)) {
        return Err("a time is negative, or a thousand million or more".to_owned());
    }
    if query.tensor == Some(0) || query.pipeline == Some(0) {
        return Err("tensor and pipeline are at least 1".to_owned());
    }
    let [split_s, move_s, restart_s] = costs;
    let ns = |cost: Option<f64>, usual: u64| cost.map_or(usual, |seconds| (seconds * NANOS_PER_SEC as f64) as u64);
    let done = match query.done.as_deref() {
        None => Strategy::Ignore,
        Some(word) => *Strategy::ALL
            .iter()
            .find(|strategy| strategy.as_str() == word)
            .ok_or_else(|| format!("done={word:?}: expected ignore, split, move or restart"))?,
    };
    let names = |text: &str| text.split(',').filter(|name| !name.is_empty()).map(HostName::from).collect();
    Ok(Asked {
        tensor: query.tensor.unwrap_or(1),
        pipeline: query.pipeline.unwrap_or(1),
        micro_batches: query.micro_batches,
        micro_batches_max: query.micro_batches_max,
        healthy_ms: query.healthy_ms,
        gradients_ms: query.gradients_ms,
        activations_ms: query.activations_ms.unwrap_or(0.0),
        waits: if query.each_micro_batch == Some(true) { Waits::EachMicroBatch } else { Waits::EachIteration },
        costs: Costs {
            split_ns: ns(split_s, Costs::PAPER.split_ns),
            move_ns: ns(move_s, Costs::PAPER.move_ns),
            restart_ns: ns(restart_s, Costs::PAPER.restart_ns),
        },
        done,
        divided: Vec::new(),
        answered: None,
        spares: query.spares.as_deref().map(names),
        history: Vec::new(),
    })
}
