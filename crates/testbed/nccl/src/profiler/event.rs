//! What a plugin hears of: kinds of events, their states, and everything a descriptor is made from.
use crate::abi::{Algo, DType, Func, Proto, RedOp};
use std::ffi::{c_char, c_int, c_void};

/// Event kinds: the bits of the activation mask.
#[allow(missing_docs)]
pub mod kind {
    pub const GROUP: i32 = 1;
    pub const COLL: i32 = 2;
    pub const P2P: i32 = 4;
    pub const PROXY_OP: i32 = 8;
    pub const PROXY_STEP: i32 = 16;
    pub const PROXY_CTRL: i32 = 32;
    pub const KERNEL_CH: i32 = 64;
    pub const NET_PLUGIN: i32 = 128;
    pub const GROUP_API: i32 = 256;
    pub const COLL_API: i32 = 512;
    pub const P2P_API: i32 = 1024;
    pub const KERNEL_LAUNCH: i32 = 2048;
    pub const CE_ALL: i32 = 4096 | 8192 | 16384;
    /// Whatever happens inside an operation.
    pub const INSIDE: i32 = PROXY_OP | PROXY_STEP | KERNEL_CH | NET_PLUGIN;
}

/// States a plugin hears of.
#[allow(missing_docs)]
pub mod state {
    pub const OP_SEND_POSTED: i32 = 0;
    pub const OP_SEND_REM_FIFO_WAIT: i32 = 1;
    pub const OP_SEND_TRANSMITTED: i32 = 2;
    pub const OP_SEND_DONE: i32 = 3;
    pub const OP_RECV_POSTED: i32 = 4;
    pub const OP_RECV_RECEIVED: i32 = 5;
    pub const OP_RECV_TRANSMITTED: i32 = 6;
    pub const OP_RECV_DONE: i32 = 7;
    pub const STEP_SEND_GPU_WAIT: i32 = 8;
    pub const STEP_SEND_WAIT: i32 = 9;
    pub const STEP_RECV_WAIT: i32 = 10;
    pub const STEP_RECV_FLUSH_WAIT: i32 = 11;
    pub const STEP_RECV_GPU_WAIT: i32 = 12;
    pub const CTRL_IDLE: i32 = 13;
    pub const CTRL_ACTIVE: i32 = 14;
    pub const CTRL_SLEEP: i32 = 15;
    pub const CTRL_WAKEUP: i32 = 16;
    pub const CTRL_APPEND: i32 = 17;
    pub const CTRL_APPEND_END: i32 = 18;
    pub const OP_IN_PROGRESS: i32 = 19;
    pub const STEP_SEND_PEER_WAIT: i32 = 20;
    pub const KERNEL_CH_STOP: i32 = 22;
    pub const GROUP_START_API_STOP: i32 = 23;
    pub const GROUP_END_API_START: i32 = 24;
}

/// What `nWarps` says where no NCCL version is imitated.
pub(crate) const WARPS: u8 = 16;

/// A collective as descriptors show it.
#[derive(Debug)]
#[allow(missing_docs)]
pub(crate) struct CollInfo {
    pub(crate) comm_name: *const c_char,
    pub(crate) comm_hash: u64,
    pub(crate) seq: u64,
    pub(crate) func: Func,
    pub(crate) send: usize,
    pub(crate) recv: usize,
    pub(crate) count: usize,
    pub(crate) root: c_int,
    pub(crate) dtype: DType,
    pub(crate) op: RedOp,
    pub(crate) traffic_bytes: usize,
    pub(crate) channels: u8,
    pub(crate) warps: u8,
    pub(crate) algo: Algo,
    pub(crate) proto: Proto,
    pub(crate) parent_group: *const c_void,
}

/// Half a point-to-point transfer as descriptors show it.
#[derive(Debug)]
pub(crate) struct P2pInfo {
    pub(crate) comm_name: *const c_char,
    pub(crate) comm_hash: u64,
    pub(crate) func: Func,
    pub(crate) buff: usize,
    pub(crate) count: usize,
    pub(crate) dtype: DType,
    pub(crate) peer: c_int,
    pub(crate) channels: u8,
    pub(crate) parent_group: *const c_void,
}

/// A proxy operation as descriptors show it.
#[derive(Debug)]
pub(crate) struct ProxyOpInfo {
    pub(crate) pid: c_int,
    pub(crate) channel: u8,
    pub(crate) peer: c_int,
    pub(crate) n_steps: c_int,
    pub(crate) chunk_size: c_int,
    pub(crate) is_send: bool,
}

/// A call of the API as descriptors show it.
#[derive(Debug)]
pub(crate) struct ApiInfo {
    pub(crate) func: Func,
    pub(crate) count: usize,
    pub(crate) dtype: DType,
    pub(crate) root: c_int,
    pub(crate) stream: usize,
}

/// An event to start.
#[derive(Debug)]
pub(crate) enum Ev {
    Group,
    Coll(CollInfo),
    P2p(P2pInfo),
    ProxyOp(ProxyOpInfo),
    ProxyStep { step: c_int },
    ProxyCtrl,
    KernelCh { channel: u8, p_timer: u64 },
    GroupApi { depth: c_int },
    CollApi(ApiInfo),
    P2pApi(ApiInfo),
    KernelLaunch { stream: usize },
}

impl Ev {
    pub(crate) fn kind(&self) -> i32 {
        match self {
            Ev::Group => kind::GROUP,
            Ev::Coll(_) => kind::COLL,
            Ev::P2p(_) => kind::P2P,
            Ev::ProxyOp(_) => kind::PROXY_OP,
            Ev::ProxyStep { .. } => kind::PROXY_STEP,
            Ev::ProxyCtrl => kind::PROXY_CTRL,
            Ev::KernelCh { .. } => kind::KERNEL_CH,
            Ev::GroupApi { .. } => kind::GROUP_API,
            Ev::CollApi(_) => kind::COLL_API,
            Ev::P2pApi(_) => kind::P2P_API,
            Ev::KernelLaunch { .. } => kind::KERNEL_LAUNCH,
        }
    }
}

/// Everything a descriptor is made from.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) parent: *const c_void,
    pub(crate) rank: c_int,
    pub(crate) ev: Ev,
}
