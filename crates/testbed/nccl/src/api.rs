//! The exported C functions. Each one is a thin shell: check, translate, call, and turn a [`Fault`] into a code.
//!
//! [`Fault`]: crate::abi::Fault

use crate::abi::{
    CONFIG_MAGIC, CONFIG_UNDEF_INT, Code, Config, DType, Fault, Func, RedOp, Res, SPLIT_NOCOLOR, UniqueId,
};
use crate::bootstrap::{RootAddr, start_root};
use crate::comm::{Comm, Wish, lookup, register, unregister};
use crate::control::RankState;
use crate::env::Identity;
use crate::ffi::{describe, guard, last_error};
use crate::launch::{self, Call, CollTask, P2pTask};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering::Relaxed;

type Handle = *mut c_void;

fn null(what: &str) -> Fault {
    Fault::new(Code::InvalidArgument, format!("{what} is NULL"))
}

/// Writes through a pointer that a C caller gave.
///
/// # Safety
/// `to` must be null or valid for one write of `T`.
unsafe fn give<T>(to: *mut T, value: T, what: &str) -> Res<()> {
    if to.is_null() {
        return Err(null(what));
    }
    // SAFETY: not null, and the caller's contract says that it may be written.
    unsafe { to.write(value) };
    Ok(())
}

/// The fault `main_stop`: a rank whose main thread never comes back from its next collective.
fn stop_if_told(identity: &Identity) {
    let Some(control) = &identity.control else { return };
    if control.rank().main_stop.load(Relaxed) != 0 {
        control.rank().state.store(RankState::MainStopped as u64, Relaxed);
        loop {
            std::thread::sleep(std::time::Duration::from_secs(3600));
        }
    }
}

/// `ncclGetVersion`: 23007.
///
/// # Safety
/// `version` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the caller's contract.
    guard(|| unsafe { give(version, crate::personality::Personality::current().version(), "version") })
}

/// `ncclGetUniqueId`: starts a bootstrap root in this process.
///
/// # Safety
/// `id` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> c_int {
    guard(|| {
        if id.is_null() {
            return Err(null("the unique id"));
        }
        let root = start_root(Identity::current().addr)?;
        // SAFETY: the caller's contract.
        unsafe { give(id, root.to_unique_id(), "the unique id") }
    })
}

fn init_rank(comm: Handle, ranks: c_int, id: UniqueId, rank: c_int, wish: Wish) -> Res<()> {
    if comm.is_null() {
        return Err(null("the communicator's place"));
    }
    let (ranks, rank) = match (usize::try_from(ranks), usize::try_from(rank)) {
        (Ok(n), Ok(r)) if r < n && n <= crate::bootstrap::RANKS_MAX => (n, r),
        _ => return Err(Fault::new(Code::InvalidArgument, format!("rank {rank} of {ranks}"))),
    };
    let root = RootAddr::from_unique_id(&id)?;
    let place = comm as usize;
    launch::init_or_defer(Box::new(move || {
        let made = register(Comm::join(root, rank, ranks, &wish)?);
        // SAFETY: the caller promised that the place may be written until the call, or its group, returns.
        unsafe { (place as *mut Handle).write(made as Handle) };
        Ok(())
    }))
}

/// `ncclCommInitRank`.
///
/// # Safety
/// `comm` must be null or writable until this call or the open group ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRank(comm: *mut Handle, nranks: c_int, id: UniqueId, rank: c_int) -> c_int {
    guard(|| init_rank(comm.cast(), nranks, id, rank, Wish::default()))
}

/// `ncclCommInitRankConfig`. Non-blocking communicators are accepted and finish within the call.
///
/// # Safety
/// As [`ncclCommInitRank`]; `config` must be null or point at a structure of the size it states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    comm: *mut Handle,
    nranks: c_int,
    id: UniqueId,
    rank: c_int,
    config: *mut Config,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's contract.
        let wish = unsafe { wish_of(config) }?;
        init_rank(comm.cast(), nranks, id, rank, wish)
    })
}

/// Reads the fields of a configuration that its `size` covers.
///
/// # Safety
/// `config` must be null or point at a structure of the size it states.
unsafe fn wish_of(config: *const Config) -> Res<Wish> {
    let mut wish = Wish::default();
    if config.is_null() {
        return Ok(wish);
    }
    // SAFETY: every version of the structure begins with size and magic.
    let (size, magic) = unsafe { ((*config).size, (*config).magic) };
    if magic != CONFIG_MAGIC {
        return Err(Fault::new(Code::InvalidArgument, "ncclConfig_t was not made by NCCL_CONFIG_INITIALIZER"));
    }
    let channels = |v: c_int| (v != CONFIG_UNDEF_INT && v > 0).then_some(v as usize);
    if size >= offset_of!(Config, max_ctas) + size_of::<c_int>() {
        // SAFETY: `size` covers the field.
        wish.channels_min = channels(unsafe { (*config).min_ctas });
        // SAFETY: `size` covers the field.
        wish.channels_max = channels(unsafe { (*config).max_ctas });
    }
    if size >= offset_of!(Config, comm_name) + size_of::<*const c_char>() {
        // SAFETY: `size` covers the field.
        let name = unsafe { (*config).comm_name };
        if !name.is_null() {
            // SAFETY: the caller gives a NUL-terminated name.
            wish.name = Some(CString::from(unsafe { CStr::from_ptr(name) }));
        }
    }
    Ok(wish)
}

/// `ncclCommSplit`. A color of -1 takes part and gets a NULL communicator.
///
/// # Safety
/// `newcomm` must be null or writable; `config` as in [`ncclCommInitRankConfig`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommSplit(
    comm: Handle,
    color: c_int,
    key: c_int,
    newcomm: *mut Handle,
    config: *mut Config,
) -> c_int {
    guard(|| {
        let parent = lookup(comm as usize)?;
        stop_if_told(&parent.identity);
        if newcomm.is_null() {
            return Err(null("the new communicator's place"));
        }
        let color = match u32::try_from(color) {
            Ok(c) => Some(c),
            Err(_) if color == SPLIT_NOCOLOR => None,
            Err(_) => return Err(Fault::new(Code::InvalidArgument, format!("color {color}: expected -1 or more"))),
        };
        // SAFETY: the caller's contract.
        let wish = unsafe { wish_of(config) }?;
        let made = parent.split(color, key, &wish)?.map_or(0, register);
        // SAFETY: the caller's contract.
        unsafe { give(newcomm, made as Handle, "the new communicator's place") }
    })
}

/// `ncclCommFinalize`: waits for what was launched.
///
/// # Safety
/// None beyond the C call itself: a handle that is not a communicator is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommFinalize(comm: Handle) -> c_int {
    guard(|| {
        lookup(comm as usize)?.settle();
        Ok(())
    })
}

/// `ncclCommDestroy`: waits for what was launched and frees the communicator. NULL is allowed.
///
/// # Safety
/// As [`ncclCommFinalize`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommDestroy(comm: Handle) -> c_int {
    guard(|| {
        if comm.is_null() {
            return Ok(());
        }
        // The handle stays known while this waits, so that another thread can still abort.
        lookup(comm as usize)?.end();
        let _ = unregister(comm as usize);
        Ok(())
    })
}

/// `ncclCommAbort`: ends whatever runs and frees the communicator.
///
/// # Safety
/// As [`ncclCommFinalize`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommAbort(comm: Handle) -> c_int {
    guard(|| {
        if comm.is_null() {
            return Ok(());
        }
        let comm = unregister(comm as usize)?;
        comm.abort();
        comm.end();
        Ok(())
    })
}

/// `ncclCommCount`.
///
/// # Safety
/// `count` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommCount(comm: Handle, count: *mut c_int) -> c_int {
    // SAFETY: the caller's contract.
    guard(|| lookup(comm as usize).and_then(|c| unsafe { give(count, c.ranks as c_int, "count") }))
}

/// `ncclCommUserRank`.
///
/// # Safety
/// `rank` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommUserRank(comm: Handle, rank: *mut c_int) -> c_int {
    // SAFETY: the caller's contract.
    guard(|| lookup(comm as usize).and_then(|c| unsafe { give(rank, c.rank as c_int, "rank") }))
}

/// `ncclCommCuDevice`: the rank's place on its host.
///
/// # Safety
/// `device` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommCuDevice(comm: Handle, device: *mut c_int) -> c_int {
    // SAFETY: the caller's contract.
    guard(|| lookup(comm as usize).and_then(|c| unsafe { give(device, c.device_index() as c_int, "device") }))
}

/// `ncclCommGetAsyncError`.
///
/// # Safety
/// `error` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(comm: Handle, error: *mut c_int) -> c_int {
    // SAFETY: the caller's contract.
    guard(|| lookup(comm as usize).and_then(|c| unsafe { give(error, c.async_error(), "error") }))
}

/// `ncclGetErrorString`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    describe(code).as_ptr()
}

/// `ncclGetLastError`: the last fault of the calling thread. The text lives until the thread's next fault.
///
/// # Safety
/// None: the communicator is not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetLastError(_comm: Handle) -> *const c_char {
    last_error()
}

/// The pieces of a collective call as C gives them.
struct Raw {
    func: Func,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: c_int,
    op: c_int,
    root: c_int,
}

fn dtype_of(raw: c_int) -> Res<DType> {
    DType::from_raw(raw).ok_or_else(|| Fault::new(Code::InvalidArgument, format!("data type {raw} is not known")))
}

/// Like [`guard`], for calls that a group collects.
fn guard_call(body: impl FnOnce() -> Res<()>) -> c_int {
    guard(|| body().inspect_err(launch::note_refusal))
}

fn collective(raw: &Raw, comm: Handle, stream: Handle) -> c_int {
    guard_call(|| {
        let comm = lookup(comm as usize)?;
        stop_if_told(&comm.identity);
        let op = RedOp::from_raw(raw.op)
            .ok_or_else(|| Fault::new(Code::InvalidArgument, format!("reduction {} is not known", raw.op)))?;
        let root = usize::try_from(raw.root)
            .map_err(|_| Fault::new(Code::InvalidArgument, format!("root {} is negative", raw.root)))?;
        let task = CollTask {
            func: raw.func,
            send: raw.send as usize,
            recv: raw.recv as usize,
            count: raw.count,
            dtype: dtype_of(raw.dtype)?,
            op,
            root,
        };
        launch::enqueue(&comm, Call::Coll(task), stream as usize)
    })
}

/// `ncclAllReduce`.
///
/// # Safety
/// Both buffers must hold `count` elements until the stream has executed the call; they are the same or disjoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAllReduce(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: c_int,
    op: c_int,
    comm: Handle,
    stream: Handle,
) -> c_int {
    let raw = Raw { func: Func::AllReduce, send: sendbuff, recv: recvbuff, count, dtype: datatype, op, root: 0 };
    collective(&raw, comm, stream)
}

/// `ncclReduceScatter`.
///
/// # Safety
/// The send buffer holds `recvcount` elements per rank, the receive buffer `recvcount`; both until executed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclReduceScatter(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    recvcount: usize,
    datatype: c_int,
    op: c_int,
    comm: Handle,
    stream: Handle,
) -> c_int {
    let raw = Raw {
        func: Func::ReduceScatter,
        send: sendbuff,
        recv: recvbuff,
        count: recvcount,
        dtype: datatype,
        op,
        root: 0,
    };
    collective(&raw, comm, stream)
}

/// `ncclAllGather`.
///
/// # Safety
/// The send buffer holds `sendcount` elements, the receive buffer `sendcount` per rank; both until executed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAllGather(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    sendcount: usize,
    datatype: c_int,
    comm: Handle,
    stream: Handle,
) -> c_int {
    let raw = Raw {
        func: Func::AllGather,
        send: sendbuff,
        recv: recvbuff,
        count: sendcount,
        dtype: datatype,
        op: 0,
        root: 0,
    };
    collective(&raw, comm, stream)
}

/// `ncclReduce`.
///
/// # Safety
/// As [`ncclAllReduce`]; the receive buffer matters at the root only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclReduce(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: c_int,
    op: c_int,
    root: c_int,
    comm: Handle,
    stream: Handle,
) -> c_int {
    let raw = Raw { func: Func::Reduce, send: sendbuff, recv: recvbuff, count, dtype: datatype, op, root };
    collective(&raw, comm, stream)
}

/// `ncclBroadcast`.
///
/// # Safety
/// As [`ncclAllReduce`]; the send buffer matters at the root only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclBroadcast(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: c_int,
    root: c_int,
    comm: Handle,
    stream: Handle,
) -> c_int {
    let raw = Raw { func: Func::Broadcast, send: sendbuff, recv: recvbuff, count, dtype: datatype, op: 0, root };
    collective(&raw, comm, stream)
}

/// `ncclBcast`: broadcast in place.
///
/// # Safety
/// As [`ncclBroadcast`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclBcast(
    buff: *mut c_void,
    count: usize,
    datatype: c_int,
    root: c_int,
    comm: Handle,
    stream: Handle,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { ncclBroadcast(buff, buff, count, datatype, root, comm, stream) }
}

fn transfer(
    is_send: bool,
    buff: usize,
    count: usize,
    dtype: c_int,
    peer: c_int,
    comm: Handle,
    stream: Handle,
) -> c_int {
    guard_call(|| {
        let comm = lookup(comm as usize)?;
        stop_if_told(&comm.identity);
        let peer =
            usize::try_from(peer).map_err(|_| Fault::new(Code::InvalidArgument, format!("peer {peer} is negative")))?;
        let task = P2pTask { is_send, buff, count, dtype: dtype_of(dtype)?, peer };
        launch::enqueue(&comm, Call::P2p(task), stream as usize)
    })
}

/// `ncclSend`.
///
/// # Safety
/// The buffer must hold `count` elements until the stream has executed the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclSend(
    sendbuff: *const c_void,
    count: usize,
    datatype: c_int,
    peer: c_int,
    comm: Handle,
    stream: Handle,
) -> c_int {
    transfer(true, sendbuff as usize, count, datatype, peer, comm, stream)
}

/// `ncclRecv`.
///
/// # Safety
/// The buffer must hold `count` elements until the stream has executed the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclRecv(
    recvbuff: *mut c_void,
    count: usize,
    datatype: c_int,
    peer: c_int,
    comm: Handle,
    stream: Handle,
) -> c_int {
    transfer(false, recvbuff as usize, count, datatype, peer, comm, stream)
}

/// `ncclGroupStart`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> c_int {
    guard(|| {
        launch::group_start();
        Ok(())
    })
}

/// `ncclGroupEnd`: launches everything since the outermost `ncclGroupStart`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupEnd() -> c_int {
    guard(launch::group_end)
}

/// Makes a stream (the testbed's `cudaStreamCreate`).
///
/// # Safety
/// `stream` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtbStreamCreate(stream: *mut Handle) -> c_int {
    guard(|| {
        if stream.is_null() {
            return Err(null("the stream's place"));
        }
        let made = crate::device::stream_create().map_err(|e| Fault::system("device thread", &e))?;
        // SAFETY: the caller's contract.
        unsafe { give(stream, made as Handle, "the stream's place") }
    })
}

/// Ends a stream once its work is done; does not wait.
///
/// # Safety
/// None: a handle that is not a stream is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtbStreamDestroy(stream: Handle) -> c_int {
    guard(|| match crate::device::stream_destroy(stream as usize) {
        true => Ok(()),
        false => Err(Fault::new(Code::InvalidArgument, format!("{stream:?} is not a stream"))),
    })
}

fn with_stream<T>(stream: Handle, f: impl FnOnce(&crate::device::Stream) -> Res<T>) -> Res<T> {
    let found = crate::device::stream_of(stream as usize);
    f(&*found.ok_or_else(|| Fault::new(Code::InvalidArgument, format!("{stream:?} is not a stream")))?)
}

/// Enqueues a kernel that computes for `ns` nanoseconds (times the rank's `compute_scale_milli`).
///
/// # Safety
/// None: a handle that is not a stream is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtbLaunchCompute(stream: Handle, ns: u64) -> c_int {
    guard(|| {
        with_stream(stream, |s| {
            s.push(crate::device::Item::Compute(ns));
            Ok(())
        })
    })
}

/// Gives the profiler plugin no events of what this process issues from now on (0), or gives them again: what a plugin
/// costs can be told within one job.
#[unsafe(no_mangle)]
pub extern "C" fn mtbProfilerEvents(give: c_int) {
    crate::profiler::give_events(give != 0);
}

/// Waits until everything enqueued so far is done.
///
/// # Safety
/// None: a handle that is not a stream is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtbStreamSynchronize(stream: Handle) -> c_int {
    guard(|| {
        with_stream(stream, |s| {
            s.synchronize();
            Ok(())
        })
    })
}

/// Success when everything enqueued is done, InProgress (7) when not.
///
/// # Safety
/// None: a handle that is not a stream is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtbStreamQuery(stream: Handle) -> c_int {
    guard(|| {
        with_stream(stream, |s| match s.is_idle() {
            true => Ok(()),
            false => Err(Fault::new(Code::InProgress, "the stream still works")),
        })
    })
}
