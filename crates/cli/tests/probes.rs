//! Scenarios by hand that once showed where the diagnosis is wrong, and controls beside them: a table of verdicts. They lie
//! outside of the project; without them this says so.
mod common;

use common::mycroft;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What is not right yet. A name goes from here when its verdict is right; none is added.
const OPEN: [&str; 5] = ["p4", "p19", "p19l", "p21", "p43"];
/// What is right and takes long, and what a shorter one beside it says as well.
const LEFT_OUT: [&str; 6] = ["dyn", "p2b", "p3", "p3c", "p7", "p14"];

/// Name and file of each scenario; none where the folder is absent.
fn probes() -> BTreeMap<String, PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/probes");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: no {}", folder.display());
        return BTreeMap::new();
    };
    let files = entries.map(|entry| entry.unwrap().path());
    let scenarios = files.filter(|path| path.extension().is_some_and(|ending| ending == "toml"));
    scenarios.map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), path)).collect()
}

/// Plays a part of them; what was right must stay so.
fn play(part: usize, parts: usize) {
    let all = std::env::var_os("MYCROFT_ALL_SEEDS").is_some();
    let is_long = |name: &str| LEFT_OUT.contains(&name);
    let (mut table, mut wrong) = (String::new(), Vec::new());
    let played: Vec<(String, PathBuf)> = probes().into_iter().filter(|(name, _)| all || !is_long(name)).collect();
    for (name, path) in played.iter().skip(part).step_by(parts) {
        let said = mycroft(&["sim", "run", "--json", &path.display().to_string()]).output().unwrap();
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"));
        let right = value["correct"].as_bool().unwrap();
        let is_open = OPEN.contains(&name.as_str());
        let verdict = match (right, is_open) {
            (true, true) => "right, no longer open",
            (true, false) => "right",
            (false, true) => "open",
            (false, false) => "WRONG",
        };
        table += &format!("{name:8} {verdict:22} {}\n", value["why"].as_str().unwrap_or_default());
        if !right && !is_open {
            wrong.push(name);
        }
    }
    println!("{table}");
    assert!(wrong.is_empty(), "{wrong:?} were right before:\n{table}");
}

#[test]
fn scenarios_by_hand_stay_right_first_half() {
    play(0, 2);
}

#[test]
fn scenarios_by_hand_stay_right_second_half() {
    play(1, 2);
}
