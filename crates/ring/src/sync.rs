//! The one place that names atomics: every word of a segment is a `Word`, the kernel's mapping in production, a model
//! checker's cell in tests. The protocols in `lane` and `table` are written against the trait, so that what loom checks
//! is the code that runs.
pub use std::sync::atomic::{AtomicU64, Ordering};

/// One 8-byte word of a segment.
pub trait Word {
    /// Atomic load.
    fn load(&self, order: Ordering) -> u64;
    /// Atomic store.
    fn store(&self, value: u64, order: Ordering);
    /// Atomic strong compare and swap, acquire-release; whether it swapped.
    fn swap_if(&self, current: u64, new: u64) -> bool;
    /// Memory fence of the same model.
    fn fence(order: Ordering);
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }
    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }
    #[inline(always)]
    fn swap_if(&self, current: u64, new: u64) -> bool {
        self.compare_exchange(current, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
    #[inline(always)]
    fn fence(order: Ordering) {
        std::sync::atomic::fence(order);
    }
}
