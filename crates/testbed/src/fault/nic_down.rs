//! `nic-down` (Mycroft section 7.1 #1): the host's link goes down and stays down.
use super::site::{Guard, Site};
use crate::error::TestbedError;
use crate::hosts::Network;
use mycroft_sim::Fault;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Namespaces: the interface is set down. Loopback: the transport neither sends nor receives, and the virtual
/// interface shows no carrier.
pub(super) fn inject(fault: &Fault, site: &Site) -> Result<Guard, TestbedError> {
    let index = fault.host;
    match site.hosts.network() {
        Network::Netns(netns) => {
            netns.set_link(index, false)?;
            let hosts = Arc::clone(&site.hosts);
            Ok(Guard::new(move || {
                if let Network::Netns(netns) = hosts.network() {
                    // A namespace that is gone has no link to bring up.
                    let _ = netns.set_link(index, true);
                }
            }))
        }
        Network::Loopback(_) => {
            site.host(fault).nic_down.store(1, Relaxed);
            let control = Arc::clone(&site.control);
            Ok(Guard::new(move || control.host(index as usize).nic_down.store(0, Relaxed)))
        }
    }
}
