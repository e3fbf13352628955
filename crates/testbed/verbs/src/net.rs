//! A UDP socket that takes and gives packets by the dozen, and what the kernel says of its interface.
use crate::wire::{BTH_BYTES, ICRC_BYTES};
use std::ffi::c_int;
use std::io;
use std::mem::zeroed;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;

/// Packets that one call of the kernel moves at most.
pub(crate) const BATCH: usize = 32;
/// Bytes of the longest packet: 4096 of data, 20 of extended headers at most.
const PACKET_BYTES_MAX: usize = BTH_BYTES + 20 + 4096 + ICRC_BYTES;
/// The kernel's buffer, each way: four windows of 64 packets of 4 KiB, and their bookkeeping.
const BUFFER_BYTES: c_int = 4 << 20;

/// The socket of a device.
#[derive(Debug)]
pub(crate) struct Socket {
    udp: UdpSocket,
    pub(crate) local: SocketAddrV4,
}

impl Socket {
    /// Takes `address` and `port`. Packets are not fragmented, so their identification is 0 and the checksum right.
    ///
    /// # Errors
    /// The address is not this host's, or a process has it.
    pub(crate) fn bind(address: Ipv4Addr, port: u16) -> io::Result<Socket> {
        let udp = UdpSocket::bind((address, port))?;
        let fd = udp.as_raw_fd();
        let set = |level, name, value: c_int| {
            // SAFETY: the value is readable for its length.
            unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), size_of::<c_int>() as u32) }
        };
        for (forced, asked) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
            if set(libc::SOL_SOCKET, forced, BUFFER_BYTES) != 0 {
                set(libc::SOL_SOCKET, asked, BUFFER_BYTES);
            }
        }
        if set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Socket { udp, local: SocketAddrV4::new(address, port) })
    }

    pub(crate) fn fd(&self) -> c_int {
        self.udp.as_raw_fd()
    }

    /// Sends packets, each a stretch of `bytes`. What the kernel does not take is lost, as on any network.
    pub(crate) fn send(&self, bytes: &[u8], packets: &[(SocketAddrV4, std::ops::Range<usize>)]) {
        for some in packets.chunks(BATCH) {
            self.send_some(bytes, some);
        }
    }

    fn send_some(&self, bytes: &[u8], packets: &[(SocketAddrV4, std::ops::Range<usize>)]) {
        // SAFETY: all-zero bytes are valid values of these structures.
        let (mut names, mut parts, mut messages): (
            [libc::sockaddr_in; BATCH],
            [libc::iovec; BATCH],
            [libc::mmsghdr; BATCH],
        ) = unsafe { (zeroed(), zeroed(), zeroed()) };
        for (at, (to, range)) in packets.iter().enumerate() {
            let Some(packet) = bytes.get(range.clone()) else { return };
            names[at] = name(*to);
            parts[at] = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
            messages[at].msg_hdr = header(&mut names[at], &mut parts[at]);
        }
        let mut first = 0;
        while first < packets.len() {
            let left = (packets.len() - first) as u32;
            // SAFETY: the messages point to names, parts and packets that live through the call.
            let sent = unsafe { libc::sendmmsg(self.fd(), messages[first..].as_mut_ptr(), left, 0) };
            // A packet that the kernel refuses is passed over.
            first += usize::try_from(sent).unwrap_or(0).max(1);
        }
    }

    /// Takes what has come, without waiting. How many packets are in `batch`.
    pub(crate) fn receive(&self, batch: &mut Batch) -> usize {
        // SAFETY: all-zero bytes are valid values of these structures.
        let (mut parts, mut messages): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) = unsafe { (zeroed(), zeroed()) };
        for (at, buffer) in batch.buffers.iter_mut().enumerate() {
            parts[at] = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            messages[at].msg_hdr = header(&mut batch.names[at], &mut parts[at]);
        }
        // SAFETY: the messages point to names and buffers that live through the call.
        let got = unsafe {
            let none = std::ptr::null_mut();
            libc::recvmmsg(self.fd(), messages.as_mut_ptr(), BATCH as u32, libc::MSG_DONTWAIT, none)
        };
        let got = usize::try_from(got).unwrap_or(0);
        for (length, message) in batch.lengths.iter_mut().zip(&messages[..got]) {
            *length = message.msg_len as usize;
        }
        got
    }
}

fn name(to: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: to.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*to.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

fn header(name: &mut libc::sockaddr_in, part: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: all-zero bytes are a valid msghdr.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_name = (&raw mut *name).cast();
    header.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
    header.msg_iov = part;
    header.msg_iovlen = 1;
    header
}

/// Buffers for what comes.
pub(crate) struct Batch {
    buffers: Vec<[u8; PACKET_BYTES_MAX]>,
    names: [libc::sockaddr_in; BATCH],
    lengths: [usize; BATCH],
}

impl Batch {
    pub(crate) fn new() -> Batch {
        // SAFETY: all-zero bytes are valid socket addresses.
        let names = unsafe { zeroed() };
        Batch { buffers: vec![[0; PACKET_BYTES_MAX]; BATCH], names, lengths: [0; BATCH] }
    }

    /// Packet `at`, and who sent it.
    pub(crate) fn packet(&self, at: usize) -> (SocketAddrV4, &[u8]) {
        let name = &self.names[at];
        let from = SocketAddrV4::new(Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr)), u16::from_be(name.sin_port));
        (from, &self.buffers[at][..self.lengths[at].min(PACKET_BYTES_MAX)])
    }
}

/// Bytes that the interface of an address takes at once; of an address that no interface names, those of `lo`.
pub(crate) fn interface_mtu(address: Ipv4Addr) -> Option<u32> {
    let mut name = *b"lo\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: getifaddrs fills the pointer on success only.
    if unsafe { libc::getifaddrs(&mut list) } == 0 {
        let mut node = list;
        while !node.is_null() {
            // SAFETY: node is an element of the list, not yet freed.
            let entry = unsafe { &*node };
            node = entry.ifa_next;
            // SAFETY: the address is null or begins with its family.
            if entry.ifa_addr.is_null() || unsafe { (*entry.ifa_addr).sa_family } != libc::AF_INET as u16 {
                continue;
            }
            // SAFETY: the family says that this is a sockaddr_in.
            let found = unsafe { (*entry.ifa_addr.cast::<libc::sockaddr_in>()).sin_addr.s_addr };
            if found == u32::from(address).to_be() {
                // SAFETY: the name is a NUL-terminated string of the list.
                let text = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) }.to_bytes();
                name = [0; 16];
                name.iter_mut().zip(text.iter().take(15)).for_each(|(to, from)| *to = *from);
            }
        }
        // SAFETY: the list came from getifaddrs and is freed once.
        unsafe { libc::freeifaddrs(list) };
    }
    let probe = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { zeroed() };
    request.ifr_name.iter_mut().zip(name).for_each(|(to, from)| *to = from as libc::c_char);
    // SAFETY: the request is valid for reading and writing.
    if unsafe { libc::ioctl(probe.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) } != 0 {
        return None;
    }
    // SAFETY: on success the kernel has filled this field.
    u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).ok()
}
