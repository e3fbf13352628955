//! Micro-batches: against every possible split, and GREYHOUND's own run.
use mycroft_diagnose::mitigate::split::{MICRO_BATCHES_MAX, Replica, Split, SplitError, TIME_NS_MAX, even, split};
use proptest::prelude::*;

/// Calls `look` with every way to give `left` micro-batches to the replicas.
fn each_way(replicas: &[Replica], left: u32, taken: &mut Vec<u32>, look: &mut dyn FnMut(&[u32])) {
    let rest = (replicas.len() - taken.len()) as u32;
    if rest == 0 {
        if left == 0 {
            look(taken);
        }
        return;
    }
    let limit = replicas[taken.len()].limit.unwrap_or(u32::MAX);
    for count in 1..=limit.min(left.saturating_sub(rest - 1)) {
        taken.push(count);
        each_way(replicas, left - count, taken, look);
        taken.pop();
    }
}

/// Times of a split, slowest replica first.
fn times(replicas: &[Replica], counts: &[u32]) -> Vec<u64> {
    let mut times: Vec<u64> = replicas.iter().zip(counts).map(|(replica, count)| replica.time_ns(*count)).collect();
    times.sort_unstable_by(|a, b| b.cmp(a));
    times
}

fn replicas() -> impl Strategy<Value = Vec<Replica>> {
    let stages = prop::collection::vec(1u64..30, 1..4);
    let one = (stages, prop::option::weighted(0.3, 1u32..6))
        .prop_map(|(stages, limit)| Replica { limit, ..Replica::pipeline(&stages) });
    prop::collection::vec(one, 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn no_other_split_is_faster(replicas in replicas(), micro_batches in 1u32..13) {
        let mut best: Option<Vec<u64>> = None;
        each_way(&replicas, micro_batches, &mut Vec::new(), &mut |counts| {
            let times = times(&replicas, counts);
            if best.as_ref().is_none_or(|best| times < *best) {
                best = Some(times);
            }
        });
        match split(&replicas, micro_batches) {
            Ok(found) => {
                prop_assert_eq!(found.micro_batches.iter().sum::<u32>(), micro_batches);
                let limits = replicas.iter().zip(&found.micro_batches);
                prop_assert!(limits.into_iter().all(|(replica, count)| (1..=replica.limit.unwrap_or(99)).contains(count)));
                // Not the slowest alone: all of them, slowest first.
                prop_assert_eq!(Some(times(&replicas, &found.micro_batches)), best.clone());
                prop_assert_eq!(Some(found.time_ns), best.and_then(|best| best.first().copied()));
            }
            Err(error) => prop_assert_eq!(best, None, "{}", error),
        }
    }

    #[test]
    fn weights_keep_the_mean_gradient(replicas in replicas(), micro_batches in 1u32..30, seed in 0u32..1000) {
        let Ok(found) = split(&replicas, micro_batches) else { return Ok(()) };
        let gradients: Vec<f64> = (0..micro_batches).map(|at| f64::from(at.wrapping_mul(seed) % 17) - 8.0).collect();
        let mut rest = gradients.as_slice();
        let mut weighted = 0.0;
        for (count, weight) in found.micro_batches.iter().zip(found.weights()) {
            let (own, others) = rest.split_at(*count as usize);
            weighted += weight * own.iter().sum::<f64>() / f64::from(*count);
            rest = others;
        }
        let mean = gradients.iter().sum::<f64>() / f64::from(micro_batches);
        prop_assert!((weighted - mean).abs() < 1e-9, "{} and {}", weighted, mean);
    }
}

#[test]
fn an_even_split_of_equal_replicas_stays() {
    let equal = vec![Replica::pipeline(&[3, 5, 4]); 4];
    assert_eq!(split(&equal, 32), even(&equal, 32));
    let Split { micro_batches, time_ns } = split(&equal, 34).expect("fits");
    assert_eq!((micro_batches, time_ns), (vec![9, 9, 8, 8], 7 + 9 * 5));
}

#[test]
fn greyhounds_run_is_planned_as_it_was() {
    // Times of its own log: one of four devices clocked down; its solver took [9, 6, 9, 8].
    let replicas: Vec<Replica> =
        [1_052_280_000, 1_471_500_000, 1_052_280_000, 1_052_280_000].map(Replica::single).to_vec();
    let found = split(&replicas, 32).expect("fits");
    assert_eq!(found.micro_batches, [9, 6, 9, 8]);
    assert_eq!(found.time_ns, 9 * 1_052_280_000);
    assert_eq!(even(&replicas, 32).expect("fits").time_ns, 8 * 1_471_500_000);
}

#[test]
fn a_pipeline_is_filled_once_and_then_paced_by_its_slowest_stage() {
    let replica = Replica::pipeline(&[10, 15, 10]);
    assert_eq!((replica.time_ns(1), replica.time_ns(4)), (35, 35 + 3 * 15));
    // A long pipeline has few micro-batches, however fast each is.
    let found = split(&[Replica { fill_ns: 500, each_ns: 10, limit: None }, Replica::single(10)], 60).expect("fits");
    assert_eq!(found.micro_batches, [5, 55]);
}

#[test]
fn what_cannot_be_divided_is_refused() {
    let two = [Replica::single(1), Replica::single(1)];
    assert_eq!(split(&[], 4), Err(SplitError::NoReplica));
    assert_eq!(split(&two, 1), Err(SplitError::TooFew));
    assert_eq!(split(&[two[0].at_most(3), two[1].at_most(2)], 6), Err(SplitError::TooMany));
    assert_eq!(split(&two, MICRO_BATCHES_MAX + 1), Err(SplitError::TooMany));
    assert_eq!(split(&[Replica::single(0)], 4), Err(SplitError::Time));
    assert_eq!(split(&[Replica::single(TIME_NS_MAX + 1)], 4), Err(SplitError::Time));
    // The largest that is allowed does not overflow.
    let slow = Replica { fill_ns: TIME_NS_MAX, each_ns: TIME_NS_MAX, limit: None };
    assert_eq!(
        split(&[slow], MICRO_BATCHES_MAX).expect("fits").time_ns,
        TIME_NS_MAX * u64::from(MICRO_BATCHES_MAX + 1)
    );
}
