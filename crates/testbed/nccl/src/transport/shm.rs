//! Shared memory between ranks of one host: one anonymous segment per (communicator, rank).
//!
//! A segment is a memfd. Peers open it through /proc while the communicator initializes and the descriptor is closed
//! once everybody has mapped it, so nothing has a name and a crash leaves nothing behind.
//!
//! ```text
//! page 0        doorbell of the rank
//! then          FIFO [local sender][channel][lane], each fifo_bytes long; the segment's owner is the receiver
//! ```

use super::Lane;
use super::fifo::fifo_bytes;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

/// Most bytes of address space a segment may take; pages are used only where data went.
pub const SEGMENT_BYTES_MAX: usize = 1 << 36;

/// A shared or private mapping that lives as long as its last user.
#[derive(Debug)]
pub struct Mapping {
    base: *mut u8,
    len: usize,
}

// SAFETY: a Mapping is just an address range; those who write there synchronize through the atomics in it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory of this process.
    ///
    /// # Errors
    /// No memory can be had.
    pub fn private(len: usize) -> io::Result<Mapping> {
        Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)
    }

    /// The whole of `file`.
    ///
    /// # Errors
    /// The file cannot be mapped.
    pub fn shared(file: &File, len: usize) -> io::Result<Mapping> {
        Self::map(len, libc::MAP_SHARED | libc::MAP_NORESERVE, file.as_raw_fd())
    }

    fn map(len: usize, flags: i32, fd: i32) -> io::Result<Mapping> {
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { base: base.cast(), len })
    }

    /// First byte.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never true: mmap refuses empty mappings.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and len are what mmap returned and got.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// The shape of every segment of a communicator on one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Ranks of the communicator on this host.
    pub locals: usize,
    /// Channels.
    pub channels: usize,
    /// Bytes of a slot.
    pub slot_bytes: usize,
}

impl Shape {
    /// Bytes of a segment.
    pub fn bytes(&self) -> usize {
        4096 + self.locals * self.channels * 2 * fifo_bytes(self.slot_bytes)
    }

    /// Where the FIFO from local rank `sender` lies in its receiver's segment.
    pub fn offset(&self, sender: usize, channel: usize, lane: Lane) -> usize {
        assert!(sender < self.locals && channel < self.channels);
        4096 + ((sender * self.channels + channel) * 2 + lane as usize) * fifo_bytes(self.slot_bytes)
    }
}

/// Makes an anonymous segment of `len` bytes.
///
/// # Errors
/// The size is over the limit, or no memory can be had.
pub fn create_segment(len: usize) -> io::Result<File> {
    if len > SEGMENT_BYTES_MAX {
        return Err(io::Error::other(format!("a segment of {len} bytes is over the limit of {SEGMENT_BYTES_MAX}")));
    }
    // SAFETY: the name is a NUL-terminated constant.
    let fd = unsafe { libc::memfd_create(c"mycroft-testbed".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fd is a fresh descriptor that nobody else owns.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(len as u64)?;
    Ok(file)
}

/// Opens the segment that process `pid` holds as descriptor `fd`, and checks its size.
///
/// # Errors
/// The process or descriptor is gone, may not be looked at, or has another size.
pub fn open_segment(pid: u32, fd: i32, len: usize) -> io::Result<Mapping> {
    let file = File::options().read(true).write(true).open(format!("/proc/{pid}/fd/{fd}"))?;
    let found = file.metadata()?.len();
    if found != len as u64 {
        return Err(io::Error::other(format!("peer {pid}'s segment has {found} bytes, expected {len}")));
    }
    Mapping::shared(&file, len)
}
