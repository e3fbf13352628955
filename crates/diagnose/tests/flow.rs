//! Operations in curves that are made up from operations: each is found again with its beginning, end and bytes.
use mycroft_diagnose::flow::{GAP_BOUNDS_NS, Operation, Point, Rule, kinds, rejoin, segment};
use proptest::prelude::*;

const EPOCH_NS: u64 = 32_000;
/// Epochs of a silence that ends an operation: a millisecond.
const LONG: u64 = 32;

/// An operation as stretches of epochs with bytes, each after so many empty ones.
type Stretches = Vec<(u64, Vec<u64>)>;

/// Epochs and their bytes.
type Curve = Vec<(u64, u64)>;
/// Beginning and end in nanoseconds, and bytes.
type Found = (u64, u64, u64);

/// Writes operations into a curve, each after a silence; says where each begins and ends.
fn curve(operations: &[(u64, Stretches)]) -> (Curve, Vec<Found>) {
    let (mut at, mut curve, mut truth) = (1000, Vec::new(), Vec::new());
    for (silence, stretches) in operations {
        at += silence;
        let (mut start, mut sum) = (None, 0);
        for (gap, epochs) in stretches {
            at += if start.is_some() { *gap } else { 0 };
            for bytes in epochs {
                start.get_or_insert(at);
                curve.push((at, *bytes));
                sum += bytes;
                at += 1;
            }
        }
        truth.push((start.unwrap_or(at) * EPOCH_NS, at * EPOCH_NS, sum));
    }
    (curve, truth)
}

fn found(operations: &[Operation]) -> Vec<Found> {
    operations.iter().map(|operation| (operation.start_ns, operation.end_ns, operation.bytes)).collect()
}

fn stretches(longest_gap: u64) -> impl Strategy<Value = Stretches> {
    let bytes = prop::collection::vec(1u64..800_000, 1..20);
    prop::collection::vec((1..=longest_gap, bytes), 1..6)
}

#[test]
fn what_is_sent_again_begins_no_operation_and_fills_none() {
    let point = |epoch, bytes, again_bytes, resumes| Point { epoch, bytes, again_bytes, resumes };
    // Half of the first operation and as much again of it; a late receiver; the rest; its last packet again after a timeout; the next.
    let curve = [
        point(1000, 500, 0, false),
        point(1001, 500, 500, false),
        point(1001 + LONG + 1, 500, 0, false),
        point(1001 + 5 * LONG, 10, 10, true),
        point(1001 + 9 * LONG, 1000, 0, false),
    ];
    let rule = Rule { volumes: vec![950], ..Rule::default() };
    let operations = segment(curve, EPOCH_NS, &rule);
    let told: Vec<(u64, u64, u32)> = operations.iter().map(|one| (one.bytes, one.again_bytes, one.pieces)).collect();
    assert_eq!(told, [(1000, 510, 3), (1000, 0, 1)]);
    assert_eq!(operations[0].end_ns, (1002 + 5 * LONG) * EPOCH_NS);
}

proptest! {
    /// Calls say a volume within a twentieth. A late receiver interrupts operations anywhere, also behind that, for longer than what
    /// follows them is silent.
    #[test]
    fn what_operations_send_each_time_says_where_they_end(
        late in prop::collection::vec((0u64..40, LONG..6 * LONG), 40),
        others in prop::collection::vec(1u64..500, 3),
    ) {
        // Of a thousand parts of a kilobyte each operation sends all; 950 are expected at least.
        let (mut operations, mut at) = (Vec::new(), 0);
        for (before_end, silence) in &late {
            let kind = at % 3;
            at += 1;
            let parts: Vec<u64> = vec![1_000 + others[kind]; 40];
            let split = 40 - *before_end as usize;
            let (first, second) = parts.split_at(split.min(40));
            let mut stretches = vec![(1, first.to_vec())];
            if !second.is_empty() {
                stretches.push((*silence, second.to_vec()));
            }
            operations.push((4 * LONG, stretches));
        }
        let (curve, truth) = curve(&operations);
        let volumes: Vec<u64> = others.iter().map(|more| (1_000 + more) * 40 * 95 / 100).collect();
        // Interruptions at one place in most operations of a kind are what operations are.
        let kinds: Vec<Vec<u64>> =
            (0..3).map(|kind| late.iter().skip(kind).step_by(3).map(|(before_end, _)| *before_end).collect()).collect();
        let most = |places: &Vec<u64>| (1..=2).map(|at| places.iter().filter(|it| **it == at).count()).max();
        prop_assume!(kinds.iter().all(|places| most(places) < Some(4)));
        let rule = Rule { volumes, ..Rule::default() };
        prop_assert_eq!(found(&segment(curve, EPOCH_NS, &rule)), truth);
    }

    #[test]
    fn short_gaps_end_nothing_and_long_ones_do(
        operations in prop::collection::vec((LONG..4 * LONG, stretches(LONG - 1)), 1..8),
    ) {
        let (curve, truth) = curve(&operations);
        let found_now = segment(curve.iter().copied(), EPOCH_NS, &Rule::default());
        prop_assert_eq!(found(&found_now), truth);
        for (operation, (_, stretches)) in found_now.iter().zip(&operations) {
            let epochs: usize = stretches.iter().map(|stretch| stretch.1.len()).sum();
            prop_assert_eq!(operation.actual_ns, epochs as u64 * EPOCH_NS);
            prop_assert_eq!(operation.gaps.sum_ns + operation.actual_ns, operation.duration_ns());
            prop_assert_eq!((operation.gaps.count() as usize, operation.pieces), (stretches.len() - 1, 1));
        }
    }

    #[test]
    fn with_the_expected_volume_a_late_receiver_ends_nothing(
        operations in prop::collection::vec((LONG..4 * LONG, stretches(6 * LONG)), 1..8),
    ) {
        let (curve, truth) = curve(&operations);
        let rule = Rule { volumes: truth.iter().map(|one| one.2).collect(), ..Rule::default() };
        let found_now = segment(curve.iter().copied(), EPOCH_NS, &rule);
        prop_assert_eq!(found(&found_now), truth);
        prop_assert!(found_now.iter().all(|operation| operation.is_complete));
        for (operation, (_, stretches)) in found_now.iter().zip(&operations) {
            let long = stretches.iter().skip(1).filter(|stretch| stretch.0 >= LONG).count();
            prop_assert_eq!(operation.pieces as usize, 1 + long);
        }
    }

    #[test]
    fn no_byte_and_no_epoch_is_lost_whatever_the_rule(
        operations in prop::collection::vec((0..4 * LONG, stretches(6 * LONG)), 0..8),
        gap_ns in 0u64..4_000_000, volumes in prop::collection::vec(0u64..9_000_000, 0..4), joins in any::<bool>(),
    ) {
        let (curve, truth) = curve(&operations);
        let mut found = segment(curve.iter().copied(), EPOCH_NS, &Rule { gap_ns, volumes });
        if joins {
            found = rejoin(found);
        }
        let sum = |of: fn(&Operation) -> u64| found.iter().map(of).sum::<u64>();
        prop_assert_eq!(sum(|one| one.bytes), truth.iter().map(|one| one.2).sum::<u64>());
        prop_assert_eq!(sum(|one| one.actual_ns), curve.len() as u64 * EPOCH_NS);
        for pair in found.windows(2) {
            prop_assert!(pair[1].start_ns >= pair[0].end_ns + gap_ns.min(EPOCH_NS) && pair[0].is_complete);
        }
        let members: usize = kinds(&found).iter().map(|kind| kind.members.len()).sum();
        prop_assert_eq!(members, found.len());
    }
}

/// Ten iterations of a large and a small operation; in the sixth the large one is silent for long, twice.
fn iterations() -> Vec<(u64, Stretches)> {
    let mut operations = Vec::new();
    for number in 0..10u64 {
        let large = vec![400_000 + number; 30];
        let parts = |cuts: &[usize]| -> Stretches {
            let mut rest = large.clone();
            cuts.iter().map(|count| (2 * LONG, rest.drain(..*count).collect())).collect()
        };
        operations.push((20 * LONG, if number == 5 { parts(&[7, 11, 12]) } else { parts(&[30]) }));
        operations.push((3 * LONG, vec![(1, vec![100_000; 5])]));
    }
    operations
}

#[test]
fn what_recurs_stands_for_the_expected_volume() {
    let (curve, truth) = curve(&iterations());
    let cut = segment(curve.iter().copied(), EPOCH_NS, &Rule::default());
    assert_eq!(cut.len(), 22, "each long silence ends one");
    let joined = rejoin(cut);
    assert_eq!(found(&joined), truth);
    assert_eq!(joined.iter().map(|one| one.pieces).max(), Some(3));
    let kinds = kinds(&joined);
    assert_eq!(kinds.len(), 2);
    assert_eq!((kinds[0].members.len(), kinds[0].members[1], kinds[1].bytes), (10, 2, 500_000));
    let period = (20 * LONG + 30 + 3 * LONG + 5) * EPOCH_NS;
    assert_eq!((kinds[0].period_ns, kinds[1].period_ns), (Some(period), Some(period)));
}

#[test]
fn what_recurs_is_joined_to_nothing() {
    // 10 + 20 is 30, and all three recur: these are three kinds of operations.
    let operations: Vec<(u64, Stretches)> =
        (0..12).map(|number| (2 * LONG, vec![(1, vec![100_000; [10, 20, 30][number % 3]])])).collect();
    let (curve, truth) = curve(&operations);
    let joined = rejoin(segment(curve.iter().copied(), EPOCH_NS, &Rule::default()));
    assert_eq!(found(&joined), truth);
    assert_eq!(kinds(&joined).len(), 3);
}

#[test]
fn an_operation_that_has_not_sent_all_is_incomplete() {
    let rule = Rule { volumes: vec![1000, 50], ..Rule::default() };
    let found = segment([(0, 600), (100, 400), (200, 60), (300, 10)], EPOCH_NS, &rule);
    let told: Vec<_> = found.iter().map(|one| (one.bytes, one.pieces, one.is_complete)).collect();
    assert_eq!(told, [(1000, 2, true), (60, 1, true), (10, 1, false)]);
}

#[test]
fn silences_are_counted_by_length() {
    let found = segment([(0, 1), (2, 1), (5, 1), (37, 1)], EPOCH_NS, &Rule { gap_ns: u64::MAX, ..Rule::default() });
    assert_eq!(found.len(), 1);
    let gaps = found[0].gaps;
    assert_eq!(gaps.counts[..5], [1, 1, 0, 0, 1], "32, 64 and 992 us: at most {GAP_BOUNDS_NS:?}");
    assert_eq!((gaps.longest_ns, gaps.sum_ns), (992_000, 1_088_000));
}
