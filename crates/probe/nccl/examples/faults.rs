//! A library for LD_PRELOAD that makes calls to the C library fail on request: the tests' lack of memory, space and rights.
//! `fault_arm(kind, nth)` makes the call number `nth` of that kind fail (all from there with `EVER` added), `fault_disarm`
//! gives how many calls of the kind there were.
use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

/// Kind of calls that are counted; 0 none.
static KIND: AtomicU32 = AtomicU32::new(0);
/// Calls of the kind seen.
static SEEN: AtomicU32 = AtomicU32::new(0);
/// First call that fails.
static FIRST: AtomicU32 = AtomicU32::new(0);
/// Last call that fails.
static LAST: AtomicU32 = AtomicU32::new(0);

const MALLOC: u32 = 1;
const MMAP: u32 = 2;
const ALLOCATE: u32 = 3;
const OPEN: u32 = 4;
const DIRECTORY: u32 = 5;
const THREADS: u32 = 6;
const STAT: u32 = 7;

/// Call number `nth` of a kind fails, and with `ever` all later ones.
#[unsafe(no_mangle)]
pub extern "C" fn fault_arm(kind: c_uint, nth: c_uint, ever: c_int) {
    SEEN.store(0, Relaxed);
    FIRST.store(nth, Relaxed);
    LAST.store(if ever != 0 { u32::MAX } else { nth }, Relaxed);
    KIND.store(kind, Relaxed);
}

/// Nothing fails any more; how many calls of the kind there were.
#[unsafe(no_mangle)]
pub extern "C" fn fault_disarm() -> c_uint {
    KIND.store(0, Relaxed);
    SEEN.load(Relaxed)
}

fn fails(kind: u32, errno: c_int) -> bool {
    if KIND.load(Relaxed) != kind {
        return false;
    }
    let n = SEEN.fetch_add(1, Relaxed);
    let fails = (FIRST.load(Relaxed)..=LAST.load(Relaxed)).contains(&n);
    if fails {
        // SAFETY: the calling thread's own errno.
        unsafe { *libc::__errno_location() = errno };
    }
    fails
}

unsafe extern "C" {
    fn __libc_malloc(bytes: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, bytes: usize) -> *mut c_void;
    fn __libc_realloc(at: *mut c_void, bytes: usize) -> *mut c_void;
    fn __libc_memalign(align: usize, bytes: usize) -> *mut c_void;
}

/// As the C library's.
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    // SAFETY: the caller's own promise.
    if fails(MALLOC, libc::ENOMEM) { std::ptr::null_mut() } else { unsafe { __libc_malloc(bytes) } }
}

/// As the C library's.
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's own promise.
    if fails(MALLOC, libc::ENOMEM) { std::ptr::null_mut() } else { unsafe { __libc_calloc(count, bytes) } }
}

/// As the C library's.
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(at: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's own promise.
    if fails(MALLOC, libc::ENOMEM) { std::ptr::null_mut() } else { unsafe { __libc_realloc(at, bytes) } }
}

/// As the C library's.
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(place: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    if fails(MALLOC, libc::ENOMEM) {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's own promise.
    let at = unsafe { __libc_memalign(align, bytes) };
    // SAFETY: as above.
    unsafe { place.write(at) };
    if at.is_null() { libc::ENOMEM } else { 0 }
}

/// The next library's function of this name, looked up once.
fn next(cache: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = cache.load(Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    cache.store(found, Relaxed);
    found
}

/// Functions that pass their arguments on unless they are to fail.
macro_rules! passed_on {
    ($($kind:expr, $errno:expr, $failed:expr, $($name:ident)+ ($($arg:ident: $type:ty),*) -> $result:ty;)*) => {$(
        passed_on!(@each $kind, $errno, $failed, [$($name)+], ($($arg: $type),*) -> $result);
    )*};
    (@each $kind:expr, $errno:expr, $failed:expr, [$($name:ident)+], $args:tt -> $result:ty) => {
        $(passed_on!(@one $kind, $errno, $failed, $name, $args -> $result);)+
    };
    (@one $kind:expr, $errno:expr, $failed:expr, $name:ident, ($($arg:ident: $type:ty),*) -> $result:ty) => {
        /// As the C library's.
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            const NAME: &str = concat!(stringify!($name), "\0");
            if fails($kind, $errno) {
                return $failed;
            }
            let name = CStr::from_bytes_with_nul(NAME.as_bytes()).unwrap_or_default();
            // SAFETY: the C library's function of this name has this signature.
            let function: unsafe extern "C" fn($($type),*) -> $result = unsafe { std::mem::transmute(next(&NEXT, name)) };
            // SAFETY: the caller's own promise.
            unsafe { function($($arg),*) }
        }
    };
}

const NO_MAP: *mut c_void = libc::MAP_FAILED;

// The mode of `open` is an optional argument, which goes where a fixed one would.
passed_on! {
    MMAP, libc::ENOMEM, NO_MAP, mmap mmap64(at: *mut c_void, bytes: usize, prot: c_int, flags: c_int, fd: c_int, from: c_long) -> *mut c_void;
    ALLOCATE, libc::ENOSPC, -1, ftruncate ftruncate64(fd: c_int, bytes: c_long) -> c_int;
    ALLOCATE, libc::ENOSPC, libc::ENOSPC, posix_fallocate posix_fallocate64(fd: c_int, from: c_long, bytes: c_long) -> c_int;
    OPEN, libc::EMFILE, -1, open open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    OPEN, libc::EMFILE, -1, openat openat64(fd: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    DIRECTORY, libc::EACCES, -1, mkdir(path: *const c_char, mode: c_uint) -> c_int;
    DIRECTORY, libc::EACCES, -1, renameat(from: c_int, old: *const c_char, to: c_int, new: *const c_char) -> c_int;
    DIRECTORY, libc::EACCES, -1, flock(fd: c_int, how: c_int) -> c_int;
    THREADS, libc::ENOMEM, libc::EAGAIN, pthread_key_create(key: *mut c_uint, end: *mut c_void) -> c_int;
    THREADS, libc::ENOMEM, libc::ENOMEM, pthread_setspecific(key: c_uint, value: *const c_void) -> c_int;
    STAT, libc::EIO, -1, fstatvfs fstatvfs64(fd: c_int, to: *mut c_void) -> c_int;
    STAT, libc::EIO, -1, statx(fd: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut c_void) -> c_int;
    STAT, libc::EIO, -1, getrlimit getrlimit64(resource: c_int, to: *mut c_void) -> c_int;
    STAT, libc::EIO, -1, read(fd: c_int, to: *mut c_void, bytes: usize) -> isize;
}
