//! The newest vocabulary: what an adapter tells the core, whatever interface version NCCL speaks.
use mycroft_record::{Algorithm, Datatype, OpKind, Protocol};
use std::ffi::c_char;

/// States of `recordEventState`; the numbers are NCCL's and the same in every version.
pub mod state {
    /// First of the four states of a sending proxy operation (v1 to v3): posted, ready, transmitted, done.
    pub const OP_SEND_FIRST: i32 = 0;
    /// First of the four states of a receiving proxy operation (v1 to v3).
    pub const OP_RECV_FIRST: i32 = 4;
    /// Send step: the slot was given to the GPU.
    pub const SEND_GPU_WAIT: i32 = 8;
    /// Send step: the transport accepted it.
    pub const SEND_WAIT: i32 = 9;
    /// Receive step: posted.
    pub const RECV_WAIT: i32 = 10;
    /// Receive step: the network delivered it.
    pub const RECV_FLUSH_WAIT: i32 = 11;
    /// Receive step: published to the GPU.
    pub const RECV_GPU_WAIT: i32 = 12;
    /// Proxy operation: the proxy began to progress it.
    pub const OP_IN_PROGRESS: i32 = 19;
    /// Send step: the data is there, the receiver's credit may not be.
    pub const SEND_PEER_WAIT: i32 = 20;
    /// Kernel channel: stopped.
    pub const KERNEL_STOP: i32 = 22;
}

/// A communicator as `init` tells it.
#[derive(Clone, Copy, Debug)]
pub struct CommInfo<'a> {
    /// Its hash; `None` where the interface (v1 to v3) tells it with the first event only.
    pub id: Option<u64>,
    /// Name the framework gave.
    pub name: &'a str,
    /// Hosts, 0 if not told.
    pub n_nodes: u32,
    /// Ranks, 0 if not told.
    pub n_ranks: u32,
    /// This process's rank in it.
    pub rank: Option<u32>,
}

/// What v1 to v3 tell about the communicator with every collective and point-to-point event.
#[derive(Clone, Copy, Debug)]
pub struct CommTag {
    /// Its hash.
    pub hash: u64,
    /// Its name, NULL or a C string owned by the communicator; read once, when the communicator is new.
    pub name: *const c_char,
    /// This process's rank in it.
    pub rank: i32,
}

impl CommTag {
    /// The tag of versions whose `init` told everything.
    pub fn from_init(rank: i32) -> CommTag {
        CommTag { hash: 0, name: std::ptr::null(), rank }
    }
}

/// A collective starts: the host enqueued it.
#[derive(Clone, Copy, Debug)]
pub struct CollStart {
    /// NCCL's own sequence number.
    pub nccl_seq: u64,
    /// What it does.
    pub kind: OpKind,
    /// Elements.
    pub count: u64,
    /// Root; kept only for rooted kinds.
    pub root: i32,
    /// Element type.
    pub datatype: Datatype,
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Protocol.
    pub protocol: Protocol,
    /// Channels, so kernel events to expect; 0 if not told.
    pub n_channels: u8,
}

/// A collective of the API was called, on the calling thread.
#[derive(Clone, Copy, Debug)]
pub struct CallStart {
    /// What it does.
    pub kind: OpKind,
    /// Elements.
    pub count: u64,
    /// Element type.
    pub datatype: Datatype,
    /// Root; kept only for rooted kinds.
    pub root: i32,
    /// It is being captured in a graph: not issued now.
    pub is_captured: bool,
}

/// One side of a point-to-point operation starts.
#[derive(Clone, Copy, Debug)]
pub struct P2pStart {
    /// `Send` or `Recv`.
    pub kind: OpKind,
    /// Elements.
    pub count: u64,
    /// Element type.
    pub datatype: Datatype,
    /// Peer in the communicator.
    pub peer: i32,
    /// Channels, 0 if not told.
    pub n_channels: u8,
}

/// A proxy operation starts.
#[derive(Clone, Copy, Debug)]
pub struct ProxyOpStart {
    /// Process whose operation it is.
    pub pid: i32,
    /// Originating rank in the communicator.
    pub rank: i32,
    /// Channel.
    pub channel: u8,
    /// Peer in the communicator.
    pub peer: i32,
    /// Steps it will make.
    pub n_steps: i32,
    /// Direction.
    pub is_send: bool,
    /// v1 to v3: counters come in states of the operation (and it is in progress when it starts); later: in states of its
    /// steps.
    pub counts_in_op_states: bool,
}

/// Arguments of a state, 0 where there were none.
#[derive(Clone, Copy, Default, Debug)]
pub struct StateArg {
    /// Bytes, or the kernel's stop time.
    pub value: u64,
    /// v1 to v3: steps that have reached the state.
    pub steps: i32,
}
