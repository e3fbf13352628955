//! Profiler interface v5 (NCCL 2.28): 8-byte event kinds, API events, `parentGroup`.
use crate::abi::{self, CollApi, DETAIL_OFFSET, InitV5, KernelCh, Table, event};
use crate::adapter::{self, Version, text};
use mycroft_probe_core::{CallStart, CollStart, CommTag, P2pStart};
use mycroft_record::{Algorithm, Datatype, OpKind, Protocol};
use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

/// `coll` of v5 and v6, and the begin of v7's.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Coll {
    /// Counts per communicator and function.
    pub seq_number: u64,
    /// Function, a static string.
    pub func: *const c_char,
    /// Send buffer; never read.
    pub send_buff: *const c_void,
    /// Receive buffer; never read.
    pub recv_buff: *mut c_void,
    /// Elements.
    pub count: usize,
    /// Root.
    pub root: c_int,
    /// Element type, a static string.
    pub datatype: *const c_char,
    /// Channels, and so kernel events to expect.
    pub n_channels: u8,
    /// Warps.
    pub n_warps: u8,
    /// Algorithm, a static string.
    pub algo: *const c_char,
    /// Protocol, a static string.
    pub proto: *const c_char,
    /// Handle of the old group event.
    pub parent_group: *mut c_void,
}

/// `p2p` of v5 and v6, and the begin of v7's.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct P2p {
    /// Function, a static string.
    pub func: *const c_char,
    /// Buffer; never read.
    pub buff: *mut c_void,
    /// Element type, a static string.
    pub datatype: *const c_char,
    /// Elements.
    pub count: usize,
    /// Peer in the communicator.
    pub peer: c_int,
    /// Channels, and so kernel events to expect.
    pub n_channels: u8,
    /// Handle of the old group event.
    pub parent_group: *mut c_void,
}

impl Coll {
    /// What the core is told.
    ///
    /// # Safety
    /// NCCL filled it; its strings are static.
    pub(crate) unsafe fn start(&self) -> CollStart {
        // SAFETY: the caller vouches for the strings.
        let (func, datatype, algo, proto) =
            unsafe { (text(&self.func), text(&self.datatype), text(&self.algo), text(&self.proto)) };
        CollStart {
            nccl_seq: self.seq_number,
            kind: OpKind::from_text(func),
            count: self.count as u64,
            root: self.root,
            datatype: Datatype::from_text(datatype),
            algorithm: Algorithm::from_text(algo),
            protocol: Protocol::from_text(proto),
            n_channels: self.n_channels,
        }
    }
}

impl CollApi {
    /// What the core is told.
    ///
    /// # Safety
    /// NCCL filled it; its strings are static.
    pub(crate) unsafe fn start(&self) -> CallStart {
        // SAFETY: the caller vouches for the strings.
        let (func, datatype) = unsafe { (text(&self.func), text(&self.datatype)) };
        CallStart {
            kind: OpKind::from_text(func),
            count: self.count as u64,
            datatype: Datatype::from_text(datatype),
            root: self.root,
            is_captured: self.graph_captured != 0,
        }
    }
}

impl P2p {
    /// What the core is told.
    ///
    /// # Safety
    /// NCCL filled it; its strings are static.
    pub(crate) unsafe fn start(&self) -> P2pStart {
        // SAFETY: the caller vouches for the strings.
        let (func, datatype) = unsafe { (text(&self.func), text(&self.datatype)) };
        P2pStart {
            kind: OpKind::from_text(func),
            count: self.count as u64,
            datatype: Datatype::from_text(datatype),
            peer: self.peer,
            n_channels: self.n_channels,
        }
    }
}

/// Where a descriptor of v5 and later holds the handle of the old group event.
pub(crate) fn parent_group_offset(kind: u64) -> Option<usize> {
    match kind {
        event::COLL => Some(DETAIL_OFFSET + offset_of!(Coll, parent_group)),
        event::P2P => Some(DETAIL_OFFSET + offset_of!(P2p, parent_group)),
        _ => None,
    }
}

/// The union of a descriptor.
pub type Detail = abi::Detail<Coll, P2p, KernelCh>;
/// `ncclProfilerEventDescr_v5_t`.
pub type Descr = abi::Descr<u64, Detail>;

const _: () = {
    assert!(size_of::<Descr>() == 112);
    assert!(DETAIL_OFFSET + offset_of!(Coll, func) == 32 && DETAIL_OFFSET + offset_of!(Coll, send_buff) == 40);
    assert!(DETAIL_OFFSET + offset_of!(Coll, recv_buff) == 48 && DETAIL_OFFSET + offset_of!(Coll, count) == 56);
    assert!(DETAIL_OFFSET + offset_of!(Coll, root) == 64 && DETAIL_OFFSET + offset_of!(Coll, datatype) == 72);
    assert!(DETAIL_OFFSET + offset_of!(Coll, n_channels) == 80 && DETAIL_OFFSET + offset_of!(Coll, n_warps) == 81);
    assert!(DETAIL_OFFSET + offset_of!(Coll, algo) == 88 && DETAIL_OFFSET + offset_of!(Coll, proto) == 96);
    assert!(DETAIL_OFFSET + offset_of!(P2p, func) == 24 && DETAIL_OFFSET + offset_of!(P2p, buff) == 32);
    assert!(DETAIL_OFFSET + offset_of!(P2p, datatype) == 40 && DETAIL_OFFSET + offset_of!(P2p, count) == 48);
    assert!(DETAIL_OFFSET + offset_of!(P2p, peer) == 56 && DETAIL_OFFSET + offset_of!(P2p, n_channels) == 60);
    assert!(DETAIL_OFFSET + offset_of!(Coll, parent_group) == 104);
    assert!(DETAIL_OFFSET + offset_of!(P2p, parent_group) == 64);
};

/// The version.
pub struct V5;

impl Version for V5 {
    const ABI: u32 = 5;
    type Kind = u64;
    type Detail = Detail;

    unsafe fn coll(descr: &Descr) -> (CommTag, CollStart) {
        // SAFETY: the caller saw the COLL bit, so NCCL filled this member.
        (CommTag::from_init(descr.rank), unsafe { descr.detail.coll.start() })
    }

    unsafe fn p2p(descr: &Descr) -> (CommTag, P2pStart) {
        // SAFETY: the caller saw the P2P bit, so NCCL filled this member.
        (CommTag::from_init(descr.rank), unsafe { descr.detail.p2p.start() })
    }

    unsafe fn kernel_ch(descr: &Descr) -> KernelCh {
        // SAFETY: the caller saw the KERNEL_CH bit, so NCCL filled this member.
        unsafe { descr.detail.kernel }
    }

    fn parent_group_offset(kind: u64) -> Option<usize> {
        parent_group_offset(kind)
    }
}

/// What NCCL 2.28 looks up.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ncclProfiler_v5: Table<InitV5> = adapter::table::<V5, InitV5>(adapter::init_v5::<V5>);
