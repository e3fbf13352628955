//! Profiler interface v7 (NCCL 2.31 and later): v6 with the variant of a collective's kernel and a tag of the user at the
//! end of members. Phases of a kernel are events of their own, which are not asked for.
use crate::abi::{self, DETAIL_OFFSET, InitV5, KernelCh, Table};
use crate::adapter::{self, Version};
use crate::{v5, v6};
use mycroft_probe_core::{CollStart, CommTag, P2pStart};
use std::ffi::c_char;
use std::mem::offset_of;

/// `coll`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Coll {
    /// As in v6.
    pub base: v5::Coll,
    /// Variant of the kernel, a static string; not read.
    pub kernel_variant: *const c_char,
    /// A symmetric-memory kernel: no proxy takes part.
    pub is_sym_coll: bool,
    /// The user's tag; not read.
    pub user_tag: u64,
}

/// `p2p`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct P2p {
    /// As in v6.
    pub base: v5::P2p,
    /// The user's tag; not read.
    pub user_tag: u64,
}

/// `ceColl`; only there to give the union its full size, its event is not asked for.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CeColl {
    /// As in v6.
    pub base: v6::CeColl,
    /// The user's tag.
    pub user_tag: u64,
}

/// The union of a descriptor.
pub type Detail = abi::Detail<Coll, P2p, KernelCh, CeColl>;
/// `ncclProfilerEventDescr_v7_t`.
pub type Descr = abi::Descr<u64, Detail>;

const _: () = {
    assert!(size_of::<Descr>() == 136);
    assert!(offset_of!(Coll, base) == 0 && offset_of!(P2p, base) == 0 && offset_of!(CeColl, base) == 0);
    assert!(DETAIL_OFFSET + offset_of!(Coll, kernel_variant) == 112);
    assert!(DETAIL_OFFSET + offset_of!(Coll, is_sym_coll) == 120 && DETAIL_OFFSET + offset_of!(Coll, user_tag) == 128);
    assert!(DETAIL_OFFSET + offset_of!(P2p, user_tag) == 72 && DETAIL_OFFSET + offset_of!(CeColl, user_tag) == 112);
};

/// The version.
pub struct V7;

impl Version for V7 {
    const ABI: u32 = 7;
    type Kind = u64;
    type Detail = Detail;

    unsafe fn coll(descr: &Descr) -> (CommTag, CollStart) {
        // SAFETY: the caller saw the COLL bit, so NCCL filled this member.
        (CommTag::from_init(descr.rank), unsafe { descr.detail.coll.base.start() })
    }

    unsafe fn p2p(descr: &Descr) -> (CommTag, P2pStart) {
        // SAFETY: the caller saw the P2P bit, so NCCL filled this member.
        (CommTag::from_init(descr.rank), unsafe { descr.detail.p2p.base.start() })
    }

    unsafe fn kernel_ch(descr: &Descr) -> KernelCh {
        // SAFETY: the caller saw the KERNEL_CH bit, so NCCL filled this member.
        unsafe { descr.detail.kernel }
    }

    fn parent_group_offset(kind: u64) -> Option<usize> {
        v5::parent_group_offset(kind)
    }
}

/// What NCCL 2.31 and later look up.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ncclProfiler_v7: Table<InitV5> = adapter::table::<V7, InitV5>(adapter::init_v5::<V7>);
