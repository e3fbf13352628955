//! The profiler interface of NCCL 2.29 and 2.30: `ncclProfiler_v6`.

use super::common::{ProxyOp, ProxyStep};
use super::event::{CollInfo, Ev, P2pInfo, Start};
use std::ffi::{c_char, c_int, c_void};
use std::mem::{offset_of, size_of};

#[derive(Clone, Copy)]
#[repr(C)]
struct Coll {
    seq_number: u64,
    func: *const c_char,
    send_buff: *const c_void,
    recv_buff: *const c_void,
    count: usize,
    root: c_int,
    datatype: *const c_char,
    n_channels: u8,
    n_warps: u8,
    algo: *const c_char,
    proto: *const c_char,
    parent_group: *const c_void,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct P2p {
    func: *const c_char,
    buff: *const c_void,
    datatype: *const c_char,
    count: usize,
    peer: c_int,
    n_channels: u8,
    parent_group: *const c_void,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct KernelCh {
    channel_id: u8,
    p_timer: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct NetPlugin {
    id: i64,
    data: *const c_void,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct GroupApi {
    graph_captured: bool,
    group_depth: c_int,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct CollApi {
    func: *const c_char,
    count: usize,
    datatype: *const c_char,
    root: c_int,
    stream: *const c_void,
    graph_captured: bool,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct P2pApi {
    func: *const c_char,
    count: usize,
    datatype: *const c_char,
    stream: *const c_void,
    graph_captured: bool,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct KernelLaunch {
    stream: *const c_void,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct CeColl {
    seq_number: u64,
    func: *const c_char,
    send_buff: *const c_void,
    recv_buff: *const c_void,
    count: usize,
    root: c_int,
    datatype: *const c_char,
    sync_strategy: *const c_char,
    intra_batch_sync: bool,
    batch_size: u32,
    num_batches: u32,
    ce_seq_num: u32,
    stream: *const c_void,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct CeCollSync {
    is_complete: bool,
    n_ranks: c_int,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct CeCollBatch {
    num_ops: c_int,
    total_bytes: usize,
    use_intra_sync: bool,
}

#[derive(Clone, Copy)]
#[repr(C)]
union Body {
    coll: Coll,
    p2p: P2p,
    proxy_op: ProxyOp,
    proxy_step: ProxyStep,
    kernel_ch: KernelCh,
    net_plugin: NetPlugin,
    group_api: GroupApi,
    coll_api: CollApi,
    p2p_api: P2pApi,
    kernel_launch: KernelLaunch,
    ce_coll: CeColl,
    ce_coll_sync: CeCollSync,
    ce_coll_batch: CeCollBatch,
}

/// `ncclProfilerEventDescr_v6_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Descr {
    kind: u64,
    parent: *const c_void,
    rank: c_int,
    body: Body,
}

const _: () = {
    assert!(size_of::<Descr>() == 112);
    assert!(offset_of!(Descr, parent) == 8);
    assert!(offset_of!(Descr, rank) == 16);
    assert!(offset_of!(Descr, body) == 24);
    assert!(offset_of!(Coll, seq_number) == 0);
    assert!(offset_of!(Coll, func) == 8);
    assert!(offset_of!(Coll, send_buff) == 16);
    assert!(offset_of!(Coll, recv_buff) == 24);
    assert!(offset_of!(Coll, count) == 32);
    assert!(offset_of!(Coll, root) == 40);
    assert!(offset_of!(Coll, datatype) == 48);
    assert!(offset_of!(Coll, n_channels) == 56);
    assert!(offset_of!(Coll, n_warps) == 57);
    assert!(offset_of!(Coll, algo) == 64);
    assert!(offset_of!(Coll, proto) == 72);
    assert!(offset_of!(Coll, parent_group) == 80);
    assert!(offset_of!(P2p, func) == 0);
    assert!(offset_of!(P2p, buff) == 8);
    assert!(offset_of!(P2p, datatype) == 16);
    assert!(offset_of!(P2p, count) == 24);
    assert!(offset_of!(P2p, peer) == 32);
    assert!(offset_of!(P2p, n_channels) == 36);
    assert!(offset_of!(P2p, parent_group) == 40);
    assert!(offset_of!(KernelCh, channel_id) == 0);
    assert!(offset_of!(KernelCh, p_timer) == 8);
    assert!(offset_of!(NetPlugin, id) == 0);
    assert!(offset_of!(NetPlugin, data) == 8);
    assert!(offset_of!(GroupApi, graph_captured) == 0);
    assert!(offset_of!(GroupApi, group_depth) == 4);
    assert!(offset_of!(CollApi, func) == 0);
    assert!(offset_of!(CollApi, count) == 8);
    assert!(offset_of!(CollApi, datatype) == 16);
    assert!(offset_of!(CollApi, root) == 24);
    assert!(offset_of!(CollApi, stream) == 32);
    assert!(offset_of!(CollApi, graph_captured) == 40);
    assert!(offset_of!(P2pApi, func) == 0);
    assert!(offset_of!(P2pApi, count) == 8);
    assert!(offset_of!(P2pApi, datatype) == 16);
    assert!(offset_of!(P2pApi, stream) == 24);
    assert!(offset_of!(P2pApi, graph_captured) == 32);
    assert!(offset_of!(KernelLaunch, stream) == 0);
    assert!(offset_of!(CeColl, seq_number) == 0);
    assert!(offset_of!(CeColl, func) == 8);
    assert!(offset_of!(CeColl, send_buff) == 16);
    assert!(offset_of!(CeColl, recv_buff) == 24);
    assert!(offset_of!(CeColl, count) == 32);
    assert!(offset_of!(CeColl, root) == 40);
    assert!(offset_of!(CeColl, datatype) == 48);
    assert!(offset_of!(CeColl, sync_strategy) == 56);
    assert!(offset_of!(CeColl, intra_batch_sync) == 64);
    assert!(offset_of!(CeColl, batch_size) == 68);
    assert!(offset_of!(CeColl, num_batches) == 72);
    assert!(offset_of!(CeColl, ce_seq_num) == 76);
    assert!(offset_of!(CeColl, stream) == 80);
    assert!(offset_of!(CeCollSync, is_complete) == 0);
    assert!(offset_of!(CeCollSync, n_ranks) == 4);
    assert!(offset_of!(CeCollBatch, num_ops) == 0);
    assert!(offset_of!(CeCollBatch, total_bytes) == 8);
    assert!(offset_of!(CeCollBatch, use_intra_sync) == 16);
};

impl Descr {
    /// The descriptor of an event, or `None` when this version does not know its kind.
    pub(crate) fn of(start: &Start) -> Option<Descr> {
        // SAFETY: every member is plain data for which all-zero bytes are valid; padding is zeroed too.
        let mut d: Descr = unsafe { std::mem::zeroed() };
        d.kind = start.ev.kind() as u64;
        d.parent = start.parent;
        d.rank = start.rank;
        match &start.ev {
            Ev::Group => {}
            Ev::Coll(c) => d.body.coll = coll(c),
            Ev::P2p(p) => d.body.p2p = p2p(p),
            Ev::ProxyOp(o) => d.body.proxy_op = ProxyOp::of(o),
            Ev::ProxyStep { step } => d.body.proxy_step = ProxyStep { step: *step },
            Ev::ProxyCtrl => {}
            Ev::KernelCh { channel, p_timer } => {
                d.body.kernel_ch = KernelCh { channel_id: *channel, p_timer: *p_timer };
            }
            Ev::GroupApi { depth } => {
                d.body.group_api = GroupApi { graph_captured: false, group_depth: *depth };
            }
            Ev::CollApi(c) => {
                d.body.coll_api = CollApi {
                    func: c.func.c_name().as_ptr(),
                    count: c.count,
                    datatype: c.dtype.c_name().as_ptr(),
                    root: c.root,
                    stream: c.stream as *const c_void,
                    graph_captured: false,
                };
            }
            Ev::P2pApi(c) => {
                d.body.p2p_api = P2pApi {
                    func: c.func.c_name().as_ptr(),
                    count: c.count,
                    datatype: c.dtype.c_name().as_ptr(),
                    stream: c.stream as *const c_void,
                    graph_captured: false,
                };
            }
            Ev::KernelLaunch { stream } => {
                d.body.kernel_launch = KernelLaunch { stream: *stream as *const c_void };
            }
        }
        Some(d)
    }
}

fn coll(c: &CollInfo) -> Coll {
    Coll {
        seq_number: c.seq,
        func: c.func.c_name().as_ptr(),
        send_buff: c.send as *const c_void,
        recv_buff: c.recv as *const c_void,
        count: c.count,
        root: c.root,
        datatype: c.dtype.c_name().as_ptr(),
        n_channels: c.channels,
        n_warps: c.warps,
        algo: c.algo.c_name().as_ptr(),
        proto: c.proto.c_name().as_ptr(),
        parent_group: c.parent_group,
    }
}

fn p2p(p: &P2pInfo) -> P2p {
    P2p {
        func: p.func.c_name().as_ptr(),
        buff: p.buff as *const c_void,
        datatype: p.dtype.c_name().as_ptr(),
        count: p.count,
        peer: p.peer,
        n_channels: p.channels,
        parent_group: p.parent_group,
    }
}
