//! Profiler interface v6 (NCCL 2.29 and 2.30): v5 with copy-engine events.
use crate::abi::{self, DETAIL_OFFSET, InitV5, KernelCh, Table};
use crate::adapter::{self, Version};
use crate::v5::{self, Coll, P2p};
use mycroft_probe_core::{CollStart, CommTag, P2pStart};
use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

/// `ceColl`; only there to give the union its full size, its event is not asked for.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CeColl {
    /// Counts per communicator and function.
    pub seq_number: u64,
    /// Function.
    pub func: *const c_char,
    /// Send buffer.
    pub send_buff: *const c_void,
    /// Receive buffer.
    pub recv_buff: *mut c_void,
    /// Elements.
    pub count: usize,
    /// Root.
    pub root: c_int,
    /// Element type.
    pub datatype: *const c_char,
    /// Strategy.
    pub sync_strategy: *const c_char,
    /// Synchronises inside a batch.
    pub intra_batch_sync: bool,
    /// Batch size.
    pub batch_size: u32,
    /// Batches.
    pub num_batches: u32,
    /// Sequence of copy-engine collectives.
    pub ce_seq_num: u32,
    /// Stream.
    pub stream: *mut c_void,
}

/// The union of a descriptor.
pub type Detail = abi::Detail<Coll, P2p, KernelCh, CeColl>;
/// `ncclProfilerEventDescr_v6_t`.
pub type Descr = abi::Descr<u64, Detail>;

const _: () = {
    assert!(size_of::<Descr>() == 112);
    assert!(DETAIL_OFFSET + offset_of!(CeColl, root) == 64 && DETAIL_OFFSET + offset_of!(CeColl, datatype) == 72);
    assert!(
        DETAIL_OFFSET + offset_of!(CeColl, sync_strategy) == 80
            && DETAIL_OFFSET + offset_of!(CeColl, intra_batch_sync) == 88
    );
    assert!(
        DETAIL_OFFSET + offset_of!(CeColl, batch_size) == 92 && DETAIL_OFFSET + offset_of!(CeColl, ce_seq_num) == 100
    );
    assert!(DETAIL_OFFSET + offset_of!(CeColl, stream) == 104);
};

/// The version.
pub struct V6;

impl Version for V6 {
    const ABI: u32 = 6;
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
        v5::parent_group_offset(kind)
    }
}

/// What NCCL 2.29 and 2.30 look up.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ncclProfiler_v6: Table<InitV5> = adapter::table::<V6, InitV5>(adapter::init_v5::<V6>);
