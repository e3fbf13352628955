//! The truth beside the records: `truth.json` of a recording (`docs/formats/sim.md`).
use super::play::end_ms;
use mycroft_record::NANOS_PER_MS;
use mycroft_record::time::rfc3339;
use mycroft_record::{Category, HostTime, What};
use mycroft_sim::{EPOCH, FaultKind, FaultLevel, Scenario, Truth, judge};
use serde_json::{Value, json};

/// Version of `truth.json`; grows when a field changes its meaning.
pub(crate) const TRUTH_VERSION: u32 = 1;

/// A fault in the words of the JSON that a run prints.
pub(crate) fn brief(truth: &Truth) -> Value {
    json!({
        "fault": truth.fault.as_ref().map(ToString::to_string),
        "hosts": truth.hosts,
        "ranks": truth.ranks,
        "at_ms": truth.at_ms,
    })
}

/// Who must be named.
fn level(level: FaultLevel) -> &'static str {
    match level {
        FaultLevel::Rank => "rank",
        FaultLevel::Host => "host",
        FaultLevel::HostPair => "host-pair",
        FaultLevel::Hosts => "hosts",
        FaultLevel::All => "all",
        FaultLevel::Nobody => "nobody",
    }
}

/// A moment in milliseconds since 1970 as the two forms in which JSON tells times.
fn time(ms: u64) -> Value {
    json!({"ms": ms, "text": rfc3339(HostTime(ms * NANOS_PER_MS))})
}

/// One fault with everything that a score needs. `due`: a detector that does not notice it misses something.
fn fault(truth: &Truth, due: bool) -> Option<Value> {
    let fault = truth.fault.as_ref()?;
    let facts = fault.kind.facts();
    let alike = |wanted: &dyn Fn(FaultKind) -> bool| {
        let is_wanted = |alike: &&Truth| alike.fault.as_ref().is_some_and(|fault| wanted(fault.kind));
        truth.alike.as_deref().filter(is_wanted)
    };
    let path = alike(&|kind| kind.facts().level == FaultLevel::HostPair).map(|alike| &alike.hosts);
    Some(json!({
        "fault": fault.to_string(),
        "kind": fault.kind.as_str(),
        "source": facts.source,
        "breaks": facts.breaks.trim(),
        "level": level(facts.level),
        "severity": (!facts.severity.is_empty()).then(|| fault.severity()),
        "severity_means": facts.severity,
        "ramp_s": fault.ramp_s,
        "every_s": fault.every_s,
        "hosts": truth.hosts,
        "ranks": truth.ranks,
        "indistinguishable_hosts": truth.either,
        "indistinguishable_ranks": truth.either_ranks,
        "indistinguishable_path": path,
        // The older name of the field above: readers of older labels look for it.
        "indistinguishable_way": path,
        "indistinguishable_kind": alike(&|_| true).and_then(|alike| Some(alike.fault.as_ref()?.kind.as_str())),
        "from": time(truth.at_ms),
        "until": truth.until_ms.map(time),
        "right": {
            "what": facts.whats.iter().map(|what: &What| what.as_str()).collect::<Vec<_>>(),
            "category": facts.categories.iter().map(|category: &Category| category.as_str()).collect::<Vec<_>>(),
        },
        "tempting": facts.tempting,
        "stops_job": fault.kind.stops_job(),
        "due": due,
    }))
}

/// The whole label of a run.
pub(crate) fn truth(scenario: &Scenario, truths: &[Truth]) -> Value {
    // Without cases a judgement says what there is to be noticed.
    let judgement = judge(truths, &[], end_ms(scenario));
    let due = |number: usize| judgement.outcomes.iter().any(|outcome| outcome.fault == number && outcome.due);
    let faults = truths.iter().enumerate().filter_map(|(number, truth)| fault(truth, due(number)));
    json!({
        "version": TRUTH_VERSION,
        "scenario": scenario.name,
        "seed": scenario.seed,
        "hosts": scenario.hosts,
        "ranks": scenario.world(),
        "parallelism": {"tp": scenario.tp, "pp": scenario.pp, "dp": scenario.dp, "cp": scenario.cp, "ep": scenario.layout().ep},
        "from": time(EPOCH / NANOS_PER_MS),
        "until": time(end_ms(scenario)),
        "healthy": judgement.outcomes.is_empty(),
        "faults": faults.collect::<Vec<_>>(),
    })
}

/// A JSON file as people can read it.
pub(crate) fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
