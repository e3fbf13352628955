//! The agent's spool: order, restarts, limits, damage, a killed writer.
mod common;

use common::step_batch;
use mycroft_wire::codec;
use mycroft_wire::spool::Spool;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

fn drain(spool: &mut Spool) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Some(frame) = spool.peek().unwrap() {
        frames.push(frame);
        spool.pop().unwrap();
    }
    frames
}

fn logs(dir: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let mut logs: Vec<PathBuf> = files.filter(|p| p.extension().is_some_and(|e| e == "spool")).collect();
    logs.sort();
    logs
}

#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    Pop,
    Reopen,
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// Against a plain queue: same frames in the same order, and what is missing was counted.
    #[test]
    fn behaves_like_a_queue_that_forgets_its_oldest(steps in proptest::collection::vec(
        prop_oneof![4 => (0..40_000usize).prop_map(Step::Push), 3 => Just(Step::Pop), 1 => Just(Step::Reopen)], 1..80)) {
        let dir = tempfile::tempdir().unwrap();
        const LIMIT: u64 = 400_000;
        let mut spool = Spool::open(dir.path(), LIMIT).unwrap();
        let mut model: VecDeque<Vec<u8>> = VecDeque::new();
        let mut dropped_before = 0;
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Push(size) => {
                    let frame = vec![number as u8; size];
                    spool.push(&frame, 1).unwrap();
                    model.push_back(frame);
                    let dropped = spool.dropped_records() - dropped_before;
                    dropped_before = spool.dropped_records();
                    model.drain(..dropped as usize);
                }
                Step::Pop => {
                    prop_assert_eq!(spool.peek().unwrap(), model.front().cloned());
                    spool.pop().unwrap();
                    model.pop_front();
                }
                Step::Reopen => {
                    drop(spool);
                    spool = Spool::open(dir.path(), LIMIT).unwrap();
                    dropped_before = 0;
                }
            }
            prop_assert_eq!(spool.len(), model.len());
            // Each has 16 bytes before it: length, checksum, count.
            let bytes = model.iter().map(|frame| frame.len() as u64 + 16).sum();
            prop_assert_eq!(spool.waiting(), (model.len() as u64, bytes));
            prop_assert!(spool.disk_bytes() <= LIMIT);
        }
        prop_assert_eq!(drain(&mut spool), Vec::from(model));
        prop_assert!(spool.is_empty() && logs(dir.path()).len() == 1);
    }
}

#[test]
fn a_torn_tail_is_cut_and_the_rest_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(dir.path(), 1 << 20).unwrap();
    for n in 0..5u8 {
        spool.push(&[n; 100], 1).unwrap();
    }
    drop(spool);
    let log = &logs(dir.path())[0];
    let whole = std::fs::read(log).unwrap();
    for cut in [1, 50, 107, 115] {
        std::fs::write(log, &whole[..whole.len() - cut]).unwrap();
        let mut spool = Spool::open(dir.path(), 1 << 20).unwrap();
        assert_eq!(spool.len(), 4, "cut {cut}");
        assert_eq!(spool.peek().unwrap().unwrap(), [0; 100]);
    }
}

/// Also a bit of a length, which may then lead behind the next entries, or to the middle of one.
#[test]
fn a_flipped_bit_costs_one_frame_and_its_records_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(dir.path(), 1 << 20).unwrap();
    let frames: Vec<Vec<u8>> = (0..5).map(|step| codec::encode(&[step_batch("job", 0, step)]).unwrap()).collect();
    frames.iter().for_each(|frame| spool.push(frame, 2).unwrap());
    drop(spool);
    let log = &logs(dir.path())[0];
    let whole = std::fs::read(log).unwrap();
    let starts: Vec<usize> = frames
        .iter()
        .scan(0, |at, frame| {
            *at += 16 + frame.len();
            Some(*at)
        })
        .collect();
    // The last entry has none behind it that shows where it ends; see `a_torn_tail_is_cut_and_the_rest_is_there`.
    for bit in (0..starts[3] * 8).step_by(3) {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(log.file_name().unwrap()), &flipped).unwrap();
        let mut spool = Spool::open(dir.path(), 1 << 20).unwrap();
        let hit = starts.iter().position(|end| bit / 8 < *end).unwrap();
        let rest: Vec<&Vec<u8>> =
            frames.iter().enumerate().filter(|(n, _)| *n != hit).map(|(_, frame)| frame).collect();
        let dropped = spool.dropped_records();
        assert_eq!(drain(&mut spool).iter().collect::<Vec<_>>(), rest, "bit {bit}");
        let in_count = (8..16).contains(&(bit / 8 - if hit == 0 { 0 } else { starts[hit - 1] }));
        assert!(dropped == 2 || in_count && dropped > 0, "bit {bit}: {dropped}");
    }
}

#[test]
fn a_frame_damaged_while_waiting_is_counted_not_sent() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(dir.path(), 1 << 20).unwrap();
    spool.push(&[1; 100], 7).unwrap();
    spool.push(&[2; 100], 5).unwrap();
    let log = &logs(dir.path())[0];
    let mut bytes = std::fs::read(log).unwrap();
    bytes[30] ^= 1;
    std::fs::write(log, bytes).unwrap();
    assert_eq!(spool.peek().unwrap().unwrap(), [2; 100]);
    assert_eq!((spool.dropped_records(), spool.len()), (7, 1));
}

#[test]
fn a_frame_larger_than_the_spool_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(dir.path(), 1000).unwrap();
    spool.push(&[1; 2000], 9).unwrap();
    assert_eq!((spool.len(), spool.dropped_records()), (0, 9));
}

#[test]
fn two_agents_cannot_share_a_spool() {
    let dir = tempfile::tempdir().unwrap();
    let _first = Spool::open(dir.path(), 1000).unwrap();
    let error = Spool::open(dir.path(), 1000).unwrap_err().to_string();
    assert!(error.contains("opening spool") && error.contains("other agent"), "{error}");
}

/// Whoever makes the folder first could otherwise have files emptied that only root may write.
#[test]
fn a_spool_with_links_in_it_is_refused_and_empties_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let target = temp.path().join("target");
    for name in ["lock", "head", "0000000001.spool"] {
        std::fs::write(&target, "precious").unwrap();
        let dir = temp.path().join(format!("spool-{name}"));
        drop(Spool::open(&dir, 1 << 20).unwrap());
        let _ = std::fs::remove_file(dir.join(name));
        std::os::unix::fs::symlink(&target, dir.join(name)).unwrap();
        let refused = Spool::open(&dir, 1 << 20).unwrap_err().to_string();
        assert!(refused.contains(&format!("{name} is a link")), "{refused}");
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious", "{name}");
    }
}
