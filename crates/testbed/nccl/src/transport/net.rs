//! The network transport: one TCP connection per (sender, receiver, channel, lane), never blocking.
//!
//! It emulates RDMA with receiver credit. Sender to receiver: a hello, then for each slice a frame head (kind, bytes, step) and the payload, read
//! straight into the receiver's slot. Receiver to sender: words of credit and acknowledgement, cumulative in raw steps. A slice may leave only
//! when its credit is there; it is *done* when the receiver's proxy has all of it and has said so. With RDMA (`verbs`) the connection carries only
//! how to reach the queue pairs, and a word that the sender is ready.

mod way;
use super::fifo::Fifo;
pub use super::tokens::nic_down;
use super::tokens::{count, take};
use super::verbs::{self, CARD_BYTES, Grant};
use crate::clock::monotonic_ns;
use crate::control::Direction;
use crate::env::Identity;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Kernel buffer of a connection, both ways: small, so that a dead link shows after two slots.
pub const SOCKET_BUFFER_BYTES: i32 = 128 * 1024;
/// Most bytes written or read at once; the grain of the token buckets.
pub const PIECE_BYTES: usize = 16 * 1024;
/// Bytes of a hello.
pub(super) const HELLO_BYTES: usize = 32;
/// How often a sender looks for credit that the receiver wrote into its memory: NCCL's proxy spins, here ranks share cores.
const CREDIT_LOOK_NS: u64 = 100_000;
const FRAME_BYTES: usize = 16;
const WORD_BYTES: usize = 16;

/// Why bytes stopped moving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Everything there was has moved.
    Done,
    /// The kernel's buffer is full or empty: poll.
    Kernel,
    /// The NIC has no tokens for so many nanoseconds.
    Tokens(u64),
}

/// One connection as a non-blocking socket.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
    connected: bool,
    out: Vec<u8>,
    out_at: usize,
}

impl Link {
    pub(super) fn new(fd: OwnedFd, connected: bool) -> Link {
        Link { fd, connected, out: Vec::new(), out_at: 0 }
    }

    /// Begins to connect from `from` to `to`; the hello for `key` goes first.
    ///
    /// # Errors
    /// No socket can be had, or the address is refused at once.
    pub fn connect(from: IpAddr, to: SocketAddr, hello: [u8; HELLO_BYTES]) -> io::Result<Link> {
        let fd = socket(to.ip())?;
        let (addr, len) = sockaddr(SocketAddr::new(from, 0));
        // SAFETY: addr holds a valid socket address of `len` bytes.
        if unsafe { libc::bind(fd.as_raw_fd(), (&raw const addr).cast(), len) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let (addr, len) = sockaddr(to);
        // SAFETY: as above.
        let rc = unsafe { libc::connect(fd.as_raw_fd(), (&raw const addr).cast(), len) };
        if rc != 0 {
            let e = io::Error::last_os_error();
            if e.raw_os_error() != Some(libc::EINPROGRESS) {
                return Err(e);
            }
        }
        let mut link = Link::new(fd, rc == 0);
        link.out.extend_from_slice(&hello);
        Ok(link)
    }

    /// The descriptor to poll.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Finishes a connect that poll said is over.
    ///
    /// # Errors
    /// The connection failed.
    pub fn finish_connect(&mut self) -> io::Result<bool> {
        if self.connected {
            return Ok(true);
        }
        let mut poll = libc::pollfd { fd: self.fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one valid pollfd; a timeout of 0 does not block.
        if unsafe { libc::poll(&mut poll, 1, 0) } != 1 {
            return Ok(false);
        }
        let (mut error, mut len) = (0i32, size_of::<i32>() as libc::socklen_t);
        // SAFETY: error and len are valid for writing.
        unsafe {
            libc::getsockopt(self.fd(), libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut error).cast(), &mut len);
        }
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        self.connected = true;
        Ok(true)
    }

    /// Queues control bytes.
    fn queue(&mut self, bytes: &[u8]) {
        if self.out_at == self.out.len() {
            self.out.clear();
            self.out_at = 0;
        }
        self.out.extend_from_slice(bytes);
    }

    /// Whether control bytes wait to be written.
    pub fn has_queued(&self) -> bool {
        self.out_at < self.out.len()
    }

    /// Writes queued control bytes; true when none are left.
    ///
    /// # Errors
    /// The connection failed.
    pub fn flush(&mut self) -> io::Result<bool> {
        if !self.finish_connect()? {
            return Ok(false);
        }
        while self.has_queued() {
            match write(self.fd(), &self.out[self.out_at..])? {
                0 => return Ok(false),
                n => self.out_at += n,
            }
        }
        Ok(true)
    }

    /// Queues the receiver's word: credit up to and acknowledged up to, in raw steps.
    pub fn queue_word(&mut self, credit: u64, acked: u64) {
        let mut word = [0u8; WORD_BYTES];
        word[..8].copy_from_slice(&credit.to_le_bytes());
        word[8..].copy_from_slice(&acked.to_le_bytes());
        self.queue(&word);
    }
}

/// Non-blocking write: 0 means "not now".
fn write(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: bytes is readable for its length.
    let n = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
    moved(n)
}

/// Non-blocking read: `None` means "not now"; the end of the stream is an error of kind `UnexpectedEof`.
pub(super) fn read(fd: RawFd, to: *mut u8, len: usize) -> io::Result<Option<usize>> {
    // SAFETY: the caller of this private function gives `len` writable bytes at `to`.
    let n = unsafe { libc::recv(fd, to.cast(), len, libc::MSG_DONTWAIT) };
    if n == 0 && len > 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(match moved(n)? {
        0 => None,
        n => Some(n),
    })
}

fn moved(n: isize) -> io::Result<usize> {
    if n >= 0 {
        return Ok(n as usize);
    }
    let e = io::Error::last_os_error();
    match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(0),
        _ => Err(e),
    }
}

/// The sender's end: frames out, credit and acknowledgements in.
#[derive(Debug)]
pub struct SendLink {
    /// The socket.
    pub link: Link,
    /// Raw steps the receiver has room for.
    pub credit: u64,
    /// Raw steps the receiver has got.
    pub acked: u64,
    payload: (usize, usize),
    word: [u8; WORD_BYTES],
    word_at: usize,
    /// Where it goes.
    to: IpAddr,
    rdma: Option<Box<RdmaSend>>,
}

/// The sender's end of a connection that goes over RDMA.
#[derive(Debug)]
struct RdmaSend {
    sender: verbs::Sender,
    /// What the receiver told, and how much of it has come.
    card: ([u8; CARD_BYTES], usize),
    /// The slice that is to go: its FIFO, its step and its steps, its bytes, and how many of them have tokens.
    slice: Option<(Fifo, (u64, u64), usize, usize)>,
}

impl SendLink {
    /// Wraps a connecting socket of `from`.
    ///
    /// # Errors
    /// RDMA is asked for, and there is no device.
    pub fn new(mut link: Link, from: IpAddr, to: IpAddr) -> io::Result<SendLink> {
        let mut rdma = None;
        if verbs::is_chosen() {
            let sender = verbs::Sender::new(from)?;
            link.queue(&sender.card());
            rdma = Some(Box::new(RdmaSend { sender, card: ([0; CARD_BYTES], 0), slice: None }));
        }
        Ok(SendLink { link, credit: 0, acked: 0, payload: (0, 0), word: [0; WORD_BYTES], word_at: 0, to, rdma })
    }

    /// The descriptor of completions, and how often to look for credit, which comes without one: with RDMA.
    pub fn rdma(&self) -> Option<(RawFd, u64)> {
        self.rdma.as_ref().map(|rdma| (rdma.sender.fd(), CREDIT_LOOK_NS))
    }

    /// Whether the last slice still has bytes to hand to the kernel.
    pub fn is_sending(&self) -> bool {
        self.link.has_queued() || self.payload.1 > 0 || self.rdma.as_ref().is_some_and(|rdma| rdma.slice.is_some())
    }

    /// Takes over the slice of `steps` steps at `step`. The bytes must stay put until it is acknowledged.
    pub fn begin(&mut self, fifo: &Fifo, step: u64, steps: u64, bytes: usize) {
        if let Some(rdma) = &mut self.rdma {
            rdma.slice = Some((fifo.clone(), (step, steps), bytes, 0));
            return;
        }
        let addr = fifo.slot(step, steps) as usize;
        let mut frame = [0u8; FRAME_BYTES];
        frame[..4].copy_from_slice(&1u32.to_le_bytes());
        frame[4..8].copy_from_slice(&(bytes as u32).to_le_bytes());
        frame[8..].copy_from_slice(&step.to_le_bytes());
        self.link.queue(&frame);
        self.payload = (addr, bytes);
    }

    /// Hands bytes to the kernel as tokens and buffers allow.
    ///
    /// # Errors
    /// The connection failed, or the peer broke the protocol.
    pub fn pump(&mut self, identity: &Identity) -> io::Result<Stop> {
        if !self.link.flush()? {
            return Ok(Stop::Kernel);
        }
        if let Some(rdma) = &mut self.rdma {
            return rdma.pump(identity, self.to);
        }
        while self.payload.1 > 0 {
            let piece = self.payload.1.min(PIECE_BYTES);
            if let Err(wait) = take(identity, Some(self.to), piece, monotonic_ns()) {
                return Ok(Stop::Tokens(wait));
            }
            // SAFETY: the payload lies in a slot that belongs to the proxy until the slice is acknowledged.
            let bytes = unsafe { std::slice::from_raw_parts(self.payload.0 as *const u8, piece) };
            let n = write(self.link.fd(), bytes)?;
            count(identity, Direction::Egress, n, piece);
            self.payload = (self.payload.0 + n, self.payload.1 - n);
            if n < piece {
                return Ok(Stop::Kernel);
            }
        }
        Ok(Stop::Done)
    }

    /// Reads credit and acknowledgements; true when something new came.
    ///
    /// # Errors
    /// The connection failed, or the peer broke the protocol.
    pub fn listen(&mut self) -> io::Result<bool> {
        let mut news = false;
        if let Some(rdma) = &mut self.rdma
            && rdma.card.1 == CARD_BYTES
        {
            let (credit, acked) = rdma.sender.listen()?;
            news = credit > self.credit || acked > self.acked;
            (self.credit, self.acked) = (self.credit.max(credit), self.acked.max(acked));
        } else if let Some(rdma) = &mut self.rdma {
            if !fill(self.link.fd(), &mut rdma.card.0, &mut rdma.card.1)? {
                return Ok(false);
            }
            rdma.sender.connect(&rdma.card.0)?;
            self.link.queue_word(0, 0);
            return Ok(true);
        }
        loop {
            let left = WORD_BYTES - self.word_at;
            let to = self.word[self.word_at..].as_mut_ptr();
            let Some(n) = read(self.link.fd(), to, left)? else { return Ok(news) };
            self.word_at += n;
            if self.word_at == WORD_BYTES {
                self.word_at = 0;
                let (a, b) = self.word.split_at(8);
                self.credit = self.credit.max(u64::from_le_bytes(a.try_into().unwrap_or_default()));
                self.acked = self.acked.max(u64::from_le_bytes(b.try_into().unwrap_or_default()));
                news = true;
            }
        }
    }
}

impl RdmaSend {
    /// Posts the slice once all its bytes have tokens.
    fn pump(&mut self, identity: &Identity, to: IpAddr) -> io::Result<Stop> {
        let Some((fifo, (step, steps), bytes, taken)) = &mut self.slice else { return Ok(Stop::Done) };
        while *taken < *bytes {
            let piece = (*bytes - *taken).min(PIECE_BYTES);
            if let Err(wait) = take(identity, Some(to), piece, monotonic_ns()) {
                return Ok(Stop::Tokens(wait));
            }
            count(identity, Direction::Egress, piece, piece);
            *taken += piece;
        }
        let from = fifo.slot(*step, *steps) as usize;
        self.sender.send(fifo.mapping(), from, *bytes, *step + *steps)?;
        self.slice = None;
        Ok(Stop::Done)
    }
}

/// Reads on until `bytes` is full; whether it is.
fn fill(fd: RawFd, bytes: &mut [u8], at: &mut usize) -> io::Result<bool> {
    while *at < bytes.len() {
        let to = bytes[*at..].as_mut_ptr();
        match read(fd, to, bytes.len() - *at)? {
            None => return Ok(false),
            Some(n) => *at += n,
        }
    }
    Ok(true)
}

/// What the receiver's end found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The slice that begins at this raw step is complete, with so many bytes.
    Slice(u64, usize),
    /// Nothing complete.
    None(Stop),
}

/// The receiver's end: frames in, credit and acknowledgements out.
#[derive(Debug)]
pub struct RecvLink {
    /// The socket.
    pub link: Link,
    head: [u8; FRAME_BYTES],
    head_at: usize,
    body_at: usize,
    rdma: Option<Box<RdmaRecv>>,
}

/// The receiver's end of a connection that goes over RDMA.
#[derive(Debug, Default)]
struct RdmaRecv {
    receiver: Option<verbs::Receiver>,
    /// What the sender told, and how much of it has come; then its word that it is ready.
    card: ([u8; CARD_BYTES], usize),
    /// Slices that the sender is to be told of.
    grants: Vec<Grant>,
}

impl RdmaRecv {
    fn pump(&mut self, link: &mut Link, identity: &Identity) -> io::Result<Arrival> {
        let Some(receiver) = &mut self.receiver else {
            if fill(link.fd(), &mut self.card.0, &mut self.card.1)? {
                let receiver = self.receiver.insert(verbs::Receiver::new(identity.addr, &self.card.0)?);
                link.queue(&receiver.card());
                self.card.1 = 0;
            }
            return Ok(Arrival::None(Stop::Kernel));
        };
        for grant in self.grants.drain(..) {
            receiver.grant(grant)?;
        }
        let mut found = receiver.poll()?;
        if found.is_none() {
            // A sender that ends has its answers: then the last slices are there, though perhaps not when we looked.
            let heard = self.hear(link);
            let receiver = self.receiver.as_mut().ok_or(ErrorKind::NotConnected)?;
            found = receiver.poll()?;
            if found.is_none() {
                heard?;
            }
        }
        let Some((step, bytes)) = found else { return Ok(Arrival::None(Stop::Kernel)) };
        count(identity, Direction::Ingress, bytes, bytes);
        Ok(Arrival::Slice(step, bytes))
    }

    /// Reads the sender's word that it is ready; then only its end comes.
    fn hear(&mut self, link: &Link) -> io::Result<()> {
        let mut nothing_more = [0; WORD_BYTES];
        if self.card.1 >= WORD_BYTES {
            return fill(link.fd(), &mut nothing_more, &mut 0).map(|_| ());
        }
        if fill(link.fd(), &mut self.card.0[..WORD_BYTES], &mut self.card.1)?
            && let Some(receiver) = &mut self.receiver
        {
            receiver.begin()?;
        }
        Ok(())
    }
}

impl RecvLink {
    /// Wraps an accepted socket whose hello was read.
    pub fn new(link: Link) -> RecvLink {
        let rdma = verbs::is_chosen().then(Box::default);
        RecvLink { link, head: [0; FRAME_BYTES], head_at: 0, body_at: 0, rdma }
    }

    /// There is room for the slice of `steps` steps at `step`: RDMA must know where.
    pub fn post(&mut self, fifo: &Fifo, step: u64, steps: u64) {
        if let Some(rdma) = &mut self.rdma {
            let (map, address) = (fifo.mapping().clone(), fifo.slot(step, steps) as usize);
            rdma.grants.push(Grant { map, address, room: fifo.slot_bytes() * steps as usize, step, end: step + steps });
        }
    }

    /// Queues credit and acknowledgement, which RDMA tells by itself.
    pub fn tell(&mut self, credit: u64, acked: u64) {
        if self.rdma.is_none() {
            self.link.queue_word(credit, acked);
        }
    }

    /// With RDMA, waits until the sender has closed its end, at most until `until_ns`: its last slice may lack an answer.
    pub fn linger(&mut self, until_ns: u64) {
        let mut rest = [0; WORD_BYTES];
        while self.rdma.is_some() && read(self.link.fd(), rest.as_mut_ptr(), WORD_BYTES).is_ok() {
            let left_ms = until_ns.saturating_sub(monotonic_ns()) / 1_000_000;
            let mut poll = libc::pollfd { fd: self.link.fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid pollfd.
            if left_ms == 0 || unsafe { libc::poll(&mut poll, 1, left_ms as i32) } == 0 {
                return;
            }
        }
    }

    /// The descriptor of completions, with RDMA.
    pub fn rdma_fd(&self) -> Option<RawFd> {
        self.rdma.as_ref()?.receiver.as_ref().map(verbs::Receiver::fd)
    }

    /// Reads on. `slot` gives address and room for the slice at a raw step, or `None` when it was not posted.
    ///
    /// # Errors
    /// The connection failed, or the peer broke the protocol.
    pub fn pump(&mut self, identity: &Identity, slot: impl Fn(u64) -> Option<(*mut u8, usize)>) -> io::Result<Arrival> {
        if let Some(rdma) = &mut self.rdma {
            return rdma.pump(&mut self.link, identity);
        }
        if !fill(self.link.fd(), &mut self.head, &mut self.head_at)? {
            return Ok(Arrival::None(Stop::Kernel));
        }
        let word = |at: usize| u32::from_le_bytes(self.head[at..at + 4].try_into().unwrap_or_default());
        let step = u64::from_le_bytes(self.head[8..].try_into().unwrap_or_default());
        let (kind, bytes) = (word(0), word(4) as usize);
        let room = slot(step);
        let Some((base, _)) = room.filter(|(_, room)| kind == 1 && bytes <= *room) else {
            return Err(io::Error::other(format!("a frame of {bytes} bytes for step {step}, which was not posted")));
        };
        while self.body_at < bytes {
            let piece = (bytes - self.body_at).min(PIECE_BYTES);
            if let Err(wait) = take(identity, None, piece, monotonic_ns()) {
                return Ok(Arrival::None(Stop::Tokens(wait)));
            }
            // SAFETY: body_at + piece <= bytes <= room, the size of the posted slice at `base`.
            let to = unsafe { base.add(self.body_at) };
            match read(self.link.fd(), to, piece)? {
                None => {
                    count(identity, Direction::Ingress, 0, piece);
                    return Ok(Arrival::None(Stop::Kernel));
                }
                Some(n) => {
                    count(identity, Direction::Ingress, n, piece);
                    self.body_at += n;
                }
            }
        }
        self.head_at = 0;
        self.body_at = 0;
        Ok(Arrival::Slice(step, bytes))
    }
}

pub(super) fn option(fd: RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: value is readable for `len` bytes.
    match unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(super) fn socket(ip: IpAddr) -> io::Result<OwnedFd> {
    let domain = if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: plain system call.
    let fd = unsafe { libc::socket(domain, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fd is fresh and owned by nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    option(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    option(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, SOCKET_BUFFER_BYTES)?;
    option(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, SOCKET_BUFFER_BYTES)?;
    Ok(fd)
}

pub(super) fn sockaddr(addr: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: all-zero bytes are a valid sockaddr_storage.
    let mut out: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let len = match addr {
        SocketAddr::V4(a) => {
            let v4 = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: a.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*a.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: sockaddr_storage is larger than, and aligned for, every socket address.
            unsafe { (&raw mut out).cast::<libc::sockaddr_in>().write(v4) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(a) => {
            let v6 = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: a.port().to_be(),
                sin6_flowinfo: a.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: a.ip().octets() },
                sin6_scope_id: a.scope_id(),
            };
            // SAFETY: as above.
            unsafe { (&raw mut out).cast::<libc::sockaddr_in6>().write(v6) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (out, len as libc::socklen_t)
}
