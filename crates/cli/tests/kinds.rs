//! Kinds of evidence of one job, added and taken away: dumps, stacks and what the job printed. Together they are never worse than
//! either, and no part alone accuses an innocent.
mod common;

use common::say;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// What of a job is left.
const KINDS: [&str; 3] = ["pickle", "pyspy", "log"];
/// The log alone, as a set of these.
const LOG: u32 = 1 << 2;
/// A host on which nothing is wrong, and a loop that goes on evenly until it stops.
const NEUTRAL: [(&str, &str); 2] = [
    (
        "dmesg.txt",
        "[Sat Nov 21 13:00:00 2026] eth0: link becomes ready\n[Sat Nov 21 13:00:01 2026] systemd[1]: Started.\n",
    ),
    ("versions.txt", "mycroft 0.1.0\nkernel Linux 6.8.0\n"),
];

/// A rank that crashed left no stack, and nothing tells that it was there: who polls for its message is asleep as a culprit is.
const OPEN: [(&str, &[&str]); 1] = [("crashed-gloo-1", &["pyspy"])];

/// A job, and what is true of it.
struct Job {
    name: String,
    temp: tempfile::TempDir,
    culprits: BTreeSet<u64>,
    /// It goes on slowly: stacks show one moment of it, dumps that nothing is stuck.
    is_slow: bool,
}

impl Job {
    fn new(folder: &Path) -> Job {
        let truth: Value = serde_json::from_slice(&fs::read(folder.join("truth.json")).unwrap()).unwrap();
        let temp = tempfile::tempdir().unwrap();
        for kind in ["pickle", "pyspy"] {
            fs::create_dir(temp.path().join(kind)).unwrap();
            for file in fs::read_dir(folder.join(kind)).into_iter().flatten().map(Result::unwrap) {
                fs::copy(file.path(), temp.path().join(kind).join(file.file_name())).unwrap();
            }
        }
        fs::create_dir(temp.path().join("log")).unwrap();
        if let Some(text) = printed(&truth) {
            fs::write(temp.path().join("log/job.log"), text).unwrap();
        }
        let culprits = truth["culprits"].as_array().unwrap().iter().map(|rank| rank.as_u64().unwrap()).collect();
        let is_slow = truth["what"].as_array().unwrap().iter().any(|what| what == "slow");
        Job { name: folder.file_name().unwrap().to_string_lossy().into_owned(), temp, culprits, is_slow }
    }

    /// The verdict from these kinds; `None`: none of them is there.
    fn verdict(&self, kinds: &[&str], more: &[&Path]) -> Option<Value> {
        let has = |kind: &&&str| fs::read_dir(self.temp.path().join(kind)).unwrap().next().is_some();
        let paths: Vec<PathBuf> = kinds.iter().filter(has).map(|kind| self.temp.path().join(kind)).collect();
        if paths.is_empty() {
            return None;
        }
        let paths: Vec<String> = paths
            .iter()
            .map(PathBuf::as_path)
            .chain(more.iter().copied())
            .map(|path| path.display().to_string())
            .collect();
        let said =
            say(&[&["autopsy", "--json", "--quiet"], &paths.iter().map(String::as_str).collect::<Vec<_>>()[..]]
                .concat());
        Some(said.json()["verdict"].clone())
    }
}

/// What torch's watchdog prints of a job whose ranks wait in an operation of the default group; `None` of another end.
fn printed(truth: &Value) -> Option<String> {
    let is_hang = truth["what"].as_array()?.iter().any(|what| what == "hang") && truth["group"] == "";
    let (seq, world) = (truth["seq"].as_u64().filter(|_| is_hang)?, truth["world"].as_u64()?);
    let op = truth["collective"].as_str()?.replace('_', "").to_uppercase();
    let mut text = String::new();
    let is_culprit = |rank: u64| truth["culprits"].as_array().is_some_and(|list| list.contains(&rank.into()));
    for rank in (0..world).filter(|rank| !is_culprit(*rank)) {
        let _ = writeln!(
            text,
            "[rank{rank}]:[E1121 13:51:32.665 ProcessGroupNCCL.cpp:688] [Rank {rank}] Watchdog caught collective operation \
             timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=16, NumelOut=16, Timeout(ms)=600000) ran for 600012 \
             milliseconds before timing out."
        );
    }
    Some(text)
}

fn named(verdict: &Value) -> BTreeSet<u64> {
    let suspects = verdict["suspects"].as_array().map_or(&[][..], Vec::as_slice);
    suspects.iter().filter_map(|suspect| suspect["rank"].as_u64()).collect()
}

fn jobs() -> Vec<Job> {
    let dumps = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dumps");
    let mut folders: Vec<PathBuf> = fs::read_dir(dumps).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    folders.iter().filter(|folder| folder.join("truth.json").exists()).map(|folder| Job::new(folder)).collect()
}

#[test]
fn together_they_are_never_worse_and_none_accuses_an_innocent() {
    let (mut wrong, mut logs) = (String::new(), 0);
    for job in jobs() {
        let mut right: Vec<u32> = Vec::new();
        logs += usize::from(job.temp.path().join("log/job.log").exists());
        for set in 1_u32..1 << KINDS.len() {
            let kinds: Vec<&str> = (0..KINDS.len()).filter(|at| set >> at & 1 == 1).map(|at| KINDS[at]).collect();
            let Some(verdict) = job.verdict(&kinds, &[]) else { continue };
            let named = named(&verdict);
            if !named.is_subset(&job.culprits) && !OPEN.contains(&(job.name.as_str(), &kinds)) {
                let _ = writeln!(wrong, "{}: {kinds:?} name {named:?}, and {:?} are to blame", job.name, job.culprits);
            }
            // A stack may show that a rank of which the log says nothing is in an operation as well.
            let weakens = kinds == ["pyspy", "log"];
            let better = right.iter().find(|part| **part & set == **part && !(weakens && **part == LOG));
            if let Some(part) = better.filter(|_| named != job.culprits && !job.is_slow) {
                let _ =
                    writeln!(wrong, "{}: {kinds:?} name {named:?}, part {part:b} alone {:?}", job.name, job.culprits);
            }
            if !job.culprits.is_empty() && named == job.culprits {
                right.push(set);
            }
        }
    }
    assert!(logs >= 8, "{logs} jobs with a log of their own");
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn files_that_say_nothing_change_nothing() {
    let neutral = tempfile::tempdir().unwrap();
    for (name, text) in NEUTRAL {
        fs::write(neutral.path().join(name), text).unwrap();
    }
    for job in jobs() {
        let [alone, beside] = [&[][..], &[neutral.path()]].map(|more| job.verdict(&["pickle", "pyspy"], more).unwrap());
        assert_eq!((named(&alone), &alone["what"]), (named(&beside), &beside["what"]), "{}", job.name);
    }
}
