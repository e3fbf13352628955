//! Matrix products of three sizes on the device (FALCON 4.3: GEMM benchmarks).
use super::Device;
use super::cuda::{Gpu, GpuMemory, HostMemory};
use super::stand_in;
use crate::library::{Library, call};
use crate::real::Stream;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Sizes of products.
pub(crate) const SIZES: usize = 3;
/// Nanoseconds that a product of each size takes on a healthy device of the stand-in.
const STAND_IN_NS: [u64; SIZES] = [2_000_000, 4_000_000, 8_000_000];
/// Rows of a GPU's square matrices of 16-bit numbers, and how many products follow each other: about 1 Tflop each, a millisecond
/// or two of an H100, ten of a V100. The largest take 96 MiB, all three together.
const GPU: [(c_int, usize); SIZES] = [(1_024, 512), (2_048, 64), (4_096, 8)];
/// Bytes of the host's memory that matrices are filled from.
const PATTERN_BYTES: usize = 4 << 20;
/// Names under which cuBLAS is loaded; those of CUDA 11 and newer have this `cublasGemmEx`.
const NAMES: [&CStr; 3] = [c"libcublas.so.13", c"libcublas.so.12", c"libcublas.so.11"];
/// The oldest version whose `cublasGemmEx` takes a compute type.
const VERSION_MIN: c_int = 11_000;
/// `CUBLAS_OP_N`, `CUDA_R_16F`, `CUBLAS_COMPUTE_32F` and `CUBLAS_GEMM_DEFAULT`.
const AS_IT_IS: c_int = 0;
const HALF: c_int = 2;
const COMPUTE_FLOAT: c_int = 68;
const ANY_WAY: c_int = -1;

/// cuBLAS's handle, made with the first test and kept: destroying it would wait for the whole device, which ends a CUDA graph that the
/// job is recording.
static HANDLE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Products that can be begun.
pub(crate) enum Products<'a> {
    StandIn(Stream),
    Gpu(GpuProducts<'a>),
}

/// Those of a GPU.
pub(crate) struct GpuProducts<'a> {
    blas: Library,
    handle: *mut c_void,
    /// Two factors and the result.
    matrices: [GpuMemory<'a>; 3],
    /// What they are filled from.
    _pattern: HostMemory<'a>,
    /// Whether they could be filled.
    is_filled: bool,
}

impl<'a> Products<'a> {
    /// Makes them ready; `None` where the device cannot. What was begun for that, the stream ends before any product.
    pub(crate) fn of(device: &'a Device) -> Option<Products<'a>> {
        match device {
            Device::StandIn(stream) => Some(Products::StandIn(*stream)),
            Device::Gpu(gpu) => GpuProducts::of(gpu).map(Products::Gpu),
        }
    }

    /// Begins those of one size; whether it could.
    pub(crate) fn begin(&self, size: usize) -> bool {
        match self {
            Products::StandIn(stream) => stand_in::compute(*stream, STAND_IN_NS[size]),
            Products::Gpu(products) => products.begin(GPU[size]),
        }
    }
}

impl<'a> GpuProducts<'a> {
    fn of(gpu: &'a Gpu) -> Option<GpuProducts<'a>> {
        let blas = Library::loaded(&NAMES, |file| file.starts_with(b"libcublas.so"))?;
        let handle = handle(blas)?;
        if call!(blas, c"cublasSetStream_v2" (*mut c_void, Stream)(handle, gpu.stream())) != 0 {
            return None;
        }
        let (rows, _) = GPU[SIZES - 1];
        let bytes = size_of::<u16>() * rows.unsigned_abs() as usize * rows.unsigned_abs() as usize;
        let mut pattern = gpu.host_memory(PATTERN_BYTES)?;
        fill(pattern.halves());
        let matrices = [gpu.memory(bytes)?, gpu.memory(bytes)?, gpu.memory(bytes)?];
        let is_filled = matrices.iter().all(|matrix| matrix.begin_fill(&pattern));
        Some(GpuProducts { blas, handle, matrices, _pattern: pattern, is_filled })
    }

    fn begin(&self, (rows, times): (c_int, usize)) -> bool {
        let (one, zero) = (1.0_f32, 0.0_f32);
        let [left, right, result] = self.matrices.each_ref().map(GpuMemory::start);
        let once = || {
            call!(self.blas, c"cublasGemmEx" (*mut c_void, c_int, c_int, c_int, c_int, c_int, *const f32, *const c_void, c_int,
                c_int, *const c_void, c_int, c_int, *const f32, *mut c_void, c_int, c_int, c_int, c_int)
                (self.handle, AS_IT_IS, AS_IT_IS, rows, rows, rows, &raw const one, left.cast_const(), HALF,
                rows, right.cast_const(), HALF, rows, &raw const zero, result, HALF, rows, COMPUTE_FLOAT, ANY_WAY))
        };
        self.is_filled && (0..times).all(|_| once() == 0)
    }
}

/// cuBLAS's handle, if its version is known.
fn handle(blas: Library) -> Option<*mut c_void> {
    let handle = HANDLE.load(Ordering::Acquire);
    if !handle.is_null() {
        return Some(handle);
    }
    let (mut handle, mut version) = (std::ptr::null_mut(), 0);
    if call!(blas, c"cublasCreate_v2" (*mut *mut c_void)(&raw mut handle)) != 0 || handle.is_null() {
        return None;
    }
    let told = call!(blas, c"cublasGetVersion_v2" (*mut c_void, *mut c_int)(handle, &raw mut version));
    if told != 0 || version < VERSION_MIN {
        return None;
    }
    // One task at a time, so nobody else made one.
    HANDLE.store(handle, Ordering::Release);
    Some(handle)
}

/// Numbers of 16 bits between 0.5 and 1 with either sign: zeros would take less power, and a device that is throttled for its power
/// would not show.
fn fill(halves: &mut [u16]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for half in halves {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *half = 0x3800 | ((state >> 48) as u16 & 0x83ff);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_hold_numbers_of_either_sign_between_a_half_and_one() {
        let mut halves = vec![0; 4_096];
        fill(&mut halves);
        // Sign, five bits of exponent of which 14 is 2^-1, ten bits of fraction.
        assert!(halves.iter().all(|half| (half >> 10) & 0x1f == 14));
        let negative = halves.iter().filter(|half| **half >> 15 == 1).count();
        assert!((1_500..2_600).contains(&negative), "{negative}");
        let different: std::collections::BTreeSet<u16> = halves.iter().copied().collect();
        assert!(different.len() > 1_000, "{}", different.len());
    }
}
