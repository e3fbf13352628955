//! Real TCP traffic between two namespaces, both ways, at a set rate at most.
use crate::error::TestbedError;
use crate::hosts::netns::{Netns, address};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes written at once.
const BLOCK_BYTES: usize = 64 << 10;
/// How long a connection may take to be made on a bridge of this machine.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Stack of a sending or receiving thread: one block and some frames.
const STACK_BYTES: usize = 256 << 10;

/// Traffic that lasts until dropped.
#[derive(Debug)]
pub(super) struct Traffic {
    sockets: Vec<TcpStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Traffic {
    /// Opens `connections` TCP connections between the hosts and sends on both ends of each, at most `bytes_per_sec` in
    /// all in each direction.
    pub(super) fn start(
        netns: &Netns,
        one: u32,
        other: u32,
        connections: u32,
        bytes_per_sec: u64,
    ) -> Result<Traffic, TestbedError> {
        let failed = |source| TestbedError::Spawn { program: "background traffic".to_owned(), source };
        let (from, to) = (netns.open(one)?, netns.open(other)?);
        // Sockets belong to the namespace in which they were made: a short-lived thread makes them in both, so that
        // no thread of the launcher stays in a namespace.
        let pairs = std::thread::spawn(move || connect_pairs(&from, &to, address(other), connections))
            .join()
            .unwrap_or_else(|_| Err(std::io::Error::other("the connecting thread panicked")))
            .map_err(failed)?;
        let mut traffic = Traffic { sockets: Vec::new(), threads: Vec::new() };
        let share = bytes_per_sec / u64::from(connections.max(1));
        for socket in pairs {
            pace(&socket, share).map_err(failed)?;
            traffic.sockets.push(socket.try_clone().map_err(failed)?);
            let reader = socket.try_clone().map_err(failed)?;
            traffic.run(move || discard(reader)).map_err(failed)?;
            traffic.run(move || fill(socket)).map_err(failed)?;
        }
        Ok(traffic)
    }

    fn run(&mut self, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let thread = std::thread::Builder::new().name("mtb-traffic".into()).stack_size(STACK_BYTES).spawn(work)?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        for socket in &self.sockets {
            // A connection that has broken needs no shutdown.
            let _ = socket.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            // A panic in there has been printed; there is nothing to add.
            let _ = thread.join();
        }
    }
}

/// Both ends of each connection. Leaves the calling thread in the namespace `from`.
pub(crate) fn connect_pairs(
    from: &File,
    to: &File,
    to_address: Ipv4Addr,
    count: u32,
) -> std::io::Result<Vec<TcpStream>> {
    enter(to)?;
    let listener = TcpListener::bind((to_address, 0))?;
    let target = SocketAddr::from((to_address, listener.local_addr()?.port()));
    enter(from)?;
    let mut sockets = Vec::new();
    for _ in 0..count {
        sockets.push(TcpStream::connect_timeout(&target, CONNECT_LIMIT)?);
        sockets.push(listener.accept()?.0);
    }
    Ok(sockets)
}

/// Moves the calling thread into a network namespace.
fn enter(namespace: &File) -> std::io::Result<()> {
    // SAFETY: setns changes the network namespace of this thread only; the descriptor is open.
    match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Makes TCP send at most this fast.
fn pace(socket: &TcpStream, bytes_per_sec: u64) -> std::io::Result<()> {
    let rate = u32::try_from(bytes_per_sec).unwrap_or(u32::MAX).max(1);
    // SAFETY: the option takes a 4-byte rate, which lives during the call; the descriptor is open.
    let code = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const rate).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    };
    if code == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn fill(mut socket: TcpStream) {
    let block = vec![0u8; BLOCK_BYTES];
    while socket.write_all(&block).is_ok() {}
}

fn discard(mut socket: TcpStream) {
    let mut block = vec![0u8; BLOCK_BYTES];
    while matches!(socket.read(&mut block), Ok(n) if n > 0) {}
}
