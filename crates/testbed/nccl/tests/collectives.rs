//! Every collective against a plain reference: all types and reductions, random shapes, ring and tree, both transports.

mod common;

use common::*;
use mycroft_testbed_nccl::abi::{Algo, DType, Func, RedOp};

const COLLECTIVES: [Func; 5] = [Func::AllReduce, Func::ReduceScatter, Func::AllGather, Func::Broadcast, Func::Reduce];

#[test]
fn two_ranks_all_reduce_over_the_network() {
    let case = Case { func: Func::AllReduce, dtype: DType::F32, op: RedOp::Sum, count: 100_000, root: 0 };
    check(&World::new(2, 2), case, false);
}

#[test]
fn two_ranks_all_reduce_in_shared_memory() {
    let case = Case { func: Func::AllReduce, dtype: DType::F32, op: RedOp::Sum, count: 100_000, root: 0 };
    check(&World::new(2, 1), case, false);
}

#[test]
fn every_type_and_reduction() {
    for dtype in DType::ALL {
        for op in RedOp::ALL {
            for algo in [Algo::Ring, Algo::Tree] {
                let case = Case { func: Func::AllReduce, dtype, op, count: 1000, root: 0 };
                check(&World::new(3, 2).algo(algo), case, op == RedOp::Avg);
            }
        }
    }
}

#[test]
fn sixty_four_megabytes() {
    let case = Case { func: Func::AllReduce, dtype: DType::I32, op: RedOp::Sum, count: (64 << 20) / 4, root: 0 };
    check(&World::new(4, 2), case, true);
}

#[test]
fn a_single_rank_copies() {
    for func in COLLECTIVES {
        for op in [RedOp::Sum, RedOp::Avg] {
            check(&World::new(1, 1), Case { func, dtype: DType::F16, op, count: 77, root: 0 }, false);
        }
    }
}

mod random {
    use super::*;
    use proptest::prelude::*;

    fn shape() -> impl Strategy<Value = (World, Case, bool)> {
        let world =
            (1usize..=16, 1usize..=4, any::<bool>(), 1usize..=4, prop_oneof![Just(8usize), Just(64), Just(512)]);
        let size = prop_oneof![4 => 1usize..300, 3 => 300usize..40_000, 1 => 40_000usize..700_000];
        let what = (0usize..5, 0usize..12, 0usize..5, size, any::<u16>(), any::<bool>());
        (world, what).prop_map(|((ranks, hosts, tree, channels, kib), (f, d, o, bytes, root, in_place))| {
            let algo = if tree { Algo::Tree } else { Algo::Ring };
            let world = World { algo, channels, buffsize: kib * 1024, ..World::new(ranks, hosts.min(ranks)) };
            let dtype = DType::ALL[d];
            let count = (bytes / dtype.size()).max(1);
            let case = Case { func: COLLECTIVES[f], dtype, op: RedOp::ALL[o], count, root: usize::from(root) % ranks };
            (world, case, in_place)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

        #[test]
        fn shapes((world, case, in_place) in shape()) {
            check(&world, case, in_place);
        }
    }
}
