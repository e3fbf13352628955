//! Algorithm, protocol, channels and warps of a collective by its size: NCCL's cost model (`graph/tuning.cc` of 2.27.5),
//! without what this library has not (CollNet, NVLS, PAT).
//!
//! Each algorithm and protocol costs a latency and its bytes over a bandwidth; the cheapest is taken. The machine that the
//! model is asked about is a host with eight H100 and one 400 Gb/s NIC a GPU: [`CHANNEL_GBPS`] over [`CHANNELS`].

use crate::abi::{Algo, Func, Proto};

/// Bandwidth of one channel, in GB/s: 400 Gb/s of a NIC are 48 GB/s of NCCL's scale, one channel each direction
/// (`graph/search.cc`, `sm90SpeedArrayInter`).
const CHANNEL_GBPS: f64 = 48.0;
/// Channels of the model's machine: one a NIC.
const CHANNELS: f64 = 8.0;
/// Bytes a thread moves at least before one more is used, by protocol (`include/comm.h`).
const THREAD_BYTES: [usize; 3] = [8, 8, 64];
/// Most threads of a channel, by protocol (`include/device.h`; Simple on a ring: 256 where the GPUs meet over PCIe, as in
/// the recorded runs).
const THREADS: [usize; 3] = [512, 640, 256];
/// Threads of a warp.
const WARP: usize = 32;
/// Threads of a tree, always.
const THREADS_MAX: usize = 640;

/// Start of a kernel, in microseconds: `baseLat`, by algorithm (tree, ring) and protocol.
const BASE_US: [[f64; 3]; 2] = [[6.8, 14.0, 8.4], [6.6, 14.0, 8.4]];
/// One hop over NVLink, in microseconds: `hwLat[NVLINK]`.
const NVLINK_US: [[f64; 3]; 2] = [[0.6, 1.25, 4.0], [0.6, 1.9, 3.4]];
/// One hop over the network, in microseconds: `hwLat[NET]`.
const NET_US: [[f64; 3]; 2] = [[5.0, 8.5, 14.0], [2.7, 4.0, 14.0]];
/// What posting to the network costs, in microseconds: `getNetOverhead`, three times for Simple.
const POST_US: f64 = 1.0;
/// LL at most, in GB/s, by hosts (1, 2, more): `llMaxBws`, Hopper inside a host, Intel between hosts.
const LL_GBPS: [f64; 3] = [141.0, 39.0, 20.4];
/// LL128 of a channel on a ring and on a tree at most, in GB/s: `perChMaxRingLL128Bws`, Hopper.
const LL128_GBPS: f64 = 36.7;
/// A channel of a tree at most, in GB/s, by hosts: `perChMaxTreeBws`, Hopper.
const TREE_GBPS: [f64; 3] = [38.7, 41.4, 36.0];

/// What a communicator knows that the choice depends on.
#[derive(Debug, Clone, Copy)]
pub struct Ground {
    /// Ranks.
    pub ranks: usize,
    /// Hosts.
    pub nodes: usize,
    /// Channels of the communicator.
    pub channels: usize,
    /// `NCCL_ALGO`, where it names one.
    pub algo: Option<Algo>,
    /// `NCCL_PROTO`, where it names one.
    pub proto: Option<Proto>,
}

/// How a collective is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Ring or tree.
    pub algo: Algo,
    /// LL, LL128 or Simple.
    pub proto: Proto,
    /// Channels that it may use.
    pub channels: usize,
    /// Warps of a channel.
    pub warps: u8,
}

/// The choice for `bytes` (those of all ranks together for AllGather and ReduceScatter).
#[must_use]
pub fn choose(func: Func, bytes: usize, ground: &Ground) -> Choice {
    let (algo, proto) = cheapest(func, bytes, ground);
    let (channels, warps) = size_of_kernel(algo, proto, bytes, ground);
    Choice { algo, proto, channels, warps }
}

fn cheapest(func: Func, bytes: usize, ground: &Ground) -> (Algo, Proto) {
    let algos = [Algo::Tree, Algo::Ring];
    let trees = func == Func::AllReduce;
    let mut best = (f64::INFINITY, Algo::Ring, Proto::Simple);
    for algo in algos.into_iter().filter(|a| *a == Algo::Ring || trees) {
        if trees && ground.algo.is_some_and(|wanted| wanted != algo) {
            continue;
        }
        for proto in Proto::ALL {
            if ground.proto.is_some_and(|wanted| wanted != proto) {
                continue;
            }
            let micros =
                latency_us(func, algo, proto, ground) + bytes as f64 / (1e3 * bandwidth(func, algo, proto, ground));
            if micros < best.0 {
                best = (micros, algo, proto);
            }
        }
    }
    (best.1, best.2)
}

/// Steps of a ring: `nsteps`.
fn hops(func: Func, ranks: usize) -> f64 {
    (match func {
        Func::AllReduce => 2 * (ranks - 1),
        Func::ReduceScatter | Func::AllGather => ranks - 1,
        _ => ranks,
    }) as f64
}

/// In GB/s of the operation's own bytes.
fn bandwidth(func: Func, algo: Algo, proto: Proto, ground: &Ground) -> f64 {
    let by_nodes = ground.nodes.clamp(1, 3) - 1;
    let full = CHANNEL_GBPS * CHANNELS;
    match algo {
        Algo::Ring => {
            let bus = match proto {
                Proto::Ll => LL_GBPS[by_nodes].min(full * 0.5),
                Proto::Ll128 => (full * 0.92).min(CHANNELS * LL128_GBPS),
                Proto::Simple => full,
            };
            bus * ground.ranks as f64 / hops(func, ground.ranks)
        }
        Algo::Tree => {
            let bus = (full * 0.92).min(CHANNELS * TREE_GBPS[by_nodes]);
            let bus = match proto {
                Proto::Ll => (bus / 3.8).min(LL_GBPS[by_nodes]),
                Proto::Ll128 => {
                    let share = if ground.nodes == 1 { 7.0 / 9.0 } else { 120.0 / 128.0 };
                    (bus * share).min(CHANNELS * LL128_GBPS)
                }
                Proto::Simple => bus,
            };
            bus * 0.85 * 0.5
        }
    }
}

fn latency_us(func: Func, algo: Algo, proto: Proto, ground: &Ground) -> f64 {
    let (a, p) = (usize::from(algo == Algo::Ring), proto as usize);
    let (ranks, nodes) = (ground.ranks as f64, ground.nodes as f64);
    let alone = ground.ranks == ground.nodes;
    let between = if alone { NET_US[0][p] } else { NET_US[a][p] };
    let within = NVLINK_US[a][p];
    let base = BASE_US[a][p];
    if algo == Algo::Tree {
        return base + 2.0 * ((ranks / nodes - 1.0) * within + (ground.nodes.ilog2() as f64) * between);
    }
    let all = hops(func, ground.ranks);
    if matches!(func, Func::Broadcast | Func::Reduce) {
        return base + if ground.nodes == 1 { within } else { NET_US[a][p] };
    }
    let post = if ground.nodes == 1 { 0.0 } else { POST_US * if proto == Proto::Simple { 3.0 } else { 1.0 } };
    let crossing = (nodes - 1.0) * if func == Func::AllReduce { 2.0 } else { 1.0 };
    base + (all - crossing) * within.max(post) + crossing * between
}

/// Channels and warps: fewer of both while a thread would have too little to move.
fn size_of_kernel(algo: Algo, proto: Proto, bytes: usize, ground: &Ground) -> (usize, u8) {
    let (mut channels, mut threads) = (ground.channels, THREADS[proto as usize]);
    if algo == Algo::Tree && proto == Proto::Simple {
        threads = 512;
    }
    let mut each = THREAD_BYTES[proto as usize];
    if algo == Algo::Ring && proto == Proto::Ll {
        each *= ground.ranks;
    }
    while bytes < channels * threads * each && channels >= 2 {
        channels -= 1;
    }
    while bytes < channels * threads * each && threads.is_multiple_of(128) {
        threads /= 2;
    }
    if proto == Proto::Simple && algo == Algo::Ring {
        threads += WARP;
    }
    let threads = if algo == Algo::Tree { THREADS_MAX } else { threads.max(3 * WARP) };
    (channels, u8::try_from(threads / WARP).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ground(ranks: usize, nodes: usize) -> Ground {
        Ground { ranks, nodes, channels: 2, algo: None, proto: None }
    }

    #[test]
    fn small_is_ll_and_large_is_simple() {
        for (ranks, nodes) in [(8, 1), (8, 8), (16, 2), (64, 8)] {
            let by_size: Vec<Proto> =
                (10..31).map(|bits| choose(Func::AllReduce, 1 << bits, &ground(ranks, nodes)).proto).collect();
            assert_eq!((by_size[0], by_size[20]), (Proto::Ll, Proto::Simple), "{ranks} on {nodes}");
            assert!(by_size.contains(&Proto::Ll128) && by_size.is_sorted(), "{ranks} on {nodes}: {by_size:?}");
        }
    }

    #[test]
    fn many_hosts_take_a_tree_for_little_and_a_ring_for_much() {
        let many = ground(512, 64);
        assert_eq!(choose(Func::AllReduce, 64 << 10, &many).algo, Algo::Tree);
        assert_eq!(choose(Func::AllReduce, 8 << 30, &many).algo, Algo::Ring);
        assert_eq!(choose(Func::AllGather, 64 << 10, &many).algo, Algo::Ring);
    }

    /// Channels and warps of the recorded runs (`NCCL_PROTO=Simple`).
    #[test]
    fn a_recorded_kernel_has_its_recorded_size() {
        let simple = Ground { proto: Some(Proto::Simple), algo: Some(Algo::Ring), ..ground(2, 2) };
        let size = |func, bytes, ground: &Ground| {
            let choice = choose(func, bytes, ground);
            (choice.channels, choice.warps)
        };
        assert_eq!(size(Func::AllReduce, 4_000, &simple), (1, 3));
        assert_eq!(size(Func::AllReduce, 12, &simple), (1, 3));
        assert_eq!(size(Func::AllGather, 720_000, &simple), (2, 9));
        assert_eq!(size(Func::AllReduce, 800_000, &Ground { algo: Some(Algo::Tree), ..simple }), (2, 20));
    }
}
