//! Chain-loading: `MYCROFT_CHAIN_PLUGIN=/path/other.so` makes another profiler plugin live behind this one.
//!
//! NCCL loads one plugin. With a chain, NCCL's handles are ours and stand for a pair: our own handle and the other's.
//! The other gets every call it asked for, with its own contexts and handles in place of ours, in NCCL's own structures:
//! of the same interface version where it exports it, else of the next older one that is the same but for known bytes
//! (v7 -> v6 -> v5 -> v4). Anything else it exports would need events that NCCL did not send: then we say so and stay alone.
use crate::abi::{
    Finalize, InitV1, InitV4, InitV5, Logger, PARENT_OFFSET, RecordEventState, SUCCESS, StartEvent, StopEvent, Table,
    event,
};
use crate::adapter::{self, DescrOf, Version};
use crate::log::{LINE_BYTES, report};
use crate::mask;
use crate::pairs::{CHAIN_KIND, Pair, Pool};
use mycroft_probe_core::FixedText;
use mycroft_probe_core::config::chain_plugin;
use mycroft_probe_core::pages::leak;
use mycroft_probe_core::{CommInfo, Runtime};
use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// Slots of the pool for steps and network events: 2^14 of 32 bytes. They are reused round robin; at 250 k steps/s a
/// step has 65 ms, and no connection keeps more than 8 in flight.
const STEP_SLOTS: u32 = 1 << 14;
/// Slots of the pool for proxy operations and kernel channels: 2^14.
const FLOW_SLOTS: u32 = 1 << 14;
/// Slots of the pool for everything above them (operations, groups, API calls, communicators): 2^16, since children
/// name a parent long after its stop.
const OP_SLOTS: u32 = 1 << 16;
/// Largest descriptor that is copied: v2's 128 bytes.
const MAX_DESCR_BYTES: usize = 136;

/// Stands for the context of a communicator that the other does not have (any more); a plugin's own may well be NULL.
const NO_CONTEXT: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);

/// What `init` passes on.
pub struct InitArgs<'a> {
    /// The name as NCCL gave it.
    pub name: *const c_char,
    /// NCCL's logger.
    pub logger: Option<Logger>,
    /// The communicator.
    pub info: CommInfo<'a>,
}

/// The other's `init`, by its signature.
#[derive(Clone, Copy)]
enum Init {
    V1(InitV1),
    V4(InitV4),
    V5(InitV5),
}

/// The other plugin.
struct Other {
    abi: u32,
    init: Init,
    start: StartEvent,
    stop: StopEvent,
    record: RecordEventState,
    finalize: Finalize,
}

/// Everything a chain needs, made at the first `init` and never freed (NCCL may call long after a finalize).
struct Chain {
    other: Other,
    pools: [Pool; 3],
    /// The other's activation mask: it may rewrite it at any time through the pointer it got.
    theirs: AtomicI32,
}

static CHAIN: AtomicPtr<Chain> = AtomicPtr::new(std::ptr::null_mut());
static LOADED: OnceLock<()> = OnceLock::new();

fn get() -> Option<&'static Chain> {
    // SAFETY: the pointer is null or of a page that is never given back.
    unsafe { CHAIN.load(Ordering::Acquire).as_ref() }
}

/// Whether another plugin is behind this one.
#[inline]
pub fn is_active() -> bool {
    !CHAIN.load(Ordering::Relaxed).is_null()
}

impl Chain {
    fn pool_of(kind: u64) -> u64 {
        match kind {
            event::PROXY_STEP | event::NET_PLUGIN => 0,
            event::PROXY_OP | event::KERNEL_CH => 1,
            _ => 2,
        }
    }

    fn put(&self, kind: u64, pair: Pair) -> u64 {
        let number = Chain::pool_of(kind);
        self.pools[number as usize].put(number, pair)
    }

    fn pool(&self, raw: u64) -> Option<&Pool> {
        if raw >> 60 != CHAIN_KIND { None } else { self.pools.get((raw >> 28 & 0xf) as usize) }
    }

    fn get(&self, raw: u64) -> Option<Pair> {
        self.pool(raw)?.get(raw)
    }
}

/// Everything NCCL starts for a plugin that asks for `asked`: an event's ancestors come with it.
fn with_ancestors(asked: c_int) -> u64 {
    let mut mask = u64::from(asked as u32);
    if mask & event::NET_PLUGIN != 0 {
        mask |= event::PROXY_STEP;
    }
    if mask & event::PROXY_STEP != 0 {
        mask |= event::PROXY_OP;
    }
    if mask & (event::PROXY_OP | event::KERNEL_CH) != 0 {
        mask |= event::COLL | event::P2P;
    }
    if mask & event::COLL != 0 {
        mask |= event::COLL_API;
    }
    if mask & event::P2P != 0 {
        mask |= event::P2P_API;
    }
    if mask & (event::COLL | event::P2P | event::KERNEL_LAUNCH) != 0 {
        mask |= event::GROUP | event::GROUP_API;
    }
    mask
}

/// Loads the other plugin once per process, then passes this `init` on. Gives the context for NCCL and the other's mask.
/// # Safety
/// `args` must be what NCCL passed to `init` of version `V`.
pub unsafe fn init<V: Version>(ours: u64, args: &InitArgs<'_>) -> (u64, c_int) {
    LOADED.get_or_init(|| load::<V>(args.logger));
    let Some(chain) = get() else { return (ours, 0) };
    let mut context: *mut c_void = std::ptr::null_mut();
    let mut asked: c_int = chain.theirs.load(Ordering::Relaxed);
    let info = &args.info;
    let (nodes, ranks) = (info.n_nodes as c_int, info.n_ranks as c_int);
    let rank = info.rank.map_or(-1, |rank| rank as c_int);
    let id = info.id.unwrap_or(0);
    // The other may keep the pointer to switch events at run time, so it gets one that lives as long as the process.
    let mask = chain.theirs.as_ptr();
    // SAFETY: the other plugin's own function with the arguments NCCL gave us; the mask pointer never dies.
    let code = unsafe {
        match chain.other.init {
            Init::V1(init) => init(&mut context, mask),
            Init::V4(init) => init(&mut context, mask, args.name, id, nodes, ranks, rank, args.logger),
            Init::V5(init) => init(&mut context, id, mask, args.name, nodes, ranks, rank, args.logger),
        }
    };
    if code == SUCCESS {
        asked = chain.theirs.load(Ordering::Relaxed);
    } else {
        context = NO_CONTEXT;
        let line = "the chained profiler plugin refused to initialise; this communicator goes on without it";
        report(args.logger, format_args!("{line}"));
    }
    let pair = Pair { ours, theirs: context };
    (chain.put(event::GROUP, pair), asked & known_events(chain.other.abi))
}

/// Events that an interface version has.
fn known_events(abi: u32) -> c_int {
    match abi {
        1 | 2 => (event::KERNEL_CH - 1) as c_int,
        3 | 4 => (event::FIRST_V5 - 1) as c_int,
        5 => (event::FIRST_V6 - 1) as c_int,
        6 => (event::FIRST_V7 - 1) as c_int,
        _ => (event::FIRST_V7 * 2 - 1) as c_int,
    }
}

/// `startEvent` for both.
/// # Safety
/// `descr` must point to a descriptor of version `V`; `context` may be any bits.
pub unsafe fn start<V: Version>(context: *mut c_void, descr: *mut c_void) -> u64 {
    let Some(chain) = get() else { return mycroft_probe_core::handle::DROP_HANDLE };
    mask::set_theirs(chain.theirs.load(Ordering::Relaxed) & known_events(chain.other.abi));
    // SAFETY: the caller vouches for the descriptor.
    let kind = unsafe { &*descr.cast::<DescrOf<V>>() }.kind.into();
    // SAFETY: as above.
    let parent = unsafe { adapter::parent_of(descr) };
    let contexts = chain.get(context as u64);
    let parents = chain.get(parent);
    let (our_context, our_parent) = (contexts.map_or(0, |pair| pair.ours), parents.map_or(0, |pair| pair.ours));
    // SAFETY: as above; the core validates both handles.
    let ours = unsafe { adapter::trace_start::<V>(our_context, our_parent, descr) };
    let asked = with_ancestors(chain.theirs.load(Ordering::Relaxed)) & kind != 0;
    let known = u64::from(known_events(chain.other.abi) as u32) & kind != 0;
    let theirs = if asked && known {
        // SAFETY: as above.
        unsafe { chain.forward_start::<V>(kind, Contexts { context, contexts }, Parents { parent, parents }, descr) }
    } else {
        std::ptr::null_mut()
    };
    chain.put(kind, Pair { ours, theirs })
}

/// A context as NCCL passed it and what it stands for.
struct Contexts {
    context: *mut c_void,
    contexts: Option<Pair>,
}

/// A parent as NCCL passed it and what it stands for.
struct Parents {
    parent: u64,
    parents: Option<Pair>,
}

impl Chain {
    /// Calls the other's `startEvent` with its own context and parent; NULL when that is not possible.
    unsafe fn forward_start<V: Version>(
        &self,
        kind: u64,
        context: Contexts,
        parent: Parents,
        descr: *const c_void,
    ) -> *mut c_void {
        let none = std::ptr::null_mut();
        let below_proxy = matches!(kind, event::PROXY_OP | event::PROXY_STEP | event::NET_PLUGIN);
        // Another process's values (PXN) go through as they came: the interface promises no more to any plugin.
        let theirs_context = match context.contexts {
            Some(pair) if pair.theirs == NO_CONTEXT => return none,
            Some(pair) => pair.theirs,
            None if below_proxy => context.context,
            None => return none,
        };
        let mut copy = MaybeUninit::<[u64; MAX_DESCR_BYTES / 8]>::zeroed();
        let bytes = copy.as_mut_ptr().cast::<u8>();
        // SAFETY: the descriptor is no larger than the buffer (asserted below).
        unsafe { std::ptr::copy_nonoverlapping(descr.cast::<u8>(), bytes, size_of::<DescrOf<V>>()) };
        const { assert!(size_of::<DescrOf<V>>() <= MAX_DESCR_BYTES) };
        let mut group_parent = None;
        if let Some(offset) = V::parent_group_offset(kind) {
            // SAFETY: the offset lies inside the descriptor of this kind.
            let group = unsafe { bytes.add(offset).cast::<u64>() };
            // SAFETY: as above; the buffer is aligned to 8 and the offset a multiple of 8.
            let theirs = unsafe { self.get(group.read()) }.map_or(none, |pair| pair.theirs);
            // SAFETY: as above.
            unsafe { group.write(theirs as u64) };
            // In v4 the group is the parent itself.
            group_parent = (self.other.abi == 4).then_some(theirs);
        }
        let theirs_parent = match (group_parent, parent.parents) {
            (Some(group), _) => group,
            (None, Some(pair)) if pair.theirs.is_null() => return none,
            (None, Some(pair)) => pair.theirs,
            (None, None) if parent.parent == 0 || kind == event::PROXY_OP => parent.parent as *mut c_void,
            (None, None) => return none,
        };
        // SAFETY: every descriptor holds its parent here.
        unsafe { bytes.add(PARENT_OFFSET).cast::<u64>().write(theirs_parent as u64) };
        let mut handle: *mut c_void = none;
        // SAFETY: the other's own function with its own context and a descriptor of its version: a v4 descriptor is a v5
        // one with the kind's low byte first and without the group at the end; v5 and v6 share their layout, and v7 only
        // adds to the end of members.
        unsafe { (self.other.start)(theirs_context, &mut handle, bytes.cast()) };
        handle
    }
}

/// `stopEvent` for both.
pub fn stop(raw: u64) {
    let Some(chain) = get() else { return };
    let Some(pool) = chain.pool(raw) else { return };
    let Some(pair) = pool.get(raw) else { return };
    if let Some(runtime) = Runtime::get() {
        runtime.stop(pair.ours);
    }
    // Operations stay: children name them as their parent after their stop. NCCL stops them once, so no harm.
    let theirs = if raw >> 28 & 0xf == 2 { pair.theirs } else { pool.end_theirs(raw, std::ptr::null_mut()) };
    if !theirs.is_null() {
        // SAFETY: the other's own handle, given back once.
        unsafe { (chain.other.stop)(theirs) };
    }
}

/// `recordEventState` for both.
/// # Safety
/// `args` must be NULL or the state arguments of version `V`.
pub unsafe fn record<V: Version>(raw: u64, state: c_int, args: *mut c_void) {
    let Some(chain) = get() else { return };
    let Some(pair) = chain.get(raw) else { return };
    // SAFETY: the caller vouches for the arguments.
    unsafe { adapter::trace_state::<V>(pair.ours, state, args) };
    if !pair.theirs.is_null() {
        // SAFETY: the other's own handle; v4 to v7 share their state arguments, and older versions are never converted.
        unsafe { (chain.other.record)(pair.theirs, state, args) };
    }
}

/// `finalize` for the other; gives our own context.
pub fn finalize(raw: u64) -> u64 {
    let Some(chain) = get() else { return raw };
    let Some(pool) = chain.pool(raw) else { return raw };
    let Some(pair) = pool.get(raw) else { return raw };
    let theirs = pool.end_theirs(raw, NO_CONTEXT);
    if theirs != NO_CONTEXT {
        // SAFETY: the other's own context, given back once.
        unsafe { (chain.other.finalize)(theirs) };
    }
    pair.ours
}

/// Bytes of a table's name with its end.
const SYMBOL_BYTES: usize = 32;

/// Opens the plugin the environment names and takes the table that fits interface `V`.
fn load<V: Version>(logger: Option<Logger>) {
    let Some(path) = chain_plugin() else { return };
    let shown = FixedText::<LINE_BYTES>::new(path.to_bytes()).unwrap_or(FixedText::EMPTY);
    // SAFETY: a C string; running the other library's constructors is what the user asked for.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        report(logger, format_args!("MYCROFT_CHAIN_PLUGIN={shown} cannot be loaded; going on without it"));
        return;
    }
    let candidates: &[u32] = match V::ABI {
        7 => &[7, 6, 5, 4],
        6 => &[6, 5, 4],
        5 => &[5, 4],
        4 => &[4],
        3 => &[3],
        2 => &[2],
        _ => &[1],
    };
    let Some(other) = candidates.iter().find_map(|&abi| table_of(library, abi)) else {
        report(
            logger,
            format_args!(
                "MYCROFT_CHAIN_PLUGIN={shown} exports no profiler table that this NCCL's interface v{} converts to \
                 (wanted one of v{candidates:?}); going on without it",
                V::ABI
            ),
        );
        return;
    };
    match chain_to(other) {
        Some(chain) => CHAIN.store(std::ptr::from_ref(chain).cast_mut(), Ordering::Release),
        None => report(logger, format_args!("no memory to chain MYCROFT_CHAIN_PLUGIN={shown}; going on without it")),
    }
}

/// What stands between NCCL and the other plugin; `None` where there is no memory for it.
fn chain_to(other: Other) -> Option<&'static Chain> {
    let pools = [Pool::new(STEP_SLOTS)?, Pool::new(FLOW_SLOTS)?, Pool::new(OP_SLOTS)?];
    leak(Chain { other, pools, theirs: AtomicI32::new(0) })
}

/// The other library's table of one version, unless it is our own (a chain to ourselves would never end).
fn table_of(library: *mut c_void, abi: u32) -> Option<Other> {
    let symbol = FixedText::<SYMBOL_BYTES>::printed(format_args!("ncclProfiler_v{abi}"));
    // SAFETY: a live library and a C string.
    let table = unsafe { libc::dlsym(library, symbol.as_c_str().as_ptr()) };
    if table.is_null() || library_of(table) == library_of((&raw const CHAIN).cast()) {
        return None;
    }
    // SAFETY: the symbol of this name is a table of this version; the library stays open for ever.
    unsafe {
        Some(match abi {
            1..=3 => Other::new(abi, &*table.cast::<Table<InitV1>>(), Init::V1),
            4 => Other::new(abi, &*table.cast::<Table<InitV4>>(), Init::V4),
            _ => Other::new(abi, &*table.cast::<Table<InitV5>>(), Init::V5),
        })
    }
}

/// Where the library that holds an address begins; NULL where none does.
fn library_of(address: *const c_void) -> *mut c_void {
    // SAFETY: an all-zero Dl_info is valid (NULL pointers).
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: dladdr only compares the address and fills `info`.
    unsafe { libc::dladdr(address, &raw mut info) };
    info.dli_fbase
}

impl Other {
    fn new<T: Copy>(abi: u32, table: &Table<T>, init: impl Fn(T) -> Init) -> Other {
        Other {
            abi,
            init: init(table.init),
            start: table.start_event,
            stop: table.stop_event,
            record: table.record_event_state,
            finalize: table.finalize,
        }
    }
}
