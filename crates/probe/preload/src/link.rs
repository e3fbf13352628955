//! The connection over which two ranks on different hosts meet: one accepts it at its host's address, the other opens it. Nothing
//! here blocks; whoever waits looks again.
use crate::meet::{Meet, Waits};
use crate::thread::pause;
use mycroft_ring::clock::monotonic_ns;
use mycroft_ring::gate::meeting::Met;
use mycroft_ring::gate::talk::Talk;
use mycroft_ring::gate::task::Remote;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// Bytes of the number that whoever connects says first.
const NONCE_BYTES: usize = 8;
/// Who connects and says nothing, or something else, gives way to the next: so many are listened to.
const STRANGERS_MAX: usize = 4;
/// The connection of the latest meeting that is over: closed with the next one. To close it at once while something of the
/// other is unread would end it for the other out of order, and what was said last might be lost.
static LEFT: AtomicI32 = AtomicI32::new(-1);

/// A meeting over a connection.
pub(crate) struct Link {
    /// `None` once it is given up.
    stream: Option<TcpStream>,
    talk: Talk,
}

/// Somebody that has connected, and what it has said so far.
struct Stranger {
    stream: TcpStream,
    said: [u8; NONCE_BYTES],
    bytes: usize,
}

impl Stranger {
    /// Reads on; whether it is still to be listened to.
    fn listen(&mut self) -> bool {
        match self.stream.read(&mut self.said[self.bytes..]) {
            Ok(0) => false,
            Ok(bytes) => {
                self.bytes += bytes;
                true
            }
            Err(error) => is_for_later(&error),
        }
    }
}

impl Link {
    /// Waits for the other at the host's address; `tell` gets the port.
    pub(crate) fn accept(remote: Remote, tell: impl FnOnce(u16), waits: Waits<'_>) -> Option<Link> {
        let listener = TcpListener::bind((remote.address.to_canonical(), 0)).ok()?;
        listener.set_nonblocking(true).ok()?;
        tell(listener.local_addr().ok()?.port());
        let mut strangers: [Option<Stranger>; STRANGERS_MAX] = Default::default();
        let mut next = 0;
        let stream = wait(waits, || {
            if let Ok((stream, _)) = listener.accept() {
                let is_ready = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_ok();
                strangers[next] = is_ready.then_some(Stranger { stream, said: [0; NONCE_BYTES], bytes: 0 });
                next = (next + 1) % STRANGERS_MAX;
            }
            for place in &mut strangers {
                if place.as_mut().is_some_and(|stranger| !stranger.listen()) {
                    *place = None;
                }
                let is_whole = |stranger: &mut Stranger| stranger.bytes == NONCE_BYTES;
                if let Some(Stranger { stream, said, .. }) = place.take_if(is_whole)
                    && u64::from_le_bytes(said) == remote.nonce
                {
                    return Some(Some(stream));
                }
            }
            None
        })?;
        Some(Link { stream: Some(stream), talk: Talk::new() })
    }

    /// Connects to the other.
    pub(crate) fn connect(remote: Remote, port: u16, waits: Waits<'_>) -> Option<Link> {
        let mut stream = TcpStream::from(dial(SocketAddr::new(remote.address.to_canonical(), port))?);
        stream.set_nodelay(true).ok()?;
        let nonce = remote.nonce.to_le_bytes();
        let mut said = 0;
        wait(waits, || match stream.write(&nonce[said..]) {
            Ok(bytes) => {
                said += bytes;
                (said == NONCE_BYTES).then_some(Some(()))
            }
            // Not connected yet.
            Err(error) if is_for_later(&error) => None,
            Err(_) => Some(None),
        })?;
        Some(Link { stream: Some(stream), talk: Talk::new() })
    }

    /// Hears all that there is, and then says what there is: whoever is gone by now is not told that a round begins.
    fn exchange(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        let mut is_lost = false;
        loop {
            let mut bytes = [0; 64];
            match stream.read(&mut bytes) {
                // After an error of writing an end says nothing of what the other had said before.
                Ok(0) => self.talk.ended(!is_lost),
                Ok(heard) => {
                    self.talk.hear(&bytes[..heard]);
                    continue;
                }
                Err(error) if is_for_later(&error) && !is_lost => {
                    if say(stream, &mut self.talk) {
                        return;
                    }
                    is_lost = true;
                    continue;
                }
                Err(_) => self.talk.ended(false),
            }
            let_go(self.stream.take());
            return;
        }
    }
}

impl Meet for Link {
    fn come(&mut self, round: u32, receives: bool) -> Met {
        self.talk.come(round, receives);
        self.look(round)
    }

    fn look(&mut self, _: u32) -> Met {
        self.exchange();
        if self.stream.is_none() {
            self.talk.ended(true);
        }
        self.talk.look()
    }

    fn leave(&mut self, round: u32) -> Met {
        match self.talk.leave() {
            Met::Alone => self.look(round),
            met => {
                if let Some(stream) = &mut self.stream {
                    say(stream, &mut self.talk);
                }
                met
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let_go(self.stream.take());
    }
}

/// Says what there is to say; whether the connection takes it.
fn say(stream: &mut TcpStream, talk: &mut Talk) -> bool {
    while !talk.to_say().is_empty() {
        match stream.write(talk.to_say()) {
            Ok(bytes) => talk.said(bytes),
            Err(error) => return is_for_later(&error),
        }
    }
    true
}

fn is_for_later(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Ends a connection in order, and closes the one before it.
fn let_go(stream: Option<TcpStream>) {
    let Some(stream) = stream else { return };
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let before = LEFT.swap(stream.into_raw_fd(), Ordering::AcqRel);
    if before >= 0 {
        // SAFETY: `into_raw_fd` gave it to nobody but this place, from which it was taken.
        drop(unsafe { OwnedFd::from_raw_fd(before) });
    }
}

/// Looks until there is something, or nobody waits any more.
fn wait<T>(waits: Waits<'_>, mut look: impl FnMut() -> Option<Option<T>>) -> Option<T> {
    let since_ns = monotonic_ns();
    loop {
        if let Some(found) = look() {
            return found;
        }
        if !waits(since_ns) {
            return None;
        }
        pause();
    }
}

/// A socket that begins to connect there.
fn dial(to: SocketAddr) -> Option<OwnedFd> {
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: three numbers; a new descriptor or an error comes back.
    let fd = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let rc = match to.ip() {
        IpAddr::V4(ip) => {
            let address = libc::sockaddr_in {
                sin_family: family_of(family),
                sin_port: to.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: an address of this family, of its size, and an open socket.
            unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), bytes_of(&address)) }
        }
        IpAddr::V6(ip) => {
            let address = libc::sockaddr_in6 {
                sin6_family: family_of(family),
                sin6_port: to.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
                sin6_scope_id: 0,
            };
            // SAFETY: as above.
            unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), bytes_of(&address)) }
        }
    };
    let is_begun = rc == 0 || std::io::Error::last_os_error().raw_os_error() == Some(libc::EINPROGRESS);
    is_begun.then_some(socket)
}

fn family_of(family: libc::c_int) -> libc::sa_family_t {
    libc::sa_family_t::try_from(family).unwrap_or_default()
}

fn bytes_of<T>(of: &T) -> libc::socklen_t {
    libc::socklen_t::try_from(size_of_val(of)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::sync::mpsc::channel;

    /// Comes for rounds whose messages go to and fro, and waits no more in one of them; how many take place.
    fn meets(link: &mut Link, is_keeper: bool, leaves_in: u32) -> u32 {
        for round in 0..12 {
            let mut met = link.come(round, (round % 2 == 0) == is_keeper);
            while met == Met::Alone {
                met = if round < leaves_in { link.look(round) } else { link.leave(round) };
                std::thread::yield_now();
            }
            if met != Met::Both {
                assert_eq!(met, Met::Closed, "nothing is lost here");
                return round;
            }
        }
        12
    }

    #[test]
    fn two_meet_over_a_connection_and_a_stranger_does_not() {
        for (number, leave) in (1..).zip([(99, 99), (3, 99), (99, 4), (5, 5), (0, 99), (99, 0)]) {
            let remote = Remote { address: Ipv4Addr::LOCALHOST.to_ipv6_mapped(), nonce: number };
            let (tell, told) = channel();
            let keeper = std::thread::spawn(move || {
                let tell = |port| tell.send(port).expect("the test waits");
                let mut link = Link::accept(remote, tell, &|_| true).expect("a guest");
                meets(&mut link, true, leave.0)
            });
            let port = told.recv().expect("a port");
            let _silent = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
            let mut liar = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
            liar.write_all(&[0xff; NONCE_BYTES]).expect("it listens");
            assert_eq!(liar.read(&mut [0; 8]).unwrap_or(0), 0, "nobody speaks to it");
            let mut link = Link::connect(remote, port, &|_| true).expect("it listens");
            let guest = meets(&mut link, false, leave.1);
            drop(link);
            let keeper = keeper.join().expect("joins");
            assert_eq!(keeper, guest, "{leave:?}");
            assert!(leave != (99, 99) || keeper == 12);
        }
    }

    #[test]
    fn where_nobody_is_the_two_do_not_meet() {
        let nowhere = Remote { address: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), nonce: 1 };
        assert!(Link::accept(nowhere, |_| unreachable!("not an address of this machine"), &|_| true).is_none());
        assert!(Link::connect(nowhere, 9, &|_| false).is_none());
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr()).expect("a port");
        let here = Remote { address: Ipv4Addr::LOCALHOST.to_ipv6_mapped(), nonce: 1 };
        assert!(Link::connect(here, free.port(), &|_| true).is_none(), "refused, and not waited for");
        assert!(Link::accept(here, drop, &|_| false).is_none(), "nobody comes");
    }
}
