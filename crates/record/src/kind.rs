//! Closed enums of the field's vocabulary, each with a stable number for the ring, the wire and the store.

macro_rules! coded {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal, $text:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $code,)+ }
        impl $name {
            /// Every value, in code order.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];
            /// The stable number of this value.
            pub fn code(self) -> u8 { self as u8 }
            /// The value with this number; the `Unknown` (default) value for a number this version does not know.
            pub fn from_code(code: u8) -> $name {
                match code { $($code => $name::$variant,)+ _ => $name::default() }
            }
            /// The field's name for it, as NCCL prints it where NCCL has one.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }
            /// The value that is printed so; the default (`Unknown`) for other text.
            pub fn from_text(text: &str) -> $name {
                match text { $($text => $name::$variant,)+ _ => $name::default() }
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(self.as_str()) }
        }
    };
}

coded!(
    /// What an operation does. Texts are NCCL's `func` strings.
    OpKind {
        /// An operation this version does not know; its records are kept.
        #[default] Unknown = 0, "Unknown";
        /// All ranks reduce, all receive.
        AllReduce = 1, "AllReduce";
        /// All ranks gather everything.
        AllGather = 2, "AllGather";
        /// All ranks reduce, each receives its part.
        ReduceScatter = 3, "ReduceScatter";
        /// The root sends to all.
        Broadcast = 4, "Broadcast";
        /// The root receives the reduction.
        Reduce = 5, "Reduce";
        /// Point-to-point send.
        Send = 6, "Send";
        /// Point-to-point receive.
        Recv = 7, "Recv";
        /// Native all-to-all (NCCL 2.28+); grouped sends are `Send` and `Recv`.
        AllToAll = 8, "AlltoAll";
        /// Native gather.
        Gather = 9, "Gather";
        /// Native scatter.
        Scatter = 10, "Scatter";
        /// One-sided put, signal and wait.
        PutSignal = 11, "PutSignal";
    }
);

coded!(
    /// Which order counter an operation belongs to.
    OpClass {
        /// Collective: one counter per communicator.
        #[default] Collective = 0, "collective";
        /// Send: one counter per (communicator, peer).
        Send = 1, "send";
        /// Receive: one counter per (communicator, peer).
        Recv = 2, "recv";
    }
);

coded!(
    /// Element type. Texts are NCCL's datatype strings.
    Datatype {
        /// Not told or not known.
        #[default] Unknown = 0, "Unknown";
        /// 8-bit signed.
        Int8 = 1, "ncclInt8";
        /// 8-bit unsigned.
        Uint8 = 2, "ncclUint8";
        /// 32-bit signed.
        Int32 = 3, "ncclInt32";
        /// 32-bit unsigned.
        Uint32 = 4, "ncclUint32";
        /// 64-bit signed.
        Int64 = 5, "ncclInt64";
        /// 64-bit unsigned.
        Uint64 = 6, "ncclUint64";
        /// IEEE half.
        Float16 = 7, "ncclFloat16";
        /// IEEE single.
        Float32 = 8, "ncclFloat32";
        /// IEEE double.
        Float64 = 9, "ncclFloat64";
        /// bfloat16.
        Bfloat16 = 10, "ncclBfloat16";
        /// 8-bit float, 4 exponent bits.
        Float8e4m3 = 11, "ncclFloat8e4m3";
        /// 8-bit float, 5 exponent bits.
        Float8e5m2 = 12, "ncclFloat8e5m2";
    }
);

impl Datatype {
    /// Bytes of one element; 0 for `Unknown`.
    pub fn size_bytes(self) -> u64 {
        match self {
            Datatype::Unknown => 0,
            Datatype::Int8 | Datatype::Uint8 | Datatype::Float8e4m3 | Datatype::Float8e5m2 => 1,
            Datatype::Float16 | Datatype::Bfloat16 => 2,
            Datatype::Int32 | Datatype::Uint32 | Datatype::Float32 => 4,
            Datatype::Int64 | Datatype::Uint64 | Datatype::Float64 => 8,
        }
    }
}

coded!(
    /// Collective algorithm. Texts are NCCL's.
    Algorithm {
        /// Not told (point-to-point) or not known.
        #[default] Unknown = 0, "UNKNOWN";
        /// Ring.
        Ring = 1, "RING";
        /// Double binary tree.
        Tree = 2, "TREE";
        /// CollNet direct (SHARP).
        CollnetDirect = 3, "COLLNET_DIRECT";
        /// CollNet chain.
        CollnetChain = 4, "COLLNET_CHAIN";
        /// NVLink SHARP.
        Nvls = 5, "NVLS";
        /// NVLink SHARP with tree.
        NvlsTree = 6, "NVLS_TREE";
        /// Parallel aggregated trees.
        Pat = 7, "PAT";
    }
);

coded!(
    /// Wire protocol inside NCCL. Texts are NCCL's.
    Protocol {
        /// Not told or not known.
        #[default] Unknown = 0, "UNKNOWN";
        /// Low latency, 8-byte flags.
        Ll = 1, "LL";
        /// Low latency, 128-byte lines.
        Ll128 = 2, "LL128";
        /// Large messages.
        Simple = 3, "SIMPLE";
    }
);

coded!(
    /// Which way a flow carries data, seen from the rank that reports it.
    Direction {
        /// This rank sends to the peer.
        #[default] Send = 0, "send";
        /// This rank receives from the peer.
        Recv = 1, "recv";
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_texts_round_trip() {
        for &kind in OpKind::ALL {
            assert_eq!(OpKind::from_code(kind.code()), kind);
            assert_eq!(OpKind::from_text(kind.as_str()), kind);
        }
        for &datatype in Datatype::ALL {
            assert_eq!(Datatype::from_code(datatype.code()), datatype);
            assert_eq!(Datatype::from_text(datatype.as_str()), datatype);
        }
        assert_eq!(OpKind::from_code(200), OpKind::Unknown);
        assert_eq!(Algorithm::from_text("something new"), Algorithm::Unknown);
    }
}
