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
/// Least burst of a token bucket.
const BURST_BYTES_MIN: u64 = 64 << 10;
/// Longest packet before the card cuts it. One that was queued before the bucket became smaller than it would never be
/// sent, and nothing behind it either: with the headers of its parts it must fit into the least burst.
const OFFLOAD_BYTES_MAX: u64 = BURST_BYTES_MIN / 2;
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
    ///
    /// # Errors
    /// A tool or right is missing, or a name is taken; what was made is removed.
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
            let setup = format!(
                "link set lo up\naddr add {}/16 dev {NIC}\nlink set {NIC} gso_max_size {OFFLOAD_BYTES_MAX} up\n",
                address(index)
            );
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
    ///
    /// # Errors
    /// `tc` failed; the message is its own.
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
    ///
    /// # Errors
    /// `ip` failed; the message is its own.
    pub fn set_link(&self, index: u32, up: bool) -> Result<(), TestbedError> {
        let state = if up { "up" } else { "down" };
        tool("ip", &["-n", &self.host(index), "link", "set", NIC, state], "").map(|_| ())
    }

    /// Opens a host's namespace, for a thread that wants to enter it.
    ///
    /// # Errors
    /// The namespace is gone.
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
    use crate::fault::traffic::connect_pairs;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpStream};
    use std::sync::mpsc;
    use std::thread::JoinHandle;
    use std::time::Duration;

    #[test]
    fn addresses_are_distinct_hosts_of_one_subnet() {
        let mut all: Vec<Ipv4Addr> = (0..1000).map(address).collect();
        assert!(all.iter().all(|a| a.octets()[0..2] == [10, 77] && a.octets()[3] > 0 && a.octets()[3] < 255));
        all.dedup();
        assert_eq!(all.len(), 1000);
    }

    /// Sends 64 KiB and waits for the answer, again and again; tells each time.
    fn exchange(mut client: TcpStream, mut server: TcpStream, told: mpsc::Sender<()>) -> [JoinHandle<()>; 2] {
        let serve = move || {
            let mut message = vec![0; 1 << 16];
            while server.read_exact(&mut message).and_then(|()| server.write_all(&[1])).is_ok() {}
        };
        let ask = move || {
            let (message, mut answer) = (vec![7; 1 << 16], [0]);
            while client.write_all(&message).and_then(|()| client.read_exact(&mut answer)).is_ok() {
                if told.send(()).is_err() {
                    return;
                }
            }
        };
        [std::thread::spawn(serve), std::thread::spawn(ask)]
    }

    /// A packet longer than the bucket that was queued before the bucket became so small stayed at the head of the queue
    /// for good.
    #[test]
    fn a_limit_that_falls_while_packets_wait_does_not_stop_the_link() {
        const FAST: u64 = 20_000_000;
        const SLOW: u64 = 2_500_000;
        let scenario = Scenario { hosts: 2, nic_bytes_per_sec: FAST, ..Scenario::default() };
        let Ok(netns) = Netns::create(&format!("mtb-test-{}", std::process::id()), &scenario) else {
            eprintln!("skipped: no right to make network namespaces here");
            return;
        };
        let ends = (netns.open(0).unwrap(), netns.open(1).unwrap());
        let mut sockets = connect_pairs(&ends.0, &ends.1, address(1), 8).unwrap().into_iter();
        let handles: Vec<TcpStream> = sockets.as_slice().iter().map(|socket| socket.try_clone().unwrap()).collect();
        let (told, done) = mpsc::channel();
        let mut threads = Vec::new();
        while let (Some(client), Some(server)) = (sockets.next(), sockets.next()) {
            threads.extend(exchange(client, server, told.clone()));
        }
        let mut went_on = true;
        for speed in [FAST, SLOW, FAST, SLOW, FAST, SLOW] {
            netns.limit(0, speed).unwrap();
            went_on &= (0..100).all(|_| done.recv_timeout(Duration::from_secs(10)).is_ok());
        }
        handles.iter().for_each(|socket| socket.shutdown(Shutdown::Both).unwrap_or_default());
        drop((done, netns));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(went_on, "nothing came any more after the limit fell");
    }
}
