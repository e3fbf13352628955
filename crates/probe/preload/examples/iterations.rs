//! What the preloaded library adds to iterations, told within one job: blocks of iterations whose calls go through it beside blocks
//! whose calls go to NCCL's own functions at once. Started with the library before it, it starts its other rank by itself and prints
//! `pair WITH WITHOUT`, medians of neighbouring blocks in milliseconds. Both ranks turn at the same iteration, so that both count alike.
//!
//! `RANK_PAIRS`: how many pairs. An iteration is 20 times half a millisecond of computation and an all-reduce.
#![allow(missing_docs, reason = "a program")]
use std::ffi::{CStr, c_int, c_void};
use std::process::Command;
use std::ptr::null_mut;
use std::time::Instant;

type Handle = *mut c_void;
type AllReduce = unsafe extern "C" fn(*const f32, *mut f32, usize, c_int, c_int, Handle, Handle) -> c_int;

#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

unsafe extern "C" {
    fn ncclGetUniqueId(id: *mut UniqueId) -> c_int;
    fn ncclCommInitRank(comm: *mut Handle, ranks: c_int, id: UniqueId, rank: c_int) -> c_int;
    fn ncclCommDestroy(comm: Handle) -> c_int;
    fn ncclAllReduce(
        from: *const f32,
        to: *mut f32,
        count: usize,
        datatype: c_int,
        op: c_int,
        comm: Handle,
        stream: Handle,
    ) -> c_int;
}

const FLOAT32: c_int = 7;
const SUM: c_int = 0;
/// Elements of each message.
const COUNT: usize = 4_096;
/// Operations of an iteration, and nanoseconds of computation before each.
const OPERATIONS: usize = 20;
const COMPUTE_NS: u64 = 500_000;
/// Iterations of a block; the first does not count, since what the block before had begun ends in it.
const BLOCK: usize = 6;
/// Blocks before the first that counts.
const WARM_UP: usize = 4;

fn check(code: c_int, what: &str) {
    assert_eq!(code, 0, "{what}");
}

/// NCCL's own function, past whatever stands before it.
fn nccl(name: &CStr) -> *mut c_void {
    // SAFETY: C strings; nothing is loaded that is not loaded.
    let found = unsafe {
        let library = libc::dlopen(c"libnccl.so.2".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        libc::dlsym(library, name.as_ptr())
    };
    assert!(!found.is_null(), "{name:?}");
    found
}

struct Rank {
    comm: Handle,
    stream: Handle,
    own: AllReduce,
    launch: unsafe extern "C" fn(Handle, u64) -> c_int,
    synchronize: unsafe extern "C" fn(Handle) -> c_int,
    data: Vec<f32>,
    out: Vec<f32>,
}

impl Rank {
    fn start(id: UniqueId, rank: c_int) -> Rank {
        let (mut comm, mut stream) = (null_mut(), null_mut());
        // SAFETY: functions of these signatures, and valid places.
        unsafe {
            let create: unsafe extern "C" fn(*mut Handle) -> c_int = std::mem::transmute(nccl(c"mtbStreamCreate"));
            check(create(&mut stream), "stream");
            check(ncclCommInitRank(&mut comm, 2, id, rank), "init");
            Rank {
                comm,
                stream,
                own: std::mem::transmute::<*mut c_void, AllReduce>(nccl(c"ncclAllReduce")),
                launch: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Handle, u64) -> c_int>(nccl(
                    c"mtbLaunchCompute",
                )),
                synchronize: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Handle) -> c_int>(nccl(
                    c"mtbStreamSynchronize",
                )),
                data: vec![1.5; COUNT],
                out: vec![0.0; COUNT],
            }
        }
    }

    /// Milliseconds of an iteration.
    fn iteration(&mut self, call: AllReduce) -> f64 {
        let begun = Instant::now();
        for _ in 0..OPERATIONS {
            let (from, to) = (self.data.as_ptr(), self.out.as_mut_ptr());
            // SAFETY: a live stream and communicator, and buffers that outlive the synchronisation.
            unsafe {
                check((self.launch)(self.stream, COMPUTE_NS), "computation");
                check(call(from, to, COUNT, FLOAT32, SUM, self.comm, self.stream), "all-reduce");
            }
        }
        // SAFETY: a live stream.
        check(unsafe { (self.synchronize)(self.stream) }, "synchronize");
        begun.elapsed().as_secs_f64() * 1e3
    }

    /// Median of a block.
    fn block(&mut self, with: bool) -> f64 {
        let call = if with { ncclAllReduce } else { self.own };
        let mut took: Vec<f64> = (0..BLOCK).map(|_| self.iteration(call)).skip(1).collect();
        took.sort_by(f64::total_cmp);
        took[took.len() / 2]
    }
}

fn main() {
    let pairs = std::env::var("RANK_PAIRS").ok().and_then(|pairs| pairs.parse().ok()).unwrap_or(20);
    let text = std::env::var("MTB_ID").ok();
    let mut id = UniqueId([0; 128]);
    let mut other = None;
    match &text {
        Some(text) => {
            let byte = |i: usize| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hexadecimal");
            id = UniqueId(std::array::from_fn(byte));
        }
        None => {
            // SAFETY: a valid place.
            check(unsafe { ncclGetUniqueId(&mut id) }, "id");
            let text: String = id.0.iter().map(|byte| format!("{byte:02x}")).collect();
            let mut command = Command::new(std::env::current_exe().expect("its own path"));
            other = Some(command.env("MTB_ID", text).env("RANK", "1").spawn().expect("another process"));
        }
    }
    let mut rank = Rank::start(id, c_int::from(text.is_some()));
    (0..WARM_UP).for_each(|number| {
        rank.block(number % 2 == 0);
    });
    for pair in 0..pairs {
        // By turns the first.
        let is_first = pair % 2 == 0;
        let (first, second) = (rank.block(is_first), rank.block(!is_first));
        let (with, without) = if is_first { (first, second) } else { (second, first) };
        if other.is_some() {
            println!("pair {with:.6} {without:.6}");
        }
    }
    // SAFETY: a live communicator.
    check(unsafe { ncclCommDestroy(rank.comm) }, "destroy");
    if let Some(mut other) = other {
        assert!(other.wait().expect("a child").success());
    }
}
