//! A job over RDMA whose packets and whose truth are written into a folder: `rdma_job FOLDER ring|tree LOSS SEED ITERATIONS`.
//!
//! Four ranks with a device each do the same operations in each iteration, drawn once from the seed, with computation between
//! them. LOSS is the share of packets that are lost; half as many come late. In the folder are then `calls` (a line for each operation:
//! kind, algorithm, bytes as NCCL's API counts them, ranks, channels), `PID.sent` (what each queue pair sent, by the library) and a
//! capture for each device.
#![allow(clippy::unwrap_used, reason = "an example: what cannot be done ends it")]

use mycroft_testbed_nccl::abi::{Algo, DType, RedOp, UniqueId};
use mycroft_testbed_nccl::api::*;
use mycroft_testbed_nccl::env::{Identity, set_thread_identity};
use std::ffi::c_void;
use std::path::Path;
use std::ptr::null_mut;
use std::time::Duration;

const RANKS: usize = 4;
const CHANNELS: usize = 2;
/// Operations of an iteration.
const OPERATIONS: usize = 6;
/// Bytes that a rank puts in, at least and at most, drawn evenly in the logarithm.
const BYTES: (f64, f64) = (65_536.0, 4_194_304.0);
/// Computation between operations, milliseconds, drawn likewise.
const COMPUTE_MS: (f64, f64) = (3.0, 30.0);

/// Between two looks at a stream.
const LOOK: Duration = Duration::from_micros(200);

#[derive(Clone, Copy)]
enum Kind {
    AllReduce,
    ReduceScatter,
    AllGather,
}

/// One operation of an iteration, and the computation after it.
#[derive(Clone, Copy)]
struct Operation {
    kind: Kind,
    /// Elements of four bytes, as the call counts them.
    count: usize,
    compute_ns: u64,
}

/// SplitMix64.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn between(&mut self, (from, to): (f64, f64)) -> f64 {
        let part = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        from * (to / from).powf(part)
    }
}

/// An iteration's operations. Trees only reduce for all.
fn drawn(seed: u64, algo: Algo) -> Vec<Operation> {
    let mut draw = Draw(seed);
    let operation = |_| {
        let elements = draw.between(BYTES) as usize / 4;
        let compute_ns = (draw.between(COMPUTE_MS) * 1e6) as u64;
        match draw.next() % 3 {
            1 if algo == Algo::Ring => Operation { kind: Kind::ReduceScatter, count: elements / RANKS, compute_ns },
            2 if algo == Algo::Ring => Operation { kind: Kind::AllGather, count: elements / RANKS, compute_ns },
            _ => Operation { kind: Kind::AllReduce, count: elements, compute_ns },
        }
    };
    (0..OPERATIONS).map(operation).collect()
}

/// What a rank does.
fn rank(id: UniqueId, rank: usize, algo: Algo, operations: &[Operation], iterations: usize) {
    let mut identity = Identity::on_host(format!("host{rank}"));
    (identity.algo, identity.channels) = (Some(algo), Some(CHANNELS));
    identity.addr = address(rank).parse().unwrap();
    set_thread_identity(Some(identity));
    let (mut comm, mut stream): (*mut c_void, *mut c_void) = (null_mut(), null_mut());
    let most = operations.iter().map(|operation| operation.count).max().unwrap_or(0) * RANKS;
    let (from, mut to) = (vec![1.0f32; most], vec![0.0f32; most]);
    let (input, output) = (from.as_ptr().cast(), to.as_mut_ptr().cast());
    let (float, sum) = (DType::F32 as i32, RedOp::Sum as i32);
    // SAFETY: valid places, and buffers that live until the stream is synchronized.
    unsafe {
        assert_eq!(ncclCommInitRank(&mut comm, RANKS as i32, id, rank as i32), 0);
        assert_eq!(mtbStreamCreate(&mut stream), 0);
        for operation in (0..iterations).flat_map(|_| operations) {
            let count = operation.count;
            let code = match operation.kind {
                Kind::AllReduce => ncclAllReduce(input, output, count, float, sum, comm, stream),
                Kind::ReduceScatter => ncclReduceScatter(input, output, count, float, sum, comm, stream),
                Kind::AllGather => ncclAllGather(input, output, count, float, comm, stream),
            };
            assert_eq!(code, 0);
            assert_eq!(mtbLaunchCompute(stream, operation.compute_ns), 0);
            wait(comm, stream);
        }
        assert_eq!(ncclCommDestroy(comm), 0);
        assert_eq!(mtbStreamDestroy(stream), 0);
    }
}

/// Waits for a stream, or ends the program where the communicator has failed.
///
/// # Safety
/// Both are live.
unsafe fn wait(comm: *mut c_void, stream: *mut c_void) {
    // SAFETY: as the caller promises, and a place.
    unsafe {
        while mtbStreamQuery(stream) != 0 {
            let mut failed = 0;
            ncclCommGetAsyncError(comm, &mut failed);
            if failed != 0 {
                eprintln!("the communicator has failed: {failed}");
                std::process::exit(1);
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn address(rank: usize) -> String {
    let process = std::process::id();
    format!("127.{}.{}.{}", 1 + (process >> 8 & 0x7f), process & 0xff, 1 + rank)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, algo, loss, seed, iterations] = &arguments[..] else {
        eprintln!("usage: rdma_job FOLDER ring|tree LOSS SEED ITERATIONS");
        std::process::exit(2);
    };
    let (folder, loss): (_, f64) = (Path::new(folder), loss.parse().unwrap());
    let (seed, iterations): (u64, usize) = (seed.parse().unwrap(), iterations.parse().unwrap());
    let algo = if algo == "tree" { Algo::Tree } else { Algo::Ring };
    let beside = std::env::current_exe().unwrap();
    let name = "libmycroft_testbed_verbs.so";
    let library = beside.ancestors().map(|folder| folder.join(name)).find(|path| path.is_file()).unwrap();
    let addresses: Vec<String> = (0..RANKS).map(address).collect();
    let faults = format!("drop={loss},reorder={},seed={seed}", loss / 2.0);
    // SAFETY: no other thread runs yet.
    unsafe {
        std::env::set_var("MYCROFT_TESTBED_NET", "verbs");
        std::env::set_var("MYCROFT_TESTBED_SENT", folder);
        std::env::set_var("NCCL_IBVERBS_LIB", library);
        // 67 ms until what nobody asks for is sent again, seven times: ranks share cores, and may not run for longer than 30 ms.
        std::env::set_var("NCCL_IB_TIMEOUT", "14");
        std::env::set_var("MYCROFT_VERBS_ADDRESS", addresses.join(","));
        std::env::set_var("MYCROFT_VERBS_PCAP", folder);
        std::env::set_var("MYCROFT_VERBS_FAULTS", faults);
    }
    let operations = drawn(seed, algo);
    let line = |operation: &Operation| {
        let (kind, bytes) = match operation.kind {
            Kind::AllReduce => ("AllReduce", operation.count * 4),
            Kind::ReduceScatter => ("ReduceScatter", operation.count * 4),
            Kind::AllGather => ("AllGather", operation.count * 4),
        };
        let shape = if algo == Algo::Tree { "tree" } else { "ring" };
        format!("{kind} {shape} {bytes} {RANKS} {CHANNELS}\n")
    };
    let calls: String = (0..iterations).flat_map(|_| &operations).map(line).collect();
    std::fs::write(folder.join("calls"), calls).unwrap();
    let mut id = UniqueId { internal: [0; 128] };
    // SAFETY: a valid place.
    assert_eq!(unsafe { ncclGetUniqueId(&mut id) }, 0);
    std::thread::scope(|scope| {
        for number in 0..RANKS {
            let operations = &operations;
            scope.spawn(move || rank(id, number, algo, operations, iterations));
        }
    });
}
