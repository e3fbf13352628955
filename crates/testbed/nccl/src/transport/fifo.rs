//! The staging FIFO of one connection: eight slots, a tail that the producer moves and a head that the consumer (or,
//! for a network sender, the proxy as credit) moves. And the doorbell on which a device sleeps.
//!
//! ```text
//! page 0      tail (i64)  | +64 head (i64) | +128 size of each slot (8 x u32)
//! page 1...   slot 0 | slot 1 | ... | slot 7
//! ```
//!
//! The producer may fill step `s` (slot `s % 8`) when `s < head + 8`; the consumer may empty it when `s < tail`.
//! A network sender's head starts at -8: nothing may be filled before the proxy has posted the step.

use super::shm::Mapping;
use crate::env::STEPS;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// Bytes before the first slot.
pub const CTRL_BYTES: usize = 4096;

/// Bytes a FIFO with slots of `slot_bytes` takes.
pub fn fifo_bytes(slot_bytes: usize) -> usize {
    (CTRL_BYTES + slot_bytes * STEPS as usize).next_multiple_of(4096)
}

#[repr(C)]
struct Ctrl {
    tail: AtomicI64,
    pad0: [u64; 7],
    head: AtomicI64,
    pad1: [u64; 7],
    sizes: [AtomicU32; STEPS as usize],
}

const _: () = {
    assert!(std::mem::offset_of!(Ctrl, head) == 64);
    assert!(std::mem::offset_of!(Ctrl, sizes) == 128);
    assert!(size_of::<Ctrl>() <= CTRL_BYTES);
};

/// One end's view of a FIFO.
#[derive(Debug, Clone)]
pub struct Fifo {
    map: Arc<Mapping>,
    offset: usize,
    slot_bytes: usize,
}

impl Fifo {
    /// The FIFO at `offset` of `map`. Panics when it does not fit: offsets come from one formula on both ends.
    pub fn new(map: Arc<Mapping>, offset: usize, slot_bytes: usize) -> Fifo {
        assert!(offset.is_multiple_of(64) && offset + fifo_bytes(slot_bytes) <= map.len(), "FIFO outside its segment");
        Fifo { map, offset, slot_bytes }
    }

    /// A FIFO in private memory.
    ///
    /// # Errors
    /// No memory can be had.
    pub fn private(slot_bytes: usize) -> std::io::Result<Fifo> {
        Ok(Fifo::new(Arc::new(Mapping::private(fifo_bytes(slot_bytes))?), 0, slot_bytes))
    }

    fn ctrl(&self) -> &Ctrl {
        // SAFETY: `new` checked that a whole FIFO lies at `offset`, 64-byte aligned; all fields are atomics.
        unsafe { &*self.map.base().add(self.offset).cast::<Ctrl>() }
    }

    /// The memory that it lies in.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.map
    }

    /// Bytes of one slot.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Steps produced so far.
    pub fn tail(&self) -> i64 {
        self.ctrl().tail.load(Ordering::Acquire)
    }

    /// Steps consumed so far (shared memory, receivers) or posted so far less eight (network senders).
    pub fn head(&self) -> i64 {
        self.ctrl().head.load(Ordering::Acquire)
    }

    /// Publishes produced steps.
    pub fn set_tail(&self, step: i64) {
        self.ctrl().tail.store(step, Ordering::Release);
    }

    /// Publishes consumed steps or credit.
    pub fn set_head(&self, step: i64) {
        self.ctrl().head.store(step, Ordering::Release);
    }

    /// Bytes in the slice that begins at `step`.
    pub fn size(&self, step: u64) -> usize {
        self.ctrl().sizes[(step % STEPS) as usize].load(Ordering::Acquire) as usize
    }

    /// Sets the bytes of the slice that begins at `step`.
    pub fn set_size(&self, step: u64, bytes: usize) {
        let bytes = u32::try_from(bytes).expect("a slice is below 4 GiB");
        self.ctrl().sizes[(step % STEPS) as usize].store(bytes, Ordering::Release);
    }

    /// Where the slice of `steps` steps that begins at `step` lies. The caller may touch at most
    /// `steps * slot_bytes` bytes there, and only between the two publications that give it the slice.
    pub fn slot(&self, step: u64, steps: u64) -> *mut u8 {
        let index = (step % STEPS) as usize;
        assert!(index + steps as usize <= STEPS as usize, "a slice wraps around the FIFO");
        // SAFETY: index + steps <= 8, so the slots lie inside the FIFO, which lies inside the mapping.
        unsafe { self.map.base().add(self.offset + CTRL_BYTES + index * self.slot_bytes) }
    }
}

/// The first bytes of every rank's segment: a word to sleep on.
#[repr(C)]
struct Bell {
    rings: AtomicU32,
    sleepers: AtomicU32,
}

/// Wakes the device of one rank in one communicator, from any process that mapped its segment.
#[derive(Debug, Clone)]
pub struct Doorbell {
    map: Arc<Mapping>,
}

impl Doorbell {
    /// The doorbell at the start of `map`.
    pub fn new(map: Arc<Mapping>) -> Doorbell {
        assert!(map.len() >= size_of::<Bell>());
        Doorbell { map }
    }

    fn bell(&self) -> &Bell {
        // SAFETY: the mapping is page aligned and at least as large as a Bell; both fields are atomics.
        unsafe { &*self.map.base().cast::<Bell>() }
    }

    /// The number to hand to [`Doorbell::wait`]; read it before looking for work.
    pub fn rings(&self) -> u32 {
        self.bell().rings.load(Ordering::SeqCst)
    }

    /// Says that there may be work.
    pub fn ring(&self) {
        let bell = self.bell();
        bell.rings.fetch_add(1, Ordering::SeqCst);
        if bell.sleepers.load(Ordering::SeqCst) != 0 {
            // SAFETY: FUTEX_WAKE only uses the address as a key; it stays mapped while self lives.
            unsafe { libc::syscall(libc::SYS_futex, bell.rings.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
        }
    }

    /// Sleeps until somebody rang after `seen` was read, at most `limit_ms`.
    pub fn wait(&self, seen: u32, limit_ms: u32) {
        let bell = self.bell();
        let limit =
            libc::timespec { tv_sec: i64::from(limit_ms / 1000), tv_nsec: i64::from(limit_ms % 1000) * 1_000_000 };
        bell.sleepers.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the word stays mapped while self lives, and `limit` outlives the call. The kernel compares the word
        // with `seen` under its own lock, so a ring in between is not lost.
        unsafe {
            libc::syscall(libc::SYS_futex, bell.rings.as_ptr(), libc::FUTEX_WAIT, seen, &raw const limit);
        }
        bell.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}
