//! Finding the libraries that ranks load, and calling the collective library through its C ABI, as any application
//! that links or opens `libnccl.so.2` does.
mod open;

use crate::error::TestbedError;
use open::{loader_error, open};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

/// File name of the CPU collective library as cargo builds it.
pub const COLLECTIVE_LIBRARY: &str = "libmycroft_testbed_nccl.so";
/// File name of the tracer as cargo builds it.
pub const TRACER_LIBRARY: &str = "libmycroft_nccl.so";
/// The name under which applications look for it.
pub const NCCL_SONAME: &str = "libnccl.so.2";

/// Finds a library in MYCROFT_LIB_DIR, beside the executable, in its `deps` folder, one folder up (an executable in
/// `deps` itself), or in `../lib`.
///
/// # Errors
/// Names the places that were looked at.
pub fn find(name: &str) -> Result<PathBuf, TestbedError> {
    let mut places: Vec<PathBuf> = Vec::new();
    places.extend(std::env::var_os("MYCROFT_LIB_DIR").map(PathBuf::from));
    if let Some(dir) = std::env::current_exe().ok().as_deref().and_then(Path::parent) {
        places.extend(["", "deps", "..", "../lib", "../lib/mycroft"].map(|place| dir.join(place)));
    }
    for place in &places {
        let path = place.join(name);
        if path.is_file() {
            return path.canonicalize().map_err(|source| TestbedError::file("resolve", path, source));
        }
    }
    let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    Err(TestbedError::LibraryMissing { name: name.to_owned(), looked: looked.join(", ") })
}

/// `ncclUniqueId`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UniqueId {
    /// Opaque.
    pub bytes: [u8; 128],
}

/// `ncclConfig_t` of NCCL 2.27.
#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
    traffic_class: c_int,
    comm_name: *const c_char,
}

/// `NCCL_CONFIG_INITIALIZER`'s magic number.
const CONFIG_MAGIC: u32 = 0xcafe_beef;
/// The version whose `ncclConfig_t` this is: 2.27.0.
const CONFIG_VERSION: u32 = 22_700;
/// `NCCL_CONFIG_UNDEF_INT`.
const UNDEFINED: c_int = c_int::MIN;
/// `ncclFloat32`.
const FLOAT32: c_int = 7;
/// `ncclSum`.
const SUM: c_int = 0;

type Handle = *mut c_void;

/// A stream of the emulated device.
#[derive(Clone, Copy, Debug)]
pub struct Stream(Handle);

/// A communicator.
#[derive(Debug)]
pub struct Comm {
    handle: Handle,
    name: String,
}

/// The functions of a loaded collective library. It is never unloaded: its threads live as long as the process.
pub struct Nccl {
    get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    comm_init: unsafe extern "C" fn(*mut Handle, c_int, UniqueId, c_int, *mut Config) -> c_int,
    comm_destroy: unsafe extern "C" fn(Handle) -> c_int,
    async_error: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    last_error: unsafe extern "C" fn(Handle) -> *const c_char,
    group_start: unsafe extern "C" fn() -> c_int,
    group_end: unsafe extern "C" fn() -> c_int,
    all_reduce: unsafe extern "C" fn(*const f32, *mut f32, usize, c_int, c_int, Handle, Handle) -> c_int,
    reduce_scatter: unsafe extern "C" fn(*const f32, *mut f32, usize, c_int, c_int, Handle, Handle) -> c_int,
    all_gather: unsafe extern "C" fn(*const f32, *mut f32, usize, c_int, Handle, Handle) -> c_int,
    send: unsafe extern "C" fn(*const f32, usize, c_int, c_int, Handle, Handle) -> c_int,
    recv: unsafe extern "C" fn(*mut f32, usize, c_int, c_int, Handle, Handle) -> c_int,
    stream_create: unsafe extern "C" fn(*mut Handle) -> c_int,
    stream_synchronize: unsafe extern "C" fn(Handle) -> c_int,
    launch_compute: unsafe extern "C" fn(Handle, u64) -> c_int,
    profiler_events: unsafe extern "C" fn(c_int),
}

impl Nccl {
    /// Loads the library at `path` for the rest of the process's life.
    ///
    /// # Errors
    /// The library or one of its functions is not there.
    pub fn load(path: &Path) -> Result<Nccl, TestbedError> {
        let library = open(path)?;
        // SAFETY: library is a live handle, and it promises for each name the signature that NCCL's header (or the device
        // emulation's) gives, which is the field's type.
        Ok(unsafe {
            Nccl {
                get_unique_id: symbol(library, path, c"ncclGetUniqueId")?,
                comm_init: symbol(library, path, c"ncclCommInitRankConfig")?,
                comm_destroy: symbol(library, path, c"ncclCommDestroy")?,
                async_error: symbol(library, path, c"ncclCommGetAsyncError")?,
                last_error: symbol(library, path, c"ncclGetLastError")?,
                group_start: symbol(library, path, c"ncclGroupStart")?,
                group_end: symbol(library, path, c"ncclGroupEnd")?,
                all_reduce: symbol(library, path, c"ncclAllReduce")?,
                reduce_scatter: symbol(library, path, c"ncclReduceScatter")?,
                all_gather: symbol(library, path, c"ncclAllGather")?,
                send: symbol(library, path, c"ncclSend")?,
                recv: symbol(library, path, c"ncclRecv")?,
                stream_create: symbol(library, path, c"mtbStreamCreate")?,
                stream_synchronize: symbol(library, path, c"mtbStreamSynchronize")?,
                launch_compute: symbol(library, path, c"mtbLaunchCompute")?,
                profiler_events: symbol(library, path, c"mtbProfilerEvents")?,
            }
        })
    }

    fn check(&self, code: c_int, call: &str, comm: Option<&Comm>) -> Result<(), TestbedError> {
        if code == 0 {
            return Ok(());
        }
        let handle = comm.map_or(std::ptr::null_mut(), |comm| comm.handle);
        // SAFETY: NCCL allows a null communicator here; the result is a C string that lives until the next error.
        let text = unsafe { (self.last_error)(handle) };
        let text = if text.is_null() {
            String::new()
        } else {
            // SAFETY: not null, and a C string as said above.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        let place = comm.map_or(String::new(), |comm| format!(" on {}", comm.name));
        Err(TestbedError::Collective { call: format!("{call}{place}"), message: format!("code {code}: {text}") })
    }

    /// A fresh unique id; the caller's process then listens for its peers.
    ///
    /// # Errors
    /// The call failed; the code is in the error.
    pub fn unique_id(&self) -> Result<UniqueId, TestbedError> {
        let mut id = UniqueId { bytes: [0; 128] };
        // SAFETY: id is valid to write.
        let code = unsafe { (self.get_unique_id)(&mut id) };
        self.check(code, "ncclGetUniqueId", None)?;
        Ok(id)
    }

    /// Joins the communicator of `id` as `rank` of `ranks`, with `channels` channels; returns when all have.
    ///
    /// # Errors
    /// The call failed; the code is in the error.
    pub fn join(&self, id: UniqueId, rank: u32, ranks: u32, name: &str, channels: u32) -> Result<Comm, TestbedError> {
        let c_name = CString::new(name).unwrap_or_default();
        let mut config = Config {
            size: size_of::<Config>(),
            magic: CONFIG_MAGIC,
            version: CONFIG_VERSION,
            blocking: UNDEFINED,
            cga_cluster_size: UNDEFINED,
            min_ctas: channels as c_int,
            max_ctas: channels as c_int,
            net_name: std::ptr::null(),
            split_share: UNDEFINED,
            traffic_class: UNDEFINED,
            comm_name: c_name.as_ptr(),
        };
        let mut handle: Handle = std::ptr::null_mut();
        // SAFETY: all pointers are valid during the call; NCCL copies the configuration and the name.
        let code = unsafe { (self.comm_init)(&mut handle, ranks as c_int, id, rank as c_int, &mut config) };
        self.check(code, "ncclCommInitRankConfig", None)?;
        Ok(Comm { handle, name: name.to_owned() })
    }

    /// Leaves a communicator.
    ///
    /// # Errors
    /// The call failed; the code is in the error.
    pub fn leave(&self, comm: Comm) -> Result<(), TestbedError> {
        // SAFETY: the handle came from `join` and is given up here.
        let code = unsafe { (self.comm_destroy)(comm.handle) };
        self.check(code, "ncclCommDestroy", None)
    }

    /// Fails when the communicator has broken in the background.
    ///
    /// # Errors
    /// Says how the communicator broke.
    pub fn healthy(&self, comm: &Comm) -> Result<(), TestbedError> {
        let mut state: c_int = 0;
        // SAFETY: comm is live and state is valid to write.
        let code = unsafe { (self.async_error)(comm.handle, &mut state) };
        self.check(code, "ncclCommGetAsyncError", Some(comm))?;
        self.check(state, "a collective", Some(comm))
    }

    /// A stream: work on it runs in order.
    ///
    /// # Errors
    /// The call failed; the code is in the error.
    pub fn stream(&self) -> Result<Stream, TestbedError> {
        let mut handle: Handle = std::ptr::null_mut();
        // SAFETY: handle is valid to write.
        let code = unsafe { (self.stream_create)(&mut handle) };
        self.check(code, "mtbStreamCreate", None)?;
        Ok(Stream(handle))
    }

    /// Waits until everything on the stream is done.
    ///
    /// # Errors
    /// Work on the stream failed.
    pub fn synchronize(&self, stream: Stream) -> Result<(), TestbedError> {
        // SAFETY: the stream is never destroyed.
        let code = unsafe { (self.stream_synchronize)(stream.0) };
        self.check(code, "mtbStreamSynchronize", None)
    }

    /// Whether the profiler plugin is given events of what is issued from now on.
    pub fn give_events(&self, give: bool) {
        // SAFETY: any value may be passed.
        unsafe { (self.profiler_events)(c_int::from(give)) }
    }

    /// Enqueues a compute kernel of a nominal duration.
    ///
    /// # Errors
    /// The call failed; the code is in the error.
    pub fn compute(&self, stream: Stream, ns: u64) -> Result<(), TestbedError> {
        // SAFETY: the stream is never destroyed.
        let code = unsafe { (self.launch_compute)(stream.0, ns) };
        self.check(code, "mtbLaunchCompute", None)
    }

    /// Runs `calls` as one group.
    ///
    /// # Errors
    /// A call of the group failed, or its end did.
    pub fn group(&self, calls: impl FnOnce() -> Result<(), TestbedError>) -> Result<(), TestbedError> {
        // SAFETY: no arguments.
        self.check(unsafe { (self.group_start)() }, "ncclGroupStart", None)?;
        let inner = calls();
        // SAFETY: no arguments; a group was started above.
        let end = unsafe { (self.group_end)() };
        inner?;
        self.check(end, "ncclGroupEnd", None)
    }

    /// Sum of all ranks' `from` in `to`.
    ///
    /// # Safety
    /// Both stay valid for `count` elements, `from` unchanged and `to` unread, until the stream is synchronized. The
    /// same holds for the four functions below.
    ///
    /// # Errors
    /// The call failed; the code is in the error.
    pub unsafe fn all_reduce(
        &self,
        from: *const f32,
        to: *mut f32,
        count: usize,
        comm: &Comm,
        stream: Stream,
    ) -> Result<(), TestbedError> {
        // SAFETY: the caller's promise.
        let code = unsafe { (self.all_reduce)(from, to, count, FLOAT32, SUM, comm.handle, stream.0) };
        self.check(code, "ncclAllReduce", Some(comm))
    }

    /// Sum of all ranks' `from` (ranks x `count` elements); this rank's `count` of them in `to`.
    ///
    /// # Safety
    /// As [`Nccl::all_reduce`].
    ///
    /// # Errors
    /// As [`Nccl::all_reduce`].
    pub unsafe fn reduce_scatter(
        &self,
        from: *const f32,
        to: *mut f32,
        count: usize,
        comm: &Comm,
        stream: Stream,
    ) -> Result<(), TestbedError> {
        // SAFETY: the caller's promise.
        let code = unsafe { (self.reduce_scatter)(from, to, count, FLOAT32, SUM, comm.handle, stream.0) };
        self.check(code, "ncclReduceScatter", Some(comm))
    }

    /// All ranks' `count` elements side by side in `to`.
    ///
    /// # Safety
    /// As [`Nccl::all_reduce`].
    ///
    /// # Errors
    /// As [`Nccl::all_reduce`].
    pub unsafe fn all_gather(
        &self,
        from: *const f32,
        to: *mut f32,
        count: usize,
        comm: &Comm,
        stream: Stream,
    ) -> Result<(), TestbedError> {
        // SAFETY: the caller's promise.
        let code = unsafe { (self.all_gather)(from, to, count, FLOAT32, comm.handle, stream.0) };
        self.check(code, "ncclAllGather", Some(comm))
    }

    /// Sends to `peer`, a rank of `comm`.
    ///
    /// # Safety
    /// As [`Nccl::all_reduce`].
    ///
    /// # Errors
    /// As [`Nccl::all_reduce`].
    pub unsafe fn send(
        &self,
        from: *const f32,
        count: usize,
        peer: u32,
        comm: &Comm,
        stream: Stream,
    ) -> Result<(), TestbedError> {
        // SAFETY: the caller's promise.
        let code = unsafe { (self.send)(from, count, FLOAT32, peer as c_int, comm.handle, stream.0) };
        self.check(code, "ncclSend", Some(comm))
    }

    /// Receives from `peer`, a rank of `comm`.
    ///
    /// # Safety
    /// As [`Nccl::all_reduce`].
    ///
    /// # Errors
    /// As [`Nccl::all_reduce`].
    pub unsafe fn recv(
        &self,
        to: *mut f32,
        count: usize,
        peer: u32,
        comm: &Comm,
        stream: Stream,
    ) -> Result<(), TestbedError> {
        // SAFETY: the caller's promise.
        let code = unsafe { (self.recv)(to, count, FLOAT32, peer as c_int, comm.handle, stream.0) };
        self.check(code, "ncclRecv", Some(comm))
    }
}

/// The function `name` of an open library.
///
/// # Safety
/// `library` is a live handle and `F` is a function pointer type with the signature of that function.
unsafe fn symbol<F: Copy>(library: *mut c_void, path: &Path, name: &CStr) -> Result<F, TestbedError> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the handle is live and the name a C string.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    if address.is_null() {
        return Err(TestbedError::Library { path: path.to_owned(), message: loader_error() });
    }
    // SAFETY: not null, of a function pointer's size as asserted, and of the type that the caller promises.
    Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_says_where_it_was_looked_for() {
        let error = find("libno_such_thing.so").unwrap_err().to_string();
        assert!(error.contains("deps") && error.contains("MYCROFT_LIB_DIR"), "{error}");
        let error = Nccl::load(Path::new("/no/such/libnccl.so.2")).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("/no/such/libnccl.so.2"), "{error}");
    }
}
