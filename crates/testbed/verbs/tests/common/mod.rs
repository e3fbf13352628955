//! Devices and queue pairs through the C interface, loaded as NCCL loads it: dlopen, then dlvsym with versions.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use mycroft_testbed_verbs::abi::*;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Devices that the tests of one process share out.
const DEVICES: usize = 24;
/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(50);

macro_rules! functions {
    ($($version:literal { $($field:ident: fn($($argument:ty),*) $(-> $result:ty)?;)* })*) => {
        /// The functions of the library.
        pub struct Verbs {
            pub library: usize,
            $($(pub $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
        }

        impl Verbs {
            fn load() -> Verbs {
                let library = open();
                Verbs {
                    library: library.expose_provenance(),
                    $($($field: {
                        let name = concat!("ibv_", stringify!($field), "\0");
                        let found = versioned(library, name, concat!($version, "\0"));
                        assert!(!found.is_null(), "{name} of {} is missing", $version);
                        // SAFETY: the library promises this signature for this name and version.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(found)
                        }
                    },)*)*
                }
            }
        }
    };
}

functions! {
    "IBVERBS_1.1" {
        get_device_list: fn(*mut c_int) -> *mut *mut Device;
        free_device_list: fn(*mut *mut Device);
        get_device_name: fn(*mut Device) -> *const c_char;
        open_device: fn(*mut Device) -> *mut Context;
        close_device: fn(*mut Context) -> c_int;
        get_async_event: fn(*mut Context, *mut AsyncEvent) -> c_int;
        ack_async_event: fn(*mut AsyncEvent);
        query_device: fn(*mut Context, *mut DeviceAttr) -> c_int;
        query_port: fn(*mut Context, u8, *mut PortAttr) -> c_int;
        query_gid: fn(*mut Context, u8, c_int, *mut Gid) -> c_int;
        query_pkey: fn(*mut Context, u8, c_int, *mut u16) -> c_int;
        query_qp: fn(*mut Qp, *mut QpAttr, c_int, *mut QpInitAttr) -> c_int;
        alloc_pd: fn(*mut Context) -> *mut Pd;
        dealloc_pd: fn(*mut Pd) -> c_int;
        reg_mr: fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
        dereg_mr: fn(*mut Mr) -> c_int;
        create_comp_channel: fn(*mut Context) -> *mut CompChannel;
        destroy_comp_channel: fn(*mut CompChannel) -> c_int;
        get_cq_event: fn(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
        ack_cq_events: fn(*mut Cq, u32);
        create_cq: fn(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq;
        destroy_cq: fn(*mut Cq) -> c_int;
        create_qp: fn(*mut Pd, *mut QpInitAttr) -> *mut Qp;
        modify_qp: fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
        destroy_qp: fn(*mut Qp) -> c_int;
        fork_init: fn() -> c_int;
        event_type_str: fn(c_int) -> *const c_char;
        wc_status_str: fn(c_int) -> *const c_char;
    }
    "IBVERBS_1.8" { reg_mr_iova2: fn(*mut Pd, *mut c_void, usize, u64, c_int) -> *mut Mr; }
    "IBVERBS_1.10" {
        query_ece: fn(*mut Qp, *mut c_void) -> c_int;
        set_ece: fn(*mut Qp, *mut c_void) -> c_int;
    }
    "IBVERBS_1.12" { reg_dmabuf_mr: fn(*mut Pd, u64, usize, u64, c_int, c_int) -> *mut Mr; }
}

pub fn library_path() -> PathBuf {
    let beside = std::env::current_exe().unwrap();
    beside.ancestors().map(|folder| folder.join("libmycroft_testbed_verbs.so")).find(|path| path.is_file()).unwrap()
}

fn open() -> *mut c_void {
    let path = CString::new(library_path().into_os_string().into_encoded_bytes()).unwrap();
    // SAFETY: a NUL-terminated path; the library has no initializers that ask for more.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!library.is_null(), "{path:?} cannot be loaded");
    library
}

/// The symbol of a version; both texts end with NUL.
pub fn versioned(library: *mut c_void, name: &str, version: &str) -> *mut c_void {
    unsafe extern "C" {
        fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
    }
    // SAFETY: a live handle, and texts that end with NUL.
    unsafe { dlvsym(library, name.as_ptr().cast(), version.as_ptr().cast()) }
}

/// Address `index` of this process: of 127/8, by the process's number.
pub fn address(index: usize) -> String {
    let process = std::process::id();
    format!("127.{}.{}.{}", 1 + (process >> 8 & 0x7f), process & 0xff, 1 + index)
}

static VERBS: OnceLock<Verbs> = OnceLock::new();

/// The library, with the devices of this process.
pub fn verbs() -> &'static Verbs {
    VERBS.get_or_init(|| {
        let addresses: Vec<String> = (0..DEVICES).map(address).collect();
        // SAFETY: done once, before the library reads the environment; no other test code touches it.
        unsafe { std::env::set_var("MYCROFT_VERBS_ADDRESS", addresses.join(",")) };
        Verbs::load()
    })
}

/// The library, with the devices that the environment names.
fn load() -> &'static Verbs {
    VERBS.get_or_init(Verbs::load)
}

/// An open device with one completion queue.
pub struct Nic {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub cq: *mut Cq,
    pub address: String,
}

/// Memory that is registered.
pub struct Buffer {
    pub bytes: Vec<u8>,
    pub mr: *mut Mr,
}

impl Buffer {
    pub fn key(&self) -> u32 {
        // SAFETY: a registration of this test.
        unsafe { (*self.mr).rkey }
    }

    pub fn sge(&self) -> Sge {
        Sge { addr: self.bytes.as_ptr() as u64, length: self.bytes.len() as u32, lkey: self.key() }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: a registration of this test, given back once.
        unsafe { (verbs().dereg_mr)(self.mr) };
    }
}

impl Nic {
    /// The next device that no other test has.
    pub fn open() -> Nic {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Nic::of(verbs(), DEVICES, NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The only device of a process that was told its address.
    pub fn alone() -> Nic {
        Nic::of(load(), 1, 0)
    }

    fn of(v: &Verbs, devices: usize, index: usize) -> Nic {
        // SAFETY: calls as the manual pages say, with live objects.
        unsafe {
            let mut count = 0;
            let list = (v.get_device_list)(&mut count);
            assert_eq!(count as usize, devices);
            let device = *list.add(index);
            (v.free_device_list)(list);
            let context = (v.open_device)(device);
            assert!(!context.is_null(), "{}: {}", address(index), std::io::Error::last_os_error());
            let pd = (v.alloc_pd)(context);
            let cq = (v.create_cq)(context, 4096, null_mut(), null_mut(), 0);
            assert!(!pd.is_null() && !cq.is_null());
            Nic { context, pd, cq, address: address(index) }
        }
    }

    pub fn faults(&self, text: &str) {
        // SAFETY: the library exports it with this signature.
        unsafe {
            let library = std::ptr::with_exposed_provenance_mut(verbs().library);
            let found = libc::dlsym(library, c"mycroft_verbs_set_faults".as_ptr());
            type Set = unsafe extern "C" fn(*mut Context, *const c_char) -> c_int;
            let text = CString::new(text).unwrap();
            assert_eq!(std::mem::transmute::<*mut c_void, Set>(found)(self.context, text.as_ptr()), 0);
        }
    }

    pub fn buffer(&self, mut bytes: Vec<u8>) -> Buffer {
        let access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE;
        // SAFETY: the bytes live as long as the registration.
        let mr = unsafe { (verbs().reg_mr)(self.pd, bytes.as_mut_ptr().cast(), bytes.len(), access) };
        assert!(!mr.is_null());
        Buffer { bytes, mr }
    }

    pub fn pair(&self) -> *mut Qp {
        // SAFETY: all-zero bytes are a valid value; live objects.
        unsafe {
            let mut init: QpInitAttr = std::mem::zeroed();
            (init.send_cq, init.recv_cq, init.qp_type) = (self.cq, self.cq, QPT_RC);
            init.cap =
                QpCap { max_send_wr: 512, max_recv_wr: 512, max_send_sge: 2, max_recv_sge: 2, max_inline_data: 64 };
            let qp = (verbs().create_qp)(self.pd, &mut init);
            assert!(!qp.is_null());
            qp
        }
    }

    pub fn gid(&self) -> Gid {
        let mut gid = Gid { raw: [0; 16] };
        // SAFETY: a live context and a place.
        assert_eq!(unsafe { (verbs().query_gid)(self.context, 1, 0, &mut gid) }, 0);
        gid
    }

    /// Polls until `count` completions are there.
    pub fn poll(&self, count: usize) -> Vec<Wc> {
        let (mut done, began) = (Vec::new(), Instant::now());
        while done.len() < count {
            done.extend(self.poll_once());
            assert!(began.elapsed() < PATIENCE, "{} of {count} completions: {done:?}", done.len());
            std::thread::yield_now();
        }
        done
    }

    pub fn poll_once(&self) -> Vec<Wc> {
        let mut some: [std::mem::MaybeUninit<Wc>; 4] = [const { std::mem::MaybeUninit::uninit() }; 4];
        // SAFETY: a live queue and four places, of which as many are filled as the answer says.
        unsafe {
            let got = ((*self.context).ops.poll_cq.unwrap())(self.cq, 4, some.as_mut_ptr().cast());
            some[..got as usize].iter().map(|wc| wc.assume_init()).collect()
        }
    }

    /// The next asynchronous event.
    pub fn event(&self) -> AsyncEvent {
        let mut event = AsyncEvent { element: null_mut(), event_type: -1 };
        // SAFETY: a live context and a place.
        unsafe {
            assert_eq!((verbs().get_async_event)(self.context, &mut event), 0);
            (verbs().ack_async_event)(&mut event);
        }
        event
    }

    /// Takes the device away from under its memory and queues, as a host that dies.
    pub fn close_device(&self) {
        // SAFETY: a live context; what is left of it is not used any more, but for registrations, which hold what they need.
        assert_eq!(unsafe { (verbs().close_device)(self.context) }, 0);
    }

    pub fn close(self) {
        // SAFETY: live objects, each given back once.
        unsafe {
            assert_eq!((verbs().destroy_cq)(self.cq), 0);
            assert_eq!((verbs().dealloc_pd)(self.pd), 0);
            assert_eq!((verbs().close_device)(self.context), 0);
        }
    }
}

/// How patient the sender of a test is.
#[derive(Clone, Copy)]
pub struct Patience {
    pub timeout: u8,
    pub retries: u8,
    pub not_ready: u8,
}

/// 4.096 us doubled 10 times is 4 ms; seven tries.
pub const USUAL: Patience = Patience { timeout: 10, retries: 7, not_ready: 7 };

/// Modifies a queue pair.
pub fn modify(qp: *mut Qp, state: u32, mask: c_int, set: impl FnOnce(&mut QpAttr)) -> c_int {
    // SAFETY: all-zero bytes are a valid value; a live queue pair.
    unsafe {
        let mut attr: QpAttr = std::mem::zeroed();
        attr.qp_state = state;
        set(&mut attr);
        (verbs().modify_qp)(qp, &mut attr, QP_STATE | mask)
    }
}

/// Bits of `ibv_qp_attr_mask` that NCCL sets and that are not looked at here.
const PKEY_AND_PORT: c_int = 1 << 4 | 1 << 5;
const RD_ATOMIC: [c_int; 2] = [1 << 13, 1 << 17];

/// Takes a queue pair to where it sends, in the steps and with the masks of NCCL's `net_ib`.
pub fn ready(qp: *mut Qp, peer: (Gid, u32), patience: Patience) {
    ready_with(qp, peer, patience, 5);
}

/// The same with a size of packets by its code: 5 is 4096 bytes.
pub fn ready_with(qp: *mut Qp, peer: (Gid, u32), patience: Patience, mtu: u32) {
    let access = (ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE) as u32;
    let code = modify(qp, QPS_INIT, PKEY_AND_PORT | QP_ACCESS_FLAGS, |attr| {
        (attr.port_num, attr.qp_access_flags) = (1, access);
    });
    assert_eq!(code, 0);
    let mask = QP_AV | QP_PATH_MTU | QP_DEST_QPN | QP_RQ_PSN | RD_ATOMIC[1] | QP_MIN_RNR_TIMER;
    let code = modify(qp, QPS_RTR, mask, |attr| {
        (attr.path_mtu, attr.dest_qp_num, attr.min_rnr_timer) = (mtu, peer.1, 4);
        (attr.ah_attr.is_global, attr.ah_attr.dgid) = (1, peer.0);
    });
    assert_eq!(code, 0);
    let mask = QP_TIMEOUT | QP_RETRY_CNT | QP_RNR_RETRY | QP_SQ_PSN | RD_ATOMIC[0];
    let code = modify(qp, QPS_RTS, mask, |attr| {
        (attr.timeout, attr.retry_cnt, attr.rnr_retry) = (patience.timeout, patience.retries, patience.not_ready);
    });
    assert_eq!(code, 0);
}

pub fn number(qp: *mut Qp) -> u32 {
    // SAFETY: a live queue pair.
    unsafe { (*qp).qp_num }
}

/// Two queue pairs that talk to each other.
pub fn connect(a: &Nic, b: &Nic, patience: Patience) -> (*mut Qp, *mut Qp) {
    let (from, to) = (a.pair(), b.pair());
    ready(from, (b.gid(), number(to)), patience);
    ready(to, (a.gid(), number(from)), patience);
    (from, to)
}

/// A write with immediate data of all of `from` to the beginning of `to`.
pub fn write(id: u64, from: &mut Sge, to: &Buffer) -> SendWr {
    // SAFETY: all-zero bytes are a valid value.
    let mut wr: SendWr = unsafe { std::mem::zeroed() };
    (wr.wr_id, wr.opcode, wr.send_flags) = (id, WR_RDMA_WRITE_WITH_IMM, SEND_SIGNALED);
    wr.imm_data = from.length.to_be_bytes();
    (wr.remote_addr, wr.rkey) = (to.bytes.as_ptr() as u64, to.key());
    if from.length > 0 {
        (wr.sg_list, wr.num_sge) = (from, 1);
    }
    wr
}

pub fn post(qp: *mut Qp, wr: &mut SendWr) -> c_int {
    let mut bad = null_mut();
    // SAFETY: a live queue pair and a list of work requests.
    unsafe { ((*(*qp).context).ops.post_send.unwrap())(qp, wr, &mut bad) }
}

pub fn post_receive(qp: *mut Qp, id: u64, piece: Option<&mut Sge>) -> c_int {
    let (num_sge, sg_list) = piece.map_or((0, null_mut()), |piece| (1, piece as *mut Sge));
    let (mut wr, mut bad) = (RecvWr { wr_id: id, next: null_mut(), sg_list, num_sge }, null_mut());
    // SAFETY: a live queue pair and a work request.
    unsafe { ((*(*qp).context).ops.post_recv.unwrap())(qp, &mut wr, &mut bad) }
}

pub fn destroy(qp: *mut Qp) {
    // SAFETY: a queue pair of this test, given back once.
    assert_eq!(unsafe { (verbs().destroy_qp)(qp) }, 0);
}

pub fn text(of: *const c_char) -> String {
    // SAFETY: a NUL-terminated constant of the library.
    unsafe { CStr::from_ptr(of) }.to_str().unwrap().to_owned()
}

/// Bytes that differ from each other and from those of other seeds.
pub fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}
