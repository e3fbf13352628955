//! The profiler interface of NCCL 2.23: `ncclProfiler_v1`.

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
    func: u8,
    send_buff: *const c_void,
    recv_buff: *const c_void,
    count: usize,
    root: c_int,
    datatype: u8,
    op: u32,
    traffic_bytes: usize,
    n_max_channels: u8,
    n_warps: u8,
    algo: u8,
    proto: u8,
    is_collnet: c_int,
    is_nvls: c_int,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct P2p {
    name: *const c_char,
    comm_hash: u64,
    func: u8,
    buff: *const c_void,
    datatype: u8,
    count: usize,
    peer: c_int,
}

#[derive(Clone, Copy)]
#[repr(C)]
union Body {
    coll: Coll,
    p2p: P2p,
    proxy_op: ProxyOp,
    proxy_step: ProxyStep,
}

/// `ncclProfilerEventDescr_v1_t`.
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
    assert!(offset_of!(Coll, datatype) == 60);
    assert!(offset_of!(Coll, op) == 64);
    assert!(offset_of!(Coll, traffic_bytes) == 72);
    assert!(offset_of!(Coll, n_max_channels) == 80);
    assert!(offset_of!(Coll, n_warps) == 81);
    assert!(offset_of!(Coll, algo) == 82);
    assert!(offset_of!(Coll, proto) == 83);
    assert!(offset_of!(Coll, is_collnet) == 84);
    assert!(offset_of!(Coll, is_nvls) == 88);
    assert!(offset_of!(P2p, name) == 0);
    assert!(offset_of!(P2p, comm_hash) == 8);
    assert!(offset_of!(P2p, func) == 16);
    assert!(offset_of!(P2p, buff) == 24);
    assert!(offset_of!(P2p, datatype) == 32);
    assert!(offset_of!(P2p, count) == 40);
    assert!(offset_of!(P2p, peer) == 48);
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
        func: c.func as u8,
        send_buff: c.send as *const c_void,
        recv_buff: c.recv as *const c_void,
        count: c.count,
        root: c.root,
        datatype: c.dtype as u8,
        op: c.op as u32,
        traffic_bytes: c.traffic_bytes,
        n_max_channels: c.channels,
        n_warps: c.warps,
        algo: u8::from(c.algo == crate::abi::Algo::Ring),
        proto: c.proto as u8,
        is_collnet: 0,
        is_nvls: 0,
    }
}

fn p2p(p: &P2pInfo) -> P2p {
    P2p {
        name: p.comm_name,
        comm_hash: p.comm_hash,
        func: p.func as u8,
        buff: p.buff as *const c_void,
        datatype: p.dtype as u8,
        count: p.count,
        peer: p.peer,
    }
}
