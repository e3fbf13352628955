//! Whose queue pairs are whose: `ibv_modify_qp` connects one, and is where both numbers and the other end's address are known
//! (Pulse, section 4.1).
//!
//! NCCL opens libibverbs by itself and asks for its functions by name and version (`dlvsym`), so the function's own name is no place to stand
//! at: `dlvsym` is. It answers as the C library's own does, but for one name, for which it gives a function that calls the real one
//! and then writes a line into the list beside the segment (`mycroft_ring::pairs`). Nothing else of libibverbs is touched. x86-64
//! and glibc only: elsewhere nobody is told whose queue pairs they are.
use mycroft_probe_core::config::Config;
use mycroft_probe_core::ffi_guard;
use mycroft_ring::{PairsFile, PairsOf, QueuePair};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The function that is asked for.
const MODIFY: &CStr = c"ibv_modify_qp";
/// `IBV_QP_AV` and `IBV_QP_DEST_QPN`: the attributes have the other end's address and number. Both are there where it is connected.
const CONNECTS: c_int = 1 << 7 | 1 << 20;

/// Of `struct ibv_qp` the offset of `qp_num`.
const QP_NUM: usize = 52;
/// Of `struct ibv_qp_attr` the offsets of `dest_qp_num`, `ah_attr.grh.dgid` and `ah_attr.is_global`.
const DEST_QP_NUM: usize = 28;
const DGID: usize = 56;
const IS_GLOBAL: usize = 85;

/// Of the C library: its own `dlvsym`, or what finds nothing.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(nothing as *mut c_void);
/// `ibv_modify_qp` of the library that was opened.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
type ModifyQp = unsafe extern "C" fn(*mut c_void, *mut c_void, c_int) -> c_int;

unsafe extern "C" fn nothing(_: *mut c_void, _: *const c_char, _: *const c_char) -> *mut c_void {
    null_mut()
}

/// `dlvsym`. The C library looks at who calls it (for `RTLD_NEXT`), so all but one name goes there by a jump, as if it had been
/// called in the first place.
///
/// # Safety
/// As the C library's own.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlvsym(handle: *mut c_void, symbol: *const c_char, version: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        // Three words and the return address: the stack is aligned for the call.
        "push rdi",
        "push rsi",
        "push rdx",
        "call {look}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "jmp qword ptr [rip + {next}]",
        look = sym look,
        next = sym NEXT,
    )
}

/// What stands before the function that is asked for; NULL where nothing does.
extern "C" fn look(handle: *mut c_void, symbol: *const c_char, version: *const c_char) -> *mut c_void {
    ffi_guard(null_mut(), || {
        let next = next();
        // SAFETY: the caller gives a C string; NULL is no name.
        let is_it = !symbol.is_null() && unsafe { CStr::from_ptr(symbol) } == MODIFY;
        if !is_it || handle == libc::RTLD_NEXT || handle == libc::RTLD_DEFAULT {
            return null_mut();
        }
        // SAFETY: the C library's own function, with the caller's arguments.
        let real = unsafe { next(handle, symbol, version) };
        let known = REAL.compare_exchange(null_mut(), real, Ordering::AcqRel, Ordering::Acquire);
        let is_known = known.map_or_else(|known| known == real, |_| true);
        // Of a second library of that name calls go to it as they are.
        if real.is_null() || !is_known { null_mut() } else { modify_qp as *mut c_void }
    })
}

/// The C library's own `dlvsym`.
fn next() -> Dlvsym {
    let mut at = NEXT.load(Ordering::Acquire);
    if std::ptr::eq(at, nothing as *mut c_void) {
        // SAFETY: a C string; the next library after this one in the order of the loader.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlvsym".as_ptr()) };
        if !found.is_null() {
            NEXT.store(found, Ordering::Release);
            at = found;
        }
    }
    // SAFETY: the C library's function of this name, or `nothing`, which has the same signature.
    unsafe { std::mem::transmute(at) }
}

/// `ibv_modify_qp`: calls the real one, and notes a queue pair that it connected.
unsafe extern "C" fn modify_qp(pair: *mut c_void, attributes: *mut c_void, mask: c_int) -> c_int {
    // SAFETY: nobody has this function before the real one was found, whose signature in `verbs.h` this is.
    let real: ModifyQp = unsafe { std::mem::transmute(REAL.load(Ordering::Acquire)) };
    // SAFETY: the caller's own promise.
    let code = unsafe { real(pair, attributes, mask) };
    if code == 0 && mask & CONNECTS == CONNECTS {
        // SAFETY: takes nothing; the number is this thread's own.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        let before = unsafe { *errno };
        ffi_guard((), || {
            // SAFETY: the real function has just read both.
            if let Some(pair) = unsafe { read(pair.cast(), attributes.cast()) } {
                note(&pair);
            }
        });
        // SAFETY: as above.
        unsafe { *errno = before };
    }
    code
}

/// The numbers and the address; `None` where the other end has no GID, as within a fabric of InfiniBand.
///
/// # Safety
/// A `struct ibv_qp` and a `struct ibv_qp_attr` that are filled.
unsafe fn read(pair: *const u8, attributes: *const u8) -> Option<QueuePair> {
    // SAFETY: offsets of `verbs.h`, which has them since version 1.1.
    unsafe {
        let word = |of: *const u8, at: usize| of.add(at).cast::<u32>().read_unaligned();
        let gid = attributes.add(DGID).cast::<[u8; 16]>().read_unaligned();
        let is_global = attributes.add(IS_GLOBAL).read() != 0;
        is_global.then(|| QueuePair::now(word(pair, QP_NUM), word(attributes, DEST_QP_NUM), gid))
    }
}

/// The list of this process; `None` where it cannot be made, or nothing is to be traced.
static LIST: OnceLock<Option<PairsFile>> = OnceLock::new();

fn note(pair: &QueuePair) {
    let list = LIST.get_or_init(|| {
        let config = Config::from_env();
        if config.off {
            return None;
        }
        let of = PairsOf { job: config.job.as_str(), host: config.host.as_str(), rank: config.rank };
        let list = PairsFile::create(&config.dir, &of).ok()?;
        // SAFETY: a plain handler without arguments, in a library that is never unloaded (`-z nodelete`). Where it is not called
        // the file is collected later.
        unsafe { libc::atexit(at_exit) };
        Some(list)
    });
    if let Some(list) = list {
        list.add(pair);
    }
}

/// An orderly end.
extern "C" fn at_exit() {
    ffi_guard((), || {
        if let Some(Some(list)) = LIST.get() {
            list.remove();
        }
    });
}
