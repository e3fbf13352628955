//! NCCL's C vocabulary: result codes, data types, reductions, the unique id and the configuration structure.
//!
//! Only layouts and numbers live here; nothing in this file does anything.

use std::ffi::{c_char, c_int, c_uint};

/// What an API call answers. The numbers are NCCL's `ncclResult_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// Everything went well.
    Success = 0,
    /// A call to the device runtime failed.
    UnhandledCudaError = 1,
    /// The operating system refused something (socket, memory, thread).
    SystemError = 2,
    /// A bug in this library.
    InternalError = 3,
    /// One argument is not valid.
    InvalidArgument = 4,
    /// The arguments do not fit together or the call order is wrong.
    InvalidUsage = 5,
    /// A peer died or its connection broke.
    RemoteError = 6,
    /// A non-blocking operation has not finished.
    InProgress = 7,
}

/// An error with the sentence `ncclGetLastError` will show.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The result code the caller sees.
    pub code: Code,
    /// What happened, and what was expected.
    pub message: String,
}

impl Fault {
    /// A fault of kind `code` that reads `message`.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// A system error that names the operation and the cause.
    pub fn system(what: &str, cause: &std::io::Error) -> Self {
        Self::new(Code::SystemError, format!("{what}: {cause}"))
    }
}

/// The result of everything inside this library.
pub type Res<T> = Result<T, Fault>;

/// `ncclUniqueId`: 128 opaque bytes, passed by value.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UniqueId {
    /// The bytes. See `bootstrap` for what this library puts there.
    pub internal: [c_char; 128],
}

impl std::fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UniqueId(..)")
    }
}

/// `ncclConfig_t` of NCCL 2.27 and later. Only the first `size` bytes are there when a caller is older.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Config {
    /// Bytes of this structure as the caller knows it.
    pub size: usize,
    /// Always [`CONFIG_MAGIC`].
    pub magic: c_uint,
    /// The caller's NCCL version.
    pub version: c_uint,
    /// 1 (default) or 0 for non-blocking communicators. Accepted; this library always finishes in the call.
    pub blocking: c_int,
    /// Cluster size of the kernels. Ignored.
    pub cga_cluster_size: c_int,
    /// Least number of channels.
    pub min_ctas: c_int,
    /// Greatest number of channels.
    pub max_ctas: c_int,
    /// Network module name. Ignored.
    pub net_name: *const c_char,
    /// Whether children share resources. Ignored: children never share.
    pub split_share: c_int,
    /// Traffic class. Ignored.
    pub traffic_class: c_int,
    /// Name of the communicator as the profiler shows it.
    pub comm_name: *const c_char,
}

/// The magic number in every initialized [`Config`].
pub const CONFIG_MAGIC: c_uint = 0xcafe_beef;
/// NCCL's "not set" in the integer fields of [`Config`].
pub const CONFIG_UNDEF_INT: c_int = c_int::MIN;
/// The colour with which a rank says that it takes no part in a split.
pub const SPLIT_NOCOLOR: c_int = -1;
/// The version this library claims: 2.30.7.
pub const VERSION: c_int = 23007;

const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<UniqueId>() == 128);
    assert!(offset_of!(Config, magic) == 8);
    assert!(offset_of!(Config, blocking) == 16);
    assert!(offset_of!(Config, max_ctas) == 28);
    assert!(offset_of!(Config, net_name) == 32);
    assert!(offset_of!(Config, split_share) == 40);
    assert!(offset_of!(Config, comm_name) == 48);
};

/// The collective and point-to-point functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Func {
    /// One root's buffer to everybody.
    Broadcast = 0,
    /// Everybody's buffers combined at one root.
    Reduce = 1,
    /// Everybody's buffers side by side at everybody.
    AllGather = 2,
    /// Everybody's buffers combined, one part for each.
    ReduceScatter = 3,
    /// Everybody's buffers combined at everybody.
    AllReduce = 4,
    /// One half of a pair: the sender.
    Send = 6,
    /// One half of a pair: the receiver.
    Recv = 7,
}

impl Func {
    /// NCCL's name, also in profiler descriptors; NUL-terminated.
    pub fn c_name(self) -> &'static std::ffi::CStr {
        match self {
            Func::Broadcast => c"Broadcast",
            Func::Reduce => c"Reduce",
            Func::AllGather => c"AllGather",
            Func::ReduceScatter => c"ReduceScatter",
            Func::AllReduce => c"AllReduce",
            Func::Send => c"Send",
            Func::Recv => c"Recv",
        }
    }
}

/// How a collective moves its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algo {
    /// Chunks go round a ring of all ranks.
    Ring,
    /// Chunks go up and down a pair of binary trees.
    Tree,
}

impl Algo {
    /// NCCL's name in profiler descriptors.
    pub fn c_name(self) -> &'static std::ffi::CStr {
        match self {
            Algo::Ring => c"RING",
            Algo::Tree => c"TREE",
        }
    }
}

/// How bytes and their flags lie in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proto {
    /// Four bytes of data, four of flag: little latency, half the bandwidth.
    Ll = 0,
    /// 120 bytes of data, eight of flag.
    Ll128 = 1,
    /// Slots with counters beside them.
    Simple = 2,
}

impl Proto {
    /// All, by NCCL's number.
    pub const ALL: [Proto; 3] = [Proto::Ll, Proto::Ll128, Proto::Simple];

    /// NCCL's name in profiler descriptors.
    pub fn c_name(self) -> &'static std::ffi::CStr {
        match self {
            Proto::Ll => c"LL",
            Proto::Ll128 => c"LL128",
            Proto::Simple => c"SIMPLE",
        }
    }

    /// The one protocol that a value of `NCCL_PROTO` names; none where it names several, excludes some, or is no name.
    pub fn from_name(text: &str) -> Option<Proto> {
        Proto::ALL.into_iter().find(|p| p.c_name().to_str().is_ok_and(|name| name.eq_ignore_ascii_case(text.trim())))
    }
}

/// `ncclDataType_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum DType {
    I8 = 0,
    U8 = 1,
    I32 = 2,
    U32 = 3,
    I64 = 4,
    U64 = 5,
    F16 = 6,
    F32 = 7,
    F64 = 8,
    Bf16 = 9,
    F8e4m3 = 10,
    F8e5m2 = 11,
}

impl DType {
    /// Every type, in the order of NCCL's numbers.
    pub const ALL: [DType; 12] = [
        DType::I8,
        DType::U8,
        DType::I32,
        DType::U32,
        DType::I64,
        DType::U64,
        DType::F16,
        DType::F32,
        DType::F64,
        DType::Bf16,
        DType::F8e4m3,
        DType::F8e5m2,
    ];

    /// The type with NCCL's number `raw`.
    pub fn from_raw(raw: c_int) -> Option<DType> {
        usize::try_from(raw).ok().and_then(|i| Self::ALL.get(i).copied())
    }

    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            DType::I8 | DType::U8 | DType::F8e4m3 | DType::F8e5m2 => 1,
            DType::F16 | DType::Bf16 => 2,
            DType::I32 | DType::U32 | DType::F32 => 4,
            DType::I64 | DType::U64 | DType::F64 => 8,
        }
    }

    /// Whether the type is a floating-point one.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::F32 | DType::F64 | DType::Bf16 | DType::F8e4m3 | DType::F8e5m2)
    }

    /// NCCL's name in profiler descriptors.
    pub fn c_name(self) -> &'static std::ffi::CStr {
        match self {
            DType::I8 => c"ncclInt8",
            DType::U8 => c"ncclUint8",
            DType::I32 => c"ncclInt32",
            DType::U32 => c"ncclUint32",
            DType::I64 => c"ncclInt64",
            DType::U64 => c"ncclUint64",
            DType::F16 => c"ncclFloat16",
            DType::F32 => c"ncclFloat32",
            DType::F64 => c"ncclFloat64",
            DType::Bf16 => c"ncclBfloat16",
            DType::F8e4m3 => c"ncclFloat8e4m3",
            DType::F8e5m2 => c"ncclFloat8e5m2",
        }
    }
}

/// `ncclRedOp_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum RedOp {
    Sum = 0,
    Prod = 1,
    Max = 2,
    Min = 3,
    Avg = 4,
}

impl RedOp {
    /// Every reduction, in the order of NCCL's numbers.
    pub const ALL: [RedOp; 5] = [RedOp::Sum, RedOp::Prod, RedOp::Max, RedOp::Min, RedOp::Avg];

    /// The reduction with NCCL's number `raw`.
    pub fn from_raw(raw: c_int) -> Option<RedOp> {
        usize::try_from(raw).ok().and_then(|i| Self::ALL.get(i).copied())
    }
}
