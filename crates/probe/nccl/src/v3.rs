//! Profiler interface v3 (NCCL 2.26): v2 without traffic bytes, with kernel events that carry no time.
use crate::abi::{self, DETAIL_OFFSET, InitV1, KernelCh, Table};
use crate::adapter::{self, Version, text};
use mycroft_probe_core::{CollStart, CommTag, P2pStart};
use mycroft_record::{Algorithm, Datatype, OpKind, Protocol};
use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

/// `coll`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Coll {
    /// Communicator name; owned by the communicator.
    pub name: *const c_char,
    /// Communicator hash.
    pub comm_hash: u64,
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
    /// Upper bound of the channels.
    pub n_max_channels: u8,
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
    /// Communicator name; owned by the communicator.
    pub name: *const c_char,
    /// Communicator hash.
    pub comm_hash: u64,
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
}

/// The union of a descriptor.
pub type Detail = abi::Detail<Coll, P2p, u8>;
/// `ncclProfilerEventDescr_v3_t`.
pub type Descr = abi::Descr<u8, Detail>;

const _: () = {
    assert!(size_of::<Descr>() == 120);
    assert!(DETAIL_OFFSET + offset_of!(Coll, comm_hash) == 32 && DETAIL_OFFSET + offset_of!(Coll, seq_number) == 40);
    assert!(DETAIL_OFFSET + offset_of!(Coll, func) == 48 && DETAIL_OFFSET + offset_of!(Coll, send_buff) == 56);
    assert!(DETAIL_OFFSET + offset_of!(Coll, recv_buff) == 64 && DETAIL_OFFSET + offset_of!(Coll, count) == 72);
    assert!(DETAIL_OFFSET + offset_of!(Coll, root) == 80 && DETAIL_OFFSET + offset_of!(Coll, datatype) == 88);
    assert!(DETAIL_OFFSET + offset_of!(Coll, n_max_channels) == 96 && DETAIL_OFFSET + offset_of!(Coll, n_warps) == 97);
    assert!(DETAIL_OFFSET + offset_of!(Coll, algo) == 104 && DETAIL_OFFSET + offset_of!(Coll, proto) == 112);
    assert!(DETAIL_OFFSET + offset_of!(P2p, comm_hash) == 32 && DETAIL_OFFSET + offset_of!(P2p, func) == 40);
    assert!(DETAIL_OFFSET + offset_of!(P2p, buff) == 48 && DETAIL_OFFSET + offset_of!(P2p, datatype) == 56);
    assert!(DETAIL_OFFSET + offset_of!(P2p, count) == 64 && DETAIL_OFFSET + offset_of!(P2p, peer) == 72);
};

/// The version.
pub struct V3;

impl Version for V3 {
    const ABI: u32 = 3;
    type Kind = u8;
    type Detail = Detail;

    unsafe fn coll(descr: &Descr) -> (CommTag, CollStart) {
        // SAFETY: the caller saw the COLL bit, so NCCL filled this member; its strings are static.
        let coll = unsafe { &descr.detail.coll };
        let tag = CommTag { hash: coll.comm_hash, name: coll.name, rank: descr.rank };
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
            // NCCL tells a bound here, not the number of kernel events to wait for.
            n_channels: 0,
        };
        (tag, start)
    }

    unsafe fn p2p(descr: &Descr) -> (CommTag, P2pStart) {
        // SAFETY: the caller saw the P2P bit, so NCCL filled this member; its strings are static.
        let p2p = unsafe { &descr.detail.p2p };
        let tag = CommTag { hash: p2p.comm_hash, name: p2p.name, rank: descr.rank };
        // SAFETY: as above.
        let (func, datatype) = unsafe { (text(&p2p.func), text(&p2p.datatype)) };
        let start = P2pStart {
            kind: OpKind::from_text(func),
            count: p2p.count as u64,
            datatype: Datatype::from_text(datatype),
            peer: p2p.peer,
            n_channels: 0,
        };
        (tag, start)
    }

    unsafe fn kernel_ch(descr: &Descr) -> KernelCh {
        // SAFETY: the caller saw the KERNEL_CH bit, so NCCL filled this member.
        KernelCh { channel: unsafe { descr.detail.kernel }, timer: 0 }
    }
}

/// What NCCL 2.26 looks up.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ncclProfiler_v3: Table<InitV1> = adapter::table::<V3, InitV1>(adapter::init_v1::<V3>);
