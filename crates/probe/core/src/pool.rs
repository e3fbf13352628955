//! A lock-free list of free slot numbers: push and pop are one compare-and-swap each.
use mycroft_ring::Errno;
use mycroft_ring::pages::{Backing, Slab};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Free slots. The head's upper half counts pops, so that a slot popped and pushed in between is noticed.
pub(crate) struct FreeList {
    head: AtomicU64,
    next: Slab<AtomicU32>,
}

impl FreeList {
    /// All of `slots` are free, the lowest first.
    pub(crate) fn new(slots: u32) -> Result<FreeList, Errno> {
        let next = Slab::<AtomicU32>::new(slots as usize, Backing::Now)?;
        // Numbers are kept plus one; 0 ends the list.
        for (word, behind) in next.iter().zip(2..=slots) {
            word.store(behind, Ordering::Relaxed);
        }
        Ok(FreeList { head: AtomicU64::new(u64::from(slots > 0)), next })
    }

    /// A free slot, which is the caller's until it is pushed again.
    #[inline]
    pub(crate) fn pop(&self) -> Option<u32> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let slot = (head as u32).checked_sub(1)?;
            let next = self.next[slot as usize].load(Ordering::Relaxed);
            let new = ((head >> 32) + 1) << 32 | u64::from(next);
            match self.head.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(slot),
                Err(seen) => head = seen,
            }
        }
    }

    /// Gives a slot back.
    #[inline]
    pub(crate) fn push(&self, slot: u32) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            self.next[slot as usize].store(head as u32, Ordering::Relaxed);
            let new = head & !u64::from(u32::MAX) | u64::from(slot + 1);
            match self.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(seen) => head = seen,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_slot_comes_once() {
        let list = FreeList::new(5).expect("memory");
        let all: BTreeSet<u32> = std::iter::from_fn(|| list.pop()).collect();
        assert_eq!(all, (0..5).collect());
        list.push(3);
        assert_eq!(list.pop(), Some(3));
        assert_eq!(list.pop(), None);
        assert_eq!(FreeList::new(0).expect("memory").pop(), None);
    }

    #[test]
    fn threads_never_share_a_slot() {
        let list = FreeList::new(8).expect("memory");
        let held: Vec<AtomicU32> = (0..8).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let Some(slot) = list.pop() else { continue };
                        assert_eq!(held[slot as usize].fetch_add(1, Ordering::Relaxed), 0);
                        held[slot as usize].fetch_sub(1, Ordering::Relaxed);
                        list.push(slot);
                    }
                });
            }
        });
        assert_eq!(std::iter::from_fn(|| list.pop()).count(), 8);
    }
}
