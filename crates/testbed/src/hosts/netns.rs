//! Hosts as network namespaces. The bridge has a namespace of its own, so that nothing of the run shows in, or can
//! collide with, the machine's network; each host's `eth0` is one end of a veth pair whose other end is a port of it.
use super::NIC;
use crate::error::TestbedError;
use crate::process::tool;
use mycroft_sim::Scenario;
use std::fs::File;
use std::net::Ipv4Addr;

/// How long a token bucket's queue may hold a packet before it drops.
const QUEUE_LATENCY: &str = "50ms";
/// Least burst of a token bucket: one segmentation-offload packet of 64 KB.
const BURST_BYTES_MIN: u64 = 64 << 10;
/// A bucket must hold what arrives between two timer ticks: a hundredth of a second at the slowest kernel setting.
const TICKS_PER_SEC: u64 = 100;

/// The address of a host: 10.77.x.y/16, inside namespaces only.
pub fn address(index: u32) -> Ipv4Addr {
    let number = index + 1;
    Ipv4Addr::new(10, 77, (number / 250) as u8, (number % 250 + 1) as u8)
}

/// The namespaces of a run, removed when dropped.
#[derive(Debug)]
pub struct Netns {
    tag: String,
    hosts: u32,
    nic_bytes_per_sec: u64,
}

impl Netns {
    /// Makes namespaces `TAG-br` and `TAG-h0`..., joins them and limits each interface to the scenario's speed.
    pub fn create(tag: &str, scenario: &Scenario) -> Result<Netns, TestbedError> {
        let netns = Netns { tag: tag.to_owned(), hosts: scenario.hosts, nic_bytes_per_sec: scenario.nic_bytes_per_sec };
        let bridge = netns.bridge();
        tool("ip", &["netns", "add", &bridge], "")?;
        let mut ports = String::from("link add br0 type bridge\nlink set br0 up\n");
        for index in 0..netns.hosts {
            let host = netns.host(index);
            tool("ip", &["netns", "add", &host], "")?;
            ports.push_str(&format!(
                "link add p{index} type veth peer name {NIC} netns {host}\nlink set p{index} master br0 up\n"
            ));
        }
        tool("ip", &["-n", &bridge, "-batch", "-"], &ports)?;
        for index in 0..netns.hosts {
            let setup = format!("link set lo up\naddr add {}/16 dev {NIC}\nlink set {NIC} up\n", address(index));
            tool("ip", &["-n", &netns.host(index), "-batch", "-"], &setup)?;
            netns.limit(index, netns.nic_bytes_per_sec)?;
        }
        Ok(netns)
    }

    fn bridge(&self) -> String {
        format!("{}-br", self.tag)
    }

    /// Name of a host's namespace.
    pub fn host(&self, index: u32) -> String {
        format!("{}-h{index}", self.tag)
    }

    /// The speed that interfaces have when nothing is wrong, bytes per second.
    pub fn nic_bytes_per_sec(&self) -> u64 {
        self.nic_bytes_per_sec
    }

    /// Limits a host's interface both ways: what it sends, at the interface; what it receives, at the bridge's port.
    pub fn limit(&self, index: u32, bytes_per_sec: u64) -> Result<(), TestbedError> {
        let burst = BURST_BYTES_MIN.max(bytes_per_sec / TICKS_PER_SEC).to_string();
        let rate = format!("{}bit", bytes_per_sec.saturating_mul(8));
        let port = format!("p{index}");
        for (namespace, device) in [(self.host(index), NIC), (self.bridge(), port.as_str())] {
            let arguments = ["-n", &namespace, "qdisc", "replace", "dev", device, "root", "tbf"];
            let bucket = ["rate", &rate, "burst", &burst, "latency", QUEUE_LATENCY];
            tool("tc", &[&arguments[..], &bucket[..]].concat(), "")?;
        }
        Ok(())
    }

    /// Takes a host's interface up or down.
    pub fn set_link(&self, index: u32, up: bool) -> Result<(), TestbedError> {
        let state = if up { "up" } else { "down" };
        tool("ip", &["-n", &self.host(index), "link", "set", NIC, state], "").map(|_| ())
    }

    /// Opens a host's namespace, for a thread that wants to enter it.
    pub fn open(&self, index: u32) -> Result<File, TestbedError> {
        let path = format!("/run/netns/{}", self.host(index));
        File::open(&path).map_err(|source| TestbedError::file("open", path, source))
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        let names = (0..self.hosts).map(|index| self.host(index)).chain([self.bridge()]);
        for name in names {
            delete(&name);
        }
    }
}

/// Removes a namespace; its devices go with it once its last process has ended.
pub fn delete(name: &str) {
    // One that was never made, because creation failed half way, cannot be removed; that is fine.
    let _ = tool("ip", &["netns", "delete", name], "");
}

/// Names of all network namespaces of the machine that begin with `prefix`.
pub fn list(prefix: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return Vec::new() };
    let mut names: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| name.starts_with(prefix));
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_distinct_hosts_of_one_subnet() {
        let mut all: Vec<Ipv4Addr> = (0..1000).map(address).collect();
        assert!(all.iter().all(|a| a.octets()[0..2] == [10, 77] && a.octets()[3] > 0 && a.octets()[3] < 255));
        all.dedup();
        assert_eq!(all.len(), 1000);
    }
}
