//! `background-traffic` (Mycroft section 7.1 #6): other traffic shares the NICs of two hosts.
use super::traffic::Traffic;
use super::{Guard, Site};
use crate::error::TestbedError;
use crate::hosts::Network;
use mycroft_sim::Fault;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Parallel TCP connections each way at severity 1. TCP shares a bottleneck by connection; a 16-rank job has about ten
/// busy ones at a NIC, so that 64 of them leave it about an eighth.
const CONNECTIONS_AT_FULL: f64 = 64.0;

/// Namespaces: real TCP connections between the two hosts, both ways, as fast as they go. Loopback: that share of
/// both hosts' token buckets is spent on other traffic.
pub(super) fn inject(fault: &Fault, site: &Site) -> Result<Guard, TestbedError> {
    let culprits = fault.culprit_hosts(site.scenario.hosts);
    let &[one, other] = culprits.as_slice() else {
        return Err(TestbedError::Fault {
            fault: fault.to_string(),
            message: "it needs two different hosts".to_owned(),
        });
    };
    match site.hosts.network() {
        Network::Netns(netns) => {
            let connections = (CONNECTIONS_AT_FULL * fault.severity()).ceil() as u32;
            let traffic = Traffic::start(netns, one, other, connections)?;
            Ok(Guard::new(move || drop(traffic)))
        }
        Network::Loopback(_) => {
            let rate = (site.scenario.nic_bytes_per_sec as f64 * fault.severity()) as u64;
            for host in [one, other] {
                site.control.host(host as usize).background_bytes_per_sec.store(rate, Relaxed);
            }
            let control = Arc::clone(&site.control);
            Ok(Guard::new(move || {
                for host in [one, other] {
                    control.host(host as usize).background_bytes_per_sec.store(0, Relaxed);
                }
            }))
        }
    }
}
