//! NCCL's side of the profiler interface, for tests: opens the built plugin as NCCL does and makes NCCL's calls, with
//! descriptors written byte by byte at the offsets of NCCL's headers, so that a wrong layout in the plugin shows.
#![allow(dead_code, unreachable_pub, missing_docs)]
use mycroft_record::FlowCounters;
use mycroft_ring::{RawFlowDone, RawOpDone, RawRecord, SegmentReader};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

pub const GROUP: u64 = 1;
pub const COLL: u64 = 2;
pub const P2P: u64 = 4;
pub const PROXY_OP: u64 = 8;
pub const PROXY_STEP: u64 = 16;
pub const KERNEL_CH: u64 = 64;
/// Proxy operation states of NCCL up to 2.26: 0 to 3 for a send.
pub const OP_SEND_POSTED: c_int = 0;
pub const OP_SEND_REM_FIFO_WAIT: c_int = 1;
pub const OP_SEND_TRANSMITTED: c_int = 2;
pub const OP_SEND_DONE: c_int = 3;
pub const OP_RECV_POSTED: c_int = 4;
pub const OP_RECV_RECEIVED: c_int = 5;
pub const OP_RECV_TRANSMITTED: c_int = 6;
pub const OP_RECV_DONE: c_int = 7;
pub const SEND_GPU_WAIT: c_int = 8;
pub const SEND_WAIT: c_int = 9;
pub const RECV_WAIT: c_int = 10;
pub const RECV_FLUSH_WAIT: c_int = 11;
pub const RECV_GPU_WAIT: c_int = 12;
pub const OP_IN_PROGRESS: c_int = 19;
pub const SEND_PEER_WAIT: c_int = 20;
pub const KERNEL_STOP: c_int = 22;

const DESCR_BYTES: usize = 160;

type InitV1 = unsafe extern "C" fn(*mut *mut c_void, *mut c_int) -> c_int;
type Log = *const c_void;
pub static LOG: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
type InitV4 = unsafe extern "C" fn(*mut *mut c_void, *mut c_int, *const c_char, u64, c_int, c_int, c_int, Log) -> c_int;
type InitV5 = unsafe extern "C" fn(*mut *mut c_void, u64, *mut c_int, *const c_char, c_int, c_int, c_int, Log) -> c_int;

#[repr(C)]
pub struct Table {
    name: *const c_char,
    init: *const c_void,
    pub start: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut c_void) -> c_int,
    pub stop: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub record: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int,
    finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
}

pub struct Plugin {
    library: *mut c_void,
    pub table: &'static Table,
    pub abi: u32,
}

// SAFETY: NCCL itself calls a plugin from many threads; the library handle is only used to close it.
unsafe impl Send for Plugin {}
// SAFETY: as above.
unsafe impl Sync for Plugin {}

/// One communicator's context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ctx(pub u64);
/// One event's handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ev(pub u64);

/// A descriptor under construction, its unwritten bytes garbage as on NCCL's stack.
pub struct Descr(pub [u64; DESCR_BYTES / 8]);

impl Descr {
    pub fn new(abi: u32, kind: u64, parent: Ev, rank: c_int) -> Descr {
        let mut descr = Descr([0xaaaa_aaaa_aaaa_aaaa; DESCR_BYTES / 8]);
        match abi {
            ..=4 => descr.put(0, kind as u8),
            _ => descr.put(0, kind),
        }
        descr.put(8, parent.0);
        descr.put(16, rank);
        descr
    }

    pub fn put<T>(&mut self, offset: usize, value: T) {
        assert!(offset + size_of::<T>() <= DESCR_BYTES);
        // SAFETY: in bounds, checked above; unaligned writes are fine.
        unsafe { self.0.as_mut_ptr().cast::<u8>().add(offset).cast::<T>().write_unaligned(value) }
    }
}

/// What a collective is.
#[derive(Clone, Copy)]
pub struct CollArgs {
    pub func: &'static CStr,
    pub count: usize,
    pub root: c_int,
    pub datatype: &'static CStr,
    pub n_channels: u8,
    pub algo: &'static CStr,
    pub proto: &'static CStr,
    pub seq: u64,
    pub hash: u64,
    pub rank: c_int,
}

impl CollArgs {
    pub fn all_reduce(hash: u64, rank: c_int, seq: u64, n_channels: u8) -> CollArgs {
        CollArgs {
            func: c"AllReduce",
            count: 1 << 20,
            root: 0,
            datatype: c"ncclFloat32",
            n_channels,
            algo: c"RING",
            proto: c"SIMPLE",
            seq,
            hash,
            rank,
        }
    }
}

/// The built plugin: it lies beside a test binary, and beside an example's parent folder.
pub fn plugin_path() -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows its own path");
    let folders = [exe.parent(), exe.parent().and_then(Path::parent)];
    // `deps` first: building tests renews it, and not the copy one folder up.
    let places = folders.iter().flatten().flat_map(|folder| [folder.join("deps"), folder.to_path_buf()]);
    let found = places.map(|folder| folder.join("libmycroft_nccl.so")).find(|path| path.exists());
    found.expect("the plugin is built together with its tests")
}

impl Plugin {
    pub fn open(abi: u32) -> Plugin {
        Plugin::open_path(&plugin_path(), abi)
    }

    pub fn open_path(path: &Path, abi: u32) -> Plugin {
        let name = CString::new(path.to_str().expect("test paths are text")).expect("no NUL in a path");
        // SAFETY: opening a library we built; flags as NCCL's.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null(), "cannot open {}", path.display());
        let symbol = CString::new(format!("ncclProfiler_v{abi}")).expect("no NUL");
        // SAFETY: a live library.
        let table = unsafe { libc::dlsym(library, symbol.as_ptr()) };
        assert!(!table.is_null(), "no table for v{abi}");
        // SAFETY: the symbol is a table of six pointers in every version.
        Plugin { library, table: unsafe { &*table.cast::<Table>() }, abi }
    }

    /// The tables linked into the test binary itself, so that what counts the binary's allocations counts the plugin's.
    pub fn linked(abi: u32) -> Plugin {
        let table: *const c_void = match abi {
            3 => (&raw const mycroft_nccl::v3::ncclProfiler_v3).cast(),
            4 => (&raw const mycroft_nccl::v4::ncclProfiler_v4).cast(),
            5 => (&raw const mycroft_nccl::v5::ncclProfiler_v5).cast(),
            6 => (&raw const mycroft_nccl::v6::ncclProfiler_v6).cast(),
            _ => (&raw const mycroft_nccl::v7::ncclProfiler_v7).cast(),
        };
        // SAFETY: a static table of six pointers.
        Plugin { library: std::ptr::null_mut(), table: unsafe { &*table.cast::<Table>() }, abi }
    }

    /// As NCCL after the last communicator.
    pub fn close(self) {
        // SAFETY: balances dlopen.
        assert_eq!(unsafe { libc::dlclose(self.library) }, 0);
    }

    pub fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: a live library.
        unsafe { libc::dlsym(self.library, name.as_ptr()) }
    }

    pub fn init(&self, hash: u64, name: &CStr, n_ranks: c_int, rank: c_int, mask: &mut c_int) -> Ctx {
        let mut context: *mut c_void = std::ptr::without_provenance_mut(0xdead);
        // SAFETY: the signature of each version.
        let code = unsafe {
            match self.abi {
                1..=3 => std::mem::transmute::<*const c_void, InitV1>(self.table.init)(&mut context, mask),
                4 => std::mem::transmute::<*const c_void, InitV4>(self.table.init)(
                    &mut context,
                    mask,
                    name.as_ptr(),
                    hash,
                    2,
                    n_ranks,
                    rank,
                    LOG.load(Relaxed),
                ),
                _ => std::mem::transmute::<*const c_void, InitV5>(self.table.init)(
                    &mut context,
                    hash,
                    mask,
                    name.as_ptr(),
                    2,
                    n_ranks,
                    rank,
                    LOG.load(Relaxed),
                ),
            }
        };
        assert_eq!(code, 0);
        assert_ne!(context as u64, 0xdead, "the context was written");
        Ctx(context as u64)
    }

    /// Starts an event; the handle slot holds garbage before, as NCCL does not reset it.
    pub fn start(&self, context: Ctx, descr: &mut Descr) -> Ev {
        let mut handle: *mut c_void = std::ptr::without_provenance_mut(0xdead);
        // SAFETY: a descriptor with all the bytes of its version.
        let code = unsafe { (self.table.start)(context.0 as *mut c_void, &mut handle, descr.0.as_mut_ptr().cast()) };
        assert_eq!(code, 0);
        assert!(!handle.is_null(), "a handle is never NULL");
        assert_ne!(handle as u64, 0xdead, "the handle was written");
        Ev(handle as u64)
    }

    pub fn start_null(&self, context: Ctx) -> u64 {
        let mut handle: *mut c_void = std::ptr::null_mut();
        // SAFETY: NULL arguments are what is tested.
        unsafe {
            assert_eq!((self.table.start)(context.0 as *mut c_void, &mut handle, std::ptr::null_mut()), 0);
            assert_eq!((self.table.start)(context.0 as *mut c_void, std::ptr::null_mut(), std::ptr::null_mut()), 0);
        }
        handle as u64
    }

    pub fn stop(&self, event: Ev) {
        // SAFETY: any handle value is allowed.
        assert_eq!(unsafe { (self.table.stop)(event.0 as *mut c_void) }, 0);
    }

    pub fn record_null(&self, event: Ev, state: c_int) {
        // SAFETY: any handle value and NULL arguments are allowed.
        assert_eq!(unsafe { (self.table.record)(event.0 as *mut c_void, state, std::ptr::null_mut()) }, 0);
    }

    /// State with v4's 8-byte arguments.
    pub fn record(&self, event: Ev, state: c_int, value: u64) {
        let mut args = value;
        // SAFETY: any handle value; 8 bytes of arguments.
        let code = unsafe { (self.table.record)(event.0 as *mut c_void, state, (&raw mut args).cast()) };
        assert_eq!(code, 0);
    }

    /// State with the 16-byte arguments of v1 to v3.
    pub fn record_op(&self, event: Ev, state: c_int, trans_size: u64, steps: c_int) {
        let mut args: [u64; 2] = [trans_size, 0xaaaa_aaaa_0000_0000 | u64::from(steps as u32)];
        // SAFETY: any handle value; 16 bytes of arguments.
        let code = unsafe { (self.table.record)(event.0 as *mut c_void, state, args.as_mut_ptr().cast()) };
        assert_eq!(code, 0);
    }

    pub fn finalize(&self, context: Ctx) {
        // SAFETY: any context value is allowed.
        assert_eq!(unsafe { (self.table.finalize)(context.0 as *mut c_void) }, 0);
    }

    pub fn coll(&self, context: Ctx, args: &CollArgs) -> Ev {
        self.coll_with_parent(context, args, Ev(0), Ev(0))
    }

    pub fn coll_with_parent(&self, context: Ctx, args: &CollArgs, parent: Ev, group: Ev) -> Ev {
        self.start(context, &mut self.coll_descr(args, parent, group))
    }

    pub fn coll_descr(&self, args: &CollArgs, parent: Ev, group: Ev) -> Descr {
        let mut d = Descr::new(self.abi, COLL, parent, args.rank);
        if self.abi <= 3 {
            d.put(24, c"comm name".as_ptr());
            d.put(32, args.hash);
            d.put(40, args.seq);
        } else {
            d.put(24, args.seq);
        }
        match self.abi {
            1 => {
                d.put(48, 4u8); // AllReduce
                d.put(72, args.count);
                d.put(80, args.root);
                d.put(84, 7u8); // ncclFloat32
                d.put(104, args.n_channels);
                d.put(106, 1u8); // ring
                d.put(107, 2u8); // simple
            }
            2 | 3 => {
                d.put(48, args.func.as_ptr());
                d.put(72, args.count);
                d.put(80, args.root);
                d.put(88, args.datatype.as_ptr());
                let channels = if self.abi == 2 { 104 } else { 96 };
                d.put(channels, args.n_channels);
                d.put(channels + 8, args.algo.as_ptr());
                d.put(channels + 16, args.proto.as_ptr());
            }
            _ => {
                d.put(32, args.func.as_ptr());
                d.put(56, args.count);
                d.put(64, args.root);
                d.put(72, args.datatype.as_ptr());
                d.put(80, args.n_channels);
                d.put(88, args.algo.as_ptr());
                d.put(96, args.proto.as_ptr());
                if self.abi >= 5 {
                    d.put(104, group.0);
                }
            }
        }
        d
    }

    pub fn p2p(&self, context: Ctx, hash: u64, rank: c_int, send: bool, peer: c_int, n_channels: u8) -> Ev {
        let func = if send { c"Send" } else { c"Recv" };
        let mut d = Descr::new(self.abi, P2P, Ev(0), rank);
        if self.abi <= 3 {
            d.put(24, c"comm name".as_ptr());
            d.put(32, hash);
            if self.abi == 1 {
                d.put(40, if send { 6u8 } else { 7u8 });
                d.put(56, 7u8);
            } else {
                d.put(40, func.as_ptr());
                d.put(56, c"ncclFloat32".as_ptr());
            }
            d.put(64, 1024usize);
            d.put(72, peer);
        } else {
            d.put(24, func.as_ptr());
            d.put(40, c"ncclFloat32".as_ptr());
            d.put(48, 1024usize);
            d.put(56, peer);
            d.put(60, n_channels);
            if self.abi >= 5 {
                d.put(64, 0u64);
            }
        }
        self.start(context, &mut d)
    }

    pub fn proxy_op(&self, context: Ctx, parent: Ev, rank: c_int, op: &ProxyArgs) -> Ev {
        self.start(context, &mut self.proxy_op_descr(parent, rank, op))
    }

    pub fn proxy_op_descr(&self, parent: Ev, rank: c_int, op: &ProxyArgs) -> Descr {
        let mut d = Descr::new(self.abi, PROXY_OP, parent, rank);
        d.put(24, op.pid);
        d.put(28, op.channel);
        d.put(32, op.peer);
        d.put(36, op.n_steps);
        d.put(40, 4_194_304i32);
        d.put(44, c_int::from(op.send));
        d
    }

    pub fn step(&self, context: Ctx, parent: Ev, step: c_int) -> Ev {
        self.start(context, &mut self.step_descr(parent, step))
    }

    pub fn step_descr(&self, parent: Ev, step: c_int) -> Descr {
        let mut d = Descr::new(self.abi, PROXY_STEP, parent, 0);
        d.put(24, step);
        d
    }

    pub fn kernel(&self, context: Ctx, parent: Ev, channel: u8, timer: u64) -> Ev {
        self.start(context, &mut self.kernel_descr(parent, channel, timer))
    }

    pub fn kernel_descr(&self, parent: Ev, channel: u8, timer: u64) -> Descr {
        let mut d = Descr::new(self.abi, KERNEL_CH, parent, 0);
        d.put(24, channel);
        if self.abi >= 4 {
            d.put(32, timer);
        }
        d
    }

    pub fn kernel_stop(&self, kernel: Ev, timer: u64) {
        if self.abi >= 4 {
            self.record(kernel, KERNEL_STOP, timer);
        }
        self.stop(kernel);
    }

    /// All calls of one send step, in NCCL's order; `waits` extra polls without credit.
    pub fn send_step(&self, context: Ctx, op: Ev, step: c_int, bytes: u64, waits: u32) {
        let ev = self.step(context, op, step);
        self.record(ev, SEND_GPU_WAIT, 0);
        for _ in 0..=waits {
            self.record(ev, SEND_PEER_WAIT, 77);
        }
        self.record(ev, SEND_WAIT, bytes);
        self.stop(ev);
    }

    /// All calls of one receive step, in NCCL's order; `repeats` extra starts while no request came back.
    pub fn recv_step(&self, context: Ctx, op: Ev, step: c_int, bytes: u64, repeats: u32) {
        let ev = self.step(context, op, step);
        for _ in 0..repeats {
            assert_eq!(self.step(context, op, step), ev, "the same step gives the same handle");
        }
        self.record(ev, RECV_WAIT, 0);
        self.record(ev, RECV_FLUSH_WAIT, bytes);
        self.record(ev, RECV_GPU_WAIT, bytes);
        self.stop(ev);
    }
}

/// The one segment in a folder.
pub fn open_segment(dir: &Path) -> SegmentReader {
    let files = mycroft_ring::segment::list(dir).expect("the folder can be listed");
    assert_eq!(files.len(), 1, "one segment: {files:?}");
    SegmentReader::open(&files[0]).expect("the segment opens")
}

/// All records since the last call; none may be lost.
pub fn drain(reader: &mut SegmentReader) -> Vec<RawRecord> {
    let mut out = Vec::new();
    let stats = reader.drain(1_000_000, &mut out).expect("the segment can be read");
    assert_eq!((stats.lost, stats.damaged, stats.more), (0, 0, false));
    out
}

/// The completed operations among records.
pub fn ops(records: &[RawRecord]) -> Vec<RawOpDone> {
    records.iter().filter_map(|r| if let RawRecord::OpDone(op) = r { Some(*op) } else { None }).collect()
}

/// The completed flows among records.
pub fn flows(records: &[RawRecord]) -> Vec<RawFlowDone> {
    records.iter().filter_map(|r| if let RawRecord::FlowDone(flow) = r { Some(*flow) } else { None }).collect()
}

/// Counters of a flow that made all its steps.
pub fn full(total: u32) -> FlowCounters {
    FlowCounters { total_chunks: total, posted: total, ready: total, transmitted: total, done: total }
}

/// What a proxy operation is.
#[derive(Clone, Copy)]
pub struct ProxyArgs {
    pub pid: i32,
    pub channel: u8,
    pub peer: c_int,
    pub n_steps: c_int,
    pub send: bool,
}

impl ProxyArgs {
    pub fn own(channel: u8, peer: c_int, n_steps: c_int, send: bool) -> ProxyArgs {
        // Asked once, so that the driver itself makes no system call.
        static PID: std::sync::OnceLock<i32> = std::sync::OnceLock::new();
        ProxyArgs { pid: *PID.get_or_init(|| std::process::id() as i32), channel, peer, n_steps, send }
    }
}

/// Names the test whose body a child process is to run.
const CHILD_VARIABLE: &str = "MYCROFT_TEST_CHILD";

/// Runs `body` in a process of its own (the tracer is once per process) with a fresh segment folder in the environment.
pub fn in_own_process(test: &str, variables: &[(&str, &str)], body: impl FnOnce(&Path)) {
    if std::env::var(CHILD_VARIABLE).as_deref() == Ok(test) {
        let dir = PathBuf::from(std::env::var_os("MYCROFT_DIR").unwrap_or_default());
        body(&dir);
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own path"));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("MYCROFT_") || ["RANK", "WORLD_SIZE", "LOCAL_RANK"].contains(&name.as_ref()) {
            command.env_remove(name.as_ref());
        }
    }
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(CHILD_VARIABLE, test);
    command.env("MYCROFT_DIR", dir.path().join("segments"));
    command.env("MYCROFT_SEGMENT_BYTES", "8388608");
    command.envs(variables.iter().copied());
    for (name, _) in variables.iter().filter(|(_, value)| value.is_empty()) {
        command.env_remove(name);
    }
    let output = command.output().expect("the test binary runs");
    assert!(
        output.status.success(),
        "{test}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 passed"), "{test} did not run in the child: {text}");
    let left: Vec<_> = std::fs::read_dir(dir.path().join("segments")).into_iter().flatten().flatten().collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}
