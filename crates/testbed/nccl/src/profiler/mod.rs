//! The profiler plugin: loading it as NCCL 2.30.7 does, and calling it.
//!
//! One plugin per process, reference counted by communicators, one process-wide activation mask. Every ABI version
//! gets the events its own NCCL release would give it (not those a newer NCCL's shim would): v1 to v3 also the
//! ProxyOp states of NCCL 2.26 and earlier, v4 on the in-progress and peer-wait states, v5 on the API events.

mod common;
mod event;
mod load;
pub(crate) mod v1;
pub(crate) mod v2;
pub(crate) mod v3;
pub(crate) mod v4;
pub(crate) mod v5;
pub(crate) mod v6;

use crate::personality::Personality;
pub(crate) use event::WARPS;
pub(crate) use event::{ApiInfo, CollInfo, Ev, P2pInfo, ProxyOpInfo, Start};
pub use event::{kind, state};
use load::{Table, load, unload};
use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

/// An event handle of the plugin; opaque.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle(pub *mut c_void);

// SAFETY: a handle is a token that only the plugin interprets; NCCL, too, hands it from thread to thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// No event.
    pub const NONE: Handle = Handle(ptr::null_mut());

    /// Whether there is an event.
    pub fn is_some(self) -> bool {
        !self.0.is_null()
    }
}

/// `ncclDebugLogger_t`.
type Logger = unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, ...);

type InitV1 = unsafe extern "C" fn(*mut *mut c_void, *mut c_int) -> c_int;
type InitV4 = unsafe extern "C" fn(
    *mut *mut c_void,
    *mut c_int,
    *const c_char,
    u64,
    c_int,
    c_int,
    c_int,
    Option<Logger>,
) -> c_int;
type InitV5 = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    Option<Logger>,
) -> c_int;

/// `ncclProfilerEventStateArgs` of v1 to v3.
#[repr(C)]
struct OldArgs {
    trans_size: usize,
    steps: c_int,
}

/// `ncclProfilerEventStateArgs` of v4 to v6: one word.
#[repr(C)]
union NewArgs {
    trans_size: usize,
    appended: c_int,
    p_timer: u64,
}

const _: () = {
    assert!(size_of::<OldArgs>() == 16);
    assert!(size_of::<NewArgs>() == 8);
};

/// The one mask of the process; plugins keep its address.
static MASK: AtomicI32 = AtomicI32::new(0);

/// Over the plugin's mask: all bits, or none while the application wants no events.
static GATE: AtomicI32 = AtomicI32::new(!0);

/// The mask as it is now.
pub fn mask_now() -> i32 {
    MASK.load(Ordering::Relaxed) & GATE.load(Ordering::Relaxed)
}

/// Gives the plugin no events of operations that are issued from now on, or gives them again.
pub(crate) fn give_events(give: bool) {
    GATE.store(if give { !0 } else { 0 }, Ordering::Relaxed);
}

/// A communicator's tie to the plugin.
pub struct Profiler {
    context: *mut c_void,
    table: Table,
    version: u8,
    personality: Personality,
}

// SAFETY: context and table belong to the plugin, whose interface is thread safe by NCCL's contract.
unsafe impl Send for Profiler {}
// SAFETY: as above.
unsafe impl Sync for Profiler {}

impl std::fmt::Debug for Profiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Profiler(v{})", self.version)
    }
}

/// What a plugin is told about a communicator.
#[derive(Debug)]
pub(crate) struct CommFacts<'a> {
    pub(crate) hash: u64,
    pub(crate) name: Option<&'a CStr>,
    pub(crate) nodes: c_int,
    pub(crate) ranks: c_int,
    pub(crate) rank: c_int,
}

impl Profiler {
    /// Loads the plugin if need be and initializes it for one communicator. `None`: go on without.
    pub(crate) fn attach(facts: &CommFacts) -> Option<Profiler> {
        let (table, version) = load()?;
        let mut context = ptr::null_mut();
        let code = init(&table, version, &mut context, facts);
        if code != 0 {
            crate::log::info(&format!("profiler init failed with {code}; going on without profiler"));
            unload();
            return None;
        }
        let personality = Personality::current().under(version);
        Some(Profiler { context, table, version, personality })
    }

    /// What the plugin is told, and when.
    pub(crate) fn personality(&self) -> &Personality {
        &self.personality
    }

    /// Whether ProxyOp states 0 to 7 are due (NCCL 2.26 and earlier).
    pub(crate) fn has_op_states(&self) -> bool {
        self.personality.op_states
    }

    /// Whether the API events exist (NCCL 2.28 and later); tasks then hang under them.
    pub(crate) fn has_api_events(&self) -> bool {
        self.personality.api_events
    }

    /// NCCL 2.23 counts raw steps, everything later slices.
    pub(crate) fn has_raw_steps(&self) -> bool {
        self.personality.raw_steps
    }

    /// Starts an event; the handle is left alone when this version does not know the kind.
    pub(crate) fn start(&self, start: &Start, handle: &mut Handle) {
        match self.version {
            1 => self.call_start(v1::Descr::of(start), handle),
            2 => self.call_start(v2::Descr::of(start), handle),
            3 => self.call_start(v3::Descr::of(start), handle),
            4 => self.call_start(v4::Descr::of(start), handle),
            5 => self.call_start(v5::Descr::of(start), handle),
            _ => self.call_start(v6::Descr::of(start), handle),
        }
    }

    fn call_start<D>(&self, descr: Option<D>, handle: &mut Handle) {
        let (Some(mut descr), Some(start)) = (descr, self.table.start) else { return };
        // SAFETY: the context is what init gave; descr is this version's layout and outlives the call.
        unsafe { start(self.context, &mut handle.0, (&raw mut descr).cast()) };
    }

    /// Stops an event and forgets its handle.
    pub(crate) fn stop(&self, handle: &mut Handle) {
        if let (true, Some(stop)) = (handle.is_some(), self.table.stop) {
            // SAFETY: the handle came from startEvent of this plugin.
            unsafe { stop(handle.0) };
        }
        *handle = Handle::NONE;
    }

    fn record_raw(&self, handle: Handle, state: i32, args: *mut c_void) {
        if let (true, Some(record)) = (handle.is_some(), self.table.record) {
            // SAFETY: the handle came from startEvent of this plugin; args is null or this version's union.
            unsafe { record(handle.0, state, args) };
        }
    }

    /// A state without arguments.
    pub(crate) fn record(&self, handle: Handle, state: i32) {
        self.record_raw(handle, state, ptr::null_mut());
    }

    /// A ProxyOp state: zeroed arguments from v4 on; `steps` and `bytes` are the running sums of v1 to v3.
    pub(crate) fn record_op(&self, handle: Handle, state: i32, steps: u64, bytes: usize) {
        if self.version <= 3 {
            let mut args = OldArgs { trans_size: bytes, steps: c_int::try_from(steps).unwrap_or(c_int::MAX) };
            self.record_raw(handle, state, (&raw mut args).cast());
        } else {
            self.record_raw(handle, state, std::ptr::from_mut(&mut NewArgs { p_timer: 0 }).cast());
        }
    }

    /// A ProxyStep state; v1 to v3 get no arguments.
    pub(crate) fn record_step(&self, handle: Handle, state: i32, bytes: usize) {
        if self.version <= 3 {
            self.record_raw(handle, state, ptr::null_mut());
        } else {
            self.record_raw(handle, state, std::ptr::from_mut(&mut NewArgs { trans_size: bytes }).cast());
        }
    }

    /// The end of a channel's kernel; v3 knows no such state.
    pub(crate) fn record_kernel_stop(&self, handle: Handle, p_timer: u64) {
        if self.version >= 4 {
            self.record_raw(handle, state::KERNEL_CH_STOP, std::ptr::from_mut(&mut NewArgs { p_timer }).cast());
        }
    }

    /// A ProxyCtrl state.
    pub(crate) fn record_ctrl(&self, handle: Handle, state: i32, appended: c_int) {
        if self.version <= 3 {
            // The member `appendedProxyOps` lies at the start of the union.
            let mut args = OldArgs { trans_size: appended as usize, steps: 0 };
            self.record_raw(handle, state, (&raw mut args).cast());
        } else {
            // The whole word is set, so that no byte is left undefined.
            let mut args = NewArgs { p_timer: 0 };
            args.appended = appended;
            self.record_raw(handle, state, (&raw mut args).cast());
        }
    }

    /// Ends the communicator's use of the plugin.
    pub(crate) fn detach(&self) {
        if self.personality.finalizes_elsewhere {
            std::thread::scope(|scope| drop(scope.spawn(|| self.finalize()).join()));
        } else {
            self.finalize();
        }
        unload();
    }

    fn finalize(&self) {
        if let (false, Some(finalize)) = (self.context.is_null(), self.table.finalize) {
            // SAFETY: the context is what init gave, and this is its last use.
            unsafe { finalize(self.context) };
        }
    }
}

fn init(table: &Table, version: u8, context: &mut *mut c_void, facts: &CommFacts) -> c_int {
    if table.init.is_null() {
        return 0;
    }
    let name = facts.name.map_or(ptr::null(), CStr::as_ptr);
    let (mask, logger) = (MASK.as_ptr(), logger());
    // SAFETY (all three): the symbol's version says which signature `init` has; every pointer outlives the call, and
    // the mask lives as long as this library.
    match version {
        1..=3 => {
            // SAFETY: see above.
            let f: InitV1 = unsafe { std::mem::transmute(table.init) };
            // SAFETY: see above.
            unsafe { f(context, mask) }
        }
        4 => {
            // SAFETY: see above.
            let f: InitV4 = unsafe { std::mem::transmute(table.init) };
            // SAFETY: see above.
            unsafe { f(context, mask, name, facts.hash, facts.nodes, facts.ranks, facts.rank, logger) }
        }
        _ => {
            // SAFETY: see above.
            let f: InitV5 = unsafe { std::mem::transmute(table.init) };
            // SAFETY: see above.
            unsafe { f(context, facts.hash, mask, name, facts.nodes, facts.ranks, facts.rank, logger) }
        }
    }
}

/// `ncclDebugLog` for plugins. Rust cannot define a variadic function, so plugins get one that ignores what follows
/// the format: the C calling convention leaves unread arguments to the caller.
fn logger() -> Option<Logger> {
    unsafe extern "C" fn log(_level: c_int, _flags: c_ulong, file: *const c_char, line: c_int, format: *const c_char) {
        let text = |p: *const c_char| {
            if p.is_null() {
                return String::new();
            }
            // SAFETY: plugins pass NUL-terminated strings, as NCCL's own macros do.
            unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned()
        };
        crate::log::info(&format!("plugin {}:{line} {}", text(file), text(format)));
    }
    type Plain = unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char);
    // SAFETY: on this ABI (System V) a callee that takes only the fixed arguments may be called as variadic; the
    // extra arguments lie in registers and on the caller's stack, which the caller cleans up.
    Some(unsafe { std::mem::transmute::<Plain, Logger>(log) })
}
