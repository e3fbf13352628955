//! Places: against every permutation, and the moves of FALCON's Figures 10 and 11.
use mycroft_diagnose::mitigate::place::{HEALTHY, Job, Pace, PlaceError, SlowPath, Waits, ring_ns};
use proptest::prelude::*;

/// A healthy job of so many stages and columns.
fn healthy(stages: usize, columns: usize) -> Job {
    Job {
        stages_ns: vec![1000; stages],
        gradients_ns: vec![3000; stages],
        activations_ns: 100,
        micro_batches: 4,
        waits: Waits::EachIteration,
        hosts: vec![Pace::HEALTHY; stages * columns],
        paths: Vec::new(),
    }
}

fn as_started(job: &Job) -> Vec<usize> {
    (0..job.hosts.len()).collect()
}

/// The fastest of all permutations, looked at one by one.
fn fastest(job: &Job, placement: &mut Vec<usize>, fixed: usize) -> u64 {
    if fixed == placement.len() {
        return job.iteration_ns(placement).expect("a valid job");
    }
    let mut best = u64::MAX;
    for other in fixed..placement.len() {
        placement.swap(fixed, other);
        best = best.min(fastest(job, placement, fixed + 1));
        placement.swap(fixed, other);
    }
    best
}

fn jobs() -> impl Strategy<Value = Job> {
    let shapes = prop::sample::select(vec![(1, 4), (2, 2), (3, 1), (2, 3), (3, 2), (1, 5), (6, 1)]);
    shapes.prop_flat_map(|(stages, columns)| {
        let hosts = stages * columns;
        let pace = prop_oneof![3 => Just(HEALTHY), 2 => 1001u32..4000, 1 => Just(1500)];
        let network = prop_oneof![4 => Just(HEALTHY), 1 => 1001u32..9000];
        let host = (pace, network).prop_map(|(compute, network)| Pace { compute, network });
        let path = (0..hosts, 0..hosts, 1001u32..9000).prop_map(move |(one, other, network)| SlowPath {
            ends: (one, if one == other { (one + 1) % hosts } else { other }),
            network,
        });
        (
            prop::collection::vec(500u64..1500, stages),
            prop::collection::vec(0u64..5000, stages),
            (0u64..1500, 1u32..6, any::<bool>()),
            prop::collection::vec(host, hosts),
            prop::collection::vec(path, 0..3),
        )
            .prop_map(|(stages_ns, gradients_ns, (activations_ns, micro_batches, often), hosts, paths)| Job {
                stages_ns,
                gradients_ns,
                activations_ns,
                micro_batches,
                waits: if often { Waits::EachMicroBatch } else { Waits::EachIteration },
                hosts,
                paths,
            })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_permutation_is_faster(job in jobs(), turn in 0usize..6) {
        let mut present = as_started(&job);
        present.rotate_left(turn % job.hosts.len());
        let placed = job.place(&present).expect("a valid job");
        prop_assert!(placed.is_exact);
        prop_assert_eq!(placed.before_ns, job.iteration_ns(&present).expect("valid"));
        prop_assert_eq!(placed.after_ns, job.iteration_ns(&placed.placement).expect("a permutation"));
        prop_assert_eq!(placed.after_ns, fastest(&job, &mut as_started(&job), 0));
        // Once it is done, there is nothing left to do.
        prop_assert_eq!(job.place(&placed.placement).expect("valid").placement, placed.placement);
    }
}

/// Figure 10: the path between nodes 3 and 4 (here 2 and 3) is congested and carries gradients of the second stage.
#[test]
fn a_congested_path_leaves_the_ring() {
    let mut job = Job { activations_ns: 0, ..healthy(2, 2) };
    job.paths = vec![SlowPath { ends: (2, 3), network: 5 * HEALTHY }];
    let (before, papers) = (job.iteration_ns(&[0, 1, 2, 3]), job.iteration_ns(&[0, 2, 1, 3]));
    assert_eq!((before, papers), (Ok(5000 + 15_000), Ok(5000 + 3000)));
    let placed = job.place(&[0, 1, 2, 3]).expect("valid");
    assert_eq!((placed.after_ns, placed.is_exact), (8000, true));
    // Where activations count, the path carries nothing at all: its ends are neither in one row nor in one column.
    job.activations_ns = 900;
    let placed = job.place(&[0, 1, 2, 3]).expect("valid");
    let at = |host: usize| placed.placement.iter().position(|other| *other == host).expect("a permutation");
    let (one, other) = (at(2), at(3));
    assert!(one / 2 != other / 2 && one % 2 != other % 2, "{:?}", placed.placement);
    assert!(placed.after_ns < job.iteration_ns(&[0, 2, 1, 3]).expect("valid"), "better than the paper's move");
    assert_eq!(placed.placement.iter().enumerate().filter(|(at, host)| at != *host).count(), 2, "two hosts move");
}

/// Figure 11: 8 s with two slow devices in one stage, 8.5 s in two. Three stages of 1 s, four micro-batches, devices that take
/// half as long again, and no time for communication give those numbers.
#[test]
fn slow_devices_are_gathered_in_an_inner_stage() {
    let base = Job { stages_ns: vec![1_000_000; 3], gradients_ns: vec![0; 3], activations_ns: 0, ..healthy(3, 2) };
    let mut job = Job { waits: Waits::EachMicroBatch, ..base };
    job.hosts[0].compute = 1500;
    job.hosts[3].compute = 1500;
    let present = as_started(&job);
    assert_eq!(job.iteration_ns(&present), Ok(8_500_000));
    let placed = job.place(&present).expect("valid");
    assert_eq!((placed.after_ns, placed.is_exact), (8_000_000, true));
    let mut inner = placed.placement[2..4].to_vec();
    inner.sort_unstable();
    assert_eq!(inner, [0, 3], "both in the second of three stages: {:?}", placed.placement);
}

/// Without a wait in each micro-batch it is columns that must not hold two.
#[test]
fn slow_devices_are_kept_out_of_each_others_pipelines() {
    let mut job = healthy(3, 2);
    job.hosts[0].compute = 1500;
    job.hosts[2].compute = 1500;
    let placed = job.place(&as_started(&job)).expect("valid");
    let column = |host: usize| placed.placement.iter().position(|other| *other == host).expect("there") % 2;
    assert_ne!(column(0), column(2), "{:?}", placed.placement);
    let at_once = (placed.before_ns - placed.after_ns, placed.is_exact);
    assert_eq!(at_once, (500, true));
}

/// Three paths of six hosts: more than one stage holds, as in Figure 16.
#[test]
fn more_than_a_stage_holds_take_as_few_stages_as_hold_them() {
    let mut job = Job { waits: Waits::EachMicroBatch, ..healthy(4, 4) };
    for host in [0, 1, 5, 8, 9, 14] {
        job.hosts[host].compute = 2000;
    }
    let placed = job.place(&as_started(&job)).expect("valid");
    let slow = placed.placement.iter().enumerate().filter(|(_, host)| job.hosts[**host].compute > HEALTHY);
    let stages: std::collections::BTreeSet<usize> = slow.map(|(position, _)| position / 4).collect();
    assert_eq!(stages, [1, 2].into(), "{:?}", placed.placement);
}

#[test]
fn a_healthy_job_stays_where_it_is() {
    let job = healthy(4, 320);
    let placed = job.place(&as_started(&job)).expect("valid");
    assert_eq!((placed.placement, placed.is_exact), (as_started(&job), true));
}

#[test]
fn a_large_job_moves_few_hosts() {
    let mut job = healthy(16, 80);
    job.paths = vec![SlowPath { ends: (161, 162), network: 4 * HEALTHY }];
    for host in [3, 83, 163, 700] {
        job.hosts[host].compute = 1400;
    }
    let placed = job.place(&as_started(&job)).expect("valid");
    let moved = placed.placement.iter().enumerate().filter(|(at, host)| at != *host).count();
    assert!(moved <= 12, "{moved} hosts");
    let healthy_ns = healthy(16, 80).iteration_ns(&as_started(&job)).expect("valid");
    // What one slow device costs in a pipeline of its own stays: 4 times 400.
    assert_eq!(placed.after_ns, healthy_ns + 1600);
    assert!(placed.is_exact);
}

#[test]
fn what_cannot_be_placed_is_refused() {
    let job = healthy(2, 2);
    assert_eq!(job.place(&[0, 1, 2]).err(), Some(PlaceError::Placement));
    assert_eq!(job.place(&[0, 1, 2, 2]).err(), Some(PlaceError::Placement));
    let fast = Job { hosts: vec![Pace { compute: 999, network: HEALTHY }; 4], ..job.clone() };
    assert_eq!(fast.place(&[0, 1, 2, 3]).err(), Some(PlaceError::Pace));
    let odd = Job { stages_ns: vec![1; 3], gradients_ns: vec![0; 3], ..job.clone() };
    assert_eq!(odd.place(&[0, 1, 2, 3]).err(), Some(PlaceError::Shape));
    let nothing = Job { micro_batches: 0, ..job };
    assert_eq!(nothing.place(&[0, 1, 2, 3]).err(), Some(PlaceError::Time));
}

#[test]
fn volumes_are_times() {
    // 2 * 3 / 4 of 4 GB at 50 GB/s.
    assert_eq!(ring_ns(4_000_000_000, 4, 50_000_000_000), 120_000_000);
    assert_eq!(ring_ns(4_000_000_000, 1, 50_000_000_000), 0);
}
