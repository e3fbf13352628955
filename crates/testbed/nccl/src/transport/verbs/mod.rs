//! Slices over RDMA, the way NCCL's `net_ib` does it: the receiver writes where the next slice goes into a FIFO of the sender's
//! memory (its credit), the sender writes the slice there, with its size as immediate data. A connection has a queue pair; the
//! TCP connection only carries how to reach it.

mod abi;
mod end;
mod nic;

use super::shm::Mapping;
use abi::{Gid, SEND_INLINE, SEND_SIGNALED, Sge, WC_RECV_RDMA_WITH_IMM, WR_RDMA_WRITE, WR_RDMA_WRITE_WITH_IMM};
use end::{CREDIT_BYTES, End, Write};
use nic::{Nic, Registered};
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which transport goes between hosts: `tcp`, or `verbs`.
const ENV_NET: &str = "MYCROFT_TESTBED_NET";
/// Places in the FIFO of credits: twice the slices that can be open.
const CREDITS: usize = 16;
/// Bytes of what both ends tell each other.
pub const CARD_BYTES: usize = 32;

/// Whether slices go over RDMA.
pub fn is_chosen() -> bool {
    std::env::var(ENV_NET).is_ok_and(|net| net == "verbs")
}

/// Where a slice goes: address, key and room, and the step after it, which is written last and says that the rest is there.
#[repr(C)]
struct Credit {
    address: AtomicU64,
    key: AtomicU64,
    room: AtomicU64,
    end: AtomicU64,
}

const _: () = assert!(size_of::<Credit>() == CREDIT_BYTES);

/// How to reach a queue pair, and the FIFO of a sender.
fn card(end: &End, fifo: (u64, u32)) -> [u8; CARD_BYTES] {
    let mut card = [0; CARD_BYTES];
    card[..16].copy_from_slice(&end.nic.gid.0);
    card[16..20].copy_from_slice(&end.number().to_le_bytes());
    card[20..24].copy_from_slice(&fifo.1.to_le_bytes());
    card[24..].copy_from_slice(&fifo.0.to_le_bytes());
    card
}

fn read(card: &[u8; CARD_BYTES]) -> (Gid, u32, (u64, u32)) {
    let mut gid = Gid::default();
    gid.0.copy_from_slice(&card[..16]);
    let word = |at: usize| u32::from_le_bytes(card[at..at + 4].try_into().unwrap_or_default());
    let address = u64::from_le_bytes(card[24..].try_into().unwrap_or_default());
    (gid, word(16), (address, word(20)))
}

/// The memory of a connection's slots, registered when first used: one FIFO, so seldom more than one.
#[derive(Debug, Default)]
struct Slots(Vec<Registered>);

impl Slots {
    fn keys(&mut self, nic: &Arc<Nic>, map: &Arc<Mapping>) -> io::Result<(u32, u32)> {
        if let Some(known) = self.0.iter().find(|known| Arc::ptr_eq(&known.map, map)) {
            return Ok(known.keys());
        }
        self.0.push(Registered::new(nic, map)?);
        Ok(self.0.last().map_or((0, 0), Registered::keys))
    }
}

/// The sending end.
#[derive(Debug)]
pub struct Sender {
    // Before what it may still write into or read from: fields are dropped in this order.
    end: End,
    slots: Slots,
    credits: Registered,
    seen: usize,
    used: usize,
    last_end: u64,
    posted: VecDeque<u64>,
    /// The receiver's queue pair, once it is known.
    peer: Option<u32>,
}

impl Sender {
    /// A queue pair on the device of `address`, and its FIFO.
    ///
    /// # Errors
    /// There is no such device, or it makes no more.
    pub fn new(address: IpAddr) -> io::Result<Sender> {
        let end = End::new(Nic::of(address)?)?;
        let credits = Registered::new(&end.nic, &Arc::new(Mapping::private(CREDITS * CREDIT_BYTES)?))?;
        let slots = Slots::default();
        Ok(Sender { end, slots, credits, seen: 0, used: 0, last_end: 0, posted: VecDeque::new(), peer: None })
    }

    /// What the receiver must know.
    pub fn card(&self) -> [u8; CARD_BYTES] {
        card(&self.end, (self.credits.map.base() as u64, self.credits.keys().1))
    }

    /// Connects to the receiver's queue pair.
    ///
    /// # Errors
    /// The device refuses.
    pub fn connect(&mut self, card: &[u8; CARD_BYTES]) -> io::Result<()> {
        let (gid, number, _) = read(card);
        self.peer = Some(number);
        self.end.connect((gid, number))
    }

    /// The number of the receiver's queue pair, which packets carry.
    pub fn peer(&self) -> Option<u32> {
        self.peer
    }

    /// The descriptor that says when to look again.
    pub fn fd(&self) -> i32 {
        self.end.fd()
    }

    fn credit(&self, index: usize) -> &Credit {
        // SAFETY: the memory holds CREDITS of them, aligned to a page; all fields are atomics.
        unsafe { &*self.credits.map.base().cast::<Credit>().add(index % CREDITS) }
    }

    /// Reads credit and completions: up to which step there is room, and up to which slices have arrived.
    ///
    /// # Errors
    /// A write ended unsuccessfully.
    pub fn listen(&mut self) -> io::Result<(u64, u64)> {
        let mut arrived = 0;
        while self.end.poll()?.is_some() {
            arrived = self.posted.pop_front().unwrap_or(0).max(arrived);
        }
        while self.seen < self.used + CREDITS / 2 {
            let end = self.credit(self.seen).end.load(Ordering::Acquire);
            if end <= self.last_end {
                break;
            }
            self.last_end = end;
            self.seen += 1;
        }
        Ok((self.last_end, arrived))
    }

    /// Writes the slice at `from`, of `bytes`, that ends before step `end`.
    ///
    /// # Errors
    /// There is no credit for it, or the queue is full.
    pub fn send(&mut self, map: &Arc<Mapping>, from: usize, bytes: usize, end: u64) -> io::Result<()> {
        let credit = self.credit(self.used);
        let to = (credit.address.load(Ordering::Relaxed), credit.key.load(Ordering::Relaxed) as u32);
        let (room, granted) = (credit.room.load(Ordering::Relaxed), credit.end.load(Ordering::Relaxed));
        if granted != end || bytes as u64 > room {
            return Err(io::Error::other(format!("{bytes} bytes before step {end}: room for {room} before {granted}")));
        }
        self.used += 1;
        let lkey = self.slots.keys(&self.end.nic, map)?.0;
        self.posted.push_back(end);
        self.end.write(Write {
            from: Sge { addr: from as u64, length: bytes as u32, lkey },
            to,
            opcode: WR_RDMA_WRITE_WITH_IMM,
            flags: SEND_SIGNALED,
            immediate: bytes as u32,
        })
    }
}

/// A slice that the receiver has room for.
#[derive(Debug, Clone)]
pub struct Grant {
    /// The memory of its slots.
    pub map: Arc<Mapping>,
    /// Where it goes.
    pub address: usize,
    /// Bytes of room.
    pub room: usize,
    /// Its first step.
    pub step: u64,
    /// The step after it.
    pub end: u64,
}

/// The receiving end.
#[derive(Debug)]
pub struct Receiver {
    end: End,
    slots: Slots,
    fifo: (u64, u32),
    waiting: VecDeque<Grant>,
    open: VecDeque<(u64, usize)>,
    granted: usize,
    ready: bool,
}

impl Receiver {
    /// A queue pair on the device of `address`, connected to the sender's.
    ///
    /// # Errors
    /// There is no such device, or it refuses.
    pub fn new(address: IpAddr, card: &[u8; CARD_BYTES]) -> io::Result<Receiver> {
        let end = End::new(Nic::of(address)?)?;
        let (gid, number, fifo) = read(card);
        end.connect((gid, number))?;
        let (waiting, open) = (VecDeque::new(), VecDeque::new());
        Ok(Receiver { end, slots: Slots::default(), fifo, waiting, open, granted: 0, ready: false })
    }

    /// What the sender must know.
    pub fn card(&self) -> [u8; CARD_BYTES] {
        card(&self.end, (0, 0))
    }

    /// The descriptor that says when to look again.
    pub fn fd(&self) -> i32 {
        self.end.fd()
    }

    /// The sender is connected: what waits is granted.
    ///
    /// # Errors
    /// As [`Receiver::grant`].
    pub fn begin(&mut self) -> io::Result<()> {
        self.ready = true;
        std::mem::take(&mut self.waiting).into_iter().try_for_each(|grant| self.grant(grant))
    }

    /// Posts a receive and tells the sender where the slice goes.
    ///
    /// # Errors
    /// A queue is full, or memory cannot be registered.
    pub fn grant(&mut self, grant: Grant) -> io::Result<()> {
        if !self.ready {
            self.waiting.push_back(grant);
            return Ok(());
        }
        let key = self.slots.keys(&self.end.nic, &grant.map)?.1;
        self.end.receive()?;
        self.open.push_back((grant.step, grant.room));
        let credit = [grant.address as u64, u64::from(key), grant.room as u64, grant.end];
        let place = self.granted % CREDITS;
        self.granted += 1;
        // Now and then one is heard of, or a real queue would fill up.
        let signaled = if place == 0 { SEND_SIGNALED } else { 0 };
        self.end.write(Write {
            from: Sge { addr: credit.as_ptr() as u64, length: CREDIT_BYTES as u32, lkey: 0 },
            to: (self.fifo.0 + (place * CREDIT_BYTES) as u64, self.fifo.1),
            opcode: WR_RDMA_WRITE,
            flags: SEND_INLINE | signaled,
            immediate: 0,
        })
    }

    /// The next slice that has arrived: its first step and its bytes.
    ///
    /// # Errors
    /// Work ended unsuccessfully, or the sender broke the protocol.
    pub fn poll(&mut self) -> io::Result<Option<(u64, usize)>> {
        while let Some(wc) = self.end.poll()? {
            if wc.opcode != WC_RECV_RDMA_WITH_IMM {
                continue;
            }
            let bytes = u32::from_be_bytes(wc.imm_data) as usize;
            return match self.open.pop_front().filter(|(_, room)| bytes <= *room) {
                Some((step, _)) => Ok(Some((step, bytes))),
                None => Err(io::Error::other(format!("a slice of {bytes} bytes that nobody asked for"))),
            };
        }
        Ok(None)
    }
}
