//! The recorded runs of the testbed: what agents shipped, and what the launcher knew.
use mycroft_record::{Batch, NANOS_PER_MS, Record, Sampled, Source};
use mycroft_sim::Truth;
use mycroft_wire::codec;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Every recorded run; a test holds this list to the directory's content.
pub(crate) const RUNS: [&str; 12] = [
    "background-compute",
    "background-traffic",
    "gpu-hang",
    "gpu-power",
    "healthy-ring",
    "healthy-tree-moe",
    "nic-bandwidth",
    "nic-down",
    "pcie-downgrade",
    "proxy-delay",
    "rank-crash",
    "rank-stuck",
];

/// A file of a run.
pub(crate) fn path(name: &str, extension: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded").join(format!("{name}.{extension}"))
}

/// The batches of a run, frame behind frame.
pub(crate) fn batches(name: &str) -> Vec<Batch> {
    let bytes = std::fs::read(path(name, "frames")).unwrap();
    let mut batches = Vec::new();
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let (frame, behind) = rest.split_at(codec::header(rest).unwrap().frame_bytes);
        batches.extend(codec::decode(frame).unwrap().batches);
        rest = behind;
    }
    batches
}

/// What the launcher said of a run.
pub(crate) fn said(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path(name, "json")).unwrap()).unwrap()
}

/// What was really done in a run.
pub(crate) fn truth(name: &str) -> Truth {
    let truth = &said(name)["truth"];
    let list = |field: &str| truth[field].as_array().unwrap().clone();
    Truth {
        fault: truth["fault"].as_str().map(|fault| fault.parse().unwrap()),
        hosts: list("hosts").iter().map(|host| host.as_str().unwrap().to_owned()).collect(),
        ranks: list("ranks").iter().map(|rank| u32::try_from(rank.as_u64().unwrap()).unwrap()).collect(),
        at_ms: truth["at_ms"].as_u64().unwrap(),
        ..Truth::healthy()
    }
}

/// What today's agent would have shipped: it tells a look at a process twice a second, or when it turns
/// (docs/formats/record.md). The runs were recorded when every change of a count was told.
pub(crate) fn as_told_today(mut batches: Vec<Batch>) -> Vec<Batch> {
    let mut last: BTreeMap<Source, Sampled> = BTreeMap::new();
    for batch in &mut batches {
        let source = batch.source.clone();
        batch.records.retain(|record| {
            let Record::Sampled(now) = record else { return true };
            let what = |s: &Sampled| (s.alive, s.stopped, s.ops_in_flight == 0, s.flows_in_flight == 0);
            let is_due = |last: &Sampled| now.at.since_ns(last.at) >= 500 * NANOS_PER_MS;
            let is_told = last.get(&source).is_none_or(|last| what(last) != what(now) || is_due(last));
            if is_told {
                last.insert(source.clone(), *now);
            }
            is_told
        });
    }
    batches.retain(|batch| !batch.records.is_empty());
    batches
}
