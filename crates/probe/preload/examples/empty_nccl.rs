//! A `libnccl.so.2` that does nothing, for measuring what stands before it: every call succeeds at once.
#![allow(missing_docs, reason = "named as NCCL's")]
use std::ffi::{c_int, c_void};

type Comm = *mut c_void;

macro_rules! succeed {
    ($($name:ident($($type:ty),*);)*) => {$(
        /// # Safety
        /// Nothing is looked at.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($(_: $type),*) -> c_int {
            0
        }
    )*};
}

succeed! {
    ncclGetUniqueId(*mut c_void);
    ncclAllReduce(*const c_void, *mut c_void, usize, c_int, c_int, Comm, *mut c_void);
    ncclBroadcast(*const c_void, *mut c_void, usize, c_int, c_int, Comm, *mut c_void);
    ncclBcast(*mut c_void, usize, c_int, c_int, Comm, *mut c_void);
    ncclSend(*const c_void, usize, c_int, c_int, Comm, *mut c_void);
    ncclRecv(*mut c_void, usize, c_int, c_int, Comm, *mut c_void);
    ncclGroupStart();
    ncclGroupEnd();
    ncclCommSplit(Comm, c_int, c_int, *mut Comm, *mut c_void);
    ncclCommDestroy(Comm);
    mtbStreamCreate(*mut *mut c_void);
    mtbStreamQuery(*mut c_void);
    ncclCommGetAsyncError(Comm, *mut c_int);
}

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UniqueId([u8; 128]);

/// Gives a handle, the same for each rank.
///
/// # Safety
/// `comm` must be writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRank(comm: *mut Comm, _: c_int, _: UniqueId, rank: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { comm.write(std::ptr::without_provenance_mut(0x7f00_0000_0000 + 0x1000 * rank as usize)) };
    0
}
