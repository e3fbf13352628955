//! What a tap shows: which packets, whose times, a packet.

/// Which packets are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Traffic {
    /// RoCEv2 and TCP.
    #[default]
    Both,
    /// RoCEv2: UDP to port 4791.
    Roce,
    /// TCP.
    Tcp,
}

/// Whose clock a packet's time is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Stamp {
    /// The kernel's wall clock, read when the packet was copied.
    #[default]
    Software,
    /// The NIC's clock, read when the packet passed.
    Hardware,
}

/// A packet in the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TapPacket<'a> {
    /// Nanoseconds since 1970; by the clock that `stamp` names.
    pub time_ns: u64,
    /// Whose clock.
    pub stamp: Stamp,
    /// Bytes on the wire, from the link's header on. The kernel shows TCP in pieces that may be larger than a packet.
    pub wire_bytes: u32,
    /// The first bytes of it: 128 at most.
    pub bytes: &'a [u8],
    /// This host sent it.
    pub is_outgoing: bool,
}
