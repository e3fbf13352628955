//! A word of shared memory in loom's model.
use loom::sync::atomic::AtomicU64;
use mycroft_ring::sync::{Ordering, Word};

/// One word, every value of which the model explores.
pub(crate) struct LoomWord(pub(crate) AtomicU64);

impl Word for LoomWord {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
    fn swap_if(&self, current: u64, new: u64) -> bool {
        self.0.compare_exchange(current, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
    fn fence(order: Ordering) {
        loom::sync::atomic::fence(order);
    }
}
