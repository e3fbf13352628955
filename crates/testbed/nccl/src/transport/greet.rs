//! Who connects to whom: the listening socket of a rank, and the hello of those that connect.

use super::net::{HELLO_BYTES, Link, RecvLink, option, read, sockaddr, socket};
use super::{ConnKey, Dir, Lane};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const HELLO_MAGIC: u64 = u64::from_le_bytes(*b"MTBNET01");

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
