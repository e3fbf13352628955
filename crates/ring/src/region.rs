//! The memory of a segment on the writer's side: a mapped file, or a piece of heap for models and miri.
use crate::cells::{FlowCell, OpCell};
use crate::error::Errno;
use crate::layout::{CELL_WORDS, Geometry, RING_HEADER_WORDS, SLOT_WORDS, WORD_BYTES};
use crate::narrow::at;
use crate::pages::{Backing, Pages};
use crate::sync::AtomicU64;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// Words shared with readers, and where the sections are. Clones share them; the last one gives them back. (An `Arc` would
/// do the same, but it takes its count from the heap, and a lack of that ends the process.)
pub(crate) struct Region {
    /// How many clones there are, in a page that the last one gives back.
    holders: NonNull<AtomicUsize>,
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
    pub(crate) fn map(file: &File, geometry: Geometry) -> Result<Region, Errno> {
        let holders = holders()?;
        let bytes = usize::try_from(geometry.total_bytes()).map_err(|_| Errno(libc::ENOMEM))?;
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
            Some(words) if at != libc::MAP_FAILED => Ok(Region::new(holders, words, true, geometry)),
            _ => Err(Errno::last()),
        }
    }

    /// Zeroed heap memory of the same shape, for models: they may fail as they like.
    pub(crate) fn heap(geometry: Geometry) -> Result<Region, Errno> {
        let holders = holders()?;
        let words: Box<[AtomicU64]> = (0..geometry.total_words()).map(|_| AtomicU64::new(0)).collect();
        Ok(Region::new(holders, NonNull::from(Box::leak(words)).cast(), false, geometry))
    }

    fn new(holders: Pages, words: NonNull<AtomicU64>, mapped: bool, geometry: Geometry) -> Region {
        let holders = ManuallyDrop::new(holders).start().cast();
        let len = at(geometry.total_words());
        let offsets = geometry.offsets();
        let [comms, ops, flows] = [geometry.comms, geometry.ops, geometry.flows].map(at);
        let rings = at(geometry.rings);
        let lengths = [
            comms,
            comms * CELL_WORDS,
            ops,
            ops * CELL_WORDS,
            flows,
            flows * CELL_WORDS,
            rings * RING_HEADER_WORDS,
            rings * at(geometry.ring_slots) * SLOT_WORDS,
        ];
        let sections = std::array::from_fn(|i| at(offsets[i])..at(offsets[i]) + lengths[i]);
        Region { holders, words, len, mapped, geometry, sections }
    }

    fn count(&self) -> &AtomicUsize {
        // SAFETY: it lives as long as any clone of this region does.
        unsafe { self.holders.as_ref() }
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
        &self.section(1)[at(index) * CELL_WORDS..][..CELL_WORDS]
    }
    #[inline]
    pub(crate) fn op_dir(&self) -> &[AtomicU64] {
        self.section(2)
    }
    #[inline]
    pub(crate) fn op_cell(&self, index: u64) -> &OpCell {
        let words: &[AtomicU64] = &self.section(3)[at(index) * CELL_WORDS..][..CELL_WORDS];
        // SAFETY: `OpCell` is a transparent wrapper of `[AtomicU64; CELL_WORDS]`, and the slice has that many.
        unsafe { &*words.as_ptr().cast::<OpCell>() }
    }
    #[inline]
    pub(crate) fn flow_dir(&self) -> &[AtomicU64] {
        self.section(4)
    }
    #[inline]
    pub(crate) fn flow_cell(&self, index: u64) -> &FlowCell {
        let words: &[AtomicU64] = &self.section(5)[at(index) * CELL_WORDS..][..CELL_WORDS];
        // SAFETY: as in `op_cell`.
        unsafe { &*words.as_ptr().cast::<FlowCell>() }
    }
    #[inline]
    pub(crate) fn ring_header(&self, ring: usize) -> &[AtomicU64] {
        &self.section(6)[ring * RING_HEADER_WORDS..][..RING_HEADER_WORDS]
    }
    #[inline]
    pub(crate) fn ring_slot(&self, ring: usize, slot: u64) -> &[AtomicU64] {
        let index = ring * at(self.geometry.ring_slots) + at(slot);
        &self.section(7)[index * SLOT_WORDS..][..SLOT_WORDS]
    }
}

/// A page with a count of one.
fn holders() -> Result<Pages, Errno> {
    let pages = Pages::new(size_of::<AtomicUsize>(), Backing::Now)?;
    // SAFETY: a page is aligned and large enough, and zero is a value of an integer.
    unsafe { pages.start().cast::<AtomicUsize>().as_ref() }.store(1, Ordering::Relaxed);
    Ok(pages)
}

impl Clone for Region {
    fn clone(&self) -> Region {
        self.count().fetch_add(1, Ordering::Relaxed);
        let Region { holders, words, len, mapped, geometry, .. } = *self;
        Region { holders, words, len, mapped, geometry, sections: self.sections.clone() }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.count().fetch_sub(1, Ordering::Release) > 1 {
            return;
        }
        // What other holders did comes before the end.
        fence(Ordering::Acquire);
        if self.mapped {
            // SAFETY: exactly the mapping made in `map`; this was its last holder, and no reference outlives that.
            unsafe { libc::munmap(self.words.as_ptr().cast(), self.len * WORD_BYTES) };
        } else {
            let words = std::ptr::slice_from_raw_parts_mut(self.words.as_ptr(), self.len);
            // SAFETY: exactly the box leaked in `heap`.
            drop(unsafe { Box::from_raw(words) });
        }
        // SAFETY: the page of `holders`, which nobody has any more.
        drop(unsafe { Pages::of(self.holders.cast(), size_of::<AtomicUsize>()) });
    }
}

/// Gives a file all its blocks, so that a full file system is an error here and not a SIGBUS at some store.
pub(crate) fn allocate(file: &File, bytes: u64) -> Result<(), Errno> {
    let bytes = libc::off_t::try_from(bytes).map_err(|_| Errno(libc::EFBIG))?;
    // SAFETY: a plain call on a descriptor we hold open.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes) } {
        0 => Ok(()),
        errno => Err(Errno(errno)),
    }
}

/// Bytes of a file system, and those of them that an unprivileged writer may still take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Space {
    /// All.
    pub(crate) total: u64,
    /// Left.
    pub(crate) available: u64,
}

/// Space of the file system of an open directory.
pub(crate) fn space_of(directory: &File) -> Result<Space, Errno> {
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `stat` is memory for one statvfs; the descriptor is open.
    let rc = unsafe { libc::fstatvfs(directory.as_raw_fd(), stat.as_mut_ptr()) };
    if rc != 0 {
        return Err(Errno::last());
    }
    // SAFETY: the call succeeded, so it filled `stat`.
    let stat = unsafe { stat.assume_init() };
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok(Space { total: bytes(stat.f_blocks), available: bytes(stat.f_bavail) })
}
