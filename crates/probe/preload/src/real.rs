//! NCCL's own functions: found once, kept for the rest of the process's life.
use crate::library::Library;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// `ncclComm_t`.
pub(crate) type Comm = *mut c_void;
/// `cudaStream_t`.
pub(crate) type Stream = *mut c_void;
/// `ncclSystemError`: what a call gives where there is no NCCL to call.
pub(crate) const NO_NCCL: c_int = 2;
/// Names under which NCCL is loaded.
const SONAMES: [&CStr; 2] = [c"libnccl.so.2", c"libnccl.so"];
/// How the file of a NCCL is called that has neither of these names (wheels rename their libraries).
const FILE_NAME: &[u8] = b"libnccl";

/// Calls NCCL's function of this name; `NO_NCCL` where there is none. Whoever uses it promises what NCCL asks of the arguments.
macro_rules! real {
    ($name:literal ($($type:ty),*) ($($arg:expr),*)) => {{
        static REAL: $crate::real::Real = $crate::real::Real::new(concat!($name, "\0"));
        let real = REAL.get();
        if real.is_null() {
            $crate::real::NO_NCCL
        } else {
            // SAFETY: NCCL's function of this name, whose signature in `nccl.h` this is.
            let real: unsafe extern "C" fn($($type),*) -> c_int = unsafe { std::mem::transmute(real) };
            // SAFETY: the promise of who uses the macro.
            unsafe { real($($arg),*) }
        }
    }};
}
pub(crate) use real;

/// One function of NCCL's.
pub(crate) struct Real {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

impl Real {
    /// The function of this name; `name` ends with a zero.
    pub(crate) const fn new(name: &'static str) -> Real {
        let name = match CStr::from_bytes_with_nul(name.as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        };
        Real { name, at: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Where it is; NULL where no NCCL is loaded, or that NCCL has none.
    #[inline]
    pub(crate) fn get(&self) -> *mut c_void {
        let at = self.at.load(Ordering::Relaxed);
        if at.is_null() { self.find() } else { at }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: a C string. The next library after this one in the order of the loader: NCCL where the program was linked
        // to it.
        let next = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        let found = if next.is_null() { self.find_in_loaded() } else { next };
        self.at.store(found, Ordering::Relaxed);
        found
    }

    /// In a NCCL that came in with a library opened later, whose names only that library and its own see (so does torch's).
    fn find_in_loaded(&self) -> *mut c_void {
        Library::loaded(&SONAMES, is_nccl).map_or(std::ptr::null_mut(), |library| library.function(self.name))
    }
}

/// Whether a file is NCCL itself, and none of its plugins (libnccl-net.so, libnccl-profiler.so).
fn is_nccl(file: &[u8]) -> bool {
    let is_plugin =
        |rest: &[u8]| matches!(rest, [b'-', after, ..] if after.is_ascii_lowercase() && !after.is_ascii_hexdigit());
    file.strip_prefix(FILE_NAME).is_some_and(|rest| !is_plugin(rest))
}
