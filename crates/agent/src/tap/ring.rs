//! The packet socket of a tap and the ring of blocks that it shares with the kernel (`TPACKET_V3`). The one file of the tap with
//! unsafe code; what is in a block is read by `block`.
use std::ffi::CString;
use std::io;
use std::mem::{MaybeUninit, offset_of, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Bytes of the frames that the ring's size is divided by for the kernel; with `TPACKET_V3` packets lie as densely as they fit.
const FRAME_BYTES: usize = 256;
/// Milliseconds after which the kernel hands a block over that is not full.
const RETIRE_MS: u32 = 10;
/// Where a block says whose it is.
const STATUS_AT: usize = offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, block_status);

/// What the kernel counted since it was asked before.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Statistics {
    /// Packets that passed the filter, those that were lost included.
    pub(super) packets: u64,
    /// Packets that found no room.
    pub(super) drops: u64,
    /// Times at which the ring was full.
    pub(super) freezes: u64,
}

/// A socket of the packet family that gets nothing before it is bound.
pub(super) struct Socket(OwnedFd);

impl Socket {
    /// Opens it, which needs `CAP_NET_RAW`.
    pub(super) fn open() -> io::Result<Socket> {
        // SAFETY: the call takes numbers only. Protocol 0: nothing is received before `listen`.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        checked(fd)?;
        // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
        Ok(Socket(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sets an option: plain integers, or a program that lives through the call.
    pub(super) fn set<T: Copy>(&self, level: i32, option: i32, value: &T) -> io::Result<()> {
        let bytes = socklen::<T>()?;
        // SAFETY: `value` lives through the call, which reads as many bytes as it has.
        checked(unsafe { libc::setsockopt(self.0.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), bytes) })
    }

    /// Lets only those packets in for which the program gives a length, and so many bytes of each.
    pub(super) fn filter(&self, program: &[libc::sock_filter]) -> io::Result<()> {
        let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // The kernel copies the program before it returns and writes nothing to it.
        self.set(
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            &libc::sock_fprog { len, filter: program.as_ptr().cast_mut() },
        )
    }

    /// Ties the socket to an interface and says what its link is (`ARPHRD_` of Linux); with `hears`, packets begin to come.
    pub(super) fn bind(&self, index: i32, hears: bool) -> io::Result<u16> {
        let protocol = if hears { u16::try_from(libc::ETH_P_ALL).unwrap_or(0).to_be() } else { 0 };
        // SAFETY: the struct is plain integers, for which all zero bytes are a value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index;
        let mut bytes = socklen::<libc::sockaddr_ll>()?;
        // SAFETY: `address` lives through the call, which reads as many bytes as it has.
        checked(unsafe { libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), bytes) })?;
        // SAFETY: `address` and `bytes` live through the call, which writes at most as many bytes as it has.
        checked(unsafe { libc::getsockname(self.0.as_raw_fd(), (&raw mut address).cast(), &raw mut bytes) })?;
        Ok(address.sll_hatype)
    }

    fn option<T: Copy>(&self, level: i32, option: i32) -> io::Result<T> {
        let (mut value, mut bytes) = (MaybeUninit::<T>::zeroed(), socklen::<T>()?);
        // SAFETY: `value` and `bytes` live through the call, which writes at most as many bytes as `value` has.
        checked(unsafe {
            libc::getsockopt(self.0.as_raw_fd(), level, option, value.as_mut_ptr().cast(), &raw mut bytes)
        })?;
        // SAFETY: it is used with plain integers only, for which all zero bytes and what the kernel wrote are values.
        Ok(unsafe { value.assume_init() })
    }

    /// What was counted since the call before; the kernel begins anew with each.
    pub(super) fn statistics(&self) -> io::Result<Statistics> {
        let told: libc::tpacket_stats_v3 = self.option(libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
        Ok(Statistics {
            packets: told.tp_packets.into(),
            drops: told.tp_drops.into(),
            freezes: told.tp_freeze_q_cnt.into(),
        })
    }

    /// Waits until a block is there or the time is over; an error of the socket, such as that of an interface that went down.
    pub(super) fn wait(&self, limit: Duration) -> io::Result<()> {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let limit_ms = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: `poll` is one valid struct that lives through the call.
        match checked(unsafe { libc::poll(&raw mut poll, 1, limit_ms) }) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        if poll.revents & libc::POLLERR == 0 {
            return Ok(());
        }
        match self.option::<i32>(libc::SOL_SOCKET, libc::SO_ERROR)? {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// The number of an interface of this network namespace.
pub(super) fn index(interface: &str) -> io::Result<i32> {
    let name = CString::new(interface).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `name` is a terminated string that lives through the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => i32::try_from(index).map_err(|_| io::ErrorKind::InvalidData.into()),
    }
}

/// A socket with its blocks.
pub(super) struct Ring {
    pub(super) socket: Socket,
    memory: NonNull<u8>,
    block_bytes: usize,
    blocks: usize,
    next: usize,
}

impl Ring {
    /// Gives a socket that is not bound so many blocks, each a power of two of pages.
    pub(super) fn new(socket: Socket, blocks: usize, block_bytes: usize) -> io::Result<Ring> {
        socket.set(libc::SOL_PACKET, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V3 as i32))?;
        let number = |count: usize| u32::try_from(count).map_err(|_| io::ErrorKind::InvalidInput);
        let asked = libc::tpacket_req3 {
            tp_block_size: number(block_bytes)?,
            tp_block_nr: number(blocks)?,
            tp_frame_size: number(FRAME_BYTES)?,
            tp_frame_nr: number(blocks * (block_bytes / FRAME_BYTES))?,
            tp_retire_blk_tov: RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        socket.set(libc::SOL_PACKET, libc::PACKET_RX_RING, &asked)?;
        let (bytes, rights) = (blocks * block_bytes, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping at an address of the kernel's choice; the socket has a ring of just so many bytes.
        let memory =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, libc::MAP_SHARED, socket.0.as_raw_fd(), 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Ring { socket, memory, block_bytes, blocks, next: 0 })
    }

    /// Blocks of the ring.
    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Whether the next block is ours.
    pub(super) fn is_ready(&self) -> bool {
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Shows the bytes of the next block, if it is ours, and gives it back to the kernel.
    pub(super) fn take<R>(&mut self, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        if !self.is_ready() {
            return None;
        }
        // SAFETY: the block lies in the mapping, which lives as long as `self`. It is ours since `is_ready` said so (acquire), so
        // the kernel writes nothing to it before the store below, and the bytes are not used after `look`.
        let seen = look(unsafe { std::slice::from_raw_parts(self.block().as_ptr(), self.block_bytes) });
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.blocks;
        Some(seen)
    }

    fn block(&self) -> NonNull<u8> {
        // SAFETY: `next` is less than `blocks`, so the block begins within the mapping.
        unsafe { self.memory.add(self.next * self.block_bytes) }
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: the word lies in the block and so in the mapping, is aligned (blocks are at pages, the offset is a multiple of
        // four), and both sides use it as one word.
        unsafe { AtomicU32::from_ptr(self.block().add(STATUS_AT).as_ptr().cast()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with just this length, and nothing borrows from it any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.blocks * self.block_bytes) };
    }
}

fn checked(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn socklen<T>() -> io::Result<libc::socklen_t> {
    libc::socklen_t::try_from(size_of::<T>()).map_err(|_| io::ErrorKind::InvalidInput.into())
}
