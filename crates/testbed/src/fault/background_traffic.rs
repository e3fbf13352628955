//! `background-traffic` (Mycroft section 7.1 #6): other traffic shares the NICs of two hosts.
use super::site::{Guard, Site};
use super::traffic::Traffic;
use crate::error::TestbedError;
use crate::hosts::Network;
use mycroft_sim::Fault;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Parallel TCP connections each way. TCP shares a bottleneck by connection, and a 16-rank job has about ten busy ones
/// at a NIC: ninety-six others leave it about a tenth.
const CONNECTIONS: u32 = 96;

/// Namespaces: real TCP connections between the two hosts, both ways, that share of the NIC in all. Loopback: that share
/// of both hosts' token buckets is spent on other traffic.
pub(super) fn inject(fault: &Fault, site: &Site) -> Result<Guard, TestbedError> {
    let culprits = fault.culprit_hosts(&site.scenario);
    let &[one, other] = culprits.as_slice() else {
        return Err(TestbedError::Fault {
            fault: fault.to_string(),
            message: "it needs two different hosts".to_owned(),
        });
    };
    let rate = (site.scenario.nic_bytes_per_sec as f64 * fault.severity()) as u64;
    match site.hosts.network() {
        Network::Netns(netns) => {
            let traffic = Traffic::start(netns, one, other, CONNECTIONS, rate)?;
            Ok(Guard::new(move || drop(traffic)))
        }
        Network::Loopback(_) => {
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
