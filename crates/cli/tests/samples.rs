//! What earlier releases told as JSON and TOML must stay true: other people's programs read it. `testdata/vN` holds what
//! commands of a release wrote; today's output of the same command has all its fields with the same types.
mod common;

use common::{end, mycroft};
use mycroft_serve::api::ReportJson;
use mycroft_serve::autopsy::AutopsyJson;
use mycroft_sim::scenario::Scenario;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Releases whose output is kept, oldest first.
const VERSIONS: &[&str] = &["v1"];

fn sample_path(version: &str, name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata").join(version).join(name)
}

fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every field of `old`, by its path, that `new` lacks or has with another type. Lists are compared by their first items;
/// null was or is a value that is not known.
fn missing(at: &str, old: &Value, new: &Value, found: &mut Vec<String>) {
    match (old, new) {
        (Value::Null, _) | (_, Value::Null) => {}
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in old {
                match new.get(name) {
                    Some(now) => missing(&format!("{at}.{name}"), value, now, found),
                    None => found.push(format!("{at}.{name} is gone")),
                }
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            if let (Some(old), Some(new)) = (old.first(), new.first()) {
                missing(&format!("{at}[]"), old, new, found);
            }
        }
        _ if std::mem::discriminant(old) == std::mem::discriminant(new) => {}
        _ => found.push(format!("{at} was {old} and is {new}")),
    }
}

fn same_fields(name: &str, now: &Value) {
    for version in VERSIONS {
        let mut found = Vec::new();
        missing(name, &read(&sample_path(version, name)), now, &mut found);
        assert!(found.is_empty(), "{version}: {found:#?}");
    }
}

/// Runs a command that must say JSON, whatever it exits with.
fn json(args: &[&str]) -> Value {
    end(mycroft(args)).json()
}

#[test]
fn a_simulated_run_and_its_replay_tell_what_they_told() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run").display().to_string();
    let run = json(&["sim", "run", "--ranks", "16", "--fault", "gpu-hang@host0:rank5", "--json", "--out", &out]);
    same_fields("run.json", &run);
    same_fields("truth.json", &read(&Path::new(&out).join("truth.json")));
    same_fields("replay.json", &json(&["replay", &out, "--json"]));
}

#[test]
fn scores_and_corpora_tell_what_they_told() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("corpus").display().to_string();
    same_fields("score.json", &json(&["sim", "score", "--seeds", "6..7", "--family", "mycroft", "--json"]));
    let said = end(mycroft(&["sim", "corpus", "--seeds", "6..7", "--family", "mycroft", "--out", &out]));
    assert_eq!(said.code, Some(0), "{said:?}");
    same_fields("index.json", &read(&Path::new(&out).join("index.json")));
}

#[test]
fn an_autopsy_tells_what_it_told() {
    let dumps = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/dumps/killed-hook-1").display().to_string();
    same_fields("autopsy.json", &json(&["autopsy", &dumps, "--json"]));
}

#[test]
fn the_flows_of_a_capture_tell_what_they_told() {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/capture/pcapng_big");
    same_fields("flow.json", &json(&["flow", &corpus.display().to_string(), "--operations", "--json"]));
}

#[test]
fn reports_autopsies_and_scenarios_of_every_version_are_read() {
    for version in VERSIONS {
        let replay = read(&sample_path(version, "replay.json"));
        let report: ReportJson = serde_json::from_value(replay["reports"][0].clone()).expect("a report");
        assert_eq!(report.cases[0].suspects[0].rank, Some(5), "{version}");
        let autopsy: AutopsyJson =
            serde_json::from_value(read(&sample_path(version, "autopsy.json"))).expect("an autopsy");
        assert_eq!(autopsy.verdict.what, "crash", "{version}");
        let scenario = Scenario::load(&sample_path(version, "scenario.toml")).expect("a scenario");
        assert_eq!((scenario.hosts, scenario.tp, scenario.all_faults().count()), (2, 8, 1), "{version}");
    }
}
