//! What a flow is on a wire that many share.
use core::net::IpAddr;

/// What tells connections between two addresses apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ports {
    /// RoCEv2: the receiver's queue pair number, all that a packet says.
    QueuePair(u32),
    /// TCP.
    Tcp {
        /// The sender's port.
        source: u16,
        /// The receiver's port.
        destination: u16,
    },
}

/// One direction of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WireFlow {
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
    /// Which connection between them.
    pub ports: Ports,
}
