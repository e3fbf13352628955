//! Locking that outlives a panic elsewhere: a daemon goes on when one of its threads met a defect.
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after another holder panicked. For values that are whole between any two statements that hold the lock
/// (counters, queues, maps of finished values): there is nothing to distrust then.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
