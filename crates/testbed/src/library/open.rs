//! Opening the collective library.
use crate::error::TestbedError;
use std::ffi::{CStr, CString, c_void};
use std::path::Path;

/// What stands before NCCL in `LD_PRELOAD`, if it does.
const PRELOADED: &str = "libmycroft_preload";

/// Where the library's functions are looked up. It is for all to see, and they are looked up from the program on, where something
/// stands before NCCL: that is called, and finds the library.
pub(super) fn open(path: &Path) -> Result<*mut c_void, TestbedError> {
    let error = |message: String| TestbedError::Library { path: path.to_owned(), message };
    let c_path =
        CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| error("the path holds a zero".to_owned()))?;
    let is_behind = std::env::var("LD_PRELOAD").is_ok_and(|names| names.contains(PRELOADED));
    let scope = if is_behind { libc::RTLD_GLOBAL } else { libc::RTLD_LOCAL };
    // SAFETY: c_path is a C string; loading runs the library's constructors, which is what we are asked to do.
    let library = unsafe { libc::dlopen(c_path.as_ptr(), libc::RTLD_NOW | scope) };
    if library.is_null() {
        return Err(error(loader_error()));
    }
    Ok(if is_behind { libc::RTLD_DEFAULT } else { library })
}

/// Why the loader refused what was asked of it last.
pub(super) fn loader_error() -> String {
    // SAFETY: dlerror returns null or a C string valid until the next loader call of this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the dynamic loader gave no reason".to_owned();
    }
    // SAFETY: not null, see above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
