//! The library `libibverbs.so.1`, loaded as NCCL loads it, and a device of it.
use super::abi::{ACCESS, Channel, Context, Cq, Gid, Mr, Object, PortAttr, Qp, QpAttr, QpInitAttr};
use crate::transport::shm::Mapping;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The library, where it is not the one that the loader finds.
const ENV_LIBRARY: &str = "NCCL_IBVERBS_LIB";
/// What the loader looks for.
const LIBRARY: &str = "libibverbs.so.1";

macro_rules! functions {
    ($($field:ident: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// Its functions. It is never unloaded.
        #[derive(Debug)]
        pub(super) struct Library { $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)* }

        impl Library {
            fn load() -> io::Result<Library> {
                let name = std::env::var(ENV_LIBRARY).unwrap_or_else(|_| LIBRARY.to_owned());
                let path = CString::new(name.clone()).map_err(io::Error::other)?;
                // SAFETY: a NUL-terminated path; the library's initializers ask for nothing.
                let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
                if library.is_null() {
                    return Err(io::Error::other(format!("{name} cannot be loaded")));
                }
                Ok(Library { $($field: {
                    let symbol = concat!("ibv_", stringify!($field), "\0");
                    // SAFETY: a live handle and texts that end with NUL.
                    let found = unsafe { dlvsym(library, symbol.as_ptr().cast(), c"IBVERBS_1.1".as_ptr()) };
                    if found.is_null() {
                        return Err(io::Error::other(format!("{name} has no {symbol} of version IBVERBS_1.1")));
                    }
                    // SAFETY: for this name and version the library promises this signature.
                    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $result>(found) }
                },)* })
            }
        }
    };
}

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
}

functions! {
    get_device_list: fn(*mut c_int) -> *mut Object;
    open_device: fn(Object) -> *mut Context;
    query_port: fn(*mut Context, u8, *mut PortAttr) -> c_int;
    query_gid: fn(*mut Context, u8, c_int, *mut Gid) -> c_int;
    alloc_pd: fn(*mut Context) -> Object;
    reg_mr: fn(Object, Object, usize, c_int) -> *mut Mr;
    dereg_mr: fn(*mut Mr) -> c_int;
    create_comp_channel: fn(*mut Context) -> *mut Channel;
    destroy_comp_channel: fn(*mut Channel) -> c_int;
    get_cq_event: fn(*mut Channel, *mut *mut Cq, *mut Object) -> c_int;
    create_cq: fn(*mut Context, c_int, Object, *mut Channel, c_int) -> *mut Cq;
    destroy_cq: fn(*mut Cq) -> c_int;
    create_qp: fn(Object, *mut QpInitAttr) -> *mut Qp;
    modify_qp: fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
    destroy_qp: fn(*mut Qp) -> c_int;
    wc_status_str: fn(u32) -> *const c_char;
}

impl Library {
    /// The name of a status.
    pub(super) fn status(&self, status: u32) -> String {
        // SAFETY: the library gives a NUL-terminated constant.
        unsafe { CStr::from_ptr((self.wc_status_str)(status)) }.to_string_lossy().into_owned()
    }
}

/// A device that is open, for the rest of the process's life.
#[derive(Debug)]
pub(super) struct Nic {
    pub(super) library: Arc<Library>,
    pub(super) context: *mut Context,
    pub(super) pd: Object,
    pub(super) gid: Gid,
    /// The code of the size of its packets.
    pub(super) mtu: u32,
}

// SAFETY: functions of verbs may be called by all threads at once.
unsafe impl Send for Nic {}
// SAFETY: as above.
unsafe impl Sync for Nic {}

/// What failed, with the reason that errno has.
pub(super) fn failed(what: &str) -> io::Error {
    let why = io::Error::last_os_error();
    io::Error::new(why.kind(), format!("{what}: {why}"))
}

impl Nic {
    /// The device of an address. All devices are opened at once, the first time.
    ///
    /// # Errors
    /// There is no library, or no device that can be opened has the address.
    pub(super) fn of(address: IpAddr) -> io::Result<Arc<Nic>> {
        static OPEN: OnceLock<Mutex<BTreeMap<IpAddr, Arc<Nic>>>> = OnceLock::new();
        let mut open = OPEN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if open.is_empty() {
            *open = Nic::open_all()?;
        }
        let nic = open.get(&address).cloned();
        nic.ok_or_else(|| io::Error::other(format!("no RDMA device that can be opened has the address {address}")))
    }

    fn open_all() -> io::Result<BTreeMap<IpAddr, Arc<Nic>>> {
        let library = Arc::new(Library::load()?);
        let (mut count, mut open) = (0, BTreeMap::new());
        // SAFETY: a place for the count. The list is kept: devices are few.
        let list = unsafe { (library.get_device_list)(&mut count) };
        for at in 0..usize::try_from(count).unwrap_or(0) {
            let library = Arc::clone(&library);
            // SAFETY: the list has `count` devices; the answers have places.
            unsafe {
                let context = (library.open_device)(*list.add(at));
                let (mut gid, mut port) = (Gid::default(), std::mem::zeroed::<PortAttr>());
                if context.is_null()
                    || (library.query_gid)(context, 1, 0, &mut gid) != 0
                    || (library.query_port)(context, 1, &mut port) != 0
                {
                    continue;
                }
                let pd = made((library.alloc_pd)(context), "no protection domain")?;
                let nic = Nic { library, context, pd, gid, mtu: port.active_mtu };
                open.insert(IpAddr::V4(last_four(&gid)), Arc::new(nic));
            }
        }
        Ok(open)
    }
}

fn last_four(gid: &Gid) -> Ipv4Addr {
    let [.., a, b, c, d] = gid.0;
    Ipv4Addr::new(a, b, c, d)
}

/// Memory that a device may touch, kept mapped as long.
#[derive(Debug)]
pub(super) struct Registered {
    nic: Arc<Nic>,
    mr: *mut Mr,
    pub(super) map: Arc<Mapping>,
}

// SAFETY: as for the device.
unsafe impl Send for Registered {}

impl Registered {
    /// Registers all of `map`.
    ///
    /// # Errors
    /// The device takes no more.
    pub(super) fn new(nic: &Arc<Nic>, map: &Arc<Mapping>) -> io::Result<Registered> {
        // SAFETY: the mapping lives longer than the registration.
        let mr = unsafe { (nic.library.reg_mr)(nic.pd, map.base().cast(), map.len(), ACCESS) };
        if mr.is_null() {
            return Err(failed("memory cannot be registered"));
        }
        Ok(Registered { nic: Arc::clone(nic), mr, map: Arc::clone(map) })
    }

    /// Its key, local and remote.
    pub(super) fn keys(&self) -> (u32, u32) {
        // SAFETY: a live registration.
        unsafe { ((*self.mr).lkey, (*self.mr).rkey) }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: a live registration, given back once, before its memory.
        unsafe { (self.nic.library.dereg_mr)(self.mr) };
    }
}

/// Whose place an object of verbs is; null is an error.
pub(super) fn made<T>(object: *mut T, what: &str) -> io::Result<*mut T> {
    if object.is_null() { Err(failed(what)) } else { Ok(object) }
}

/// Nothing to say.
pub(super) const NONE: Object = null_mut();
