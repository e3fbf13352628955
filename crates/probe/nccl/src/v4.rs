//! Profiler interface v4 (NCCL 2.27): the communicator comes with `init`, progress as states of steps.
use crate::abi::{self, DETAIL_OFFSET, InitV4, KernelCh, Table};
use crate::adapter::{self, Version, text};
use mycroft_probe_core::{CollStart, CommTag, P2pStart};
use mycroft_record::{Algorithm, Datatype, OpKind, Protocol};
use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

/// `coll`.
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
}

/// `p2p`.
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
    /// Channels; NCCL 2.28 and later leave it uninitialised for a v4 plugin.
    pub n_channels: u8,
}

/// The union of a descriptor.
pub type Detail = abi::Detail<Coll, P2p, KernelCh>;
/// `ncclProfilerEventDescr_v4_t`.
pub type Descr = abi::Descr<u8, Detail>;

const _: () = {
    assert!(size_of::<Descr>() == 104);
    assert!(DETAIL_OFFSET + offset_of!(Coll, func) == 32 && DETAIL_OFFSET + offset_of!(Coll, send_buff) == 40);
    assert!(DETAIL_OFFSET + offset_of!(Coll, recv_buff) == 48 && DETAIL_OFFSET + offset_of!(Coll, count) == 56);
    assert!(DETAIL_OFFSET + offset_of!(Coll, root) == 64 && DETAIL_OFFSET + offset_of!(Coll, datatype) == 72);
    assert!(DETAIL_OFFSET + offset_of!(Coll, n_channels) == 80 && DETAIL_OFFSET + offset_of!(Coll, n_warps) == 81);
    assert!(DETAIL_OFFSET + offset_of!(Coll, algo) == 88 && DETAIL_OFFSET + offset_of!(Coll, proto) == 96);
    assert!(DETAIL_OFFSET + offset_of!(P2p, func) == 24 && DETAIL_OFFSET + offset_of!(P2p, buff) == 32);
    assert!(DETAIL_OFFSET + offset_of!(P2p, datatype) == 40 && DETAIL_OFFSET + offset_of!(P2p, count) == 48);
    assert!(DETAIL_OFFSET + offset_of!(P2p, peer) == 56 && DETAIL_OFFSET + offset_of!(P2p, n_channels) == 60);
};

/// The version.
pub struct V4;

impl Version for V4 {
    const ABI: u32 = 4;
    type Kind = u8;
    type Detail = Detail;

    unsafe fn coll(descr: &Descr) -> (CommTag, CollStart) {
        // SAFETY: the caller saw the COLL bit, so NCCL filled this member; its strings are static.
        let coll = unsafe { &descr.detail.coll };
        // SAFETY: as above.
        let (func, datatype, algo, proto) =
            unsafe { (text(&coll.func), text(&coll.datatype), text(&coll.algo), text(&coll.proto)) };
        let start = CollStart {
            nccl_seq: coll.seq_number,
            kind: OpKind::from_text(func),
            count: coll.count as u64,
            root: coll.root,
            datatype: Datatype::from_text(datatype),
            algorithm: Algorithm::from_text(algo),
            protocol: Protocol::from_text(proto),
            n_channels: coll.n_channels,
        };
        (CommTag::from_init(descr.rank), start)
    }

    unsafe fn p2p(descr: &Descr) -> (CommTag, P2pStart) {
        // SAFETY: the caller saw the P2P bit, so NCCL filled this member; its strings are static.
        let p2p = unsafe { &descr.detail.p2p };
        // SAFETY: as above.
        let (func, datatype) = unsafe { (text(&p2p.func), text(&p2p.datatype)) };
        let start = P2pStart {
            kind: OpKind::from_text(func),
            count: p2p.count as u64,
            datatype: Datatype::from_text(datatype),
            peer: p2p.peer,
            n_channels: adapter::p2p_channels_v4(p2p.n_channels),
        };
        (CommTag::from_init(descr.rank), start)
    }

    unsafe fn kernel_ch(descr: &Descr) -> KernelCh {
        // SAFETY: the caller saw the KERNEL_CH bit, so NCCL filled this member.
        unsafe { descr.detail.kernel }
    }
}

/// What NCCL 2.27 looks up.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ncclProfiler_v4: Table<InitV4> = adapter::table::<V4, InitV4>(adapter::init_v4::<V4>);
