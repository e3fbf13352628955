//! What is used here of `infiniband/verbs.h`, laid out as there on x86-64. NCCL has such a copy too (`ibvcore.h`).
#![allow(missing_docs, unreachable_pub, reason = "the names are those of verbs.h, which documents them")]

use std::ffi::{c_int, c_void};

pub const ACCESS: c_int = 0b11;
pub const QPS: [u32; 3] = [1, 2, 3];
pub const QPT_RC: u32 = 2;
/// State, partition, port, access.
pub const MASK_INIT: c_int = 1 | 1 << 4 | 1 << 5 | 1 << 3;
/// State, address, size of packets, the other end, first number, reads, time of a receiver that is not ready.
pub const MASK_RTR: c_int = 1 | 1 << 7 | 1 << 8 | 1 << 20 | 1 << 12 | 1 << 17 | 1 << 15;
/// State, timeout, retries, retries of a receiver that is not ready, first number, reads.
pub const MASK_RTS: c_int = 1 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 16 | 1 << 13;
pub const WR_RDMA_WRITE: u32 = 0;
pub const WR_RDMA_WRITE_WITH_IMM: u32 = 1;
pub const SEND_SIGNALED: u32 = 1 << 1;
pub const SEND_INLINE: u32 = 1 << 3;
pub const WC_RECV_RDMA_WITH_IMM: u32 = 1 << 7 | 1;

pub type Object = *mut c_void;

#[derive(Debug)]
#[repr(C)]
pub struct Context {
    pub device: Object,
    others: [usize; 11],
    pub poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int,
    pub req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    more: [usize; 12],
    pub post_send: unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int,
    pub post_recv: unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int,
}

#[derive(Debug)]
#[repr(C)]
pub struct Qp {
    pub context: *mut Context,
    others: [u8; 44],
    pub qp_num: u32,
}

#[derive(Debug)]
#[repr(C)]
pub struct Cq {
    pub context: *mut Context,
}

#[derive(Debug)]
#[repr(C)]
pub struct Channel {
    pub context: *mut Context,
    pub fd: c_int,
}

#[derive(Debug)]
#[repr(C)]
pub struct Mr {
    others: [u8; 36],
    pub lkey: u32,
    pub rkey: u32,
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(8))]
pub struct Gid(pub [u8; 16]);

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct PortAttr {
    pub state: u32,
    pub max_mtu: u32,
    pub active_mtu: u32,
    others: [u32; 10],
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct QpInitAttr {
    pub qp_context: Object,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: Object,
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
    pub qp_type: u32,
    pub sq_sig_all: c_int,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct AhAttr {
    pub dgid: Gid,
    pub flow_label: u32,
    pub indices: [u8; 3],
    pub dlid: u16,
    pub others: [u8; 3],
    pub is_global: u8,
    pub port_num: u8,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct QpAttr {
    pub qp_state: u32,
    pub cur_qp_state: u32,
    pub path_mtu: u32,
    pub path_mig_state: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: u32,
    pub cap: [u32; 5],
    pub ah_attr: AhAttr,
    pub alt_ah_attr: AhAttr,
    pub pkey_indices: [u16; 2],
    pub sqd: [u8; 2],
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt: [u8; 2],
    pub rate_limit: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct SendWr {
    pub wr_id: u64,
    pub next: *mut SendWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
    pub opcode: u32,
    pub send_flags: u32,
    pub imm_data: [u8; 4],
    pub remote_addr: u64,
    pub rkey: u32,
    others: [u64; 9],
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RecvWr {
    pub wr_id: u64,
    pub next: *mut RecvWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Wc {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: [u8; 4],
    others: [u32; 5],
}

#[cfg(target_arch = "x86_64")]
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Context, poll_cq) == 96 && offset_of!(Context, post_send) == 208);
    assert!(offset_of!(Qp, qp_num) == 52 && offset_of!(Mr, rkey) == 40 && size_of::<PortAttr>() == 52);
    assert!(size_of::<QpInitAttr>() == 64 && offset_of!(QpInitAttr, qp_type) == 52 && size_of::<Wc>() == 48);
    assert!(size_of::<QpAttr>() == 144 && offset_of!(QpAttr, ah_attr) == 56 && offset_of!(QpAttr, timeout) == 130);
    assert!(size_of::<AhAttr>() == 32 && offset_of!(AhAttr, is_global) == 29);
    assert!(size_of::<SendWr>() == 128 && offset_of!(SendWr, remote_addr) == 40 && size_of::<RecvWr>() == 32);
};
