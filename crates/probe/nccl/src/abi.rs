//! What all versions of NCCL's profiler plugin interface share: result codes, event bits, states, the function table,
//! and the union members whose layout never changed. Layouts are those of `ext-profiler`'s headers on x86-64 Linux;
//! every file `vN.rs` asserts its own sizes and offsets at compile time.
use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

/// `ncclSuccess`; the only thing a callback of ours ever returns, since NCCL ends a transfer on anything else.
pub const SUCCESS: c_int = 0;

/// Offset of the union in a descriptor, all versions: the head with its padding.
pub const DETAIL_OFFSET: usize = 24;
/// Offset of the parent handle in a descriptor, all versions.
pub const PARENT_OFFSET: usize = 8;

/// Event bits (`ncclProfilerEventType`), also the bits of the activation mask.
pub mod event {
    /// A group of calls (v1 to v4), or its old handle (v5 on).
    pub const GROUP: u64 = 1 << 0;
    /// A collective.
    pub const COLL: u64 = 1 << 1;
    /// One side of a point-to-point operation.
    pub const P2P: u64 = 1 << 2;
    /// One direction of one connection in one operation.
    pub const PROXY_OP: u64 = 1 << 3;
    /// One step (slice) of a proxy operation.
    pub const PROXY_STEP: u64 = 1 << 4;
    /// Housekeeping of the proxy thread.
    pub const PROXY_CTRL: u64 = 1 << 5;
    /// One channel of an operation's kernel (v3 on).
    pub const KERNEL_CH: u64 = 1 << 6;
    /// A network plugin's own event (v3 on).
    pub const NET_PLUGIN: u64 = 1 << 7;
    /// `ncclGroupStart` to `ncclGroupEnd` (v5 on).
    pub const GROUP_API: u64 = 1 << 8;
    /// A collective's API call (v5 on).
    pub const COLL_API: u64 = 1 << 9;
    /// A point-to-point API call (v5 on).
    pub const P2P_API: u64 = 1 << 10;
    /// A kernel launch (v5 on).
    pub const KERNEL_LAUNCH: u64 = 1 << 11;
    /// The first bit that v5 does not know (copy-engine events of v6).
    pub const FIRST_V6: u64 = 1 << 12;
    /// The first bit that v6 does not know (phases of a kernel).
    pub const FIRST_V7: u64 = 1 << 15;
    /// The first bit that v4 does not know.
    pub const FIRST_V5: u64 = GROUP_API;
}

/// `ncclDebugLogger_t`.
pub type Logger = unsafe extern "C" fn(c_int, std::ffi::c_ulong, *const c_char, c_int, *const c_char, ...);

/// `init` of v1, v2 and v3.
pub type InitV1 = unsafe extern "C" fn(*mut *mut c_void, *mut c_int) -> c_int;
/// `init` of v4: the hash follows the name.
pub type InitV4 = unsafe extern "C" fn(
    *mut *mut c_void,
    *mut c_int,
    *const c_char,
    u64,
    c_int,
    c_int,
    c_int,
    Option<Logger>,
) -> c_int;
/// `init` of v5 to v7: the hash comes second.
pub type InitV5 = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    Option<Logger>,
) -> c_int;
/// `startEvent`.
pub type StartEvent = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut c_void) -> c_int;
/// `stopEvent`.
pub type StopEvent = unsafe extern "C" fn(*mut c_void) -> c_int;
/// `recordEventState`.
pub type RecordEventState = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int;
/// `finalize`.
pub type Finalize = unsafe extern "C" fn(*mut c_void) -> c_int;

/// `ncclProfiler_vN_t`: a data object, the same order of fields in every version; only `init` differs.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Table<Init> {
    /// The plugin's name, NUL-terminated.
    pub name: *const c_char,
    /// Called for every communicator made.
    pub init: Init,
    /// An event begins.
    pub start_event: StartEvent,
    /// An event ends.
    pub stop_event: StopEvent,
    /// An event passes a state.
    pub record_event_state: RecordEventState,
    /// Called for every communicator freed.
    pub finalize: Finalize,
}

// SAFETY: the name points to a constant string of this library and the rest are function pointers; nothing is mutated.
unsafe impl<Init> Sync for Table<Init> {}

const _: () = {
    assert!(size_of::<Table<InitV1>>() == 48);
    assert!(offset_of!(Table<InitV5>, init) == 8);
    assert!(offset_of!(Table<InitV5>, start_event) == 16);
    assert!(offset_of!(Table<InitV5>, stop_event) == 24);
    assert!(offset_of!(Table<InitV5>, record_event_state) == 32);
    assert!(offset_of!(Table<InitV5>, finalize) == 40);
};

/// Head of an event descriptor, v1 to v4. The seven bytes after `kind` are padding and not initialised by NCCL.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct HeadV1 {
    /// Event bit; a byte.
    pub kind: u8,
    /// Handle of the parent event.
    pub parent: *mut c_void,
    /// Originating rank in the communicator.
    pub rank: c_int,
}

/// Head of an event descriptor, v5 on.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct HeadV5 {
    /// Event bit.
    pub kind: u64,
    /// Handle of the parent event.
    pub parent: *mut c_void,
    /// Originating rank in the communicator.
    pub rank: c_int,
}

/// `proxyOp`, the same in all versions.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ProxyOp {
    /// Process that issued the operation; another one's under PXN.
    pub pid: libc::pid_t,
    /// Channel.
    pub channel: u8,
    /// Peer in the communicator.
    pub peer: c_int,
    /// Steps the flow will make (slices from 2.24 on).
    pub n_steps: c_int,
    /// Not the bytes of a step; unused.
    pub chunk_size: c_int,
    /// 1: sends.
    pub is_send: c_int,
}

/// `proxyStep`, the same in all versions.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ProxyStep {
    /// Step within the proxy operation, from 0.
    pub step: c_int,
}

/// `collApi` of v5 on.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CollApi {
    /// Function, a static string.
    pub func: *const c_char,
    /// Elements, as the user counts them.
    pub count: usize,
    /// Element type, a static string.
    pub datatype: *const c_char,
    /// Root.
    pub root: c_int,
    /// Stream; never read.
    pub stream: *mut c_void,
    /// Not 0: captured in a CUDA graph (C's `bool`).
    pub graph_captured: u8,
}

/// `kernelCh` of v4 on. In v3 only `channel` exists.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct KernelCh {
    /// Channel.
    pub channel: u8,
    /// GPU global timer, ns.
    pub timer: u64,
}

/// The union of a descriptor: a version's own collective, point-to-point operation and kernel channel (`()` where it has none),
/// and what is the same in all. `Largest` gives it its full size where a member that is never read is the largest.
#[derive(Clone, Copy)]
#[repr(C)]
pub union Detail<Coll: Copy, P2p: Copy, Kernel: Copy, Largest: Copy = ()> {
    /// Collective.
    pub coll: Coll,
    /// Point-to-point.
    pub p2p: P2p,
    /// Proxy operation.
    pub proxy_op: ProxyOp,
    /// Step.
    pub proxy_step: ProxyStep,
    /// Channel of a kernel.
    pub kernel: Kernel,
    /// Not read.
    pub largest: Largest,
}

/// `ncclProfilerEventDescr_vN_t`, whose kind is a byte up to v4.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Descr<Kind, Detail> {
    /// Event bit.
    pub kind: Kind,
    /// Handle of the parent event.
    pub parent: *mut c_void,
    /// Originating rank.
    pub rank: c_int,
    /// By kind.
    pub detail: Detail,
}

/// State arguments of v1 to v3 for proxy operations.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct OpStateArgs {
    /// Running sum of bytes, never reset between operations.
    pub trans_size: usize,
    /// Steps that have reached the state.
    pub steps: c_int,
}

const _: () = {
    assert!(size_of::<HeadV1>() == 24 && size_of::<HeadV5>() == 24);
    assert!(
        offset_of!(Descr<u8, u64>, parent) == PARENT_OFFSET && offset_of!(Descr<u64, u64>, parent) == PARENT_OFFSET
    );
    assert!(offset_of!(Descr<u8, u64>, rank) == 16 && offset_of!(Descr<u64, u64>, rank) == 16);
    assert!(
        offset_of!(Descr<u8, u64>, detail) == DETAIL_OFFSET && offset_of!(Descr<u64, u64>, detail) == DETAIL_OFFSET
    );
    assert!(offset_of!(HeadV1, parent) == 8 && offset_of!(HeadV1, rank) == 16);
    assert!(offset_of!(HeadV5, parent) == 8 && offset_of!(HeadV5, rank) == 16);
    assert!(DETAIL_OFFSET + offset_of!(ProxyOp, pid) == 24);
    assert!(DETAIL_OFFSET + offset_of!(ProxyOp, channel) == 28);
    assert!(DETAIL_OFFSET + offset_of!(ProxyOp, peer) == 32);
    assert!(DETAIL_OFFSET + offset_of!(ProxyOp, n_steps) == 36);
    assert!(DETAIL_OFFSET + offset_of!(ProxyOp, chunk_size) == 40);
    assert!(DETAIL_OFFSET + offset_of!(ProxyOp, is_send) == 44);
    assert!(DETAIL_OFFSET + offset_of!(KernelCh, channel) == 24);
    assert!(DETAIL_OFFSET + offset_of!(KernelCh, timer) == 32);
    assert!(DETAIL_OFFSET + offset_of!(CollApi, datatype) == 40 && DETAIL_OFFSET + offset_of!(CollApi, root) == 48);
    assert!(DETAIL_OFFSET + offset_of!(CollApi, graph_captured) == 64 && size_of::<CollApi>() == 48);
    assert!(size_of::<OpStateArgs>() == 16 && offset_of!(OpStateArgs, steps) == 8);
};
