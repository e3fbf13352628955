//! One rank of a job that is linked to NCCL as a framework is: for tests and measurements of what stands before NCCL.
//!
//! `RANK`, `WORLD_SIZE` and `MTB_ID` (the unique id in hexadecimal) say who it is. Rounds go on until a line comes on
//! standard input of rank 0, or `ROUNDS` are done; then it prints their number and a digest of all results.
#![allow(missing_docs, reason = "a program")]
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::io::{BufRead, Write};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

type Handle = *mut c_void;

#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

unsafe extern "C" {
    fn ncclCommInitRank(comm: *mut Handle, ranks: c_int, id: UniqueId, rank: c_int) -> c_int;
    fn ncclCommSplit(comm: Handle, color: c_int, key: c_int, new: *mut Handle, config: *mut c_void) -> c_int;
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
    fn ncclBcast(buffer: *mut f32, count: usize, datatype: c_int, root: c_int, comm: Handle, stream: Handle) -> c_int;
    fn ncclSend(from: *const f32, count: usize, datatype: c_int, peer: c_int, comm: Handle, stream: Handle) -> c_int;
    fn ncclRecv(to: *mut f32, count: usize, datatype: c_int, peer: c_int, comm: Handle, stream: Handle) -> c_int;
    fn ncclGroupStart() -> c_int;
    fn ncclGroupEnd() -> c_int;
    fn ncclCommGetAsyncError(comm: Handle, error: *mut c_int) -> c_int;
}

const FLOAT32: c_int = 7;
const SUM: c_int = 0;
/// Elements of each message.
const COUNT: usize = 3_000;
/// Rounds between two lines.
const TELL_EVERY: u64 = 10;

/// The first of these functions that some library of the process has: of a GPU's driver, or of the stand-in for NCCL.
fn function(names: [&CStr; 2]) -> *mut c_void {
    // SAFETY: C strings.
    let find = |name: &CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    let found = names.into_iter().map(find).find(|found| !found.is_null());
    found.expect("a device")
}

fn stream_create(stream: &mut Handle) -> c_int {
    let create = function([c"cuStreamCreate", c"mtbStreamCreate"]);
    // SAFETY: functions of this signature; the stand-in's takes no flags, and does not look at them.
    let create: unsafe extern "C" fn(*mut Handle, c_uint) -> c_int = unsafe { std::mem::transmute(create) };
    // SAFETY: a place.
    unsafe { create(stream, 0) }
}

fn is_idle(stream: Handle) -> bool {
    let query = function([c"cuStreamQuery", c"mtbStreamQuery"]);
    // SAFETY: functions of this signature.
    let query: unsafe extern "C" fn(Handle) -> c_int = unsafe { std::mem::transmute(query) };
    // SAFETY: a live stream.
    unsafe { query(stream) == 0 }
}

static STOP: AtomicBool = AtomicBool::new(false);

struct Rank {
    rank: usize,
    ranks: usize,
    world: Handle,
    stream: Handle,
    digest: u64,
}

/// Ends the program where a call did not succeed: a peer is gone.
fn check(code: c_int, what: &str) {
    if code != 0 {
        println!("failed {what} {code}");
        panic!("{what}: {code}");
    }
}

fn variable(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

fn main() {
    if let Some(calls) = variable("BENCH_CALLS") {
        return bench(calls);
    }
    let (rank, ranks) = (variable("RANK").expect("RANK"), variable("WORLD_SIZE").expect("WORLD_SIZE"));
    let text = std::env::var("MTB_ID").expect("MTB_ID");
    let byte = |i: usize| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hexadecimal");
    let (mut world, mut stream) = (null_mut(), null_mut());
    // SAFETY: NCCL's calls with valid places.
    unsafe {
        check(stream_create(&mut stream), "stream");
        check(ncclCommInitRank(&mut world, ranks as c_int, UniqueId(std::array::from_fn(byte)), rank as c_int), "init");
    }
    if rank == 0 {
        std::thread::spawn(|| {
            let _ = std::io::stdin().lock().read_line(&mut String::new());
            STOP.store(true, Ordering::Relaxed);
        });
    }
    let mut job = Rank { rank, ranks, world, stream, digest: 0xcbf2_9ce4_8422_2325 };
    let rounds = job.run();
    println!("done {rounds} {:016x}", job.digest);
    // SAFETY: a live communicator.
    unsafe { check(ncclCommDestroy(world), "destroy") };
}

impl Rank {
    fn run(&mut self) -> u64 {
        let job = std::env::var("RANK_JOB").unwrap_or_default();
        let pair = if job == "groups" { self.split((self.rank / 2) as c_int) } else { null_mut() };
        // Only those of the first three ranks, so that ranks do different things.
        let some = if job == "groups" { self.split(if self.rank < 3 { 0 } else { -1 }) } else { null_mut() };
        println!("ready");
        let rounds = variable("ROUNDS").map_or(u64::MAX, |rounds| rounds as u64);
        for round in 0..rounds {
            self.all_reduce(self.world, round);
            if job == "groups" {
                self.groups(pair, some, round);
            }
            // Every rank stops after the same round.
            if self.agree_to_stop() || round + 1 == rounds {
                return round + 1;
            }
            if round % TELL_EVERY == 0 {
                println!("round {round}");
                let _ = std::io::stdout().flush();
            }
        }
        rounds
    }

    fn split(&self, color: c_int) -> Handle {
        let mut new = null_mut();
        // SAFETY: a live communicator and a place.
        check(unsafe { ncclCommSplit(self.world, color, self.rank as c_int, &mut new, null_mut()) }, "split");
        new
    }

    /// Values that do not add up exactly, so that another order would show.
    fn data(&self, round: u64, salt: u64) -> Vec<f32> {
        let start = round * 31 + salt * 17 + self.rank as u64 * 7;
        (0..COUNT as u64).map(|i| ((start + i) % 1013) as f32 / 7.0).collect()
    }

    /// As a framework with a watchdog: an operation whose peer is gone never ends.
    fn sync(&self) {
        let mut error = 0;
        while !is_idle(self.stream) {
            // SAFETY: a live communicator with a place.
            check(unsafe { ncclCommGetAsyncError(self.world, &mut error) }, "asynchronous error");
            check(error, "synchronize");
            std::thread::yield_now();
        }
    }

    fn digest(&mut self, values: &[f32]) {
        for value in values {
            self.digest = (self.digest ^ u64::from(value.to_bits())).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn all_reduce(&mut self, comm: Handle, round: u64) {
        let (data, mut out) = (self.data(round, 1), vec![0f32; COUNT]);
        // SAFETY: buffers that outlive the synchronisation.
        let code = unsafe { ncclAllReduce(data.as_ptr(), out.as_mut_ptr(), COUNT, FLOAT32, SUM, comm, self.stream) };
        check(code, "all-reduce");
        self.sync();
        self.digest(&out);
    }

    /// A ring and an all-to-all in groups, a pair outside groups, and collectives of smaller communicators.
    fn groups(&mut self, pair: Handle, some: Handle, round: u64) {
        let (next, before) = ((self.rank + 1) % self.ranks, (self.rank + self.ranks - 1) % self.ranks);
        self.exchange(&[(next, before)], round);
        if !some.is_null() {
            self.all_reduce(some, round);
        }
        let all: Vec<(usize, usize)> = (0..self.ranks).map(|peer| (peer, peer)).collect();
        self.exchange(&all, round + 1);
        self.all_reduce(pair, round);
        let (data, mut out) = (self.data(round, 2), vec![0f32; COUNT]);
        let peer = (self.rank ^ 1) as c_int;
        // SAFETY: as above. One sends first, the other receives first.
        unsafe {
            let send = || check(ncclSend(data.as_ptr(), COUNT, FLOAT32, peer, self.world, self.stream), "send");
            let mut receive =
                || check(ncclRecv(out.as_mut_ptr(), COUNT, FLOAT32, peer, self.world, self.stream), "receive");
            if self.rank.is_multiple_of(2) {
                send();
                receive();
            } else {
                receive();
                send();
            }
        }
        self.sync();
        self.digest(&out);
    }

    fn exchange(&mut self, pairs: &[(usize, usize)], round: u64) {
        let (data, mut out) = (self.data(round, 3), vec![0f32; COUNT * pairs.len()]);
        // SAFETY: as above.
        unsafe {
            check(ncclGroupStart(), "group");
            for (place, (to, from)) in out.chunks_mut(COUNT).zip(pairs) {
                check(ncclSend(data.as_ptr(), COUNT, FLOAT32, *to as c_int, self.world, self.stream), "send");
                let code = ncclRecv(place.as_mut_ptr(), COUNT, FLOAT32, *from as c_int, self.world, self.stream);
                check(code, "receive");
            }
            check(ncclGroupEnd(), "group end");
        }
        self.sync();
        self.digest(&out);
    }

    fn agree_to_stop(&self) -> bool {
        let mut stop = f32::from(u8::from(STOP.load(Ordering::Relaxed)));
        // SAFETY: as above.
        check(unsafe { ncclBcast(&mut stop, 1, FLOAT32, 0, self.world, self.stream) }, "broadcast");
        self.sync();
        stop > 0.0
    }
}

/// Nanoseconds of calls, each kind by itself: `NUMBER ns  KIND`.
fn bench(calls: usize) {
    let (mut comm, mut peer_comm) = (null_mut(), null_mut());
    // SAFETY: as above; whatever is called does not look at buffers.
    unsafe {
        ncclCommInitRank(&mut peer_comm, 2, UniqueId([2; 128]), 1);
        ncclCommInitRank(&mut comm, 2, UniqueId([1; 128]), 0);
    }
    let all_reduce = || {
        // SAFETY: as above.
        unsafe { ncclAllReduce(null_mut(), null_mut(), 1, FLOAT32, SUM, comm, null_mut()) };
    };
    let send = || {
        // SAFETY: as above.
        unsafe { ncclSend(null_mut(), 1, FLOAT32, 1, comm, null_mut()) };
    };
    let group = || {
        // SAFETY: as above.
        unsafe {
            ncclGroupStart();
            ncclGroupEnd();
        }
    };
    time("all-reduce", calls, all_reduce);
    time("send", calls, send);
    time("group start and end", calls, group);
}

fn time(kind: &str, calls: usize, call: impl Fn()) {
    (0..calls / 10).for_each(|_| call());
    let mut batches: Vec<f64> = Vec::new();
    let per_batch = (calls / 20).max(1);
    for _ in 0..20 {
        let begun = std::time::Instant::now();
        (0..per_batch).for_each(|_| call());
        batches.push(begun.elapsed().as_nanos() as f64 / per_batch as f64);
    }
    batches.sort_by(f64::total_cmp);
    println!("{:.2} ns  {kind}", batches[batches.len() / 2]);
}
