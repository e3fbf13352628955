//! What faults let pass: tokens of a host's NIC, and of a path that is slower.
use crate::control::Direction;
use crate::env::Identity;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

/// Whether the host's NIC takes part in the world.
pub fn nic_down(identity: &Identity) -> bool {
    identity.control.as_ref().is_some_and(|c| c.host().is_down())
}

/// Takes tokens for `bytes` that leave the host `to` an address, or come to it, or says how many nanoseconds to wait.
/// The path keeps those of bytes that the kernel then does not move.
pub(super) fn take(identity: &Identity, to: Option<IpAddr>, bytes: usize, now_ns: u64) -> Result<(), u64> {
    let Some(control) = &identity.control else { return Ok(()) };
    let host = control.host();
    let direction = if to.is_some() { Direction::Egress } else { Direction::Ingress };
    host.take(direction, bytes as u64, now_ns)?;
    let Some(IpAddr::V4(to)) = to else { return Ok(()) };
    host.take_on_path(to, bytes as u64, now_ns).inspect_err(|_| host.give_back(direction, bytes as u64))
}

/// Books `bytes` that moved after tokens for `piece` were taken.
pub(super) fn count(identity: &Identity, direction: Direction, bytes: usize, piece: usize) {
    if let Some(c) = &identity.control {
        let host = c.host();
        host.give_back(direction, (piece - bytes) as u64);
        let counter = if direction == Direction::Egress { &host.tx_bytes } else { &host.rx_bytes };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
