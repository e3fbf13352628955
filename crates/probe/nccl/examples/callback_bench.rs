//! What a callback costs: replays the calls of ring all-reduces (4 flows, 24 steps each, a repeated credit poll) through
//! the built plugin's v5 and v6 tables and prints what each kind of event takes: `NUMBER ns  VERSION: KIND: WHAT`, the
//! lines that `cargo xtask bench callback` reads.
//!
//! Each call is timed by itself with the time stamp counter; the timing's own cost, measured on an empty function called
//! through a pointer, is subtracted. Where the counter moves in steps of several nanoseconds the median shows the steps;
//! the mean of the middle averages them away.
//!
//! A proxy thread that was asleep finds little of this in its caches. So whole groups of calls are timed besides, each
//! after a walk over more memory than the second-level cache and its page tables hold (`NUMBER ns  VERSION: GROUP: cold`).
#[path = "../tests/driver/mod.rs"]
mod driver;

use driver::{CollArgs, Ctx, Descr, Ev, Plugin, ProxyArgs};
use mycroft_ring::{Calibration, now_ticks};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::io::Write;
use std::time::Duration;

/// Operations replayed before any is timed: the largest operation table once around, so that every cell was used.
const WARM_UP_OPS: u64 = mycroft_ring::layout::MAX_OPS;
/// Operations replayed and timed.
const OPS: u64 = 2_000;
/// Operations replayed with cold caches.
const COLD_OPS: u64 = 20;
/// Bytes walked over before each group of calls: more than a core's second-level cache, and than its second-level
/// translation buffer reaches with pages of 4 KiB (some 3,000).
const WALK_BYTES: usize = 16 << 20;
/// Bytes of instructions walked over: more than a core's first-level instruction cache and than its translation buffers
/// reach.
#[cfg(target_arch = "x86_64")]
const WALK_CODE_BYTES: usize = 4 << 20;
/// Bytes of a cache line.
const CACHE_LINE: usize = 64;
/// Steps of each flow.
const STEPS: c_int = 24;
/// Channels, each with a send and a receive flow.
const CHANNELS: u8 = 2;

/// Times in ticks, by kind of event.
#[derive(Default)]
struct Times(BTreeMap<&'static str, Vec<u64>>);

struct Bench<'a> {
    plugin: &'a Plugin,
    context: Ctx,
    times: Times,
    mode: Mode,
    /// Callbacks so far.
    calls: u64,
    /// What is walked over between groups of calls, when they are timed cold.
    walk: Walk,
}

/// Memory that takes the place of everything else in a core's caches.
struct Walk {
    data: Vec<u8>,
    /// Instructions: a jump from each cache line to the next, and a return.
    #[cfg(target_arch = "x86_64")]
    code: *mut u8,
}

impl Walk {
    fn new() -> Walk {
        Walk {
            data: vec![0; WALK_BYTES],
            #[cfg(target_arch = "x86_64")]
            code: jumps(),
        }
    }

    fn over(&mut self) {
        for byte in self.data.iter_mut().step_by(CACHE_LINE) {
            *byte = black_box(byte.wrapping_add(1));
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a function without arguments that changes nothing, made by `jumps` and never freed.
        unsafe {
            std::mem::transmute::<*mut u8, extern "C" fn()>(self.code)();
        }
    }
}

/// `WALK_CODE_BYTES` of jumps by one cache line each.
#[cfg(target_arch = "x86_64")]
fn jumps() -> *mut u8 {
    const JUMP_SHORT: u8 = 0xeb;
    const RETURN: u8 = 0xc3;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh private mapping, at an address that the kernel chooses.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), WALK_CODE_BYTES, rights, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED, "memory for instructions");
    let code = at.cast::<u8>();
    // SAFETY: all of the mapping, which nobody else knows.
    let bytes = unsafe { std::slice::from_raw_parts_mut(code, WALK_CODE_BYTES) };
    for line in bytes.chunks_exact_mut(CACHE_LINE) {
        line[..2].copy_from_slice(&[JUMP_SHORT, CACHE_LINE as u8 - 2]);
    }
    bytes[WALK_CODE_BYTES - CACHE_LINE] = RETURN;
    // SAFETY: the mapping made above.
    let rc = unsafe { libc::mprotect(at, WALK_CODE_BYTES, libc::PROT_READ | libc::PROT_EXEC) };
    assert_eq!(rc, 0, "memory may be executed");
    code
}

/// What is done beside the calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Each is timed, and the time forgotten.
    WarmUp,
    /// Each is timed.
    Timed,
    /// Nothing: only the whole is timed, in processor time.
    Plain,
    /// Groups of calls are timed, each with cold caches.
    Cold,
}

impl Bench<'_> {
    /// Makes a call, timed where the mode says so.
    fn call<T>(&mut self, kind: &'static str, call: impl FnOnce() -> T) -> T {
        self.calls += 1;
        if matches!(self.mode, Mode::Plain | Mode::Cold) {
            return call();
        }
        let before = now_ticks();
        let answer = call();
        let ticks = now_ticks() - before;
        if self.mode == Mode::Timed {
            self.times.0.entry(kind).or_default().push(ticks);
        }
        answer
    }

    /// Makes a group of calls, timed as a whole with cold caches where the mode says so.
    fn group<T>(&mut self, kind: &'static str, calls: impl FnOnce(&mut Self) -> T) -> T {
        if self.mode != Mode::Cold {
            return calls(self);
        }
        self.walk.over();
        let before = now_ticks();
        let answer = calls(self);
        let ticks = now_ticks() - before;
        self.times.0.entry(kind).or_default().push(ticks);
        answer
    }

    fn start(&mut self, kind: &'static str, descr: &mut Descr) -> Ev {
        let mut handle: *mut c_void = std::ptr::null_mut();
        let descr = descr.0.as_mut_ptr().cast();
        let (start, context) = (self.plugin.table.start, self.context.0 as *mut c_void);
        // SAFETY: a descriptor of the plugin's version.
        self.call(kind, || unsafe { start(context, &mut handle, descr) });
        Ev(handle as u64)
    }

    fn stop(&mut self, kind: &'static str, event: Ev) {
        let stop = self.plugin.table.stop;
        // SAFETY: any handle is allowed.
        self.call(kind, || unsafe { stop(event.0 as *mut c_void) });
    }

    fn record(&mut self, kind: &'static str, event: Ev, state: c_int, value: u64) {
        let mut args = value;
        let record = self.plugin.table.record;
        // SAFETY: any handle is allowed; 8 bytes of arguments.
        self.call(kind, || unsafe { record(event.0 as *mut c_void, state, (&raw mut args).cast()) });
    }

    fn all_reduce(&mut self, seq: u64) {
        let (coll, flows) = self.group("begin of an operation", |bench| bench.begin(seq));
        let kernels: Vec<Ev> = self.group("start of its kernels", |bench| {
            (0..CHANNELS)
                .map(|channel| bench.start("kernel start", &mut bench.plugin.kernel_descr(coll, channel, 0)))
                .collect()
        });
        for step in 0..STEPS {
            for &(send, flow) in &flows {
                if send {
                    self.group("step of a send", |bench| bench.send_step(flow, step));
                } else {
                    self.group("step of a receive", |bench| bench.recv_step(flow, step));
                }
            }
        }
        self.group("end of an operation", |bench| {
            for &(_, flow) in &flows {
                bench.stop("proxy op stop", flow);
            }
            for kernel in kernels {
                bench.record("kernel stop state", kernel, driver::KERNEL_STOP, 0);
                bench.stop("kernel stop", kernel);
            }
        });
    }

    /// An operation and its flows, each a send or not.
    fn begin(&mut self, seq: u64) -> (Ev, Vec<(bool, Ev)>) {
        let plugin = self.plugin;
        let args = CollArgs::all_reduce(7, 1, seq, CHANNELS);
        let coll = self.start("coll start", &mut plugin.coll_descr(&args, Ev(0), Ev(0)));
        self.stop("coll stop", coll);
        let flow = |channel, send| ProxyArgs::own(channel, if send { 2 } else { 0 }, STEPS, send);
        let flows: Vec<(bool, Ev)> = (0..CHANNELS)
            .flat_map(|channel| [(channel, true), (channel, false)])
            .map(|(channel, send)| {
                let mut descr = plugin.proxy_op_descr(coll, 1, &flow(channel, send));
                (send, self.start("proxy op start", &mut descr))
            })
            .collect();
        for &(_, flow) in &flows {
            self.record("proxy op in progress", flow, driver::OP_IN_PROGRESS, 0);
        }
        (coll, flows)
    }

    fn send_step(&mut self, flow: Ev, step: c_int) {
        let event = self.start("step start", &mut self.plugin.step_descr(flow, step));
        self.record("step state", event, driver::SEND_GPU_WAIT, 0);
        self.record("step state", event, driver::SEND_PEER_WAIT, 0);
        self.record("step credit poll", event, driver::SEND_PEER_WAIT, 0);
        self.record("step state", event, driver::SEND_WAIT, 524_288);
        self.stop("step stop", event);
    }

    fn recv_step(&mut self, flow: Ev, step: c_int) {
        let event = self.start("step start", &mut self.plugin.step_descr(flow, step));
        self.record("step state", event, driver::RECV_WAIT, 0);
        self.record("step state", event, driver::RECV_FLUSH_WAIT, 524_288);
        self.record("step state", event, driver::RECV_GPU_WAIT, 524_288);
        self.stop("step stop", event);
    }
}

/// Processor time of the calling thread so far.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of this frame; every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

extern "C" fn empty(handle: *mut c_void) -> c_int {
    black_box(handle as usize as c_int)
}

/// Calls left out at either end of the mean of the middle: one in twenty.
const TRIM: usize = 20;

/// What timing a call to an empty function takes.
fn timing_cost(calibration: &Calibration) -> Summary {
    let call: extern "C" fn(*mut c_void) -> c_int = black_box(empty);
    let times = (0..100_000)
        .map(|_| {
            let before = now_ticks();
            call(std::ptr::null_mut());
            now_ticks() - before
        })
        .collect();
    Summary::of(times, calibration)
}

/// Some calls, nanoseconds.
struct Summary {
    median: f64,
    middle_mean: f64,
    p99: f64,
}

impl Summary {
    fn of(mut ticks: Vec<u64>, calibration: &Calibration) -> Summary {
        ticks.sort_unstable();
        let ns = |ticks: u64| calibration.ticks_to_ns(ticks * 1000) as f64 / 1000.0;
        let at = |part: usize| ns(ticks[(ticks.len() - 1) * part / 100]);
        let middle = &ticks[ticks.len() / TRIM..ticks.len() - ticks.len() / TRIM];
        let middle_mean = ns(middle.iter().sum::<u64>()) / middle.len() as f64;
        Summary { median: at(50), middle_mean, p99: at(99) }
    }

    /// Without what the timing takes.
    fn less(&self, cost: &Summary) -> Summary {
        Summary {
            median: (self.median - cost.median).max(0.0),
            middle_mean: (self.middle_mean - cost.middle_mean).max(0.0),
            p99: (self.p99 - cost.median).max(0.0),
        }
    }
}

fn print(abi: u32, times: Times, calibration: &Calibration) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let cost = timing_cost(calibration);
    let mut row = |kind: &str, ticks: Vec<u64>| {
        let calls = ticks.len();
        let of = Summary::of(ticks, calibration).less(&cost);
        writeln!(out, "v{abi}, {kind}, {calls} calls:")?;
        writeln!(out, "{:>10.1} ns  v{abi}: {kind}: median", of.median)?;
        writeln!(out, "{:>10.1} ns  v{abi}: {kind}: mean of the middle", of.middle_mean)?;
        writeln!(out, "{:>10.1} ns  v{abi}: {kind}: p99", of.p99)
    };
    let all = times.0.values().flatten().copied().collect();
    for (kind, ticks) in times.0 {
        row(kind, ticks)?;
    }
    row("all", all)
}

fn main() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("MYCROFT_DIR", dir.path()) };
    let calibration = Calibration::measure();
    for abi in [5, 6] {
        let plugin = Plugin::open(abi);
        let mut mask = 0;
        let context = plugin.init(u64::from(abi), c"bench", 4, 1, &mut mask);
        let mut bench = Bench {
            plugin: &plugin,
            context,
            times: Times::default(),
            mode: Mode::WarmUp,
            calls: 0,
            walk: Walk::new(),
        };
        let mut plain = (Duration::ZERO, 0);
        let mut seq = 0;
        for (mode, ops) in [(Mode::WarmUp, WARM_UP_OPS), (Mode::Timed, OPS), (Mode::Plain, OPS)] {
            (bench.mode, bench.calls) = (mode, 0);
            let before = thread_time();
            for _ in 0..ops {
                bench.all_reduce(seq);
                seq += 1;
            }
            plain = (thread_time() - before, bench.calls);
        }
        let times = std::mem::take(&mut bench.times);
        bench.mode = Mode::Cold;
        for _ in 0..COLD_OPS {
            bench.all_reduce(seq);
            seq += 1;
        }
        let cold = std::mem::take(&mut bench.times);
        plugin.finalize(context);
        print(abi, times, &calibration).expect("standard output takes it");
        for (group, ticks) in cold.0 {
            let of = Summary::of(ticks, &calibration);
            writeln!(std::io::stdout(), "{:>10.1} ns  v{abi}: {group}: cold", of.median)
                .expect("standard output takes it");
        }
        let ns = plain.0.as_nanos() as f64 / plain.1 as f64;
        writeln!(std::io::stdout(), "{ns:>10.1} ns  v{abi}: whole replay by its calls")
            .expect("standard output takes it");
    }
}
