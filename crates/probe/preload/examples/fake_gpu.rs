//! A GPU that is none: `libnccl.so.2`, `libcuda.so.1` and `libcublas.so.13` in one library (three links to its file). NCCL's
//! functions and what streams and kernels do are the CPU stand-in's (`FAKE_GPU_NCCL` is its path), whose own names nobody sees. It ends
//! the program where the driver would refuse a call, or where a call would end a CUDA graph that the program is recording.
#![allow(missing_docs, non_snake_case, reason = "named as NCCL's, CUDA's and cuBLAS's")]
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::sync::{Mutex, OnceLock};

type Handle = *mut c_void;

/// The stand-in.
fn stand_in(name: &CStr) -> *mut c_void {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        let path = std::env::var("FAKE_GPU_NCCL").expect("FAKE_GPU_NCCL: the path of the stand-in");
        let path = CString::new(path).expect("no zero in it");
        // SAFETY: a C string; the library has no other conditions.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null(), "{path:?} does not load");
        library.expose_provenance()
    });
    // SAFETY: a library that stays loaded, and a C string.
    let found = unsafe { libc::dlsym(std::ptr::with_exposed_provenance_mut(*library), name.as_ptr()) };
    assert!(!found.is_null(), "the stand-in has no {name:?}");
    found
}

/// Calls the stand-in's function of this name.
macro_rules! stand_in {
    ($name:expr, ($($type:ty),*) ($($arg:expr),*)) => {{
        // SAFETY: the stand-in's function of this name, which has this signature; the caller's own promise.
        unsafe {
            let function: unsafe extern "C" fn($($type),*) -> c_int = std::mem::transmute(stand_in($name));
            function($($arg),*)
        }
    }};
}

macro_rules! forward {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {$(
        /// # Safety
        /// As the stand-in's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            let name = CString::new(stringify!($name)).expect("no zero in it");
            stand_in!(&name, ($($type),*) ($($arg),*))
        }
    )*};
}

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UniqueId([u8; 128]);

forward! {
    ncclGetVersion(version: *mut c_int);
    ncclGetUniqueId(id: *mut UniqueId);
    ncclCommInitRank(comm: *mut Handle, ranks: c_int, id: UniqueId, rank: c_int);
    ncclCommSplit(comm: Handle, color: c_int, key: c_int, new: *mut Handle, config: *mut c_void);
    ncclCommDestroy(comm: Handle);
    ncclCommCount(comm: Handle, ranks: *mut c_int);
    ncclCommUserRank(comm: Handle, rank: *mut c_int);
    ncclCommCuDevice(comm: Handle, device: *mut c_int);
    ncclCommGetAsyncError(comm: Handle, error: *mut c_int);
    ncclAllReduce(send: Handle, recv: Handle, count: usize, datatype: c_int, op: c_int, comm: Handle, stream: Handle);
    ncclBroadcast(send: Handle, recv: Handle, count: usize, datatype: c_int, root: c_int, comm: Handle, stream: Handle);
    ncclBcast(buffer: Handle, count: usize, datatype: c_int, root: c_int, comm: Handle, stream: Handle);
    ncclGroupStart();
    ncclGroupEnd();
}

/// Memory of the device by its address, and how much; NCCL's messages of tests have to lie in it.
static MEMORY: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());

fn of_device() -> std::sync::MutexGuard<'static, BTreeMap<u64, usize>> {
    MEMORY.lock().expect("nobody panicked with it")
}

/// Whether a message is a test's: those have one byte a value. The program's own lie in its memory, and are let through.
fn is_of_test(datatype: c_int) -> bool {
    datatype == 0
}

fn check_message(at: Handle, bytes: usize, datatype: c_int) {
    let holds = |(start, size): (&u64, &usize)| {
        *start <= at.addr() as u64 && (at.addr() + bytes) as u64 <= start + *size as u64
    };
    assert!(
        !is_of_test(datatype) || of_device().iter().any(holds),
        "a message of a test is not in the device's memory"
    );
}

/// # Safety
/// As the stand-in's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclSend(
    send: Handle,
    count: usize,
    datatype: c_int,
    peer: c_int,
    comm: Handle,
    stream: Handle,
) -> c_int {
    check_message(send, count, datatype);
    stand_in!(c"ncclSend", (Handle, usize, c_int, c_int, Handle, Handle)(send, count, datatype, peer, comm, stream))
}

/// # Safety
/// As the stand-in's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclRecv(
    recv: Handle,
    count: usize,
    datatype: c_int,
    peer: c_int,
    comm: Handle,
    stream: Handle,
) -> c_int {
    check_message(recv, count, datatype);
    stand_in!(c"ncclRecv", (Handle, usize, c_int, c_int, Handle, Handle)(recv, count, datatype, peer, comm, stream))
}

thread_local! {
    /// Contexts that this thread has pushed.
    static PUSHED: Cell<usize> = const { Cell::new(0) };
    /// Its capture mode; 0: calls that a graph does not see end it.
    static CAPTURE_MODE: Cell<c_int> = const { Cell::new(0) };
}

/// The only context.
const CONTEXT: usize = 0x6000;
const INVALID_CONTEXT: c_int = 201;
const NOT_READY: c_int = 600;

fn needs_context() {
    assert!(PUSHED.get() > 0, "a call without a context");
}

/// What a thread may call while another records a graph only if it says so.
fn is_unsafe_in_captures() {
    needs_context();
    assert_eq!(CAPTURE_MODE.get(), 2, "this call ends a graph that is recorded");
}

/// # Safety
/// A place for the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { device.write(ordinal) };
    0
}

/// # Safety
/// A place for the context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut Handle, _: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { context.write(std::ptr::without_provenance_mut(CONTEXT)) };
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(_: c_int) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxPushCurrent_v2(context: Handle) -> c_int {
    if context.addr() != CONTEXT {
        return INVALID_CONTEXT;
    }
    PUSHED.set(PUSHED.get() + 1);
    0
}

/// # Safety
/// A place for the context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut Handle) -> c_int {
    needs_context();
    PUSHED.set(PUSHED.get() - 1);
    assert_eq!(CAPTURE_MODE.get(), 0, "the thread's capture mode is not what it was");
    // SAFETY: the caller's promise.
    unsafe { context.write(std::ptr::without_provenance_mut(CONTEXT)) };
    0
}

/// # Safety
/// A place with the mode.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { mode.write(CAPTURE_MODE.replace(mode.read())) };
    0
}

/// # Safety
/// A place for the stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut Handle, flags: c_uint) -> c_int {
    // The program's own has no flags.
    assert!(flags == 0 || PUSHED.get() > 0, "a stream without a context");
    stand_in!(c"mtbStreamCreate", (*mut Handle)(stream))
}

/// # Safety
/// A stream of `cuStreamCreate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamQuery(stream: Handle) -> c_int {
    match stand_in!(c"mtbStreamQuery", (Handle)(stream)) {
        0 => 0,
        _ => NOT_READY,
    }
}

/// # Safety
/// A place for the address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(at: *mut u64, bytes: usize) -> c_int {
    is_unsafe_in_captures();
    let memory = Box::leak(vec![0_u8; bytes].into_boxed_slice());
    let address = memory.as_mut_ptr().expose_provenance() as u64;
    of_device().insert(address, bytes);
    // SAFETY: the caller's promise.
    unsafe { at.write(address) };
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(at: u64) -> c_int {
    is_unsafe_in_captures();
    let bytes = of_device().remove(&at).expect("memory of the device, freed once");
    let start: *mut u8 = std::ptr::with_exposed_provenance_mut(at as usize);
    // SAFETY: leaked by `cuMemAlloc_v2` with so many bytes, and nobody else frees it.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, bytes)) });
    0
}

/// # Safety
/// A place for the address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(at: *mut Handle, bytes: usize, _: c_uint) -> c_int {
    is_unsafe_in_captures();
    // SAFETY: the caller's promise; more than nothing is asked for.
    unsafe { at.write(libc::malloc(bytes)) };
    0
}

/// # Safety
/// What `cuMemHostAlloc` gave.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(at: Handle) -> c_int {
    is_unsafe_in_captures();
    // SAFETY: the caller's promise.
    unsafe { libc::free(at) };
    0
}

/// Nanoseconds for so many bytes: a bus of 16 GB/s.
fn bus_ns(bytes: usize) -> u64 {
    bytes as u64 / 16
}

/// # Safety
/// A stream of `cuStreamCreate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, _: Handle, bytes: usize, stream: Handle) -> c_int {
    needs_context();
    let holds =
        of_device().range(..=to).next_back().is_some_and(|(start, size)| to + bytes as u64 <= start + *size as u64);
    assert!(holds, "a copy beyond the device's memory");
    stand_in!(c"mtbLaunchCompute", (Handle, u64)(stream, bus_ns(bytes)))
}

/// # Safety
/// A stream of `cuStreamCreate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(_: Handle, from: u64, bytes: usize, stream: Handle) -> c_int {
    needs_context();
    assert!(of_device().get(&from).is_some_and(|size| bytes <= *size), "a copy beyond the device's memory");
    stand_in!(c"mtbLaunchCompute", (Handle, u64)(stream, bus_ns(bytes)))
}

/// cuBLAS's handle: its stream.
struct Blas(Handle);

/// # Safety
/// A place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasCreate_v2(handle: *mut Handle) -> c_int {
    is_unsafe_in_captures();
    // SAFETY: the caller's promise.
    unsafe { handle.write(Box::into_raw(Box::new(Blas(std::ptr::null_mut()))).cast()) };
    0
}

/// # Safety
/// A handle, and a place for the version.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetVersion_v2(_: Handle, version: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { version.write(130_100) };
    0
}

/// # Safety
/// A handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasSetStream_v2(handle: Handle, stream: Handle) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { (*handle.cast::<Blas>()).0 = stream };
    0
}

/// # Safety
/// A handle, and numbers where they are expected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGemmEx(
    handle: Handle,
    left_op: c_int,
    right_op: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const f32,
    left: u64,
    left_type: c_int,
    left_rows: c_int,
    right: u64,
    right_type: c_int,
    right_rows: c_int,
    beta: *const f32,
    result: u64,
    result_type: c_int,
    result_rows: c_int,
    compute_type: c_int,
    algorithm: c_int,
) -> c_int {
    needs_context();
    // SAFETY: the caller's promise.
    let (alpha, beta, stream) = unsafe { (*alpha, *beta, (*handle.cast::<Blas>()).0) };
    assert_eq!((left_op, right_op, alpha, beta), (0, 0, 1.0, 0.0));
    assert_eq!((left_type, right_type, result_type, compute_type, algorithm), (2, 2, 2, 68, -1));
    assert!([n, k, left_rows, right_rows, result_rows].iter().all(|rows| *rows == m));
    let bytes = 2 * m as usize * m as usize;
    let matrices = of_device();
    assert!([left, right, result].iter().all(|at| matrices.get(at).is_some_and(|size| bytes <= *size)));
    // A device of 500 Tflop/s.
    let flop = 2 * (m as u64).pow(3);
    let ns = flop / 500_000;
    stand_in!(c"mtbLaunchCompute", (Handle, u64)(stream, ns))
}
