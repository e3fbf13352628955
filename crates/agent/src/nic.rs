//! Network interfaces as the host counts them: Ethernet from `/sys/class/net`, InfiniBand and RoCE from
//! `/sys/class/infiniband` beside it. Feeds the network side of the local and remote causes (Mycroft section 5, Table 4).
use crate::smallfile::SmallBuffer;
use mycroft_record::{HostTime, NANOS_PER_SEC, NicState};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Interfaces looked at. 64 x 10 files x 2 per second x about 5 us = 0.6 % of one core at most.
pub const NICS_MAX: usize = 64;
/// Directory entries looked at in one directory, so that a hostile root cannot hold the agent.
const ENTRIES_MAX: usize = 1024;
/// Bytes of an interface name; the kernel allows 15 for Ethernet, 64 for InfiniBand.
const NAME_BYTES_MAX: usize = 64;
/// The speed is asked this often only: reading it takes the kernel's network lock and may ask the driver.
const SPEED_EVERY_NS: u64 = 10 * NANOS_PER_SEC;
/// `port_xmit_data` and `port_rcv_data` count lanes of four bytes.
const IB_DATA_UNIT_BYTES: u64 = 4;

/// Reads the interfaces of one host.
pub struct NicSampler {
    net_root: PathBuf,
    infiniband_root: PathBuf,
    filter: Vec<String>,
    known: BTreeMap<Arc<str>, Known>,
    buffer: SmallBuffer,
    scratch: PathBuf,
}

/// What is remembered of an interface between samples.
struct Known {
    speed_bytes_per_sec: u64,
    speed_asked_at: HostTime,
}

impl NicSampler {
    /// Interfaces under `net_root` (`/sys/class/net`) and under `infiniband` beside it. A non-empty `filter` names the
    /// only interfaces wanted, an InfiniBand port as `mlx5_0` (all ports) or `mlx5_0:1`.
    pub fn new(net_root: &Path, filter: &[String]) -> NicSampler {
        let infiniband_root = net_root.parent().unwrap_or(Path::new("/")).join("infiniband");
        NicSampler {
            net_root: net_root.to_path_buf(),
            infiniband_root,
            filter: filter.to_vec(),
            known: BTreeMap::new(),
            buffer: SmallBuffer::new(),
            scratch: PathBuf::new(),
        }
    }

    /// Appends the present state of every interface, in name order. What cannot be read counts as 0 or down; an
    /// interface that cannot be listed is left out.
    pub fn sample(&mut self, now: HostTime, into: &mut Vec<NicState>) {
        let first = into.len();
        for name in self.wanted_net() {
            let state = self.sample_net(now, name);
            into.push(state);
        }
        let room = NICS_MAX.saturating_sub(into.len() - first);
        for (device, port, name) in self.wanted_ports().into_iter().take(room) {
            let state = self.sample_port(now, &device, &port, name);
            into.push(state);
        }
        let seen = &into[first..];
        self.known.retain(|name, _| seen.iter().any(|s| s.nic == *name));
    }

    /// Ethernet interfaces wanted. Loopback only when it is named, or when the host has nothing else.
    fn wanted_net(&self) -> Vec<String> {
        let mut names = list_names(&self.net_root);
        names.retain(|n| is_interface(&self.net_root.join(n)));
        if !self.filter.is_empty() {
            names.retain(|n| self.filter.iter().any(|f| f == n));
        } else if names.iter().any(|n| n != "lo") {
            names.retain(|n| n != "lo");
        }
        names.truncate(NICS_MAX);
        names
    }

    /// InfiniBand ports wanted: (device, port, name of both).
    fn wanted_ports(&self) -> Vec<(String, String, String)> {
        let mut found = Vec::new();
        for device in list_names(&self.infiniband_root).into_iter().take(NICS_MAX) {
            for port in list_names(&self.infiniband_root.join(&device).join("ports")) {
                let name = format!("{device}:{port}");
                let wanted = self.filter.is_empty() || self.filter.iter().any(|f| *f == device || *f == name);
                if wanted && found.len() < NICS_MAX {
                    found.push((device.clone(), port, name));
                }
            }
        }
        found
    }

    fn sample_net(&mut self, now: HostTime, name: String) -> NicState {
        let mut dir = self.net_root.join(&name);
        let up = match self.text(&dir, "operstate") {
            Some("up") => true,
            // Loopback, tunnels and taps have no operational state; the carrier tells.
            Some("unknown") => self.number(&dir, "carrier") == 1,
            _ => false,
        };
        let link_changes = match self.text(&dir, "carrier_changes").map(parse_number) {
            Some(changes) => changes,
            None => self.number(&dir, "carrier_up_count") + self.number(&dir, "carrier_down_count"),
        };
        let name: Arc<str> = name.into();
        let speed_bytes_per_sec = self.speed(now, &name, |s| {
            // Megabits per second; -1 or an error where the device does not know.
            s.number(&dir, "speed").saturating_mul(1_000_000 / 8)
        });
        dir.push("statistics");
        let errors = ["rx_errors", "tx_errors", "rx_dropped", "tx_dropped"]
            .iter()
            .fold(0u64, |sum, file| sum.saturating_add(self.number(&dir, file)));
        NicState {
            at: now,
            nic: name,
            up,
            link_changes,
            speed_bytes_per_sec,
            tx_bytes: self.number(&dir, "tx_bytes"),
            rx_bytes: self.number(&dir, "rx_bytes"),
            errors,
        }
    }

    fn sample_port(&mut self, now: HostTime, device: &str, port: &str, name: String) -> NicState {
        let mut dir = self.infiniband_root.join(device).join("ports").join(port);
        // "4: ACTIVE"
        let up = self.text(&dir, "state").is_some_and(|s| s.starts_with("4:"));
        let name: Arc<str> = name.into();
        let speed_bytes_per_sec =
            self.speed(now, &name, |s| s.text(&dir, "rate").map_or(0, infiniband_rate_bytes_per_sec));
        dir.push("counters");
        let errors = ["port_rcv_errors", "port_xmit_discards", "symbol_error", "local_link_integrity_errors"]
            .iter()
            .fold(0u64, |sum, file| sum.saturating_add(self.number(&dir, file)));
        NicState {
            at: now,
            nic: name,
            up,
            link_changes: self.number(&dir, "link_downed"),
            speed_bytes_per_sec,
            tx_bytes: self.number(&dir, "port_xmit_data").saturating_mul(IB_DATA_UNIT_BYTES),
            rx_bytes: self.number(&dir, "port_rcv_data").saturating_mul(IB_DATA_UNIT_BYTES),
            errors,
        }
    }

    /// The speed as last asked, asked again every `SPEED_EVERY_NS`.
    fn speed(&mut self, now: HostTime, name: &Arc<str>, ask: impl FnOnce(&mut NicSampler) -> u64) -> u64 {
        if let Some(known) = self.known.get(name)
            && now.since_ns(known.speed_asked_at) < SPEED_EVERY_NS
        {
            return known.speed_bytes_per_sec;
        }
        let speed_bytes_per_sec = ask(self);
        self.known.insert(name.clone(), Known { speed_bytes_per_sec, speed_asked_at: now });
        speed_bytes_per_sec
    }

    fn text(&mut self, dir: &Path, file: &str) -> Option<&str> {
        self.scratch.clear();
        self.scratch.push(dir);
        self.scratch.push(file);
        self.buffer.read_path(&self.scratch)
    }

    fn number(&mut self, dir: &Path, file: &str) -> u64 {
        self.text(dir, file).map_or(0, parse_number)
    }
}

/// A decimal number, 0 for anything else (also for the kernel's "-1: not known").
fn parse_number(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

/// "100 Gb/sec (4X EDR)" or "2.5 Gb/sec (1X SDR)".
fn infiniband_rate_bytes_per_sec(text: &str) -> u64 {
    let mut words = text.split_whitespace();
    let number: f64 = words.next().and_then(|w| w.parse().ok()).unwrap_or(0.0);
    match words.next() {
        // The cast saturates, and NaN becomes 0.
        Some("Gb/sec") if number > 0.0 => (number * 1e9 / 8.0) as u64,
        _ => 0,
    }
}

/// `/sys/class/net` also holds files such as `bonding_masters`; an interface is a directory with statistics.
fn is_interface(path: &Path) -> bool {
    path.join("statistics").is_dir()
}

/// Sane names in a directory, sorted; empty if it cannot be listed.
fn list_names(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .take(ENTRIES_MAX)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.len() <= NAME_BYTES_MAX && name.bytes().all(|b| b.is_ascii_graphic()))
        .collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
#[path = "nic_tests.rs"]
mod tests;
