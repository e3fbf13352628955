//! One socket, plain or TLS, with a deadline on every read and write.
use rustls::pki_types::CertificateDer;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a peer that gets last words is heard out: longer than they take to it.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A connected socket.
pub(super) enum Stream {
    Tcp(Arc<TcpStream>),
    Unix(Arc<UnixStream>),
    Tls(Box<Tls>),
}

/// A TLS connection over its socket. Each call does at most one read of the socket, so that the caller's deadline
/// holds also against a peer that drips one byte at a time.
pub(super) struct Tls {
    connection: rustls::Connection,
    socket: Arc<TcpStream>,
}

impl Tls {
    /// One step of whatever the connection wants to do.
    fn step(&mut self) -> io::Result<usize> {
        if self.connection.wants_write() {
            return self.connection.write_tls(&mut &*self.socket);
        }
        let count = self.connection.read_tls(&mut &*self.socket)?;
        if let Err(error) = self.connection.process_new_packets() {
            // Tell the peer why, if it listens.
            let _ = self.connection.write_tls(&mut &*self.socket);
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        Ok(count)
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.connection.reader().read(buffer) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            other => return other,
        }
        let writing = self.connection.wants_write();
        if self.step()? == 0 && !writing {
            return Ok(0);
        }
        self.connection.reader().read(buffer)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.connection.is_handshaking() || self.connection.wants_write() {
            let writing = self.connection.wants_write();
            if self.step()? == 0 && !writing {
                return Ok(0);
            }
            return Err(ErrorKind::WouldBlock.into());
        }
        self.connection.writer().write(bytes)
    }

    /// `WouldBlock` while something is left to write.
    fn flush(&mut self) -> io::Result<()> {
        if self.connection.wants_write() {
            self.connection.write_tls(&mut &*self.socket)?;
            return if self.connection.wants_write() { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) };
        }
        Ok(())
    }
}

/// Ends a socket's connection from another thread.
pub(super) enum Closer {
    Tcp(Arc<TcpStream>),
    Unix(Arc<UnixStream>),
}

impl Closer {
    pub(super) fn close(&self) {
        // An error says that it is closed already.
        let _ = match self {
            Closer::Tcp(socket) => socket.shutdown(Shutdown::Both),
            Closer::Unix(socket) => socket.shutdown(Shutdown::Both),
        };
    }
}

enum Socket<'a> {
    Tcp(&'a TcpStream),
    Unix(&'a UnixStream),
}

impl Stream {
    pub(super) fn tcp(socket: TcpStream) -> Stream {
        Stream::Tcp(Arc::new(socket))
    }

    pub(super) fn unix(socket: UnixStream) -> Stream {
        Stream::Unix(Arc::new(socket))
    }

    pub(super) fn tls(connection: impl Into<rustls::Connection>, socket: Arc<TcpStream>) -> Stream {
        Stream::Tls(Box::new(Tls { connection: connection.into(), socket }))
    }

    fn socket(&self) -> Socket<'_> {
        match self {
            Stream::Tcp(socket) => Socket::Tcp(socket),
            Stream::Unix(socket) => Socket::Unix(socket),
            Stream::Tls(tls) => Socket::Tcp(&tls.socket),
        }
    }

    pub(super) fn closer(&self) -> Closer {
        match self {
            Stream::Tcp(socket) => Closer::Tcp(Arc::clone(socket)),
            Stream::Unix(socket) => Closer::Unix(Arc::clone(socket)),
            Stream::Tls(tls) => Closer::Tcp(Arc::clone(&tls.socket)),
        }
    }

    /// The certificate that the peer has shown.
    pub(super) fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.certificates().first().cloned()
    }

    /// The same with those between it and an authority, as it was shown; empty where none was.
    pub(super) fn certificates(&self) -> &[CertificateDer<'static>] {
        let Stream::Tls(tls) = self else { return &[] };
        tls.connection.peer_certificates().unwrap_or_default()
    }

    /// This machine's address on it; `None` of a Unix socket, and where it is gone.
    pub(super) fn local_address(&self) -> Option<IpAddr> {
        match self.socket() {
            Socket::Tcp(socket) => socket.local_addr().ok().map(|address| address.ip()),
            Socket::Unix(_) => None,
        }
    }

    fn set_read_timeout(&self, limit: Duration) -> io::Result<()> {
        // The system call refuses zero, which would mean "for ever".
        let limit = Some(limit.max(Duration::from_millis(1)));
        match self.socket() {
            Socket::Tcp(socket) => socket.set_read_timeout(limit),
            Socket::Unix(socket) => socket.set_read_timeout(limit),
        }
    }

    fn set_write_timeout(&self, limit: Duration) -> io::Result<()> {
        let limit = Some(limit.max(Duration::from_millis(1)));
        match self.socket() {
            Socket::Tcp(socket) => socket.set_write_timeout(limit),
            Socket::Unix(socket) => socket.set_write_timeout(limit),
        }
    }

    fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        match self.socket() {
            Socket::Tcp(socket) => socket.set_nonblocking(on),
            Socket::Unix(socket) => socket.set_nonblocking(on),
        }
    }

    fn read_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(socket) => (&**socket).read(buffer),
            Stream::Unix(socket) => (&**socket).read(buffer),
            Stream::Tls(tls) => tls.read(buffer),
        }
    }

    /// Fills the buffer before the deadline; `TimedOut` otherwise.
    pub(super) fn read_exact_by(&mut self, buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(ErrorKind::TimedOut, "the peer was too slow"));
            }
            self.set_read_timeout(left)?;
            match self.read_some(&mut buffer[filled..]) {
                Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the peer closed the connection")),
                Ok(count) => filled += count,
                Err(e) if is_pause(&e) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Fills the first byte of the buffer if one has come already; does not wait.
    pub(super) fn read_now(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        self.set_nonblocking(true)?;
        let result = self.read_some(&mut buffer[..1]);
        self.set_nonblocking(false)?;
        match result {
            Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "the peer closed the connection")),
            Ok(_) => Ok(true),
            Err(e) if is_pause(&e) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Waits at most `wait` (not at all when zero) and appends what has arrived, at most 64 KiB.
    pub(super) fn read_available(&mut self, wait: Duration, into: &mut Vec<u8>) -> io::Result<usize> {
        let mut buffer = [0u8; 64 * 1024];
        let result = if wait.is_zero() {
            self.set_nonblocking(true)?;
            let result = self.read_some(&mut buffer);
            self.set_nonblocking(false)?;
            result
        } else {
            self.set_read_timeout(wait)?;
            self.read_some(&mut buffer)
        };
        match result {
            Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "the peer closed the connection")),
            Ok(count) => {
                into.extend_from_slice(&buffer[..count]);
                Ok(count)
            }
            Err(e) if is_pause(&e) => Ok(0),
            Err(e) => Err(e),
        }
    }

    /// Writes the last words to a peer that may not have read yet, and hears it out for a moment: else the kernel resets the
    /// connection and they are lost.
    pub(super) fn write_last_words(&mut self, words: &[u8], deadline: Instant) {
        if self.write_all_by(words, deadline).is_ok() {
            let mut rest = Vec::new();
            let quiet = Instant::now() + LAST_WORDS;
            while Instant::now() < quiet && self.read_available(LAST_WORDS / 5, &mut rest).is_ok() {
                rest.clear();
            }
        }
    }

    /// Writes everything before the deadline; after an error the connection must not be used any more.
    pub(super) fn write_all_by(&mut self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(ErrorKind::TimedOut, "the peer does not read"));
            }
            self.set_write_timeout(left)?;
            // A TLS handshake reads while it writes.
            self.set_read_timeout(left)?;
            let result = match self {
                Stream::Tcp(socket) => (&**socket).write(bytes),
                Stream::Unix(socket) => (&**socket).write(bytes),
                Stream::Tls(tls) => tls.write(bytes),
            };
            match result {
                Ok(0) => return Err(io::Error::new(ErrorKind::WriteZero, "the peer does not read")),
                Ok(count) => bytes = &bytes[count..],
                Err(e) if is_pause(&e) => {}
                Err(e) => return Err(e),
            }
        }
        loop {
            let result = match self {
                Stream::Tls(tls) => tls.flush(),
                Stream::Tcp(_) | Stream::Unix(_) => Ok(()),
            };
            match result {
                Err(e) if is_pause(&e) && Instant::now() < deadline => {}
                other => return other,
            }
        }
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
