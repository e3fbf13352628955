//! Chain handles: each stands for our own handle and the other plugin's.
use mycroft_probe_core::handle::{GENERATION_MASK, next_generation};
use mycroft_probe_core::pages::{Backing, Slab, Zeroed};
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Type nibble of a chain handle; the core's own kinds are 1 to 5, 7 and 15.
pub(crate) const CHAIN_KIND: u64 = 6;

struct Slot {
    /// Generation in the high half, 1 in bit 0 while the pair is set.
    tag: AtomicU64,
    ours: AtomicU64,
    theirs: AtomicPtr<c_void>,
}

// SAFETY: integers, and a pointer that may be NULL.
unsafe impl Zeroed for Slot {}

/// Pairs in use, given out in turn.
pub(crate) struct Pool {
    slots: Slab<Slot>,
    next: AtomicU64,
}

/// The two sides of a chain handle.
#[derive(Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) ours: u64,
    pub(crate) theirs: *mut c_void,
}

impl Pool {
    /// `None` where there is no memory for it.
    pub(crate) fn new(slots: u32) -> Option<Pool> {
        Some(Pool { slots: Slab::new(slots as usize, Backing::Now).ok()?, next: AtomicU64::new(0) })
    }

    pub(crate) fn put(&self, number: u64, pair: Pair) -> u64 {
        let index = self.next.fetch_add(1, Ordering::Relaxed) & (self.slots.len() as u64 - 1);
        let slot = &self.slots[index as usize];
        let generation = next_generation((slot.tag.load(Ordering::Relaxed) >> 1) as u32);
        slot.tag.store(u64::from(generation) << 1, Ordering::Release);
        slot.ours.store(pair.ours, Ordering::Release);
        slot.theirs.store(pair.theirs, Ordering::Release);
        slot.tag.store(u64::from(generation) << 1 | 1, Ordering::Release);
        CHAIN_KIND << 60 | u64::from(generation) << 32 | number << 28 | index
    }

    pub(crate) fn get(&self, raw: u64) -> Option<Pair> {
        let slot = self.slots.get((raw & 0x0fff_ffff) as usize)?;
        let tag = (raw >> 32 & u64::from(GENERATION_MASK)) << 1 | 1;
        if slot.tag.load(Ordering::Acquire) != tag {
            return None;
        }
        let pair = Pair { ours: slot.ours.load(Ordering::Acquire), theirs: slot.theirs.load(Ordering::Acquire) };
        (slot.tag.load(Ordering::Acquire) == tag).then_some(pair)
    }

    /// Ends a pair on the other's side and gives what was there; later uses of the handle reach only our side.
    pub(crate) fn end_theirs(&self, raw: u64, ended: *mut c_void) -> *mut c_void {
        match self.get(raw) {
            Some(_) => self.slots[(raw & 0x0fff_ffff) as usize].theirs.swap(ended, Ordering::AcqRel),
            None => ended,
        }
    }
}
