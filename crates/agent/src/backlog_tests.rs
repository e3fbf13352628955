//! The backlog against a plain queue: what comes out, and what is told as lost, is all that went in.
use super::*;
use mycroft_record::{HostTime, ProcessKey, Rank, Record, StepMark};
use proptest::prelude::*;

fn source(rank: u32) -> Source {
    let process = ProcessKey { rank: Rank(rank), pid: 100 + rank, nonce: 1 };
    Source { job: "job".into(), host: "host".into(), process: Some(process) }
}

/// Marks whose numbers do not compress.
fn batch(rank: u32, first: u64, n: u64) -> Batch {
    let mark = |i: u64| StepMark { at: HostTime(1), step: crate::seen::fingerprint(&[first + i]) };
    let records = (0..n).map(|i| Record::StepMark(mark(i))).collect();
    Batch { source: source(rank), collected_at: HostTime(1), records }
}

fn total(lost: &Lost) -> u64 {
    lost.values().sum()
}

#[test]
fn frames_come_back_in_order_and_hold_their_sources() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut lost = Lost::new();
    let mut backlog = Backlog::open(dir.path(), 1 << 20).expect("a spool");
    assert!(!backlog.holds(&source(0)));
    backlog.push(&[batch(0, 0, 3), batch(1, 0, 4)], &mut lost).expect("room");
    backlog.push(&[batch(1, 4, 5)], &mut lost).expect("room");
    assert!(backlog.holds(&source(0)) && backlog.holds(&source(1)) && !backlog.holds(&source(2)));
    let frame = backlog.peek(&mut lost).expect("readable").expect("a frame");
    assert_eq!(codec::decode(&frame).expect("ours").batches, [batch(0, 0, 3), batch(1, 0, 4)]);
    assert_eq!(backlog.pop(None).expect("popped"), 2);
    assert!(!backlog.holds(&source(0)) && backlog.holds(&source(1)));
    drop(backlog);
    let mut backlog = Backlog::open(dir.path(), 1 << 20).expect("the same spool");
    assert!(backlog.holds(&source(7)), "what an earlier run left may be anybody's");
    assert_eq!(backlog.pop(None).expect("popped"), 0, "and nobody knows how many batches it has");
    assert!(!backlog.holds(&source(7)));
    assert!(lost.is_empty() && backlog.take_dropped() == 0);
}

#[test]
fn what_was_never_acknowledged_goes_before_what_waits() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut lost = Lost::new();
    let mut backlog = Backlog::open(dir.path(), 1 << 20).expect("a spool");
    (2..5).for_each(|n| backlog.push(&[batch(0, n, 1)], &mut lost).expect("room"));
    let older: Vec<_> = (0..2).map(|n| codec::encode(&[batch(0, n, 1)]).expect("a frame")).collect();
    backlog.push_before(&older, &mut lost).expect("room");
    for n in 0..5 {
        let frame = backlog.peek(&mut lost).expect("readable").expect("a frame");
        assert_eq!(codec::decode(&frame).expect("ours").batches, [batch(0, n, 1)]);
        backlog.pop(None).expect("popped");
    }
    assert_eq!(backlog.len(), 0);
}

#[test]
fn a_frame_larger_than_the_spool_is_lost_alone() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut lost = Lost::new();
    let mut backlog = Backlog::open(dir.path(), 4096).expect("a spool");
    backlog.push(&[batch(0, 0, 1)], &mut lost).expect("room");
    let reason = backlog.push(&[batch(1, 0, 2000)], &mut lost).expect_err("16 KB in 4 KiB");
    assert!(reason.contains("4096"), "{reason}");
    assert_eq!(lost.get(&source(1)), Some(&2000));
    assert_eq!((lost.len(), backlog.len(), backlog.take_dropped()), (1, 1, 2000));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn every_record_comes_out_or_is_told_as_lost(
        steps in prop::collection::vec((0u32..3, 1u64..1500, any::<bool>()), 1..60)
    ) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut lost = Lost::new();
        let mut backlog = Backlog::open(dir.path(), 100 << 10).expect("a spool");
        let mut pushed: BTreeMap<Source, u64> = BTreeMap::new();
        let mut popped: BTreeMap<Source, u64> = BTreeMap::new();
        let mut pop = |backlog: &mut Backlog, lost: &mut Lost| {
            let Some(frame) = backlog.peek(lost).expect("readable") else { return false };
            for batch in codec::decode(&frame).expect("ours").batches {
                *popped.entry(batch.source).or_default() += batch.records.len() as u64;
            }
            backlog.pop(None).expect("popped");
            true
        };
        let mut dropped = 0;
        for (rank, n, take) in steps {
            backlog.push(&[batch(rank, 0, n), batch(9, 0, 1)], &mut lost).expect("it fits");
            *pushed.entry(source(rank)).or_default() += n;
            *pushed.entry(source(9)).or_default() += 1;
            if take {
                pop(&mut backlog, &mut lost);
            }
            dropped += backlog.take_dropped();
            prop_assert_eq!(total(&lost), dropped);
        }
        while pop(&mut backlog, &mut lost) {}
        for (source, n) in pushed {
            let out = popped.get(&source).copied().unwrap_or(0) + lost.get(&source).copied().unwrap_or(0);
            prop_assert_eq!(out, n, "{:?}", source);
        }
    }
}
