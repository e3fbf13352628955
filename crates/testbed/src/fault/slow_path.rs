//! A path between two hosts that is slower than others (FALCON 3.3, a congested link), in both directions.
use super::site::{Guard, Site};
use crate::error::TestbedError;
use crate::hosts::Network;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Loopback only: the transport has token buckets of its own for one path of each host.
pub(crate) fn inject(site: &Site, (a, b): (u32, u32), bytes_per_sec: u64) -> Result<Guard, TestbedError> {
    let hosts = site.hosts.list();
    let wrong =
        |message: &str| TestbedError::Fault { fault: format!("a slow path {a} to {b}"), message: message.to_owned() };
    if !matches!(site.hosts.network(), Network::Loopback(_)) {
        return Err(wrong("only loopback has paths that can be slowed"));
    }
    for (host, peer) in [(a, b), (b, a)] {
        let (Some(_), Some(peer)) = (hosts.get(host as usize), hosts.get(peer as usize)) else {
            return Err(wrong("no such host"));
        };
        let record = site.control.host(host as usize);
        if record.slow_peer.load(Relaxed) != 0 {
            return Err(wrong("a host has one slow path at a time"));
        }
        record.slow_peer_bytes_per_sec.store(bytes_per_sec, Relaxed);
        record.slow_peer.store(u64::from(u32::from(peer.address)), Relaxed);
    }
    let control = Arc::clone(&site.control);
    Ok(Guard::new(move || [a, b].iter().for_each(|host| control.host(*host as usize).slow_peer.store(0, Relaxed))))
}
