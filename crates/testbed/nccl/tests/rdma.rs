//! Collectives over RDMA whose network loses packets, and what is seen of a peer that has no device.

mod common;

use common::rdma::world;
use common::*;
use mycroft_testbed_nccl::abi::{Algo, DType, Func, RedOp};

/// One packet in two hundred is lost, three come late; 4 ms until what nobody asks for is sent again.
const LOSSY: [(&str, &str); 2] =
    [("MYCROFT_VERBS_FAULTS", "drop=0.005,reorder=0.015,seed=11"), ("NCCL_IB_TIMEOUT", "10")];

#[test]
fn every_collective_is_right_on_a_lossy_network() {
    let collectives = [Func::AllReduce, Func::ReduceScatter, Func::AllGather, Func::Broadcast, Func::Reduce];
    for (func, algo) in collectives.into_iter().flat_map(|func| [(func, Algo::Ring), (func, Algo::Tree)]) {
        for count in [1, 1000, 300_000] {
            let case = Case { func, dtype: DType::F32, op: RedOp::Sum, count, root: 1 };
            check(&world(3, 0, &LOSSY).algo(algo), case, false);
        }
    }
}

#[test]
fn small_slots_and_many_channels() {
    let case = Case { func: Func::AllReduce, dtype: DType::I32, op: RedOp::Sum, count: 100_003, root: 0 };
    check(&World { channels: 8, buffsize: 16 * 1024, ..world(2, 4, &LOSSY) }, case, true);
}
