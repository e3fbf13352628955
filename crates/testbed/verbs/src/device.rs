//! A device: its socket, its queue pairs, and the thread that takes what comes and looks at the time.
use crate::abi;
use crate::cq::{Cq, Events, eventfd, lock, ring};
use crate::fault::{Fate, Faults, Network};
use crate::net::{BATCH, Batch, Socket, interface_mtu};
use crate::pcap::Pcap;
use crate::qp::{Connection, Event};
use crate::regions::Regions;
use crate::settings::{MTUS, Settings, warn};
use crate::wire::{ICRC_BYTES, NETWORK_BYTES, Packet, icrc};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Instant;

/// Headers before the data of the longest packet: IPv4, UDP, base transport header, 20 of others, checksum.
const OVERHEAD_BYTES: u32 = 20 + 8 + 12 + 20 + ICRC_BYTES as u32;
/// How long a packet is held back that no later ones pass by.
const HOLD_NS: u64 = 1_000_000;
/// "Never", of times.
const NEVER: u64 = u64::MAX;
/// Queue pairs of a device at most.
pub(crate) const PAIRS_MAX: usize = 4096;

/// A queue pair and whose it is.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) number: u32,
    pub(crate) connection: Mutex<Connection>,
    pub(crate) peer: Mutex<Option<Ipv4Addr>>,
    pub(crate) send_cq: Arc<Cq>,
    pub(crate) recv_cq: Arc<Cq>,
    /// Where the program's structure is, once it is made.
    pub(crate) handle: AtomicUsize,
    deadline_ns: AtomicU64,
    requests: AtomicU64,
}

/// A packet on its way: to whom, and where its bytes are.
type Sent = (SocketAddrV4, std::ops::Range<usize>);

/// What lies between the device and the kernel.
#[derive(Debug)]
struct Wire {
    network: Network,
    pcap: Option<Pcap>,
    /// Packets that later ones pass by: how many still, until when at most, to whom, and their bytes.
    held: Vec<(u32, u64, SocketAddrV4, Vec<u8>)>,
}

/// A device that is open.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) address: Ipv4Addr,
    pub(crate) mtu_bytes: u32,
    pub(crate) regions: Regions,
    pub(crate) events: Arc<Events>,
    socket: Socket,
    wire: Mutex<Wire>,
    pairs: RwLock<BTreeMap<u32, Arc<Pair>>>,
    next_number: AtomicU32,
    bell: OwnedFd,
    /// Until when the thread sleeps; 0 while it is awake.
    sleeps_until_ns: AtomicU64,
    ends: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    began: Instant,
}

impl Device {
    /// Opens the device of an address.
    ///
    /// # Errors
    /// The address is not this host's, a process has it, or there is no thread or descriptor to be had.
    pub(crate) fn open(address: Ipv4Addr, settings: &Settings) -> io::Result<Arc<Device>> {
        let socket = Socket::bind(address, settings.port)?;
        let room = interface_mtu(address).unwrap_or(1500).saturating_sub(OVERHEAD_BYTES);
        let fits = MTUS.into_iter().rev().find(|mtu| *mtu <= room).unwrap_or(MTUS[0]);
        let pcap = settings.pcap.as_ref().and_then(|folder| {
            let path = folder.join(format!("{address}.{}.pcap", std::process::id()));
            Pcap::create(&path).inspect_err(|e| warn(&format!("{}: {e}; nothing is written", path.display()))).ok()
        });
        let device = Arc::new(Device {
            address,
            mtu_bytes: settings.mtu_bytes.unwrap_or(fits),
            regions: Regions::new(),
            events: Events::new()?,
            socket,
            wire: Mutex::new(Wire { network: Network::new(settings.faults), pcap, held: Vec::new() }),
            pairs: RwLock::default(),
            next_number: AtomicU32::new(first_number(address)),
            bell: eventfd(libc::EFD_NONBLOCK)?,
            sleeps_until_ns: AtomicU64::new(0),
            ends: AtomicBool::new(false),
            thread: Mutex::default(),
            began: Instant::now(),
        });
        let runs = Arc::clone(&device);
        let thread = std::thread::Builder::new().name(format!("verbs {address}")).spawn(move || runs.run())?;
        *lock(&device.thread) = Some(thread);
        Ok(device)
    }

    /// Ends the thread and gives the address back.
    pub(crate) fn close(&self) {
        self.ends.store(true, Ordering::SeqCst);
        ring(&self.bell);
        if let Some(thread) = lock(&self.thread).take() {
            // A panic in there has been printed; there is nothing to add.
            let _ = thread.join();
        }
        self.flush();
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        lock(&self.wire).network = Network::new(faults);
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Makes a queue pair; `None` where there are too many.
    pub(crate) fn add_pair(&self, send_cq: Arc<Cq>, recv_cq: Arc<Cq>) -> Option<Arc<Pair>> {
        let mut pairs = self.pairs.write().unwrap_or_else(PoisonError::into_inner);
        if pairs.len() >= PAIRS_MAX {
            return None;
        }
        let mut number = 0;
        // 0 and 1 are those of the management of a subnet.
        while number < 2 || pairs.contains_key(&number) {
            number = self.next_number.fetch_add(1, Ordering::Relaxed) & crate::psn::MASK;
        }
        let pair = Arc::new(Pair {
            number,
            connection: Mutex::default(),
            peer: Mutex::default(),
            send_cq,
            recv_cq,
            handle: AtomicUsize::new(0),
            deadline_ns: AtomicU64::new(NEVER),
            requests: AtomicU64::new(0),
        });
        pairs.insert(number, Arc::clone(&pair));
        Some(pair)
    }

    pub(crate) fn remove_pair(&self, pair: &Pair) {
        self.pairs.write().unwrap_or_else(PoisonError::into_inner).remove(&pair.number);
        // Whoever works on it now is done before its queues go.
        *lock(&pair.connection) = Connection::default();
        self.events.forget(pair.handle.load(Ordering::Relaxed));
    }

    /// Does `change` to the connection of a pair, sends what is to go, and tells what is done.
    pub(crate) fn with<T>(&self, pair: &Pair, change: impl FnOnce(&mut Connection, u64) -> T) -> T {
        let mut connection = lock(&pair.connection);
        let now_ns = self.now_ns();
        let result = change(&mut connection, now_ns);
        // What came is told before it is answered: whoever has the answer may rely on it.
        self.tell(pair, &mut connection);
        let until = self.drive(pair, &mut connection, now_ns);
        self.tell(pair, &mut connection);
        pair.deadline_ns.store(until, Ordering::SeqCst);
        drop(connection);
        self.wake_before(until);
        result
    }

    /// Hands out what is done, and events.
    fn tell(&self, pair: &Pair, connection: &mut Connection) {
        while let Some(done) = connection.next_completion() {
            let cq = if done.is_receive() { &pair.recv_cq } else { &pair.send_cq };
            cq.push(abi::Wc::of(&done, pair.number));
        }
        while let Some(event) = connection.next_event() {
            let kind = match event {
                Event::Fatal => abi::EVENT_QP_FATAL,
                Event::InvalidRequest => abi::EVENT_QP_REQ_ERR,
                Event::Access => abi::EVENT_QP_ACCESS_ERR,
            };
            self.events.push(kind, pair.handle.load(Ordering::Relaxed));
        }
    }

    /// The thread looks at `until` at the latest.
    fn wake_before(&self, until: u64) {
        fence(Ordering::SeqCst);
        if until < self.sleeps_until_ns.load(Ordering::SeqCst) {
            ring(&self.bell);
        }
    }

    /// Sends all that may go now; when to look again.
    fn drive(&self, pair: &Pair, connection: &mut Connection, now_ns: u64) -> u64 {
        let peer = lock(&pair.peer).unwrap_or(Ipv4Addr::UNSPECIFIED);
        let to = SocketAddrV4::new(peer, self.socket.local.port());
        let (mut bytes, mut packets) = (Vec::new(), Vec::<Sent>::new());
        loop {
            let start = bytes.len();
            if !connection.answer(&mut bytes) {
                if !connection.wants_to_send(now_ns) {
                    break;
                }
                let (waits, fail_after) = {
                    let wire = lock(&self.wire);
                    (wire.network.wait_until_ns(now_ns), wire.network.faults().fail_after)
                };
                if let Some(until) = waits {
                    self.launch(&bytes, &packets, now_ns);
                    return until.min(connection.deadline_ns().unwrap_or(NEVER));
                }
                if fail_after > 0 && pair.requests.fetch_add(1, Ordering::Relaxed) >= fail_after {
                    connection.fail(Some(Event::Fatal));
                }
                if !connection.transmit(now_ns, &self.regions, &mut bytes) {
                    continue;
                }
            }
            lock(&self.wire).network.leaves(now_ns, bytes.len() - start + ICRC_BYTES + NETWORK_BYTES);
            let check = icrc(self.socket.local, to, &bytes[start..]);
            bytes.extend_from_slice(&check);
            packets.push((to, start..bytes.len()));
            if packets.len() == BATCH {
                self.launch(&bytes, &packets, now_ns);
                bytes.clear();
                packets.clear();
            }
        }
        self.launch(&bytes, &packets, now_ns);
        connection.deadline_ns().unwrap_or(NEVER)
    }

    /// Gives packets to the network, and the network's to the kernel.
    fn launch(&self, bytes: &[u8], packets: &[Sent], now_ns: u64) {
        if packets.is_empty() {
            return;
        }
        let mut wire = lock(&self.wire);
        let mut passing = Vec::with_capacity(packets.len());
        for (to, range) in packets {
            let packet = &bytes[range.clone()];
            wire.record(self.socket.local, *to, packet);
            match wire.network.fate() {
                Fate::Lost => {}
                Fate::After(count) => {
                    wire.held.push((count, now_ns + HOLD_NS, *to, packet.to_vec()));
                    // The thread lets it go where no others come.
                    self.wake_before(now_ns + HOLD_NS);
                }
                Fate::Passes => {
                    passing.push((*to, range.clone()));
                    if !wire.held.is_empty() {
                        self.socket.send(bytes, &passing);
                        passing.clear();
                        wire.held.iter_mut().for_each(|held| held.0 = held.0.saturating_sub(1));
                        wire.release(&self.socket, now_ns);
                    }
                }
            }
        }
        drop(wire);
        self.socket.send(bytes, &passing);
    }

    /// Writes what is still in memory of the file of what was sent.
    pub(crate) fn flush(&self) {
        if let Some(pcap) = &mut lock(&self.wire).pcap
            && let Err(e) = pcap.flush()
        {
            warn(&format!("what is sent cannot be written: {e}"));
        }
    }

    fn run(&self) {
        let mut batch = Batch::new();
        while !self.ends.load(Ordering::SeqCst) {
            let got = self.socket.receive(&mut batch);
            self.take(&batch, got);
            let now_ns = self.now_ns();
            self.look_at_time(now_ns);
            if got == 0 {
                self.sleep();
            }
        }
    }

    /// Gives each packet to its queue pair; those of one pair that follow each other at once.
    fn take(&self, batch: &Batch, got: usize) {
        let mut at = 0;
        while at < got {
            let Some(first) = self.open_packet(batch, at) else {
                at += 1;
                continue;
            };
            let pair = {
                let pairs = self.pairs.read().unwrap_or_else(PoisonError::into_inner);
                pairs.get(&first.1.queue_pair).cloned()
            };
            let Some(pair) = pair else {
                at += 1;
                continue;
            };
            self.with(&pair, |connection, now_ns| {
                while at < got
                    && let Some((from, packet)) = self.open_packet(batch, at)
                    && packet.queue_pair == pair.number
                {
                    if *lock(&pair.peer) == Some(*from.ip()) {
                        connection.receive(now_ns, &packet, &self.regions);
                    }
                    at += 1;
                }
            });
        }
    }

    /// A packet whose checksum is right.
    fn open_packet<'a>(&self, batch: &'a Batch, at: usize) -> Option<(SocketAddrV4, Packet<'a>)> {
        let (from, bytes) = batch.packet(at);
        let (packet, check) = bytes.split_last_chunk::<ICRC_BYTES>()?;
        (icrc(from, self.socket.local, packet) == *check).then_some(())?;
        Some((from, Packet::parse(packet)?))
    }

    /// Does what is due; the earliest time at which something will be.
    fn look_at_time(&self, now_ns: u64) -> u64 {
        let mut wire = lock(&self.wire);
        wire.release(&self.socket, now_ns);
        let mut until = wire.held.iter().map(|held| held.1).min().unwrap_or(NEVER);
        drop(wire);
        let due: Vec<Arc<Pair>> = {
            let pairs = self.pairs.read().unwrap_or_else(PoisonError::into_inner);
            let due = pairs.values().filter(|pair| pair.deadline_ns.load(Ordering::SeqCst) <= now_ns);
            due.cloned().collect()
        };
        for pair in due {
            self.with(&pair, |connection, now_ns| connection.elapse(now_ns));
        }
        for pair in self.pairs.read().unwrap_or_else(PoisonError::into_inner).values() {
            until = until.min(pair.deadline_ns.load(Ordering::SeqCst));
        }
        until
    }

    /// Until a packet comes, somebody rings, or time is up.
    fn sleep(&self) {
        self.flush();
        self.sleeps_until_ns.store(NEVER, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let until = self.look_at_time(self.now_ns());
        let left = until.saturating_sub(self.now_ns());
        let limit = libc::timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
        let limit_at = if until == NEVER { std::ptr::null() } else { &raw const limit };
        self.sleeps_until_ns.store(until, Ordering::SeqCst);
        let fds = [self.socket.fd(), self.bell.as_raw_fd()];
        let mut fds = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        // SAFETY: the descriptors are an array of two; the limit is null or lives through the call.
        unsafe { libc::ppoll(fds.as_mut_ptr(), 2, limit_at, std::ptr::null()) };
        self.sleeps_until_ns.store(0, Ordering::SeqCst);
        let mut word = 0u64;
        // SAFETY: eight writable bytes, an open descriptor that does not block.
        unsafe { libc::read(self.bell.as_raw_fd(), (&raw mut word).cast(), 8) };
    }
}

impl Wire {
    fn record(&mut self, from: SocketAddrV4, to: SocketAddrV4, packet: &[u8]) {
        if let Some(pcap) = &mut self.pcap
            && let Err(e) = pcap.add(from, to, packet)
        {
            warn(&format!("what is sent is not written any more: {e}"));
            self.pcap = None;
        }
    }

    /// Lets those go that enough have passed by, or that were held long enough.
    fn release(&mut self, socket: &Socket, now_ns: u64) {
        self.held.retain(|(count, until, to, packet)| {
            let stays = *count > 0 && *until > now_ns;
            if !stays {
                socket.send(packet, &[(*to, 0..packet.len())]);
            }
            stays
        });
    }
}

/// Where the numbers of a device's queue pairs begin: apart from those of others, so that flows can be told.
fn first_number(address: Ipv4Addr) -> u32 {
    // Knuth's multiplier (The Art of Computer Programming, volume 3, 6.4) spreads neighbours.
    (u32::from(address) ^ std::process::id() << 16).wrapping_mul(2_654_435_761) >> 8
}
