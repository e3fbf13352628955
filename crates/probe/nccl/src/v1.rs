//! Profiler interface v1 (NCCL 2.23): names are numbers, and progress comes as states of proxy operations.
use crate::abi::{self, DETAIL_OFFSET, InitV1, KernelCh, Table};
use crate::adapter::{self, Version};
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
    /// Function number.
    pub func: u8,
    /// Send buffer; never read.
    pub send_buff: *const c_void,
    /// Receive buffer; never read.
    pub recv_buff: *mut c_void,
    /// Elements.
    pub count: usize,
    /// Root.
    pub root: c_int,
    /// `ncclDataType_t`.
    pub datatype: u8,
    /// Reduction.
    pub op: u32,
    /// Bytes on the wire.
    pub traffic_bytes: usize,
    /// Upper bound of the channels.
    pub n_max_channels: u8,
    /// Warps.
    pub n_warps: u8,
    /// Algorithm number.
    pub algo: u8,
    /// Protocol number.
    pub proto: u8,
    /// Uses CollNet.
    pub is_collnet: c_int,
    /// Uses NVLS.
    pub is_nvls: c_int,
}

/// `p2p`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct P2p {
    /// Communicator name; owned by the communicator.
    pub name: *const c_char,
    /// Communicator hash.
    pub comm_hash: u64,
    /// Function number.
    pub func: u8,
    /// Buffer; never read.
    pub buff: *mut c_void,
    /// `ncclDataType_t`.
    pub datatype: u8,
    /// Elements.
    pub count: usize,
    /// Peer in the communicator.
    pub peer: c_int,
}

/// The union of a descriptor.
pub type Detail = abi::Detail<Coll, P2p, ()>;
/// `ncclProfilerEventDescr_v1_t`.
pub type Descr = abi::Descr<u8, Detail>;

const _: () = {
    assert!(size_of::<Descr>() == 120);
    assert!(DETAIL_OFFSET + offset_of!(Coll, seq_number) == 40 && DETAIL_OFFSET + offset_of!(Coll, func) == 48);
    assert!(DETAIL_OFFSET + offset_of!(Coll, send_buff) == 56 && DETAIL_OFFSET + offset_of!(Coll, recv_buff) == 64);
    assert!(DETAIL_OFFSET + offset_of!(Coll, count) == 72 && DETAIL_OFFSET + offset_of!(Coll, root) == 80);
    assert!(DETAIL_OFFSET + offset_of!(Coll, datatype) == 84 && DETAIL_OFFSET + offset_of!(Coll, op) == 88);
    assert!(
        DETAIL_OFFSET + offset_of!(Coll, traffic_bytes) == 96
            && DETAIL_OFFSET + offset_of!(Coll, n_max_channels) == 104
    );
    assert!(DETAIL_OFFSET + offset_of!(Coll, n_warps) == 105 && DETAIL_OFFSET + offset_of!(Coll, algo) == 106);
    assert!(DETAIL_OFFSET + offset_of!(Coll, proto) == 107 && DETAIL_OFFSET + offset_of!(Coll, is_collnet) == 108);
    assert!(DETAIL_OFFSET + offset_of!(Coll, is_nvls) == 112);
    assert!(DETAIL_OFFSET + offset_of!(P2p, comm_hash) == 32 && DETAIL_OFFSET + offset_of!(P2p, func) == 40);
    assert!(DETAIL_OFFSET + offset_of!(P2p, buff) == 48 && DETAIL_OFFSET + offset_of!(P2p, datatype) == 56);
    assert!(DETAIL_OFFSET + offset_of!(P2p, count) == 64 && DETAIL_OFFSET + offset_of!(P2p, peer) == 72);
};

/// NCCL 2.23's function numbers.
fn kind_of(func: u8) -> OpKind {
    match func {
        0 => OpKind::Broadcast,
        1 => OpKind::Reduce,
        2 => OpKind::AllGather,
        3 => OpKind::ReduceScatter,
        4 => OpKind::AllReduce,
        6 => OpKind::Send,
        7 => OpKind::Recv,
        _ => OpKind::Unknown,
    }
}

/// NCCL's `ncclDataType_t` numbers (the record's codes follow the same order, from 1).
fn datatype_of(datatype: u8) -> Datatype {
    Datatype::from_code(datatype.saturating_add(1))
}

/// NCCL 2.23's algorithm numbers.
fn algorithm_of(algo: u8) -> Algorithm {
    match algo {
        0 => Algorithm::Tree,
        1 => Algorithm::Ring,
        2 => Algorithm::CollnetDirect,
        3 => Algorithm::CollnetChain,
        4 => Algorithm::Nvls,
        5 => Algorithm::NvlsTree,
        6 => Algorithm::Pat,
        _ => Algorithm::Unknown,
    }
}

/// NCCL 2.23's protocol numbers.
fn protocol_of(proto: u8) -> Protocol {
    match proto {
        0 => Protocol::Ll,
        1 => Protocol::Ll128,
        2 => Protocol::Simple,
        _ => Protocol::Unknown,
    }
}

/// The version.
pub struct V1;

impl Version for V1 {
    const ABI: u32 = 1;
    type Kind = u8;
    type Detail = Detail;

    unsafe fn coll(descr: &Descr) -> (CommTag, CollStart) {
        // SAFETY: the caller saw the COLL bit, so NCCL filled this member.
        let coll = unsafe { &descr.detail.coll };
        let tag = CommTag { hash: coll.comm_hash, name: coll.name, rank: descr.rank };
        let start = CollStart {
            nccl_seq: coll.seq_number,
            kind: kind_of(coll.func),
            count: coll.count as u64,
            root: coll.root,
            datatype: datatype_of(coll.datatype),
            algorithm: algorithm_of(coll.algo),
            protocol: protocol_of(coll.proto),
            // A bound, not the number of kernel events to wait for.
            n_channels: 0,
        };
        (tag, start)
    }

    unsafe fn p2p(descr: &Descr) -> (CommTag, P2pStart) {
        // SAFETY: the caller saw the P2P bit, so NCCL filled this member.
        let p2p = unsafe { &descr.detail.p2p };
        let tag = CommTag { hash: p2p.comm_hash, name: p2p.name, rank: descr.rank };
        let start = P2pStart {
            kind: kind_of(p2p.func),
            count: p2p.count as u64,
            datatype: datatype_of(p2p.datatype),
            peer: p2p.peer,
            n_channels: 0,
        };
        (tag, start)
    }

    unsafe fn kernel_ch(_: &Descr) -> KernelCh {
        KernelCh { channel: 0, timer: 0 }
    }
}

/// What NCCL 2.23 looks up.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ncclProfiler_v1: Table<InitV1> = adapter::table::<V1, InitV1>(adapter::init_v1::<V1>);
