//! `mycroft sim act`: a simulated job with faults, and what plans win back when they are carried out.
mod common;

use common::{refusal, say};
use std::fs;

/// Four stages of four replicas, iterations of about 0.2 s: a path is slow from 10 s on, a device from 40 to 60 s.
const TWO_FAULTS: &str = r#"
name = "two-faults"
hosts = 16
ranks_per_host = 1
tp = 1
pp = 4
dp = 4
micro_batches = 8
layers = 1
forward_ms = 4.0
backward_ms = 8.0
optimizer_ms = 1.0
pp_bytes = 4096
dp_bytes = 1000000
nic_bytes_per_sec = 20000000
jitter = 0.01
warm_up_iterations = 0
duration_s = 75.0
[[faults]]
kind = "network-congestion"
host = 4
peer_host = 5
severity = 0.8
after_s = 10.0
lasts_s = 65.0
[[faults]]
kind = "gpu-power"
host = 10
rank = 10
severity = 2.5
after_s = 40.0
lasts_s = 20.0
"#;

#[test]
fn plans_are_carried_out_and_win_most_of_the_loss_back() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("two-faults.toml");
    fs::write(&file, TWO_FAULTS).unwrap();
    let file = file.to_str().unwrap();
    let said = say(&["sim", "act", file, "--split-cost", "0.2", "--move-cost", "2", "--restart-cost", "600"]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{said:?}");
    let text = said.stdout;
    let actions: Vec<&str> =
        text.lines().filter_map(|line| line.split(" | ").nth(1)).filter(|what| what.starts_with('S')).collect();
    assert!(
        matches!(&actions[..], [a, b, c] if a.starts_with("S3") && b.starts_with("S2:") && *c == "S2 taken back"),
        "{text}"
    );
    let removed = text.split("**").nth(1).and_then(|words| words.split(' ').next()).unwrap();
    assert!(removed.parse::<f64>().unwrap() >= 50.0, "{text}");
}

#[test]
fn a_scenario_that_is_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("places.toml");
    fs::write(&file, "[life]\nplaces = [0, 1]\n").unwrap();
    let error = refusal(&["sim", "act", file.to_str().unwrap()]);
    assert!(error.contains("places.toml:2: life.places: expected each host"), "{error}");
}
