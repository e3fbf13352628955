//! Iterations of thousands of operations.
mod cluster;
mod hand;

use cluster::{MS, T0};
use hand::{Hand, meta};
use mycroft_record::{HostTime, OpDone, OpMeta, Record};

const OPERATIONS: u64 = 3_000;

/// Two ranks do five iterations of three seconds and as many operations, of which the last is the gradients' sum.
#[test]
fn an_iteration_of_thousands_of_operations_is_measured_whole() {
    let mut hand = Hand::of(2, &[(1, "A", &[0, 1])]);
    for seq in 0..5 * OPERATIONS + 500 {
        let end = 1_000 + seq;
        let count = if seq % OPERATIONS == OPERATIONS - 1 { 1 << 20 } else { 1 << 12 };
        for rank in 0..2 {
            let (enqueued_at, started_at) = (HostTime(T0 + (end - 20) * MS), HostTime(T0 + end * MS - MS / 2));
            let op = OpMeta { count, enqueued_at, started_at, ..meta(1, seq, rank, true) };
            let ended_at = HostTime(T0 + end * MS);
            hand.tell(
                rank,
                ended_at,
                vec![Record::OpDone(OpDone { op, ended_first_at: ended_at, ended_at, flows: 0, observed: true })],
            );
        }
        if seq % 100 == 0 {
            [0, 1].iter().for_each(|rank| hand.look(*rank, end, &[], vec![]));
            hand.tick(end);
        }
    }
    let report = hand.engine.report(HostTime(T0 + 17_000 * MS));
    let usual_ms = report.ranks[0].iteration_ms.expect("three iterations were measured");
    assert!((usual_ms - 3_000.0).abs() < 10.0, "{usual_ms}");
    assert!(hand.engine.cases().is_empty(), "{}", hand.text(17_000));
}
