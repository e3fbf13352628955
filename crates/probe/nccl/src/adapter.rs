//! The C functions behind every version's table: read the descriptor, call the core, write the handle, return success.
//!
//! Nothing here can fail towards NCCL: NULL pointers, events of unknown kinds and panics all end in a drop handle.
use crate::abi::{
    CollApi, DETAIL_OFFSET, Descr, Finalize, KernelCh, Logger, OpStateArgs, PARENT_OFFSET, ProxyOp, ProxyStep,
    RecordEventState, SUCCESS, StartEvent, StopEvent, Table, event,
};
use crate::{chain, log, mask};
use mycroft_probe_core::config::DEFAULT_SEGMENT_BYTES;
use mycroft_probe_core::handle::DROP_HANDLE;
use mycroft_probe_core::{
    Attach, AttachError, CollStart, CommInfo, CommTag, P2pStart, ProxyOpStart, Runtime, StateArg, ffi_guard,
};
use std::ffi::{CStr, c_char, c_int, c_void};

/// Longest static string read from a descriptor, bytes: NCCL's longest today is "COLLNET_DIRECT", 14.
const MAX_TEXT_BYTES: usize = 32;
/// The first version whose steps carry states and bytes; before it they come with the proxy operation's states.
const FIRST_STEP_ABI: u32 = 4;
/// Most channels a communicator has.
const MAX_CHANNELS: u8 = 64;

/// A version's descriptor.
pub type DescrOf<V> = Descr<<V as Version>::Kind, <V as Version>::Detail>;

/// What differs between the versions.
pub trait Version: Sized + 'static {
    /// 1 to 7.
    const ABI: u32;
    /// An event bit: a byte up to v4, eight after.
    type Kind: Copy + Into<u64>;
    /// The union of a descriptor.
    type Detail: Copy;
    /// The collective in a descriptor.
    /// # Safety
    /// The descriptor's kind must be `COLL`.
    unsafe fn coll(descr: &DescrOf<Self>) -> (CommTag, CollStart);
    /// The point-to-point operation in a descriptor.
    /// # Safety
    /// The descriptor's kind must be `P2P`.
    unsafe fn p2p(descr: &DescrOf<Self>) -> (CommTag, P2pStart);
    /// The kernel channel in a descriptor.
    /// # Safety
    /// The descriptor's kind must be `KERNEL_CH`.
    unsafe fn kernel_ch(descr: &DescrOf<Self>) -> KernelCh;
    /// Where a descriptor of this kind holds the handle of the old group event.
    fn parent_group_offset(_kind: u64) -> Option<usize> {
        None
    }
}

/// The text behind a static C string; empty for NULL, for what is not ASCII (no name of NCCL is that), and for what is too
/// long. Looking for ASCII on the way costs less than checking UTF-8 afterwards, which took a third of the time of a
/// collective's start (four names).
/// # Safety
/// The pointer must be NULL or point to a NUL-terminated string that outlives the reference.
pub unsafe fn text(pointer: &*const c_char) -> &str {
    if pointer.is_null() {
        return "";
    }
    let mut all_bits = 0u8;
    for length in 0..MAX_TEXT_BYTES {
        // SAFETY: no byte before this one was the terminator, so this one is inside the string.
        let byte = unsafe { *pointer.add(length) } as u8;
        if byte == 0 {
            if !all_bits.is_ascii() {
                return "";
            }
            // SAFETY: the bytes up to the terminator are readable and the caller vouches for the lifetime.
            let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), length) };
            // SAFETY: no byte has the bit that ASCII leaves clear, and ASCII is UTF-8.
            return unsafe { std::str::from_utf8_unchecked(bytes) };
        }
        all_bits |= byte;
    }
    ""
}

/// The channel count of a v4 point-to-point event: real from NCCL 2.27, not initialised when a newer NCCL converts for
/// a v4 plugin; 0 (not told) there.
pub fn p2p_channels_v4(n_channels: u8) -> u8 {
    let version = mask::nccl_version();
    if version >= mask::VERSION_2_28 || n_channels > MAX_CHANNELS { 0 } else { n_channels }
}

/// A version's table.
pub const fn table<V: Version, Init>(init: Init) -> Table<Init> {
    Table {
        name: c"mycroft".as_ptr(),
        init,
        start_event: start::<V> as StartEvent,
        stop_event: stop as StopEvent,
        record_event_state: record::<V> as RecordEventState,
        finalize: finalize as Finalize,
    }
}

/// `init` of v1 to v3: the communicator is not told; its first event does.
/// # Safety
/// NCCL's own arguments: places to write to or NULL, and a C string or NULL.
pub unsafe extern "C" fn init_v1<V: Version>(context: *mut *mut c_void, activation: *mut c_int) -> c_int {
    let info = CommInfo { id: None, name: "", n_nodes: 0, n_ranks: 0, rank: None };
    // SAFETY: NCCL's own pointers, passed on.
    unsafe { open::<V>(context, activation, chain::InitArgs { name: std::ptr::null(), logger: None, info }) }
}

/// `init` of v4.
/// # Safety
/// NCCL's own arguments: places to write to or NULL, and a C string or NULL.
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn init_v4<V: Version>(
    context: *mut *mut c_void,
    activation: *mut c_int,
    name: *const c_char,
    hash: u64,
    n_nodes: c_int,
    n_ranks: c_int,
    rank: c_int,
    logger: Option<Logger>,
) -> c_int {
    // SAFETY: `name` is NULL or a C string owned by the communicator, which is being made.
    let text = unsafe { comm_name(&name) };
    let info = comm_info(hash, text, n_nodes, n_ranks, rank);
    // SAFETY: NCCL's own pointers, passed on.
    unsafe { open::<V>(context, activation, chain::InitArgs { name, logger, info }) }
}

/// `init` of v5 to v7.
/// # Safety
/// NCCL's own arguments: places to write to or NULL, and a C string or NULL.
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn init_v5<V: Version>(
    context: *mut *mut c_void,
    hash: u64,
    activation: *mut c_int,
    name: *const c_char,
    n_nodes: c_int,
    n_ranks: c_int,
    rank: c_int,
    logger: Option<Logger>,
) -> c_int {
    // SAFETY: `name` is NULL or a C string owned by the communicator, which is being made.
    let text = unsafe { comm_name(&name) };
    let info = comm_info(hash, text, n_nodes, n_ranks, rank);
    // SAFETY: NCCL's own pointers, passed on.
    unsafe { open::<V>(context, activation, chain::InitArgs { name, logger, info }) }
}

/// A communicator's name as text; empty for NULL and for what is not UTF-8.
/// # Safety
/// As [`text`], without the length limit.
unsafe fn comm_name(pointer: &*const c_char) -> &str {
    if pointer.is_null() {
        return "";
    }
    // SAFETY: the caller says it is a NUL-terminated string.
    unsafe { CStr::from_ptr(*pointer) }.to_str().unwrap_or("")
}

fn comm_info(hash: u64, name: &str, n_nodes: c_int, n_ranks: c_int, rank: c_int) -> CommInfo<'_> {
    CommInfo {
        id: Some(hash),
        name,
        n_nodes: u32::try_from(n_nodes).unwrap_or(0),
        n_ranks: u32::try_from(n_ranks).unwrap_or(0),
        rank: u32::try_from(rank).ok(),
    }
}

/// Common part of `init`.
unsafe fn open<V: Version>(context: *mut *mut c_void, activation: *mut c_int, args: chain::InitArgs<'_>) -> c_int {
    let ours = ffi_guard(DROP_HANDLE, || {
        let version = mask::find_nccl_version(args.logger, activation);
        let wanted = mask::wanted(V::ABI, mask::library(), version);
        let attach = Attach {
            abi: V::ABI,
            nccl_version: version,
            kernel_events: wanted & event::KERNEL_CH != 0,
            hidden: mask::hidden(V::ABI, version),
            segment_bytes: DEFAULT_SEGMENT_BYTES,
            comm: args.info,
        };
        let handle = match Runtime::attach(&attach) {
            Ok(runtime) => runtime.comm_begin(&args.info),
            Err(error) => {
                if !matches!(error, AttachError::Off) {
                    log::report(args.logger, format_args!("{error}"));
                }
                DROP_HANDLE
            }
        };
        let ours = if Runtime::get().is_some() { wanted } else { 0 };
        // SAFETY: the arguments are NCCL's, for the duration of this call.
        let (handle, theirs) = unsafe { chain::init::<V>(handle, &args) };
        mask::publish(activation, ours, theirs);
        handle
    });
    if !context.is_null() {
        // SAFETY: NCCL passes a writable place for the context, or NULL.
        unsafe { context.write(ours as *mut c_void) };
    }
    SUCCESS
}

/// `startEvent`.
unsafe extern "C" fn start<V: Version>(context: *mut c_void, handle: *mut *mut c_void, descr: *mut c_void) -> c_int {
    let ours = ffi_guard(DROP_HANDLE, || {
        if descr.is_null() {
            return DROP_HANDLE;
        }
        if chain::is_active() {
            // SAFETY: `descr` is a descriptor of this version; contexts and handles are only compared.
            return unsafe { chain::start::<V>(context, descr) };
        }
        // SAFETY: as above.
        unsafe { trace_start::<V>(context as u64, parent_of(descr), descr) }
    });
    if !handle.is_null() {
        // SAFETY: NCCL passes a writable place for the handle, or NULL; never left as it was (it may hold an old one).
        unsafe { handle.write(ours as *mut c_void) };
    }
    SUCCESS
}

/// The parent handle of a descriptor.
/// # Safety
/// `descr` must point to a descriptor of any version.
pub unsafe fn parent_of(descr: *const c_void) -> u64 {
    // SAFETY: every version holds the parent at this offset, and the caller vouches for the pointer.
    unsafe { descr.byte_add(PARENT_OFFSET).cast::<u64>().read() }
}

/// Tells the core that an event starts; gives its handle.
/// # Safety
/// `descr` must point to a descriptor of version `V`. `context` and `parent` may be any bits.
#[inline]
pub unsafe fn trace_start<V: Version>(context: u64, parent: u64, descr: *const c_void) -> u64 {
    let Some(runtime) = Runtime::get() else { return DROP_HANDLE };
    // SAFETY: the caller vouches for the type; NCCL does not change a descriptor during the call.
    let typed = unsafe { &*descr.cast::<DescrOf<V>>() };
    // SAFETY: the union begins at this offset in every version, and is at least as large as each member read below.
    let detail = unsafe { descr.byte_add(DETAIL_OFFSET) };
    match typed.kind.into() {
        event::PROXY_STEP => {
            // SAFETY: the kind says which member is filled.
            let step = unsafe { (*detail.cast::<ProxyStep>()).step };
            runtime.step_start(parent, step)
        }
        event::PROXY_OP => {
            // SAFETY: the kind says which member is filled.
            let op = unsafe { &*detail.cast::<ProxyOp>() };
            runtime.flow_start(
                parent,
                &ProxyOpStart {
                    pid: op.pid,
                    rank: typed.rank,
                    channel: op.channel,
                    peer: op.peer,
                    n_steps: op.n_steps,
                    is_send: op.is_send != 0,
                    counts_in_op_states: V::ABI < FIRST_STEP_ABI,
                },
            )
        }
        event::KERNEL_CH => {
            // SAFETY: the kind is right.
            let kernel = unsafe { V::kernel_ch(typed) };
            runtime.kernel_start(parent, kernel.channel, kernel.timer)
        }
        event::COLL => {
            // SAFETY: the kind is right.
            let (tag, coll) = unsafe { V::coll(typed) };
            runtime.coll_start(context, parent, &tag, &coll)
        }
        event::P2P => {
            // SAFETY: the kind is right.
            let (tag, p2p) = unsafe { V::p2p(typed) };
            runtime.p2p_start(context, &tag, &p2p)
        }
        event::GROUP_API => runtime.group_call_start(),
        event::COLL_API if runtime.remembers_calls() => {
            // SAFETY: the kind says which member is filled; only versions that have it (v5 on) have room for its bit.
            let start = unsafe { (*detail.cast::<CollApi>()).start() };
            runtime.coll_call_start(context, parent, &start)
        }
        _ => DROP_HANDLE,
    }
}

/// `stopEvent`.
unsafe extern "C" fn stop(handle: *mut c_void) -> c_int {
    ffi_guard(SUCCESS, || {
        if chain::is_active() {
            chain::stop(handle as u64);
        } else if let Some(runtime) = Runtime::get() {
            runtime.stop(handle as u64);
        }
        SUCCESS
    })
}

/// `recordEventState`.
unsafe extern "C" fn record<V: Version>(handle: *mut c_void, state: c_int, args: *mut c_void) -> c_int {
    ffi_guard(SUCCESS, || {
        if chain::is_active() {
            // SAFETY: `args` is NULL or the state arguments of this version.
            unsafe { chain::record::<V>(handle as u64, state, args) };
        } else {
            // SAFETY: as above.
            unsafe { trace_state::<V>(handle as u64, state, args) };
        }
        SUCCESS
    })
}

/// Tells the core that an event passed a state.
/// # Safety
/// `args` must be NULL or point to the state arguments of version `V`.
#[inline]
pub unsafe fn trace_state<V: Version>(handle: u64, state: c_int, args: *const c_void) {
    let Some(runtime) = Runtime::get() else { return };
    let arg = if args.is_null() {
        StateArg::default()
    } else if V::ABI < FIRST_STEP_ABI {
        // SAFETY: 16 bytes in these versions; only the proxy operation's member is ever used by the core.
        let op = unsafe { &*args.cast::<OpStateArgs>() };
        StateArg { value: op.trans_size as u64, steps: op.steps }
    } else {
        // SAFETY: 8 bytes in these versions: bytes of the step, or the kernel's stop time.
        StateArg { value: unsafe { args.cast::<u64>().read() }, steps: 0 }
    };
    runtime.state(handle, state, arg);
}

/// `finalize`.
unsafe extern "C" fn finalize(context: *mut c_void) -> c_int {
    ffi_guard(SUCCESS, || {
        let context = chain::finalize(context as u64);
        if let Some(runtime) = Runtime::get() {
            runtime.comm_end(context);
        }
        SUCCESS
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_ascii_and_short_or_nothing() {
        let of = |bytes: &'static [u8]| {
            let pointer: *const c_char = bytes.as_ptr().cast();
            // SAFETY: static and NUL-terminated.
            unsafe { text(&pointer) }.to_owned()
        };
        assert_eq!(of(b"AllReduce\0junk\0"), "AllReduce");
        assert_eq!(of(b"\0"), "");
        assert_eq!(of(b"All\xffReduce\0"), "", "not text at all");
        assert_eq!(of("All\u{e9}\0".as_bytes()), "", "text, but no name of NCCL");
        assert_eq!(of(b"a name that is longer than any name of NCCL\0"), "");
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { text(&std::ptr::null()) }, "");
    }
}
