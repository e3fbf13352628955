//! A GPU, by functions of the CUDA driver: every process with a GPU has loaded `libcuda.so.1`, while the CUDA runtime may be
//! linked into a program and have no names. Names and signatures as in `cuda.h` of CUDA 11 to 13.
//!
//! The job may be recording a CUDA graph in another stream. So this thread says that it knows what it does (capture mode
//! *relaxed*, as NCCL does for its own memory), and nothing here touches the default stream or waits for the whole device.
use crate::library::{Library, call};
use crate::real::{Comm, Stream, real};
use crate::table;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// What a context is.
type Context = *mut c_void;
/// `CUdeviceptr`.
type Address = u64;

/// Under which name the driver is loaded.
const DRIVER: &CStr = c"libcuda.so.1";
/// `CUDA_ERROR_NOT_READY`: the stream works.
const NOT_READY: c_int = 600;
/// `CU_STREAM_NON_BLOCKING`: the default stream does not wait for it, nor it for the default stream.
const NON_BLOCKING: c_uint = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;

/// The context in which the stream of tests was made, with the first test: a process with several devices is tested on none.
static CONTEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// The stream of tests.
static STREAM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// A GPU whose context is this thread's until this is dropped.
pub(crate) struct Gpu {
    driver: Library,
    device: c_int,
    stream: Stream,
    /// The thread's mode before.
    capture_mode: c_int,
}

impl Gpu {
    /// The GPU of a communicator, or of all that the process has, if that is one.
    pub(super) fn open(comm: Option<Comm>) -> Option<Gpu> {
        let driver = Library::loaded(&[DRIVER], |file| file.starts_with(b"libcuda.so"))?;
        let ordinal = ordinal(comm)?;
        let (mut device, mut context): (c_int, Context) = (0, std::ptr::null_mut());
        let found = call!(driver, c"cuDeviceGet" (*mut c_int, c_int)(&raw mut device, ordinal)) == 0
            && call!(driver, c"cuDevicePrimaryCtxRetain" (*mut Context, c_int)(&raw mut context, device)) == 0;
        if !found {
            return None;
        }
        let mut gpu = Gpu { driver, device, stream: std::ptr::null_mut(), capture_mode: RELAXED };
        if call!(driver, c"cuCtxPushCurrent_v2"(Context)(context)) != 0 {
            gpu.release();
            std::mem::forget(gpu);
            return None;
        }
        call!(driver, c"cuThreadExchangeStreamCaptureMode" (*mut c_int)(&raw mut gpu.capture_mode));
        gpu.stream = gpu.stream_of(context)?;
        Some(gpu)
    }

    /// The stream of tests, if it is one of this context.
    fn stream_of(&self, context: Context) -> Option<Stream> {
        let of = CONTEXT.load(Ordering::Acquire);
        if !of.is_null() {
            return (of == context).then(|| STREAM.load(Ordering::Relaxed));
        }
        let mut stream = std::ptr::null_mut();
        let made = call!(self.driver, c"cuStreamCreate" (*mut Stream, c_uint)(&raw mut stream, NON_BLOCKING));
        if made != 0 || stream.is_null() {
            return None;
        }
        // One task at a time, so nobody else made one.
        STREAM.store(stream, Ordering::Relaxed);
        CONTEXT.store(context, Ordering::Release);
        Some(stream)
    }

    pub(super) fn stream(&self) -> Stream {
        self.stream
    }

    pub(super) fn is_idle(&self) -> Option<bool> {
        match call!(self.driver, c"cuStreamQuery"(Stream)(self.stream)) {
            0 => Some(true),
            NOT_READY => Some(false),
            _ => None,
        }
    }

    /// Memory of the device.
    pub(crate) fn memory(&self, bytes: usize) -> Option<GpuMemory<'_>> {
        let mut at: Address = 0;
        let code = call!(self.driver, c"cuMemAlloc_v2" (*mut Address, usize)(&raw mut at, bytes));
        (code == 0 && at != 0).then_some(GpuMemory { gpu: self, at, bytes })
    }

    /// Memory of the host that the device reads and writes by itself.
    pub(crate) fn host_memory(&self, bytes: usize) -> Option<HostMemory<'_>> {
        let mut at = std::ptr::null_mut();
        let code = call!(self.driver, c"cuMemHostAlloc" (*mut *mut c_void, usize, c_uint)(&raw mut at, bytes, 0));
        (code == 0 && !at.is_null()).then_some(HostMemory { gpu: self, at, bytes })
    }

    /// Gives back what `open` retained: the runtime retains the context itself, so it stays.
    fn release(&self) {
        call!(self.driver, c"cuDevicePrimaryCtxRelease_v2"(c_int)(self.device));
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        let mut context: Context = std::ptr::null_mut();
        call!(self.driver, c"cuThreadExchangeStreamCaptureMode" (*mut c_int)(&raw mut self.capture_mode));
        call!(self.driver, c"cuCtxPopCurrent_v2" (*mut Context)(&raw mut context));
        self.release();
    }
}

/// The number of the device, as this process counts them.
fn ordinal(comm: Option<Comm>) -> Option<c_int> {
    let of = |comm: Comm| {
        let mut device: c_int = -1;
        (real!("ncclCommCuDevice" (Comm, *mut c_int)(comm, &raw mut device)) == 0 && device >= 0).then_some(device)
    };
    if let Some(comm) = comm {
        return of(comm);
    }
    let mut devices = table::handles().map(|handle| of(std::ptr::with_exposed_provenance_mut(handle)));
    let first = devices.next()??;
    devices.all(|device| device == Some(first)).then_some(first)
}

/// Memory of a GPU.
pub(crate) struct GpuMemory<'a> {
    gpu: &'a Gpu,
    at: Address,
    bytes: usize,
}

impl GpuMemory<'_> {
    pub(super) fn start(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(usize::try_from(self.at).unwrap_or(0))
    }

    /// Begins to fill it with what is in the host's memory, again and again; whether it could.
    pub(super) fn begin_fill(&self, from: &HostMemory<'_>) -> bool {
        let starts = (0..self.bytes).step_by(from.bytes.max(1));
        starts.into_iter().all(|start| {
            let (to, bytes) = (self.at + start as u64, from.bytes.min(self.bytes - start));
            let from: *const c_void = from.at;
            call!(self.gpu.driver, c"cuMemcpyHtoDAsync_v2" (Address, *const c_void, usize, Stream)
                (to, from, bytes, self.gpu.stream))
                == 0
        })
    }

    /// Begins to copy it into the host's memory, as far as that goes; whether it could.
    pub(crate) fn begin_copy(&self, to: &HostMemory<'_>) -> bool {
        let bytes = to.bytes.min(self.bytes);
        call!(self.gpu.driver, c"cuMemcpyDtoHAsync_v2" (*mut c_void, Address, usize, Stream)
            (to.at, self.at, bytes, self.gpu.stream))
            == 0
    }
}

impl Drop for GpuMemory<'_> {
    fn drop(&mut self) {
        call!(self.gpu.driver, c"cuMemFree_v2"(Address)(self.at));
    }
}

/// Memory of the host, page-locked.
pub(crate) struct HostMemory<'a> {
    gpu: &'a Gpu,
    at: *mut c_void,
    bytes: usize,
}

impl HostMemory<'_> {
    /// The memory as numbers of two bytes.
    pub(super) fn halves(&mut self) -> &mut [u16] {
        // SAFETY: aligned to a page, of so many bytes, borrowed for as long as this is, and the device does not use it yet.
        unsafe { std::slice::from_raw_parts_mut(self.at.cast(), self.bytes / size_of::<u16>()) }
    }
}

impl Drop for HostMemory<'_> {
    fn drop(&mut self) {
        call!(self.gpu.driver, c"cuMemFreeHost" (*mut c_void)(self.at));
    }
}
