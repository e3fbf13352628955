//! Where a connection's packets go.
use super::SendLink;
use std::net::IpAddr;

impl SendLink {
    /// The receiver's address and queue pair, with RDMA once it is connected.
    pub fn queue_pair(&self) -> Option<(IpAddr, u32)> {
        Some((self.to, self.rdma.as_ref()?.sender.peer()?))
    }
}
