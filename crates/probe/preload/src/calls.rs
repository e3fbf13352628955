//! Collectives, sends, receives and groups: count, wait if asked, call NCCL's own.
use crate::gate::{self, Op};
use crate::real::{Comm, NO_NCCL, Real, Stream};
use crate::records::{self, Called};
use crate::{comms, group};
use mycroft_record::OpKind;
use std::ffi::{c_int, c_void};

/// A function that stands before NCCL's of the same name: what it does first, and NCCL's own with the same arguments.
macro_rules! interpose {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*): $comm:ident, $op:expr, $kind:ident($count:expr, $datatype:expr, $other:expr);)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As NCCL's own: what it is called with goes there as it is.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            static REAL: Real = Real::new(concat!(stringify!($name), "\0"));
            gate::before($comm.addr(), $op);
            let real = REAL.get();
            if real.is_null() {
                return NO_NCCL;
            }
            // SAFETY: NCCL's function of this name, whose signature in `nccl.h` this is.
            let real: unsafe extern "C" fn($($type),*) -> c_int = unsafe { std::mem::transmute(real) };
            records::called($comm.addr(), Called { kind: OpKind::$kind, count: $count, datatype: $datatype, other: $other });
            // SAFETY: the caller's own promise.
            unsafe { real($($arg),*) }
        }
    )*};
}

interpose! {
    /// `ncclAllReduce`.
    ncclAllReduce(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, op: c_int, comm: Comm, stream: Stream): comm, Op::Collective, AllReduce(count, datatype, -1);
    /// `ncclReduceScatter`.
    ncclReduceScatter(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, op: c_int, comm: Comm, stream: Stream): comm, Op::Collective, ReduceScatter(count, datatype, -1);
    /// `ncclAllGather`.
    ncclAllGather(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, comm: Comm, stream: Stream): comm, Op::Collective, AllGather(count, datatype, -1);
    /// `ncclReduce`.
    ncclReduce(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, op: c_int, root: c_int, comm: Comm, stream: Stream): comm, Op::Collective, Reduce(count, datatype, root);
    /// `ncclBroadcast`.
    ncclBroadcast(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: Comm, stream: Stream): comm, Op::Collective, Broadcast(count, datatype, root);
    /// `ncclAlltoAll`, in NCCL 2.28 and newer.
    ncclAlltoAll(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, comm: Comm, stream: Stream): comm, Op::Collective, AllToAll(count, datatype, -1);
    /// `ncclGather`, in NCCL 2.28 and newer.
    ncclGather(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: Comm, stream: Stream): comm, Op::Collective, Gather(count, datatype, root);
    /// `ncclScatter`, in NCCL 2.28 and newer.
    ncclScatter(send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: Comm, stream: Stream): comm, Op::Collective, Scatter(count, datatype, root);
    /// `ncclSend`.
    ncclSend(send: *const c_void, count: usize, datatype: c_int, peer: c_int, comm: Comm, stream: Stream): comm, Op::Send(peer), Send(count, datatype, peer);
    /// `ncclRecv`.
    ncclRecv(recv: *mut c_void, count: usize, datatype: c_int, peer: c_int, comm: Comm, stream: Stream): comm, Op::Recv(peer), Recv(count, datatype, peer);
}

/// `ncclBcast`: the broadcast in place that NCCL makes of it. (NCCL's own calls `ncclBroadcast` by name, which comes here
/// again and would be counted twice.)
///
/// # Safety
/// As NCCL's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclBcast(
    buffer: *mut c_void,
    count: usize,
    datatype: c_int,
    root: c_int,
    comm: Comm,
    stream: Stream,
) -> c_int {
    // SAFETY: the caller's own promise; NCCL defines it so.
    unsafe { ncclBroadcast(buffer.cast_const(), buffer, count, datatype, root, comm, stream) }
}

/// `ncclGroupStart`. An outermost one is where a rank may be held; nothing inside a group is.
///
/// # Safety
/// As NCCL's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGroupStart() -> c_int {
    static REAL: Real = Real::new("ncclGroupStart\0");
    if group::depth() == 0 {
        gate::before_group();
    }
    group::begin();
    // SAFETY: a function without arguments, NCCL's.
    unsafe { call_bare(&REAL) }
}

/// `ncclGroupEnd`.
///
/// # Safety
/// As NCCL's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGroupEnd() -> c_int {
    static REAL: Real = Real::new("ncclGroupEnd\0");
    // SAFETY: a function without arguments, NCCL's.
    let code = unsafe { call_bare(&REAL) };
    if group::end() {
        comms::group_ended();
    }
    code
}

/// `ncclGroupSimulateEnd`: ends the group without issuing what is in it.
///
/// # Safety
/// As NCCL's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGroupSimulateEnd(info: *mut c_void) -> c_int {
    static REAL: Real = Real::new("ncclGroupSimulateEnd\0");
    let real = REAL.get();
    if real.is_null() {
        return NO_NCCL;
    }
    // SAFETY: NCCL's function of this name, with one pointer.
    let real: unsafe extern "C" fn(*mut c_void) -> c_int = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's own promise.
    let code = unsafe { real(info) };
    if group::end() {
        comms::group_ended();
    }
    code
}

/// # Safety
/// `real` must be of a function without arguments.
unsafe fn call_bare(real: &Real) -> c_int {
    let real = real.get();
    if real.is_null() {
        return NO_NCCL;
    }
    // SAFETY: the caller's promise.
    let real: unsafe extern "C" fn() -> c_int = unsafe { std::mem::transmute(real) };
    // SAFETY: as above.
    unsafe { real() }
}
