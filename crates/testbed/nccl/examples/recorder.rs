//! A profiler plugin that writes down every call, for the tests. It reads descriptors by the byte offsets of NCCL's
//! headers, not through this crate's own structures, so that both must be right to agree. With `RECORDER_LINES=FILE` it
//! also writes them as JSON lines (`docs/formats/calls.md`).
#![allow(non_upper_case_globals, missing_docs, unreachable_pub, reason = "C names; an example, not an interface")]

#[path = "recorder/lines.rs"]
mod lines;

use std::ffi::{c_char, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

/// One call. `what`: 0 init, 1 start, 2 stop, 3 record, 4 finalize.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Call {
    pub what: u64,
    pub version: u64,
    pub kind: u64,
    pub handle: u64,
    pub parent: u64,
    pub rank: i64,
    pub state: i64,
    pub fields: [i64; 6],
    pub thread: u64,
}

static CALLS: Mutex<Vec<Call>> = Mutex::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(1);
static MASK: AtomicI32 = AtomicI32::new(0);

fn push(mut call: Call) {
    // SAFETY: plain system call.
    call.thread = unsafe { libc::syscall(libc::SYS_gettid) } as u64;
    CALLS.lock().unwrap().push(call);
}

/// Sets the mask that the next init will ask for.
#[unsafe(no_mangle)]
pub extern "C" fn recorder_mask(mask: c_int) {
    MASK.store(mask, Relaxed);
}

/// Hands every call so far to `each` and forgets them.
#[unsafe(no_mangle)]
pub extern "C" fn recorder_drain(each: extern "C" fn(*const Call, *mut c_void), to: *mut c_void) {
    for call in std::mem::take(&mut *CALLS.lock().unwrap()) {
        each(&call, to);
    }
}

/// Reads `T` at byte `at` of a descriptor.
unsafe fn at<T: Copy>(descr: *const u8, at: usize) -> T {
    // SAFETY: the library gives a whole descriptor of the version whose offsets the caller uses.
    unsafe { descr.add(at).cast::<T>().read_unaligned() }
}

unsafe fn started<const V: u64>(context: *mut c_void, handle: *mut *mut c_void, d: *mut c_void) -> c_int {
    let d = d as *const u8;
    // SAFETY: offsets of the version's header.
    let call = unsafe {
        let kind = if V <= 4 { u64::from(at::<u8>(d, 0)) } else { at::<u64>(d, 0) };
        let mut fields = [0i64; 6];
        match kind {
            2 => {
                let (seq, count, root, channels) = match V {
                    1 => (40, 72, 80, 104),
                    2 => (40, 72, 80, 104),
                    3 => (40, 72, 80, 96),
                    _ => (24, 56, 64, 80),
                };
                fields = [
                    at::<i64>(d, seq),
                    at::<i64>(d, count),
                    i64::from(at::<i32>(d, root)),
                    i64::from(at::<u8>(d, channels)),
                    0,
                    0,
                ];
                if V >= 4 {
                    fields[4] = i64::from(*at::<*const u8>(d, 88));
                }
            }
            4 => {
                let (count, peer) = if V <= 3 { (64, 72) } else { (48, 56) };
                fields = [at::<i64>(d, count), i64::from(at::<i32>(d, peer)), 0, 0, 0, 0];
            }
            8 => {
                fields = [
                    i64::from(at::<i32>(d, 24)),
                    i64::from(at::<u8>(d, 28)),
                    i64::from(at::<i32>(d, 32)),
                    i64::from(at::<i32>(d, 36)),
                    i64::from(at::<i32>(d, 40)),
                    i64::from(at::<i32>(d, 44)),
                ];
            }
            16 => fields[0] = i64::from(at::<i32>(d, 24)),
            64 => {
                fields[0] = i64::from(at::<u8>(d, 24));
                fields[1] = if V >= 4 { at::<i64>(d, 32) } else { 0 };
            }
            256 => fields[0] = i64::from(at::<i32>(d, 28)),
            _ => {}
        }
        let id = NEXT.fetch_add(1, Relaxed);
        *handle = id as *mut c_void;
        assert!(!context.is_null());
        let parent = at::<u64>(d, 8);
        let rank = i64::from(at::<i32>(d, 16));
        Call { what: 1, version: V, kind, handle: id, parent, rank, fields, ..Call::default() }
    };
    push(call);
    0
}

unsafe extern "C" fn start<const V: u64>(context: *mut c_void, handle: *mut *mut c_void, d: *mut c_void) -> c_int {
    // SAFETY: the arguments are passed on; `started` wrote the handle.
    unsafe {
        let code = started::<V>(context, handle, d);
        lines::start(V, context as u64, *handle as u64, d.cast());
        code
    }
}

unsafe extern "C" fn stop(handle: *mut c_void) -> c_int {
    lines::stop(handle as u64);
    push(Call { what: 2, handle: handle as u64, ..Call::default() });
    0
}

unsafe extern "C" fn record<const V: u64>(handle: *mut c_void, state: c_int, args: *mut c_void) -> c_int {
    let mut fields = [0i64; 6];
    if !args.is_null() {
        // SAFETY: the union begins with a size; before v4 the number of steps follows.
        unsafe {
            fields[0] = at::<i64>(args.cast(), 0);
            if V <= 3 {
                fields[1] = i64::from(at::<i32>(args.cast(), 8));
            }
        }
    }
    // SAFETY: the arguments are passed on.
    unsafe { lines::state(V, handle as u64, state, args) };
    push(Call { what: 3, version: V, handle: handle as u64, state: i64::from(state), fields, ..Call::default() });
    0
}

unsafe extern "C" fn finalize(context: *mut c_void) -> c_int {
    lines::finalize(context as u64);
    push(Call { what: 4, handle: context as u64, ..Call::default() });
    0
}

fn begin<const V: u64>(context: *mut *mut c_void, mask: *mut c_int, fields: [i64; 6]) -> c_int {
    let id = NEXT.fetch_add(1, Relaxed);
    // SAFETY: the library gives valid places for both.
    unsafe {
        *context = id as *mut c_void;
        *mask = MASK.load(Relaxed);
    }
    let comm = (V >= 4).then(|| [0, 1, 2, 3].map(|field| fields[field] as u64));
    let wanted = std::env::var("RECORDER_MASK").ok().and_then(|mask| mask.parse().ok());
    if let Some(wanted) = wanted {
        // SAFETY: as above.
        unsafe { *mask = wanted };
    }
    // SAFETY: written above.
    lines::init(V, id, comm, unsafe { *mask });
    push(Call { what: 0, version: V, handle: id, fields, ..Call::default() });
    0
}

unsafe extern "C" fn init_old<const V: u64>(context: *mut *mut c_void, mask: *mut c_int) -> c_int {
    begin::<V>(context, mask, [0; 6])
}

unsafe extern "C" fn init_v4(
    context: *mut *mut c_void,
    mask: *mut c_int,
    _name: *const c_char,
    hash: u64,
    nodes: c_int,
    ranks: c_int,
    rank: c_int,
    _log: *const c_void,
) -> c_int {
    begin::<4>(context, mask, [hash as i64, i64::from(nodes), i64::from(ranks), i64::from(rank), 0, 0])
}

unsafe extern "C" fn init_new<const V: u64>(
    context: *mut *mut c_void,
    hash: u64,
    mask: *mut c_int,
    _name: *const c_char,
    nodes: c_int,
    ranks: c_int,
    rank: c_int,
    _log: *const c_void,
) -> c_int {
    begin::<V>(context, mask, [hash as i64, i64::from(nodes), i64::from(ranks), i64::from(rank), 0, 0])
}

#[repr(C)]
pub struct Table {
    name: *const c_char,
    init: *const c_void,
    start: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut c_void) -> c_int,
    stop: unsafe extern "C" fn(*mut c_void) -> c_int,
    record: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int,
    finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
}

// SAFETY: read-only pointers to code and constants.
unsafe impl Sync for Table {}

macro_rules! tables {
    ($($name:ident $version:literal $init:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub static $name: Table = Table {
            name: c"recorder".as_ptr(),
            init: $init as *const c_void,
            start: start::<$version>,
            stop,
            record: record::<$version>,
            finalize,
        };
    )*};
}

tables! {
    ncclProfiler_v1 1 init_old::<1>;
    ncclProfiler_v2 2 init_old::<2>;
    ncclProfiler_v3 3 init_old::<3>;
    ncclProfiler_v4 4 init_v4;
    ncclProfiler_v5 5 init_new::<5>;
    ncclProfiler_v6 6 init_new::<6>;
}
