//! A tap: packets of a network interface of this host, as they pass, with their times (`AF_PACKET` with `TPACKET_V3`).
//!
//! The kernel copies the headers of RoCEv2 and TCP into a ring that both share; here they are shown in order, and what found no room
//! is told as gaps. On the loopback interface each packet would be seen twice, as it leaves and as it comes: only what comes is
//! taken. On any other interface what leaves and what comes are different packets, and both are taken.
mod block;
mod filter;
mod ring;
mod told;

use ring::{Ring, Socket};
use std::io;
use std::time::{Duration, Instant};

pub use told::{Stamp, TapPacket, Traffic};

/// Bytes of the ring unless another size is asked for: 64 MiB, 310,000 packets of 216 bytes (82 before the link's header, 128 kept,
/// aligned to 8): a reader that is held up for 44 ms at 7 million packets a second loses none.
pub const RING_BYTES: usize = 64 << 20;
/// Smallest ring, bytes: four blocks of the largest page that Linux has (64 KiB on some ARM).
pub const RING_BYTES_MIN: usize = 256 << 10;
/// Largest ring, bytes: memory of the kernel that nothing else gets. 1 GiB is a second of 5 million packets.
pub const RING_BYTES_MAX: usize = 1 << 30;
/// Largest block, bytes; the ring has four at least.
const BLOCK_BYTES_MAX: usize = 512 << 10;
/// Most gaps that are kept apart: 4,096 x 32 bytes = 128 KiB. Further ones are added to the last.
const GAPS_MAX: usize = 4096;
/// Longest time for what is in the ring at the end: a hundred times that after which the kernel hands a block over.
const END_LIMIT: Duration = Duration::from_secs(1);
/// Longest wait for a block while the ring is emptied.
const END_LOOK: Duration = Duration::from_millis(20);

/// Links by the kernel's numbers (`linux/if_arp.h`): with an Ethernet header, and without a header before the address.
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;
const ARPHRD_RAWIP: u16 = 519;
const ARPHRD_NONE: u16 = 0xfffe;
/// Numbers of links in captures (`LINKTYPE_`, <https://www.tcpdump.org/linktypes.html>).
const LINKTYPE_ETHERNET: u32 = 1;
const LINKTYPE_RAW: u32 = 101;

/// What is tapped, and how.
#[derive(Clone, Debug)]
pub struct TapConfig {
    /// Name of the interface in this network namespace.
    pub interface: String,
    /// Bytes of the ring, [`RING_BYTES_MIN`] to [`RING_BYTES_MAX`]; rounded down to a power of two.
    pub ring_bytes: usize,
    /// Which packets are taken.
    pub traffic: Traffic,
    /// Also packets for others, as they come at a mirror port (promiscuous, while the tap is open).
    pub is_promiscuous: bool,
    /// Which times are asked for. The NIC is not set up for times of its own: whoever runs it does that, for all that need them.
    pub stamp: Stamp,
}

impl TapConfig {
    /// RoCEv2 and TCP of an interface, with the kernel's times and a ring of [`RING_BYTES`].
    #[must_use]
    pub fn new(interface: &str) -> TapConfig {
        TapConfig {
            interface: interface.to_owned(),
            ring_bytes: RING_BYTES,
            traffic: Traffic::Both,
            is_promiscuous: false,
            stamp: Stamp::Software,
        }
    }
}

/// Packets that found no room in the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TapGap {
    /// Time of the last packet that is known to be before the gap, nanoseconds; 0 where there is none.
    pub from_ns: u64,
    /// Time of a packet after it, nanoseconds; that of the last one before it where none came.
    pub until_ns: u64,
    /// How many were lost.
    pub packets: u64,
}

/// What a tap counted since it was opened.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct TapCounts {
    /// Packets that were shown.
    pub packets: u64,
    /// Packets that the kernel had no room for.
    pub drops: u64,
    /// Times at which the ring was full.
    pub freezes: u64,
    /// Of those shown, packets with the time of the NIC.
    pub hardware_stamps: u64,
    /// Packets that the kernel counted and that were still not shown at the end.
    pub left_behind: u64,
    /// Times at which the interface went down.
    pub downs: u64,
}

/// Why an interface cannot be tapped.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The right is missing.
    #[error(
        "opening a packet socket (AF_PACKET) for interface {interface}: {source}; it needs CAP_NET_RAW: give it to the program once \
         (sudo setcap cap_net_raw+ep \"$(command -v mycroft)\"), run this with sudo, or read a file that tcpdump -s 128 -w wrote"
    )]
    NotAllowed {
        /// The interface.
        interface: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// There is none of that name.
    #[error("interface {interface}: {source}; `ip -br link` lists those of this network namespace")]
    NoInterface {
        /// The interface.
        interface: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Its packets begin with something that is not read.
    #[error(
        "interface {interface} has links of kind {kind} (ARPHRD), of which packets are not read; Ethernet, loopback and plain IP are"
    )]
    Link {
        /// The interface.
        interface: String,
        /// The kernel's number.
        kind: u16,
    },
    /// A ring of that size is not made.
    #[error("a ring of {bytes} bytes: give {RING_BYTES_MIN} to {RING_BYTES_MAX}")]
    RingBytes {
        /// What was asked for.
        bytes: usize,
    },
    /// The kernel refused something else.
    #[error("interface {interface}: {operation}: {source}")]
    Refused {
        /// The interface.
        interface: String,
        /// What was tried.
        operation: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// An open tap; closed when dropped.
pub struct Tap {
    ring: Ring,
    interface: String,
    link: u32,
    counts: TapCounts,
    /// What the kernel counted, drops included.
    counted: u64,
    gaps: Vec<TapGap>,
    /// The last gap's end is not known.
    is_gap_open: bool,
    newest_ns: u64,
    /// Of the last look at what was lost.
    looked_ns: u64,
}

impl Tap {
    /// Opens a tap: every packet that passes after this returns is shown or counted as lost.
    ///
    /// # Errors
    /// The right is missing, there is no such interface, its link is not read, or the kernel refused.
    pub fn open(config: &TapConfig) -> Result<Tap, TapError> {
        let interface = || config.interface.clone();
        if !(RING_BYTES_MIN..=RING_BYTES_MAX).contains(&config.ring_bytes) {
            return Err(TapError::RingBytes { bytes: config.ring_bytes });
        }
        let socket = Socket::open().map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => TapError::NotAllowed { interface: interface(), source },
            _ => refused(&config.interface, "opening a packet socket", source),
        })?;
        let index = ring::index(&config.interface)
            .map_err(|source| TapError::NoInterface { interface: interface(), source })?;
        let failed = |operation| move |source| refused(&config.interface, operation, source);
        let kind = socket.bind(index, false).map_err(failed("binding the packet socket"))?;
        let link = match kind {
            ARPHRD_ETHER | ARPHRD_LOOPBACK => LINKTYPE_ETHERNET,
            ARPHRD_RAWIP | ARPHRD_NONE => LINKTYPE_RAW,
            kind => return Err(TapError::Link { interface: interface(), kind }),
        };
        set_up(&socket, config, index, kind == ARPHRD_LOOPBACK)?;
        let ring_bytes = 1 << config.ring_bytes.ilog2();
        let block_bytes = BLOCK_BYTES_MAX.min(ring_bytes / 4);
        let ring = Ring::new(socket, ring_bytes / block_bytes, block_bytes).map_err(failed("making the ring"))?;
        ring.socket.bind(index, true).map_err(failed("binding the packet socket"))?;
        Ok(Tap {
            ring,
            interface: interface(),
            link,
            counts: TapCounts::default(),
            counted: 0,
            gaps: Vec::new(),
            is_gap_open: false,
            newest_ns: 0,
            looked_ns: 0,
        })
    }

    /// What packets begin with, as captures number it (`LINKTYPE_`).
    #[must_use]
    pub fn link(&self) -> u32 {
        self.link
    }

    /// Shows what is in the ring, one round of it at most; where it is empty, waits for a block first, so long at most.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn take(&mut self, wait: Duration, mut each: impl FnMut(&TapPacket<'_>)) -> Result<(), TapError> {
        if !self.ring.is_ready()
            && let Err(source) = self.ring.socket.wait(wait)
        {
            if source.raw_os_error() != Some(libc::ENETDOWN) {
                return Err(refused(&self.interface, "waiting for packets", source));
            }
            // It may come up again, and packets then come as before.
            self.counts.downs += 1;
        }
        for _ in 0..self.ring.blocks() {
            let Tap { ring, counts, gaps, is_gap_open, newest_ns, .. } = self;
            let taken = ring.take(|bytes| {
                block::packets(bytes, |packet| {
                    if std::mem::take(is_gap_open)
                        && let Some(gap) = gaps.last_mut()
                    {
                        gap.until_ns = gap.until_ns.max(packet.time_ns);
                    }
                    *newest_ns = (*newest_ns).max(packet.time_ns);
                    counts.hardware_stamps += u64::from(packet.stamp == Stamp::Hardware);
                    each(packet);
                })
            });
            let Some(packets) = taken else { break };
            self.counts.packets += packets;
        }
        self.look()
    }

    /// Lets nothing more in and shows what is in the ring to its end.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn finish(&mut self, mut each: impl FnMut(&TapPacket<'_>)) -> Result<(), TapError> {
        let closed = self.ring.socket.filter(&filter::CLOSED);
        closed.map_err(|source| refused(&self.interface, "closing the filter", source))?;
        let begun = Instant::now();
        self.look()?;
        while self.behind() > 0 && begun.elapsed() < END_LIMIT {
            self.take(END_LOOK, &mut each)?;
        }
        self.counts.left_behind = self.behind();
        Ok(())
    }

    /// What was counted.
    #[must_use]
    pub fn counts(&self) -> TapCounts {
        self.counts
    }

    /// Where packets were lost, oldest first.
    #[must_use]
    pub fn gaps(&self) -> &[TapGap] {
        &self.gaps
    }

    /// Packets that the kernel put into the ring and that were not shown.
    fn behind(&self) -> u64 {
        self.counted.saturating_sub(self.counts.drops + self.counts.packets)
    }

    /// Asks what was lost since the look before.
    fn look(&mut self) -> Result<(), TapError> {
        let told = self.ring.socket.statistics();
        let told = told.map_err(|source| refused(&self.interface, "reading what was lost", source))?;
        self.counted += told.packets;
        self.counts.drops += told.drops;
        self.counts.freezes += told.freezes;
        if told.drops > 0 {
            let gap = TapGap { from_ns: self.looked_ns, until_ns: self.newest_ns, packets: told.drops };
            let is_full = self.gaps.len() >= GAPS_MAX;
            match self.gaps.last_mut() {
                Some(last) if self.is_gap_open || is_full => {
                    last.packets += gap.packets;
                    last.until_ns = last.until_ns.max(gap.until_ns);
                }
                _ => self.gaps.push(gap),
            }
            self.is_gap_open = true;
        }
        self.looked_ns = self.newest_ns;
        Ok(())
    }
}

/// What the socket is told before it hears anything.
fn set_up(socket: &Socket, config: &TapConfig, index: i32, is_loopback: bool) -> Result<(), TapError> {
    let failed = |operation| move |source| refused(&config.interface, operation, source);
    socket.filter(&filter::program(config.traffic)).map_err(failed("setting the filter"))?;
    if is_loopback {
        socket
            .set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32)
            .map_err(failed("leaving out what leaves (Linux 4.20 and later)"))?;
    }
    if config.stamp == Stamp::Hardware {
        let asked = libc::SOF_TIMESTAMPING_RAW_HARDWARE;
        socket.set(libc::SOL_PACKET, libc::PACKET_TIMESTAMP, &asked).map_err(failed("asking for times of the NIC"))?;
    }
    if config.is_promiscuous {
        let asked = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        socket
            .set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &asked)
            .map_err(failed("asking for packets of others (promiscuous)"))?;
    }
    Ok(())
}

fn refused(interface: &str, operation: &'static str, source: io::Error) -> TapError {
    TapError::Refused { interface: interface.to_owned(), operation, source }
}
