//! The memory of a segment on the writer's side: a mapped file, or a piece of heap for models and miri.
use crate::cells::{FlowCell, OpCell};
use crate::error::CreateError;
use crate::layout::{CELL_WORDS, Geometry, RING_HEADER_WORDS, SLOT_WORDS, WORD_BYTES};
use crate::sync::AtomicU64;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;

/// Words shared with readers, and where the sections are.
pub(crate) struct Region {
    words: NonNull<AtomicU64>,
    len: usize,
    mapped: bool,
    pub(crate) geometry: Geometry,
    sections: [Range<usize>; crate::layout::SECTIONS],
}

// SAFETY: the memory is only reached as `&[AtomicU64]`, which is Sync, and stays where it is until the drop.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps a file that has all its bytes already.
    pub(crate) fn map(file: &File, path: &Path, geometry: Geometry) -> Result<Region, CreateError> {
        let bytes = geometry.total_bytes() as usize;
        // SAFETY: a new shared mapping of a file we hold open; no address is asked for, so nothing is unmapped. Pages are
        // populated here so that no event ever takes the fault. The file has all its blocks (posix_fallocate) and only
        // this user can shrink it, so an access cannot raise SIGBUS.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                file.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(at.cast::<AtomicU64>()) {
            Some(words) if at != libc::MAP_FAILED => Ok(Region::new(words, true, geometry)),
            _ => Err(CreateError::File { operation: "map", path: path.to_owned(), source: io::Error::last_os_error() }),
        }
    }

    /// Zeroed heap memory of the same shape.
    pub(crate) fn heap(geometry: Geometry) -> Region {
        let words: Box<[AtomicU64]> = (0..geometry.total_words()).map(|_| AtomicU64::new(0)).collect();
        Region::new(NonNull::from(Box::leak(words)).cast(), false, geometry)
    }

    fn new(words: NonNull<AtomicU64>, mapped: bool, geometry: Geometry) -> Region {
        let len = geometry.total_words() as usize;
        let offsets = geometry.offsets();
        let [comms, ops, flows] = [geometry.comms, geometry.ops, geometry.flows].map(|n| n as usize);
        let rings = geometry.rings as usize;
        let lengths = [
            comms,
            comms * CELL_WORDS,
            ops,
            ops * CELL_WORDS,
            flows,
            flows * CELL_WORDS,
            rings * RING_HEADER_WORDS,
            rings * geometry.ring_slots as usize * SLOT_WORDS,
        ];
        let sections = std::array::from_fn(|i| offsets[i] as usize..offsets[i] as usize + lengths[i]);
        Region { words, len, mapped, geometry, sections }
    }

    /// All words.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: `words` points to `len` words, aligned (page or box), initialized (zeroed file or box), alive as long as
        // `self`. Other threads and processes change them only atomically as far as this program can see.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.len) }
    }

    #[inline]
    fn section(&self, i: usize) -> &[AtomicU64] {
        &self.words()[self.sections[i].clone()]
    }

    /// Communicator directory and cells.
    #[inline]
    pub(crate) fn comm_dir(&self) -> &[AtomicU64] {
        self.section(0)
    }
    #[inline]
    pub(crate) fn comm_cell(&self, index: u64) -> &[AtomicU64] {
        &self.section(1)[index as usize * CELL_WORDS..][..CELL_WORDS]
    }
    #[inline]
    pub(crate) fn op_dir(&self) -> &[AtomicU64] {
        self.section(2)
    }
    #[inline]
    pub(crate) fn op_cell(&self, index: u64) -> &OpCell {
        let words: &[AtomicU64] = &self.section(3)[index as usize * CELL_WORDS..][..CELL_WORDS];
        // SAFETY: `OpCell` is a transparent wrapper of `[AtomicU64; CELL_WORDS]`, and the slice has that many.
        unsafe { &*words.as_ptr().cast::<OpCell>() }
    }
    #[inline]
    pub(crate) fn flow_dir(&self) -> &[AtomicU64] {
        self.section(4)
    }
    #[inline]
    pub(crate) fn flow_cell(&self, index: u64) -> &FlowCell {
        let words: &[AtomicU64] = &self.section(5)[index as usize * CELL_WORDS..][..CELL_WORDS];
        // SAFETY: as in `op_cell`.
        unsafe { &*words.as_ptr().cast::<FlowCell>() }
    }
    #[inline]
    pub(crate) fn ring_header(&self, ring: usize) -> &[AtomicU64] {
        &self.section(6)[ring * RING_HEADER_WORDS..][..RING_HEADER_WORDS]
    }
    #[inline]
    pub(crate) fn ring_slot(&self, ring: usize, slot: u64) -> &[AtomicU64] {
        let index = ring * self.geometry.ring_slots as usize + slot as usize;
        &self.section(7)[index * SLOT_WORDS..][..SLOT_WORDS]
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.mapped {
            // SAFETY: exactly the mapping made in `map`; no reference into it outlives `self`.
            unsafe { libc::munmap(self.words.as_ptr().cast(), self.len * WORD_BYTES) };
        } else {
            let words = std::ptr::slice_from_raw_parts_mut(self.words.as_ptr(), self.len);
            // SAFETY: exactly the box leaked in `heap`.
            drop(unsafe { Box::from_raw(words) });
        }
    }
}

/// Gives a file all its blocks, so that a full file system is an error here and not a SIGBUS at some store.
pub(crate) fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    let bytes = libc::off_t::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    // SAFETY: a plain call on a descriptor we hold open.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Bytes that an unprivileged writer may still put on the file system of an open directory.
pub(crate) fn available_bytes(directory: &File) -> io::Result<u64> {
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `stat` is memory for one statvfs; the descriptor is open.
    let rc = unsafe { libc::fstatvfs(directory.as_raw_fd(), stat.as_mut_ptr()) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it filled `stat`.
    let stat = unsafe { stat.assume_init() };
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
