//! What to ask NCCL for, and which NCCL this is.
use crate::abi::{Logger, event};
use mycroft_probe_core::config::{KernelEvents, kernel_events};
use mycroft_record::OpKind;
use mycroft_record::nccl::{Effect, Library, NcclVersion, peculiarities};
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};

/// `ncclGetVersion` of the first 2.28.
pub const VERSION_2_28: u32 = 22_800;

/// The first interface that tells of calls of the API.
const FIRST_CALLS_ABI: u32 = 5;

/// What AMD's library is called, in the path that it was loaded from.
const RCCL_NAME: &[u8] = b"librccl.so";

/// NCCL's one activation mask of the process, as the last `init` passed it.
static ACTIVATION: AtomicPtr<c_int> = AtomicPtr::new(std::ptr::null_mut());
/// What we want to see.
static OURS: AtomicI32 = AtomicI32::new(0);
/// What a chained plugin wants to see.
static THEIRS: AtomicI32 = AtomicI32::new(0);
/// `mycroft_tracing(0)` was called last.
static PAUSED: AtomicBool = AtomicBool::new(false);
/// NCCL's version, 0 while not known.
static VERSION: AtomicU32 = AtomicU32::new(0);
/// The library that called us is AMD's.
static IS_RCCL: AtomicBool = AtomicBool::new(false);

/// NCCL's version as `ncclGetVersion` gives it, 0 if not known.
pub fn nccl_version() -> u32 {
    VERSION.load(Ordering::Relaxed)
}

/// The events we want of an NCCL of this interface and version.
///
/// v1 to v3 carry the counters in states of proxy operations, so steps are not asked for; kernel events exist from v3.
pub fn wanted(abi: u32, library: Library, version: u32) -> u64 {
    let has = |effect| peculiarities(library, NcclVersion(version)).any(|known| known.effect == effect);
    let p2p = if has(Effect::P2pEventsUnsafe) { 0 } else { event::P2P };
    let base = event::COLL | p2p | event::PROXY_OP;
    let steps = if abi >= 4 { event::PROXY_STEP } else { 0 };
    let on = match kernel_events() {
        KernelEvents::On => true,
        KernelEvents::Off => false,
        KernelEvents::Auto => !has(Effect::KernelEventsCostly),
    };
    base | steps | if abi >= 3 && on { event::KERNEL_CH } else { 0 }
}

/// Kinds of collectives that this NCCL may tell of by their calls only; none where the interface tells of no calls.
pub fn hidden(abi: u32, version: u32) -> &'static [OpKind] {
    let mut known = peculiarities(library(), NcclVersion(version));
    let is_broadcast = known.any(|known| known.effect == Effect::NotVisible(OpKind::Broadcast));
    if abi >= FIRST_CALLS_ABI && is_broadcast { &[OpKind::Broadcast] } else { &[] }
}

/// Writes the mask both plugins need to where NCCL reads it, and remembers the place for later switching.
pub fn publish(activation: *mut c_int, ours: u64, theirs: c_int) {
    OURS.store(ours as c_int, Ordering::Relaxed);
    THEIRS.store(theirs, Ordering::Relaxed);
    if !activation.is_null() {
        ACTIVATION.store(activation, Ordering::Release);
    }
    apply();
}

/// The chained plugin changed its mind.
pub fn set_theirs(theirs: c_int) {
    if THEIRS.swap(theirs, Ordering::Relaxed) != theirs {
        apply();
    }
}

fn apply() {
    let activation = ACTIVATION.load(Ordering::Acquire);
    if activation.is_null() {
        return;
    }
    let ours = if PAUSED.load(Ordering::Relaxed) { 0 } else { OURS.load(Ordering::Relaxed) };
    // SAFETY: the int lives in libnccl for the life of the process; NCCL reads it atomically too.
    unsafe { AtomicI32::from_ptr(activation) }.store(ours | THEIRS.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// C ABI: switches tracing of new operations off (0) or on (anything else) while the job runs; those already enqueued
/// are traced to their end. Returns 0.
#[unsafe(no_mangle)]
pub extern "C" fn mycroft_tracing(on: c_int) -> c_int {
    PAUSED.store(on == 0, Ordering::Relaxed);
    apply();
    0
}

/// Whose library called us, as far as [`find_nccl_version`] has found out.
pub fn library() -> Library {
    if IS_RCCL.load(Ordering::Relaxed) { Library::Rccl } else { Library::Nccl }
}

/// Asks the libnccl that called us for its version: whichever library holds its logger, or its mask.
pub fn find_nccl_version(logger: Option<Logger>, activation: *const c_int) -> u32 {
    let known = nccl_version();
    if known != 0 {
        return known;
    }
    let address = logger.map_or(activation.cast::<c_void>(), |logger| logger as *const c_void);
    let version = if address.is_null() { 0 } else { version_at(address) };
    VERSION.store(version, Ordering::Relaxed);
    version
}

fn version_at(address: *const c_void) -> u32 {
    // SAFETY: an all-zero Dl_info is valid (NULL pointers).
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: dladdr only compares the address and fills `info`.
    if unsafe { libc::dladdr(address, &mut info) } == 0 || info.dli_fname.is_null() {
        return 0;
    }
    // SAFETY: dladdr gave a C string.
    let name = unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes();
    IS_RCCL.store(name.windows(RCCL_NAME.len()).any(|part| part == RCCL_NAME), Ordering::Relaxed);
    // SAFETY: dladdr gave a C string; RTLD_NOLOAD loads nothing, it finds the library that is calling us.
    let library = unsafe { libc::dlopen(CStr::from_ptr(info.dli_fname).as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    if library.is_null() {
        return 0;
    }
    // SAFETY: a live library handle and a C string.
    let symbol = unsafe { libc::dlsym(library, c"ncclGetVersion".as_ptr()) };
    let mut version: c_int = 0;
    if !symbol.is_null() {
        // SAFETY: `ncclGetVersion` has this signature in every NCCL; it writes one int.
        let get: unsafe extern "C" fn(*mut c_int) -> c_int = unsafe { std::mem::transmute(symbol) };
        // SAFETY: as above.
        if unsafe { get(&mut version) } != 0 {
            version = 0;
        }
    }
    // SAFETY: balances dlopen's count; libnccl stays loaded by whoever loaded it.
    unsafe { libc::dlclose(library) };
    u32::try_from(version).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_for_what_each_interface_has() {
        let wanted = |abi, version| wanted(abi, Library::Nccl, version);
        assert_eq!(wanted(1, 0), 14);
        assert_eq!(wanted(2, 0), 14);
        assert_eq!(wanted(3, 0), 14 + 64);
        assert_eq!(wanted(4, 22_705), 30 + 64);
        assert_eq!(wanted(6, 23_007), 30 + 64);
        assert_eq!(wanted(7, 23_102), 30, "kernel events are expensive in 2.31");
        assert_eq!(wanted(7, 23_203), 30 + 64);
    }

    #[test]
    fn does_not_ask_an_old_rccl_for_what_breaks_it() {
        assert_eq!(wanted(4, Library::Rccl, 22_606), 30 + 64 - 4, "no sends and receives");
        assert_eq!(wanted(4, Library::Rccl, 22_707), 30 + 64);
    }
}
