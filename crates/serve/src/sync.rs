//! Locking that outlives a panic elsewhere: the server goes on when one of its threads met a defect.
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after another holder panicked. Every value behind a mutex of this room is valid between any two
/// statements that hold it (counters, queues, maps of finished values), so there is nothing to distrust.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
