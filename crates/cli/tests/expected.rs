//! `scenarios/expected/NAME.txt`: what `mycroft sim run scenarios/NAME.toml` prints, but for how long it took.
//!
//! A change in any report shows here as a diff. `MYCROFT_UPDATE_GOLDEN=1` rewrites the files; read what changed.
mod common;

use common::diff::diff;
use common::say;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

/// Names of the files with an extension, without it.
fn names(folder: &Path, extension: &str) -> BTreeSet<String> {
    let paths = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let wanted = paths.filter(|path| path.extension().is_some_and(|found| found == extension));
    wanted.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect()
}

/// All that a run prints but its speed.
fn told(stdout: &str) -> String {
    let lines = stdout.lines().filter(|line| !line.starts_with("simulated "));
    format!("{}\n", lines.collect::<Vec<_>>().join("\n").trim())
}

#[test]
fn every_scenario_gives_the_report_that_is_expected_of_it() {
    let (scenarios, expected) = (folder(), folder().join("expected"));
    let update = std::env::var_os("MYCROFT_UPDATE_GOLDEN").is_some();
    let all: Vec<String> = names(&scenarios, "toml").into_iter().collect();
    let work = |names: &[String]| {
        let mut differ = String::new();
        for name in names {
            let said = say(&["sim", "run", &scenarios.join(format!("{name}.toml")).display().to_string()]);
            assert!(matches!(said.code, Some(0 | 1)), "{name}: {said:?}");
            let (got, golden) = (told(&said.stdout), expected.join(format!("{name}.txt")));
            let want = fs::read_to_string(&golden).unwrap_or_default();
            if update {
                fs::create_dir_all(&expected).unwrap();
                fs::write(&golden, &got).unwrap();
            } else if got != want {
                let _ = write!(differ, "\n{name}:\n{}", diff(&want, &got));
            }
        }
        differ
    };
    let differ: String = std::thread::scope(|scope| {
        let halves: Vec<_> = all.chunks(all.len().div_ceil(2)).map(|half| scope.spawn(|| work(half))).collect();
        halves.into_iter().map(|half| half.join().unwrap()).collect()
    });
    assert!(differ.is_empty(), "reports differ; MYCROFT_UPDATE_GOLDEN=1 rewrites them{differ}");
    let kept = names(&expected, "txt");
    assert_eq!(kept, all.into_iter().collect(), "a report for each scenario, and no other");
}

#[test]
fn a_diff_shows_what_changed_and_a_little_around_it() {
    let want = "a\nb\nc\nd\ne\nf\ng\n";
    assert_eq!(diff(want, want), "");
    assert_eq!(diff(want, "a\nb\nc\nD\ne\nf\ng\n"), "  b\n  c\n- d\n+ D\n  e\n  f\n");
    assert_eq!(diff("", "x\n"), "+ x\n");
    assert_eq!(diff("x\ny\n", "y\n"), "- x\n  y\n");
}
