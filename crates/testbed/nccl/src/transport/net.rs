//! The network transport: one TCP connection per (sender, receiver, channel, lane), never blocking.
//!
//! It emulates RDMA with receiver credit. Sender to receiver: a hello, then for each slice a frame head (kind, bytes,
//! step) and the payload, which is read straight into the receiver's slot. Receiver to sender: words of credit and
//! acknowledgement, both cumulative in raw steps. A slice may leave only when its credit is there; it is *done* when
//! the receiver's proxy has all of it and has said so.

pub use super::tokens::nic_down;
use super::tokens::{count, take};
use super::{ConnKey, Dir, Lane};
use crate::control::Direction;
use crate::device::monotonic_ns;
use crate::env::Identity;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering};

/// Kernel buffer of a connection, both ways: small, so that a dead link shows after two slots.
pub const SOCKET_BUFFER_BYTES: i32 = 128 * 1024;
/// Most bytes written or read at once; the grain of the token buckets.
pub const PIECE_BYTES: usize = 16 * 1024;
const HELLO_MAGIC: u64 = u64::from_le_bytes(*b"MTBNET01");
const HELLO_BYTES: usize = 32;
const FRAME_BYTES: usize = 16;
const WORD_BYTES: usize = 16;

/// Wakes a proxy thread that sleeps in poll.
#[derive(Debug)]
pub struct ProxyWaker {
    event: OwnedFd,
    sleep: AtomicU8,
}

/// The thread runs, or will look once more before it sleeps.
const AWAKE: u8 = 0;
/// The thread sleeps until it is woken.
const ASLEEP: u8 = 1;
/// The thread sleeps and will look by itself soon.
const DOZING: u8 = 2;

impl ProxyWaker {
    /// A waker with its eventfd.
    ///
    /// # Errors
    /// No descriptor can be had.
    pub fn new() -> io::Result<ProxyWaker> {
        // SAFETY: plain system call without pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fd is fresh and owned by nobody else.
        Ok(ProxyWaker { event: unsafe { OwnedFd::from_raw_fd(fd) }, sleep: AtomicU8::new(AWAKE) })
    }

    /// Says that there may be work. Publish the work first.
    pub fn wake(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.sleep.load(Ordering::SeqCst) != AWAKE && self.sleep.swap(AWAKE, Ordering::SeqCst) != AWAKE {
            self.ring();
        }
    }

    /// Says that there is something to look at that can wait until the thread looks by itself, if it will soon.
    pub fn nudge(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        let asleep = self.sleep.load(Ordering::SeqCst) == ASLEEP;
        if asleep && self.sleep.compare_exchange(ASLEEP, AWAKE, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.ring();
        }
    }

    fn ring(&self) {
        let one = 1u64;
        // SAFETY: eight readable bytes, an open eventfd.
        unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Announces that the thread will sleep unless one more look finds work; `dozing`: not for long.
    pub fn about_to_sleep(&self, dozing: bool) {
        self.sleep.store(if dozing { DOZING } else { ASLEEP }, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// The thread is awake again.
    pub fn awake(&self) {
        self.sleep.store(AWAKE, Ordering::SeqCst);
        let mut count = 0u64;
        // SAFETY: eight writable bytes, an open non-blocking eventfd.
        unsafe { libc::read(self.event.as_raw_fd(), (&raw mut count).cast(), 8) };
    }

    /// The descriptor to poll for reading.
    pub fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}

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
    fn new(fd: OwnedFd, connected: bool) -> Link {
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
fn read(fd: RawFd, to: *mut u8, len: usize) -> io::Result<Option<usize>> {
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
}

impl SendLink {
    /// Wraps a connecting socket.
    pub fn new(link: Link, to: IpAddr) -> SendLink {
        SendLink { link, credit: 0, acked: 0, payload: (0, 0), word: [0; WORD_BYTES], word_at: 0, to }
    }

    /// Whether the last slice still has bytes to hand to the kernel.
    pub fn is_sending(&self) -> bool {
        self.link.has_queued() || self.payload.1 > 0
    }

    /// Takes over a slice. The bytes must stay put until it is acknowledged.
    pub fn begin(&mut self, step: u64, addr: usize, bytes: usize) {
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
}

impl RecvLink {
    /// Wraps an accepted socket whose hello was read.
    pub fn new(link: Link) -> RecvLink {
        RecvLink { link, head: [0; FRAME_BYTES], head_at: 0, body_at: 0 }
    }

    /// Reads on. `slot` gives address and room for the slice at a raw step, or `None` when it was not posted.
    ///
    /// # Errors
    /// The connection failed, or the peer broke the protocol.
    pub fn pump(&mut self, identity: &Identity, slot: impl Fn(u64) -> Option<(*mut u8, usize)>) -> io::Result<Arrival> {
        while self.head_at < FRAME_BYTES {
            let to = self.head[self.head_at..].as_mut_ptr();
            match read(self.link.fd(), to, FRAME_BYTES - self.head_at)? {
                None => return Ok(Arrival::None(Stop::Kernel)),
                Some(n) => self.head_at += n,
            }
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

/// The hello of the sender `rank` of the communicator with hash `comm`.
pub fn hello(comm: u64, rank: usize, channel: usize, lane: Lane) -> [u8; HELLO_BYTES] {
    let mut bytes = [0u8; HELLO_BYTES];
    bytes[..8].copy_from_slice(&HELLO_MAGIC.to_le_bytes());
    bytes[8..16].copy_from_slice(&comm.to_le_bytes());
    bytes[16..24].copy_from_slice(&(rank as u64).to_le_bytes());
    bytes[24..28].copy_from_slice(&(channel as u32).to_le_bytes());
    bytes[28..32].copy_from_slice(&(lane as u32).to_le_bytes());
    bytes
}

/// A socket that was accepted and has not yet said who it is.
#[derive(Debug)]
pub struct Stranger {
    link: Link,
    bytes: [u8; HELLO_BYTES],
    at: usize,
}

impl Stranger {
    /// The descriptor to poll.
    pub fn fd(&self) -> RawFd {
        self.link.fd()
    }

    /// Reads on; the key and the link once the hello is complete and right.
    ///
    /// # Errors
    /// The connection failed, or the peer broke the protocol.
    pub fn listen(
        mut self,
        comm: u64,
        ranks: usize,
        channels: usize,
    ) -> io::Result<Result<(ConnKey, RecvLink), Stranger>> {
        while self.at < HELLO_BYTES {
            let to = self.bytes[self.at..].as_mut_ptr();
            match read(self.link.fd(), to, HELLO_BYTES - self.at)? {
                None => return Ok(Err(self)),
                Some(n) => self.at += n,
            }
        }
        let word = |at: usize| u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap_or_default());
        let half = |at: usize| u32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap_or_default());
        let (peer, channel) = (word(16) as usize, half(24) as usize);
        let lane = if half(28) == 0 { Lane::Coll } else { Lane::P2p };
        if word(0) != HELLO_MAGIC || word(8) != comm || peer >= ranks || channel >= channels {
            return Err(io::Error::other("a connection that does not belong to this communicator"));
        }
        Ok(Ok((ConnKey { dir: Dir::Recv, peer, channel, lane }, RecvLink::new(self.link))))
    }
}

/// The listening socket of one rank in one communicator.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    /// Where peers connect to.
    pub addr: SocketAddr,
}

impl Listener {
    /// Listens on a free port of `ip`.
    ///
    /// # Errors
    /// No port of the address can be had.
    pub fn bind(ip: IpAddr) -> io::Result<Listener> {
        let fd = socket(ip)?;
        let (addr, len) = sockaddr(SocketAddr::new(ip, 0));
        // SAFETY: addr holds a valid socket address of `len` bytes.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const addr).cast(), len) };
        // SAFETY: plain system call on an open socket.
        if bound != 0 || unsafe { libc::listen(fd.as_raw_fd(), 512) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let listener = std::net::TcpListener::from(fd);
        let addr = listener.local_addr()?;
        Ok(Listener { fd: listener.into(), addr })
    }

    /// The descriptor to poll.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The next waiting connection.
    ///
    /// # Errors
    /// The socket failed; that nobody waits is no error.
    pub fn accept(&self) -> io::Result<Option<Stranger>> {
        let (none, flags) = (std::ptr::null_mut(), libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        // SAFETY: null addresses are allowed; the socket is open and non-blocking.
        let fd = unsafe { libc::accept4(self.fd(), none, std::ptr::null_mut(), flags) };
        if fd < 0 {
            let e = io::Error::last_os_error();
            return if e.kind() == ErrorKind::WouldBlock { Ok(None) } else { Err(e) };
        }
        // SAFETY: fd is fresh and owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        option(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
        Ok(Some(Stranger { link: Link::new(fd, true), bytes: [0; HELLO_BYTES], at: 0 }))
    }
}

fn option(fd: RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: value is readable for `len` bytes.
    match unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn socket(ip: IpAddr) -> io::Result<OwnedFd> {
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

fn sockaddr(addr: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
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
