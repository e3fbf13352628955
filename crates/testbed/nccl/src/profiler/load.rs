//! Loading the plugin as NCCL 2.30.7 does: once per process, counted by communicators.

use crate::personality::Personality;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `ncclProfiler_vN_t`: the same shape in every version; only `init` and the descriptors differ.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Table {
    name: *const c_char,
    pub(super) init: *const c_void,
    pub(super) start: Option<unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut c_void) -> c_int>,
    pub(super) stop: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    pub(super) record: Option<unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int>,
    pub(super) finalize: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
}

const _: () = assert!(size_of::<Table>() == 48);

/// A plugin that is loaded.
struct Loaded {
    library: *mut c_void,
    table: Table,
    version: u8,
    users: usize,
}

// SAFETY: the table is read-only data of the plugin, and its functions may be called from any thread (NCCL does).
unsafe impl Send for Loaded {}

enum Plugin {
    Untried,
    Failed,
    Loaded(Loaded),
}

static PLUGIN: Mutex<Plugin> = Mutex::new(Plugin::Untried);

fn plugin() -> MutexGuard<'static, Plugin> {
    PLUGIN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The plugin's table, loading it at first; counts one more user.
pub(super) fn load() -> Option<(Table, u8)> {
    let mut plugin = plugin();
    if let Plugin::Loaded(loaded) = &mut *plugin {
        loaded.users += 1;
        return Some((loaded.table, loaded.version));
    }
    if matches!(*plugin, Plugin::Failed) {
        return None;
    }
    match open() {
        Some(loaded) => {
            let found = (loaded.table, loaded.version);
            *plugin = Plugin::Loaded(loaded);
            Some(found)
        }
        None => {
            *plugin = Plugin::Failed;
            None
        }
    }
}

/// One user less; the last one closes the library, and a later communicator loads it anew.
pub(super) fn unload() {
    let mut plugin = plugin();
    if let Plugin::Loaded(loaded) = &mut *plugin {
        loaded.users -= 1;
        if loaded.users == 0 {
            // SAFETY: dlopen gave the library, and no communicator uses its table any more.
            unsafe { libc::dlclose(loaded.library) };
            *plugin = Plugin::Untried;
        }
    }
}

fn open() -> Option<Loaded> {
    let wanted = std::env::var("NCCL_PROFILER_PLUGIN").unwrap_or_default();
    if wanted.eq_ignore_ascii_case("none") {
        return None;
    }
    let library = open_library(&wanted)?;
    let forced =
        std::env::var("MYCROFT_TESTBED_PROFILER_ABI").ok().and_then(|v| v.trim_start_matches('v').parse().ok());
    let versions = match forced {
        Some(v @ 1..=6) => v..=v,
        _ => 1..=Personality::current().abi,
    };
    for version in versions.rev() {
        let Ok(symbol) = CString::new(format!("ncclProfiler_v{version}")) else { continue };
        // SAFETY: an open library and a NUL-terminated name.
        let table = unsafe { libc::dlsym(library, symbol.as_ptr()) }.cast::<Table>();
        if !table.is_null() {
            crate::log::info(&format!("profiler plugin {wanted} loaded, interface v{version}"));
            // SAFETY: the symbol is a data object of this shape in every version.
            let table = unsafe { *table };
            return Some(Loaded { library, table, version, users: 1 });
        }
    }
    crate::log::info(&format!("profiler plugin {wanted} has no interface this library knows"));
    // SAFETY: just opened, nothing of it is in use.
    unsafe { libc::dlclose(library) };
    None
}

/// NCCL 2.30.7's order: the value as it is, then as a suffix, unless it looks like a file already.
fn open_library(wanted: &str) -> Option<*mut c_void> {
    if wanted == "STATIC_PLUGIN" {
        // SAFETY: null asks for the main program.
        let own = unsafe { libc::dlopen(ptr::null(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        return (!own.is_null()).then_some(own);
    }
    let mut names = Vec::new();
    if wanted.is_empty() {
        names.push("libnccl-profiler.so".to_owned());
    } else {
        names.push(wanted.to_owned());
        let like_a_file = wanted.contains('/') || (wanted.starts_with("lib") && wanted.ends_with(".so"));
        if !like_a_file {
            names.push(format!("libnccl-profiler-{wanted}.so"));
        }
    }
    for name in names {
        let Ok(c_name) = CString::new(name.as_str()) else { continue };
        // SAFETY: a NUL-terminated name.
        let library = unsafe { libc::dlopen(c_name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if !library.is_null() {
            return Some(library);
        }
        if !wanted.is_empty() {
            // SAFETY: dlerror gives null or a NUL-terminated string that lives until the next dl call.
            let why = unsafe { libc::dlerror() };
            if !why.is_null() {
                // SAFETY: as above.
                let why = unsafe { CStr::from_ptr(why) }.to_string_lossy();
                crate::log::warn(&format!("profiler plugin {name}: {why}"));
            }
        }
    }
    None
}
