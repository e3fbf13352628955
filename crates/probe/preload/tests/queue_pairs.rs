//! Whose queue pairs are whose: ranks over RDMA, whose lists name both ends of each connection, and nothing else changes.
mod common;

use common::agents::mycroft;
use common::{Job, Shape};
use mycroft_ring::{PAIRS_SUFFIX, PairsOf, QueuePair};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const RANKS: usize = 3;

fn shape(bare: bool, rounds: Option<u64>) -> Shape {
    Shape { ranks: RANKS, rounds, bare, apart: true, verbs: true, ..Shape::default() }
}

fn lists(job: &Job) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(job.segments()).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("readable").path());
    paths.filter(|path| path.to_string_lossy().ends_with(PAIRS_SUFFIX)).collect()
}

#[test]
fn both_ends_of_each_connection_are_listed_until_the_process_ends() {
    let mut job = Job::start(&shape(false, None));
    job.progress(11);
    let mut of: BTreeMap<u32, Vec<QueuePair>> = BTreeMap::new();
    for path in lists(&job) {
        let text = std::fs::read_to_string(path).expect("a list");
        let (who, pairs) = PairsOf::parse(&text).expect("a list");
        assert_eq!(who.job, "gate-test");
        of.insert(who.rank.expect("told"), pairs.collect());
    }
    assert_eq!(of.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
    for (rank, pairs) in &of {
        assert!(pairs.len() >= 2, "to the next rank and from the one before: {pairs:?}");
        for pair in pairs {
            let other = of.iter().filter(|(other, _)| *other != rank).flat_map(|(_, pairs)| pairs);
            let ends = other.filter(|other| (other.local, other.remote) == (pair.remote, pair.local));
            let ends: Vec<_> = ends.collect();
            assert!(ends.iter().any(|end| end.address != pair.address), "{pair:?} of rank {rank} has no other end");
        }
    }
    let folder = job.segments();
    job.stop();
    let left: Vec<_> = std::fs::read_dir(folder).into_iter().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The command names the ranks of each flow that a device sent: skips where it is not built.
#[test]
fn flows_of_a_capture_have_their_ranks() {
    let Some(mycroft) = mycroft() else { return };
    let captures = tempfile::tempdir().expect("a folder");
    let shape =
        Shape { env: vec![("MYCROFT_VERBS_PCAP", captures.path().display().to_string())], ..shape(false, None) };
    let mut job = Job::start(&shape);
    job.progress(11);
    for path in std::fs::read_dir(captures.path()).expect("captures").map(|entry| entry.expect("readable").path()) {
        // What a device writes last may be cut in the midst of a packet: the rest is shown.
        let output = Command::new(&mycroft)
            .args(["flow", "--top", "64", "--queue-pairs"])
            .args([&job.segments(), &path])
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let flows: Vec<&str> = text.lines().filter(|line| line.contains(" qp 0x")).collect();
        assert!(!flows.is_empty(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        // The names of files begin with the device's address, whose last number is the rank's.
        for flow in flows {
            let (_, ranks) = flow.split_once(", rank ").unwrap_or_else(|| panic!("{flow}"));
            let words: Vec<&str> = ranks.split_whitespace().collect();
            let [sender, "->", receiver] = words[..3] else { panic!("{flow}") };
            let number = |rank: &str| rank.parse::<usize>().unwrap_or_else(|_| panic!("{flow}"));
            let (sender, receiver) = (number(sender), number(receiver));
            assert_ne!(sender, receiver, "{flow}");
            let address = |rank: usize| format!(".{}", 1 + rank % 8 + last_of(&path) / 8 * 8);
            let (from, to) = flow.split_once(" -> ").expect("both ends");
            assert!(from.ends_with(&address(sender)), "{flow}");
            assert!(to.split(' ').next().is_some_and(|to| to.ends_with(&address(receiver))), "{flow}");
        }
    }
}

/// Of `127.1.2.11.PID.pcap` what the last number of the address is beyond 1.
fn last_of(path: &Path) -> usize {
    let name = path.file_name().expect("a file").to_string_lossy().into_owned();
    name.split('.').nth(3).and_then(|number| number.parse::<usize>().ok()).expect("an address") - 1
}

#[test]
fn results_are_those_without_it() {
    let results = |bare| Job::start(&shape(bare, Some(30))).results();
    assert_eq!(results(false), results(true));
}
