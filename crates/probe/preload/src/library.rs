//! Libraries that the process has loaded, found by name; none is ever loaded here.
use std::ffi::{CStr, c_char, c_int, c_void};

/// A library that stays loaded: the count that finding it took is never given back.
#[derive(Clone, Copy)]
pub(crate) struct Library(*mut c_void);

impl Library {
    /// The first of these names that is loaded, else one whose file is `wanted` (wheels rename their libraries).
    pub(crate) fn loaded(names: &[&CStr], wanted: fn(&[u8]) -> bool) -> Option<Library> {
        names.iter().find_map(|name| named(name)).or_else(|| search(wanted))
    }

    /// Where its function of this name is; NULL where it has none.
    pub(crate) fn function(self, name: &CStr) -> *mut c_void {
        // SAFETY: a library that stays loaded, and a C string.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }
}

fn named(name: &CStr) -> Option<Library> {
    // SAFETY: a C string; nothing is loaded that is not loaded.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    (!library.is_null()).then_some(Library(library))
}

/// What is looked for, and what was found.
struct Search {
    wanted: fn(&[u8]) -> bool,
    found: Option<Library>,
}

fn search(wanted: fn(&[u8]) -> bool) -> Option<Library> {
    let mut search = Search { wanted, found: None };
    // SAFETY: the function takes what it is called with, and `search` lives as long as the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader gives a valid structure.
    let name: *const c_char = unsafe { (*info).dlpi_name };
    if name.is_null() {
        return 0;
    }
    // SAFETY: not NULL, so a C string; and what `search` passed.
    let (name, search) = unsafe { (CStr::from_ptr(name), &mut *search.cast::<Search>()) };
    let file = name.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if (search.wanted)(file) {
        search.found = named(name);
    }
    c_int::from(search.found.is_some())
}

/// Calls the function of this name of a library; `NO_FUNCTION` where it has none. Whoever uses it promises what the library
/// asks of the arguments.
macro_rules! call {
    ($library:expr, $name:literal ($($type:ty),*) ($($arg:expr),*)) => {{
        let function = $library.function($name);
        if function.is_null() {
            $crate::library::NO_FUNCTION
        } else {
            // SAFETY: the library's function of this name, whose signature in its header this is.
            let function: unsafe extern "C" fn($($type),*) -> std::ffi::c_int = unsafe { std::mem::transmute(function) };
            // SAFETY: the promise of who uses the macro.
            unsafe { function($($arg),*) }
        }
    }};
}
pub(crate) use call;

/// What `call` gives where there is no such function: no status of CUDA or cuBLAS.
pub(crate) const NO_FUNCTION: c_int = -1;
