//! `nic-bandwidth` (Mycroft section 7.1 #2): the host's NIC moves only a fraction of what it could, both ways.
use super::site::{Guard, Site};
use crate::error::TestbedError;
use crate::hosts::Network;
use mycroft_sim::Fault;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Namespaces: narrower token buckets at the interface and at the bridge's port. Loopback: narrower token buckets in
/// the transport.
pub(super) fn inject(fault: &Fault, site: &Site) -> Result<Guard, TestbedError> {
    let index = fault.host;
    let nominal = site.scenario.nic_bytes_per_sec;
    let slow = ((nominal as f64 / fault.severity()) as u64).max(1);
    match site.hosts.network() {
        Network::Netns(netns) => {
            netns.limit(index, slow)?;
            let hosts = Arc::clone(&site.hosts);
            Ok(Guard::new(move || {
                if let Network::Netns(netns) = hosts.network() {
                    // A namespace that is gone has no bucket to widen.
                    let _ = netns.limit(index, nominal);
                }
            }))
        }
        Network::Loopback(_) => {
            site.host(fault).egress_bytes_per_sec.store(slow, Relaxed);
            site.host(fault).ingress_bytes_per_sec.store(slow, Relaxed);
            let control = Arc::clone(&site.control);
            Ok(Guard::new(move || {
                control.host(index as usize).egress_bytes_per_sec.store(0, Relaxed);
                control.host(index as usize).ingress_bytes_per_sec.store(0, Relaxed);
            }))
        }
    }
}
