//! Hosts: network namespaces joined by a bridge where the user may make them, else loopback addresses.
pub mod loopback;
pub mod netns;

use crate::error::TestbedError;
use loopback::Loopback;
use mycroft_sim::{Scenario, Transport};
use mycroft_testbed_nccl::control::ControlFile;
use netns::Netns;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Name of every host's one interface.
pub const NIC: &str = "eth0";

/// One host of a run.
#[derive(Clone, Debug)]
pub struct Host {
    /// Index, from 0.
    pub index: u32,
    /// Name in records, cases and truth: `host0`.
    pub name: String,
    /// Address of its interface.
    pub address: Ipv4Addr,
    /// Where its ranks lay their segments (`MYCROFT_DIR`).
    pub segment_dir: PathBuf,
    /// Where its interfaces are to be read: `/sys/class/net` as seen inside the namespace, or a directory that looks
    /// like it.
    pub nic_root: PathBuf,
    /// Its network namespace, where it is one.
    pub netns: Option<String>,
}

/// All hosts of a run; dropping them removes namespaces and stops helpers.
#[derive(Debug)]
pub struct Hosts {
    list: Vec<Host>,
    network: Network,
    note: Option<String>,
}

/// What joins the hosts.
#[derive(Debug)]
pub enum Network {
    /// Real interfaces.
    Netns(Netns),
    /// Loopback with virtual interfaces.
    Loopback(Loopback),
}

impl Hosts {
    /// Makes the hosts of `scenario`. `tag` names namespaces, segments lie under `shm_dir`, virtual interfaces under
    /// `run_dir`.
    ///
    /// # Errors
    /// The hosts cannot be made: a missing tool or right, or names that are taken.
    pub fn create(
        scenario: &Scenario,
        tag: &str,
        run_dir: &Path,
        shm_dir: &Path,
        control: &Arc<ControlFile>,
    ) -> Result<Hosts, TestbedError> {
        let (network, note) = match scenario.transport {
            Transport::Netns => (Network::Netns(Netns::create(tag, scenario)?), None),
            Transport::Loopback => (Network::Loopback(Loopback::create(scenario, run_dir, control)?), None),
            Transport::Auto => match Netns::create(tag, scenario) {
                Ok(netns) => (Network::Netns(netns), None),
                Err(error) => {
                    let note = format!("transport: loopback, because namespaces cannot be made ({error})");
                    (Network::Loopback(Loopback::create(scenario, run_dir, control)?), Some(note))
                }
            },
        };
        let mut list = Vec::new();
        for index in 0..scenario.hosts {
            let name = scenario.host_name(index);
            let segment_dir = shm_dir.join(&name);
            make_private_dir(&segment_dir)?;
            let (address, nic_root, netns) = match &network {
                Network::Netns(netns) => {
                    (netns::address(index), PathBuf::from("/sys/class/net"), Some(netns.host(index)))
                }
                Network::Loopback(_) => (loopback::address(index), loopback::nic_root(run_dir, &name), None),
            };
            list.push(Host { index, name, address, segment_dir, nic_root, netns });
        }
        for host in 0..scenario.hosts as usize {
            let link = match network {
                // The interface's own token bucket limits it.
                Network::Netns(_) => 0,
                Network::Loopback(_) => scenario.nic_bytes_per_sec,
            };
            control.host(host).link_bytes_per_sec.store(link, Ordering::Relaxed);
        }
        Ok(Hosts { list, network, note })
    }

    /// The hosts in index order.
    pub fn list(&self) -> &[Host] {
        &self.list
    }

    /// What joins them.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// What was chosen: [`Transport::Netns`] or [`Transport::Loopback`].
    pub fn transport(&self) -> Transport {
        match self.network {
            Network::Netns(_) => Transport::Netns,
            Network::Loopback(_) => Transport::Loopback,
        }
    }

    /// One line for the user when `auto` fell back to loopback.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }
}

/// Makes a directory that only its owner may enter, and its parents.
pub(crate) fn make_private_dir(path: &Path) -> Result<(), TestbedError> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| TestbedError::file("make", path, source))
}
