//! The profiler interface of NCCL 2.26: `ncclProfiler_v3`.

use super::common::{ProxyOp, ProxyStep};
use super::event::{CollInfo, Ev, P2pInfo, Start};
use std::ffi::{c_char, c_int, c_void};
use std::mem::{offset_of, size_of};

#[derive(Clone, Copy)]
#[repr(C)]
struct Coll {
    name: *const c_char,
    comm_hash: u64,
    seq_number: u64,
    func: *const c_char,
    send_buff: *const c_void,
    recv_buff: *const c_void,
    count: usize,
    root: c_int,
    datatype: *const c_char,
    n_max_channels: u8,
    n_warps: u8,
    algo: *const c_char,
    proto: *const c_char,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct P2p {
    name: *const c_char,
    comm_hash: u64,
    func: *const c_char,
    buff: *const c_void,
    datatype: *const c_char,
    count: usize,
    peer: c_int,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct KernelCh {
    channel_id: u8,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct NetPlugin {
    id: i64,
    data: *const c_void,
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
}

/// `ncclProfilerEventDescr_v3_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Descr {
    kind: u8,
    parent: *const c_void,
    rank: c_int,
    body: Body,
}

const _: () = {
    assert!(size_of::<Descr>() == 120);
    assert!(offset_of!(Descr, parent) == 8);
    assert!(offset_of!(Descr, rank) == 16);
    assert!(offset_of!(Descr, body) == 24);
    assert!(offset_of!(Coll, name) == 0);
    assert!(offset_of!(Coll, comm_hash) == 8);
    assert!(offset_of!(Coll, seq_number) == 16);
    assert!(offset_of!(Coll, func) == 24);
    assert!(offset_of!(Coll, send_buff) == 32);
    assert!(offset_of!(Coll, recv_buff) == 40);
    assert!(offset_of!(Coll, count) == 48);
    assert!(offset_of!(Coll, root) == 56);
    assert!(offset_of!(Coll, datatype) == 64);
    assert!(offset_of!(Coll, n_max_channels) == 72);
    assert!(offset_of!(Coll, n_warps) == 73);
    assert!(offset_of!(Coll, algo) == 80);
    assert!(offset_of!(Coll, proto) == 88);
    assert!(offset_of!(P2p, name) == 0);
    assert!(offset_of!(P2p, comm_hash) == 8);
    assert!(offset_of!(P2p, func) == 16);
    assert!(offset_of!(P2p, buff) == 24);
    assert!(offset_of!(P2p, datatype) == 32);
    assert!(offset_of!(P2p, count) == 40);
    assert!(offset_of!(P2p, peer) == 48);
    assert!(offset_of!(KernelCh, channel_id) == 0);
    assert!(offset_of!(NetPlugin, id) == 0);
    assert!(offset_of!(NetPlugin, data) == 8);
};

impl Descr {
    /// The descriptor of an event, or `None` when this version does not know its kind.
    pub(crate) fn of(start: &Start) -> Option<Descr> {
        // SAFETY: every member is plain data for which all-zero bytes are valid; padding is zeroed too.
        let mut d: Descr = unsafe { std::mem::zeroed() };
        d.kind = start.ev.kind() as u8;
        d.parent = start.parent;
        d.rank = start.rank;
        match &start.ev {
            Ev::Group => {}
            Ev::Coll(c) => d.body.coll = coll(c),
            Ev::P2p(p) => d.body.p2p = p2p(p),
            Ev::ProxyOp(o) => d.body.proxy_op = ProxyOp::of(o),
            Ev::ProxyStep { step } => d.body.proxy_step = ProxyStep { step: *step },
            Ev::ProxyCtrl => {}
            Ev::KernelCh { channel, .. } => d.body.kernel_ch = KernelCh { channel_id: *channel },
            _ => return None,
        }
        Some(d)
    }
}

fn coll(c: &CollInfo) -> Coll {
    Coll {
        name: c.comm_name,
        comm_hash: c.comm_hash,
        seq_number: c.seq,
        func: c.func.c_name().as_ptr(),
        send_buff: c.send as *const c_void,
        recv_buff: c.recv as *const c_void,
        count: c.count,
        root: c.root,
        datatype: c.dtype.c_name().as_ptr(),
        n_max_channels: c.channels,
        n_warps: c.warps,
        algo: c.algo.c_name().as_ptr(),
        proto: c.proto.c_name().as_ptr(),
    }
}

fn p2p(p: &P2pInfo) -> P2p {
    P2p {
        name: p.comm_name,
        comm_hash: p.comm_hash,
        func: p.func.c_name().as_ptr(),
        buff: p.buff as *const c_void,
        datatype: p.dtype.c_name().as_ptr(),
        count: p.count,
        peer: p.peer,
    }
}
