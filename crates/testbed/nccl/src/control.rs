//! The fault control block: one mapped file that the testbed writes and every rank's library reads, live.
//!
//! Layout (all fields little endian as the machine is, all counters `AtomicU64`):
//!
//! | offset | what |
//! |---|---|
//! | 0 | [`Header`], 256 bytes |
//! | 256 | `hosts` times [`HostRecord`], 256 bytes each |
//! | 256 + 256 * hosts | `ranks` times [`RankRecord`], 256 bytes each |
//!
//! A value of 0 means "no fault" everywhere except `compute_scale_milli`, whose rest value is 1000. The library reads
//! the fields at each step, so a change takes effect within one slice, one wake-up or 20 ms, whichever comes last.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// First eight bytes of a control file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"MTBCTRL1");
/// Layout version of this page.
pub const VERSION: u64 = 1;
/// Most hosts a file may have.
pub const HOSTS_MAX: usize = 1024;
/// Most ranks a file may have.
pub const RANKS_MAX: usize = 16_384;
/// Bytes a token bucket lets pass at once after a pause: one default slot.
pub const BURST_BYTES: u64 = 64 * 1024;
/// Environment variable: path of the control file.
pub const ENV_CONTROL: &str = "MYCROFT_TESTBED_CONTROL";
/// Environment variable: this process's rank record.
pub const ENV_RANK: &str = "MYCROFT_TESTBED_RANK";

/// Head of the file.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU64,
    /// Number of host records.
    pub hosts: AtomicU64,
    /// Number of rank records.
    pub ranks: AtomicU64,
    /// Seed of every random choice that faults make.
    pub seed: AtomicU64,
    reserved: [AtomicU64; 27],
}

/// What befalls a host, and what its NIC moved.
#[derive(Debug)]
#[repr(C)]
pub struct HostRecord {
    /// 1: the transport neither sends nor receives (loopback's stand-in for a link that is down).
    pub nic_down: AtomicU64,
    /// Capacity of the NIC in each direction, bytes per second; 0 = unlimited.
    pub link_bytes_per_sec: AtomicU64,
    /// Extra limit on what leaves the host; 0 = none.
    pub egress_bytes_per_sec: AtomicU64,
    /// Extra limit on what enters the host; 0 = none.
    pub ingress_bytes_per_sec: AtomicU64,
    /// Other traffic on this NIC, both directions. Takes its bytes off the effective limit (at least 1/50 is left to
    /// the job); without any limit it has no effect, so set `link_bytes_per_sec` too.
    pub background_bytes_per_sec: AtomicU64,
    /// Token bucket out: theoretical arrival time, CLOCK_MONOTONIC ns.
    pub egress_tat_ns: AtomicU64,
    /// Token bucket in: theoretical arrival time, CLOCK_MONOTONIC ns.
    pub ingress_tat_ns: AtomicU64,
    /// Written by the library: bytes that left this host through the network transport.
    pub tx_bytes: AtomicU64,
    /// Written by the library: bytes that entered this host through the network transport.
    pub rx_bytes: AtomicU64,
    /// IPv4 address of the host towards which the path is slower, as a number; 0 = none.
    pub slow_peer: AtomicU64,
    /// Limit on what goes there, bytes per second; only where `slow_peer` is set.
    pub slow_peer_bytes_per_sec: AtomicU64,
    /// Its token bucket: theoretical arrival time, CLOCK_MONOTONIC ns.
    pub slow_peer_tat_ns: AtomicU64,
    reserved: [AtomicU64; 20],
}

/// What befalls a rank, and what it says of itself.
#[derive(Debug)]
#[repr(C)]
pub struct RankRecord {
    /// Compute kernels last this many thousandths of their nominal time; 1000 = healthy.
    pub compute_scale_milli: AtomicU64,
    /// Speed of the device's copies into the slots, bytes per second; 0 = unlimited.
    pub copy_bytes_per_sec: AtomicU64,
    /// Probability per sent step, in millionths, that the proxy thread falls asleep.
    pub proxy_delay_ppm: AtomicU64,
    /// How long it then sleeps, milliseconds.
    pub proxy_delay_ms: AtomicU64,
    /// 1: the device threads of this rank stop for good: in a compute kernel, between kernels, or in a kernel that
    /// talks to another host (a kernel inside a host runs to its end first).
    pub device_stop: AtomicU64,
    /// 1: the next collective call of this rank never returns.
    pub main_stop: AtomicU64,
    /// Which [`HostRecord`] the rank's NIC belongs to.
    pub host_index: AtomicU64,
    /// Written by the workload: iterations finished.
    pub iteration: AtomicU64,
    /// Written by the library: a [`RankState`].
    pub state: AtomicU64,
    /// Written by the library: process id.
    pub pid: AtomicU64,
    /// Written by the library: collective and point-to-point kernels finished.
    pub kernels_done: AtomicU64,
    /// Written by the library: bytes the device copied into slots.
    pub copied_bytes: AtomicU64,
    /// Written by the library: times the proxy thread fell asleep as `proxy_delay_ppm` told it.
    pub proxy_sleeps: AtomicU64,
    reserved: [AtomicU64; 19],
}

/// What a rank's main thread is doing, as `RankRecord::state` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum RankState {
    /// No communicator yet.
    Unborn = 0,
    /// At least one communicator exists.
    Running = 1,
    /// Inside a communicator's initialization.
    Initializing = 2,
    /// Held by `main_stop`.
    MainStopped = 3,
    /// Device held by `device_stop`.
    DeviceStopped = 4,
}

const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<Header>() == 256);
    assert!(size_of::<HostRecord>() == 256);
    assert!(size_of::<RankRecord>() == 256);
    assert!(offset_of!(HostRecord, tx_bytes) == 56);
    assert!(offset_of!(RankRecord, host_index) == 48);
    assert!(offset_of!(RankRecord, copied_bytes) == 88);
};

/// A mapped control file.
#[derive(Debug)]
pub struct ControlFile {
    base: *mut u8,
    bytes: usize,
    hosts: usize,
    ranks: usize,
}

// SAFETY: the mapping is shared memory that is only reached through atomics and lives until drop.
unsafe impl Send for ControlFile {}
// SAFETY: as above; every access is an atomic one.
unsafe impl Sync for ControlFile {}

impl ControlFile {
    /// Makes (or replaces the contents of) the file at `path`. Ranks are spread over hosts in equal blocks; change
    /// `host_index` where that is wrong.
    ///
    /// # Errors
    /// The counts are out of range, or the file cannot be made or mapped.
    pub fn create(path: &Path, hosts: usize, ranks: usize) -> io::Result<ControlFile> {
        check_counts(hosts, ranks)?;
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        file.set_len(file_bytes(hosts, ranks) as u64)?;
        let control = Self::map(&file, hosts, ranks)?;
        for rank in 0..ranks {
            let record = control.rank(rank);
            record.compute_scale_milli.store(1000, Relaxed);
            record.host_index.store((rank * hosts / ranks) as u64, Relaxed);
        }
        let header = control.header();
        header.version.store(VERSION, Relaxed);
        header.hosts.store(hosts as u64, Relaxed);
        header.ranks.store(ranks as u64, Relaxed);
        header.magic.store(MAGIC, std::sync::atomic::Ordering::Release);
        Ok(control)
    }

    /// Maps an existing file and checks its head.
    ///
    /// # Errors
    /// The file cannot be opened or mapped, or is not a control file of this version.
    pub fn open(path: &Path) -> io::Result<ControlFile> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        if bytes < size_of::<Header>() {
            return Err(invalid(format!("{}: {bytes} bytes, a control file has at least 256", path.display())));
        }
        let probe = Self::map(&file, 0, 0)?;
        let header = probe.header();
        let (magic, version) = (header.magic.load(Relaxed), header.version.load(Relaxed));
        let hosts = usize::try_from(header.hosts.load(Relaxed)).unwrap_or(usize::MAX);
        let ranks = usize::try_from(header.ranks.load(Relaxed)).unwrap_or(usize::MAX);
        if magic != MAGIC || version != VERSION {
            return Err(invalid(format!("{}: not a control file of version {VERSION}", path.display())));
        }
        check_counts(hosts, ranks)?;
        if bytes < file_bytes(hosts, ranks) {
            return Err(invalid(format!("{}: {bytes} bytes, too short for its ranks", path.display())));
        }
        Self::map(&file, hosts, ranks)
    }

    fn map(file: &File, hosts: usize, ranks: usize) -> io::Result<ControlFile> {
        let bytes = file_bytes(hosts, ranks);
        // SAFETY: a fresh shared mapping of an open file; the address is chosen by the kernel.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(ControlFile { base: base.cast(), bytes, hosts, ranks })
    }

    /// Number of host records.
    pub fn hosts(&self) -> usize {
        self.hosts
    }

    /// Number of rank records.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// The head of the file.
    pub fn header(&self) -> &Header {
        // SAFETY: the mapping begins with a Header (256 bytes, page aligned) and lives as long as self.
        unsafe { &*self.base.cast::<Header>() }
    }

    /// Sets the seed of the random faults.
    pub fn set_seed(&self, seed: u64) {
        self.header().seed.store(seed, Relaxed);
    }

    /// The record of host `index`. Panics when there is no such host.
    pub fn host(&self, index: usize) -> &HostRecord {
        assert!(index < self.hosts, "host {index} of {}", self.hosts);
        // SAFETY: index is in range, so the 256 bytes lie inside the mapping; records are 8-byte aligned.
        unsafe { &*self.base.add(256 + 256 * index).cast::<HostRecord>() }
    }

    /// The record of rank `index`. Panics when there is no such rank.
    pub fn rank(&self, index: usize) -> &RankRecord {
        assert!(index < self.ranks, "rank {index} of {}", self.ranks);
        // SAFETY: index is in range, so the 256 bytes lie inside the mapping; records are 8-byte aligned.
        unsafe { &*self.base.add(256 + 256 * (self.hosts + index)).cast::<RankRecord>() }
    }
}

impl Drop for ControlFile {
    fn drop(&mut self) {
        // SAFETY: base and bytes are what mmap returned and got; nobody can hold a reference past self.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

fn file_bytes(hosts: usize, ranks: usize) -> usize {
    256 * (1 + hosts + ranks)
}

fn check_counts(hosts: usize, ranks: usize) -> io::Result<()> {
    if hosts == 0 || ranks == 0 || hosts > HOSTS_MAX || ranks > RANKS_MAX {
        return Err(invalid(format!("{hosts} hosts and {ranks} ranks: expected 1..{HOSTS_MAX} and 1..{RANKS_MAX}")));
    }
    Ok(())
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// The direction in which bytes cross a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Out of the host.
    Egress,
    /// Into the host.
    Ingress,
}

impl HostRecord {
    /// Whether the NIC is down.
    pub fn is_down(&self) -> bool {
        self.nic_down.load(Relaxed) != 0
    }

    /// What the job may move in one direction, bytes per second; 0 = unlimited.
    pub fn effective_rate(&self, direction: Direction) -> u64 {
        let link = self.link_bytes_per_sec.load(Relaxed);
        let extra = match direction {
            Direction::Egress => self.egress_bytes_per_sec.load(Relaxed),
            Direction::Ingress => self.ingress_bytes_per_sec.load(Relaxed),
        };
        let limit = match (link, extra) {
            (0, x) | (x, 0) => x,
            (a, b) => a.min(b),
        };
        if limit == 0 {
            return 0;
        }
        limit.saturating_sub(self.background_bytes_per_sec.load(Relaxed)).max(limit / 50).max(1)
    }

    /// Takes `bytes` tokens, or says how many nanoseconds to wait before asking again. All processes of the host
    /// share the bucket; it is a virtual clock, advanced by compare and swap.
    ///
    /// # Errors
    /// Nanoseconds to wait until the bytes may be sent.
    pub fn take(&self, direction: Direction, bytes: u64, now_ns: u64) -> Result<(), u64> {
        let rate = self.effective_rate(direction);
        if rate == 0 {
            return Ok(());
        }
        let clock = match direction {
            Direction::Egress => &self.egress_tat_ns,
            Direction::Ingress => &self.ingress_tat_ns,
        };
        advance(clock, rate, bytes, now_ns)
    }

    /// The same of the slower path to a host, if it is that.
    ///
    /// # Errors
    /// Nanoseconds to wait until the bytes may be sent.
    pub fn take_on_path(&self, to: Ipv4Addr, bytes: u64, now_ns: u64) -> Result<(), u64> {
        if self.slow_peer.load(Relaxed) != u64::from(u32::from(to)) {
            return Ok(());
        }
        advance(&self.slow_peer_tat_ns, self.slow_peer_bytes_per_sec.load(Relaxed).max(1), bytes, now_ns)
    }

    /// Returns tokens that were taken for bytes which the kernel then did not move.
    pub fn give_back(&self, direction: Direction, bytes: u64) {
        let rate = self.effective_rate(direction);
        if rate == 0 || bytes == 0 {
            return;
        }
        let ns = (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64;
        let clock = match direction {
            Direction::Egress => &self.egress_tat_ns,
            Direction::Ingress => &self.ingress_tat_ns,
        };
        let _ = clock.fetch_update(Relaxed, Relaxed, |tat| Some(tat.saturating_sub(ns)));
    }
}

/// Advances the virtual clock of a token bucket by `bytes`, or says how long to wait.
fn advance(clock: &AtomicU64, rate: u64, bytes: u64, now_ns: u64) -> Result<(), u64> {
    let ns = |b: u64| (u128::from(b) * 1_000_000_000 / u128::from(rate)) as u64;
    let burst = ns(BURST_BYTES);
    let mut seen = clock.load(Relaxed);
    loop {
        // A clock far ahead is left over from a slower rate: let it fall back to what one burst may owe.
        let tat = seen.min(now_ns + burst + ns(BURST_BYTES));
        if tat > now_ns + burst {
            return Err(tat - now_ns - burst);
        }
        match clock.compare_exchange_weak(seen, tat.max(now_ns) + ns(bytes), Relaxed, Relaxed) {
            Ok(_) => return Ok(()),
            Err(other) => seen = other,
        }
    }
}

#[cfg(test)]
mod tests;
