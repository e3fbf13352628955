//! What the environment says.
use crate::fault::Faults;
use crate::wire;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// The addresses of this process's devices, separated by commas. None: no device.
const ADDRESS: &str = "MYCROFT_VERBS_ADDRESS";
/// The UDP port, for tests.
const PORT: &str = "MYCROFT_VERBS_PORT";
/// Most bytes of data in a packet: 256, 512, 1024, 2048 or 4096. Else what the interface of the address takes.
const MTU: &str = "MYCROFT_VERBS_MTU";
/// What goes wrong ([`Faults::parse`]).
const FAULTS: &str = "MYCROFT_VERBS_FAULTS";
/// A folder for files of what each device sends.
const PCAP: &str = "MYCROFT_VERBS_PCAP";

/// Devices of a process at most: as many NICs as NCCL takes (`MAX_IB_DEVS`).
pub(crate) const DEVICES_MAX: usize = 32;
/// The sizes that there are, in bytes; the code of each is its place plus one.
pub(crate) const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// All of it.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) addresses: Vec<Ipv4Addr>,
    pub(crate) port: u16,
    pub(crate) mtu_bytes: Option<u32>,
    pub(crate) faults: Faults,
    pub(crate) pcap: Option<PathBuf>,
}

/// Tells people what is wrong; a stand-in has no other way.
pub(crate) fn warn(text: &str) {
    eprintln!("mycroft verbs: {text}");
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

impl Settings {
    /// Reads the environment. What cannot be read is said and left out.
    pub(crate) fn read() -> Settings {
        let mut addresses = Vec::new();
        for text in variable(ADDRESS).unwrap_or_default().split(',').map(str::trim).filter(|text| !text.is_empty()) {
            match text.parse() {
                Ok(address) if addresses.len() < DEVICES_MAX => addresses.push(address),
                Ok(_) => {
                    warn(&format!("{ADDRESS}: {text} and what follows is left out, {DEVICES_MAX} devices at most"))
                }
                Err(_) => warn(&format!("{ADDRESS}: {text}: expected an IPv4 address, ignored")),
            }
        }
        let number = |name: &str, takes: &dyn Fn(u32) -> bool, expected: &str| {
            let text = variable(name)?;
            let number = text.trim().parse().ok().filter(|number| takes(*number));
            if number.is_none() {
                warn(&format!("{name}={text}: expected {expected}, ignored"));
            }
            number
        };
        let faults = variable(FAULTS).map(|text| Faults::parse(&text)).transpose();
        Settings {
            addresses,
            port: number(PORT, &|port| (1..=65_535).contains(&port), "a port").map_or(wire::PORT, |port| port as u16),
            mtu_bytes: number(MTU, &|mtu| MTUS.contains(&mtu), "256, 512, 1024, 2048 or 4096"),
            faults: faults
                .inspect_err(|why| warn(&format!("{FAULTS}: {why}; no faults")))
                .ok()
                .flatten()
                .unwrap_or_default(),
            pcap: variable(PCAP).map(PathBuf::from),
        }
    }
}
