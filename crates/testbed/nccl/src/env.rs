//! Everything the environment and the machine say about this process: identity, sizes, algorithm, control block.
//!
//! An [`Identity`] normally comes from environment variables. Tests that run several ranks in one process set one
//! per thread with [`set_thread_identity`]; communicators and streams remember the identity of the thread that made
//! them.

use crate::abi::{Algo, Proto};
use crate::control::{ControlFile, ENV_CONTROL, ENV_RANK, HostRecord, RankRecord};
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};

/// Slots of every FIFO, NCCL's NCCL_STEPS.
pub const STEPS: u64 = 8;
/// Most channels a communicator can have.
pub const CHANNELS_MAX: usize = 32;
/// Channels when nothing is said.
pub const CHANNELS_DEFAULT: usize = 2;
/// Default FIFO size: 512 KiB, so a slot is 64 KiB (NCCL's own default is 4 MiB and 512 KiB).
pub const BUFFSIZE_DEFAULT: usize = 512 * 1024;

/// A control file and this rank's place in it.
#[derive(Debug, Clone)]
pub struct Control {
    file: Arc<ControlFile>,
    rank: usize,
}

impl Control {
    /// The record of this rank.
    pub fn rank(&self) -> &RankRecord {
        self.file.rank(self.rank)
    }

    /// The record of this rank's host.
    pub fn host(&self) -> &HostRecord {
        let index = self.rank().host_index.load(std::sync::atomic::Ordering::Relaxed) as usize;
        self.file.host(index.min(self.file.hosts() - 1))
    }

    /// The index of this rank's record.
    pub fn index(&self) -> usize {
        self.rank
    }

    /// Seed of the random faults of this rank.
    pub fn seed(&self) -> u64 {
        self.file.header().seed.load(std::sync::atomic::Ordering::Relaxed) ^ (self.rank as u64 + 1)
    }
}

/// Who a thread speaks for.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Ranks with the same text share memory; others talk TCP.
    pub host_id: String,
    /// The address this rank listens on and sends from.
    pub addr: IpAddr,
    /// Faults, when a control block is given.
    pub control: Option<Control>,
    /// Overrides `NCCL_ALGO`.
    pub algo: Option<Algo>,
    /// Overrides the number of channels.
    pub channels: Option<usize>,
    /// Overrides `NCCL_BUFFSIZE`.
    pub buffsize: Option<usize>,
}

impl Identity {
    /// An identity on `host_id` at 127.0.0.1 with defaults for the rest.
    pub fn on_host(host_id: impl Into<String>) -> Identity {
        Identity {
            host_id: host_id.into(),
            addr: IpAddr::V4(Ipv4Addr::LOCALHOST),
            control: None,
            algo: None,
            channels: None,
            buffsize: None,
        }
    }

    /// Adds rank `rank` of an open control file.
    pub fn with_control(mut self, file: Arc<ControlFile>, rank: usize) -> Identity {
        assert!(rank < file.ranks(), "rank {rank} of {}", file.ranks());
        self.control = Some(Control { file, rank });
        self
    }

    /// The identity of this thread: its own, else the process's.
    pub fn current() -> Identity {
        THREAD.with(|t| t.borrow().clone()).unwrap_or_else(|| process_identity().clone())
    }

    /// The algorithm that is asked for, for AllReduce, Broadcast and Reduce; none where nothing is said.
    pub fn algo(&self) -> Option<Algo> {
        self.algo.or_else(|| match std::env::var("NCCL_ALGO") {
            Ok(v) if v.to_ascii_lowercase().contains("tree") => Some(Algo::Tree),
            Ok(v) if v.to_ascii_lowercase().contains("ring") => Some(Algo::Ring),
            _ => None,
        })
    }

    /// The protocol that is asked for with `NCCL_PROTO`.
    pub fn proto(&self) -> Option<Proto> {
        std::env::var("NCCL_PROTO").ok().and_then(|v| Proto::from_name(&v))
    }

    /// The number of channels between the limits of environment and configuration.
    pub fn channels(&self) -> usize {
        if let Some(n) = self.channels {
            return n.clamp(1, CHANNELS_MAX);
        }
        let min = env_number("NCCL_MIN_NCHANNELS").or_else(|| env_number("NCCL_MIN_CTAS")).unwrap_or(1);
        let max = env_number("NCCL_MAX_NCHANNELS").or_else(|| env_number("NCCL_MAX_CTAS")).unwrap_or(CHANNELS_MAX);
        CHANNELS_DEFAULT.min(max).max(min).clamp(1, CHANNELS_MAX)
    }

    /// Bytes of one slot: an eighth of `NCCL_BUFFSIZE`, in whole KiB.
    pub fn slot_bytes(&self) -> usize {
        let total = self.buffsize.or_else(|| env_number("NCCL_BUFFSIZE")).unwrap_or(BUFFSIZE_DEFAULT);
        (total / STEPS as usize).clamp(1024, 64 << 20) & !1023
    }
}

thread_local! {
    static THREAD: RefCell<Option<Identity>> = const { RefCell::new(None) };
}

/// Makes this thread speak for `identity` (or again for the process).
pub fn set_thread_identity(identity: Option<Identity>) {
    THREAD.with(|t| *t.borrow_mut() = identity);
}

fn process_identity() -> &'static Identity {
    static PROCESS: OnceLock<Identity> = OnceLock::new();
    PROCESS.get_or_init(|| {
        let mut id =
            Identity::on_host(std::env::var("NCCL_HOSTID").ok().filter(|v| !v.is_empty()).unwrap_or_else(hostname));
        id.addr = local_address();
        if let Ok(path) = std::env::var(ENV_CONTROL) {
            match (ControlFile::open(path.as_ref()), env_number(ENV_RANK)) {
                (Ok(file), Some(rank)) if rank < file.ranks() => id = id.with_control(Arc::new(file), rank),
                (Ok(file), rank) => {
                    crate::log::warn(&format!("{ENV_RANK}={rank:?}: expected a number below {}", file.ranks()));
                }
                (Err(e), _) => crate::log::warn(&format!("{ENV_CONTROL}={path}: {e}; running without faults")),
            }
        }
        id
    })
}

fn env_number(name: &str) -> Option<usize> {
    let text = std::env::var(name).ok()?;
    let parsed = text.trim().parse().ok();
    if parsed.is_none() && !text.trim().is_empty() {
        crate::log::warn(&format!("{name}={text}: expected a number, ignored"));
    }
    parsed
}

fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "localhost".into(), |s| s.trim().to_owned())
}

/// `MYCROFT_TESTBED_ADDR`, else the first address of the interface `NCCL_SOCKET_IFNAME` names, else 127.0.0.1.
fn local_address() -> IpAddr {
    if let Ok(text) = std::env::var("MYCROFT_TESTBED_ADDR") {
        match text.parse() {
            Ok(addr) => return addr,
            Err(_) => crate::log::warn(&format!("MYCROFT_TESTBED_ADDR={text}: expected an IP address, ignored")),
        }
    }
    let wanted = std::env::var("NCCL_SOCKET_IFNAME").unwrap_or_default();
    if let Ok(addr) = wanted.parse() {
        return addr;
    }
    let wanted: Vec<&str> = wanted.split(',').map(|w| w.trim_start_matches('=')).filter(|w| !w.is_empty()).collect();
    interface_addresses()
        .into_iter()
        .find(|(name, _)| wanted.iter().any(|w| name.starts_with(w)))
        .map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |(_, a)| a)
}

fn interface_addresses() -> Vec<(String, IpAddr)> {
    let mut out = Vec::new();
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: getifaddrs fills the pointer on success only.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return out;
    }
    let mut node = list;
    while !node.is_null() {
        // SAFETY: node is an element of the list getifaddrs made, not yet freed.
        let entry = unsafe { &*node };
        if !entry.ifa_addr.is_null() && !entry.ifa_name.is_null() {
            // SAFETY: ifa_addr is not null and begins with a family field.
            let family = i32::from(unsafe { (*entry.ifa_addr).sa_family });
            if family == libc::AF_INET {
                // SAFETY: the family says that this is a sockaddr_in.
                let v4 = unsafe { &*entry.ifa_addr.cast::<libc::sockaddr_in>() };
                // SAFETY: ifa_name is a NUL-terminated string owned by the list.
                let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) };
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                out.push((name.to_string_lossy().into_owned(), IpAddr::V4(ip)));
            }
        }
        node = entry.ifa_next;
    }
    // SAFETY: list came from getifaddrs and is freed once.
    unsafe { libc::freeifaddrs(list) };
    out
}
