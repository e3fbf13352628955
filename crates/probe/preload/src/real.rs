//! NCCL's own functions: found once, kept for the rest of the process's life.
use std::ffi::{CStr, c_char, c_int, c_void};
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
        let library = match SONAMES.iter().map(|name| loaded(name)).find(|library| !library.is_null()) {
            Some(library) => library,
            None => search(),
        };
        if library.is_null() {
            return library;
        }
        // SAFETY: a library that stays loaded (the count that `loaded` took is never given back), and a C string.
        unsafe { libc::dlsym(library, self.name.as_ptr()) }
    }
}

/// A library that is loaded already.
fn loaded(name: &CStr) -> *mut c_void {
    // SAFETY: a C string; nothing is loaded that is not loaded.
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) }
}

/// A loaded library whose file's name begins as NCCL's does.
fn search() -> *mut c_void {
    let mut found: *mut c_void = std::ptr::null_mut();
    // SAFETY: the function takes what it is called with, and `found` lives as long as the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
    found
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader gives a valid structure.
    let name: *const c_char = unsafe { (*info).dlpi_name };
    if name.is_null() {
        return 0;
    }
    // SAFETY: not NULL, so a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let file = name.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    // Of NCCL itself, not of its plugins (libnccl-net.so, libnccl-profiler.so).
    let is_nccl = file.starts_with(FILE_NAME)
        && !matches!(file.get(FILE_NAME.len()..), Some([b'-', after, ..]) if after.is_ascii_lowercase() && !after.is_ascii_hexdigit());
    if !is_nccl {
        return 0;
    }
    let library = loaded(name);
    // SAFETY: what `search` passed.
    unsafe { found.cast::<*mut c_void>().write(library) };
    c_int::from(!library.is_null())
}
