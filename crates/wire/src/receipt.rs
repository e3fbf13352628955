//! Receipts: what the taker of a frame says later about whether it is kept.
use crate::sync::lock;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Whether a frame is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// It is where it must be; it may be acknowledged.
    Yes,
    /// It is not, and will not be without being sent again.
    No,
}

#[derive(Debug, Default)]
struct Slot {
    outcome: Mutex<Option<Kept>>,
    known: Condvar,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Kept>> {
        lock(&self.outcome)
    }
}

/// The end that waits for the outcome.
#[derive(Debug)]
pub struct Receipt(Arc<Slot>);

/// The end that gives the outcome. Dropped without a word, it says no.
#[derive(Debug)]
pub struct Promise(Arc<Slot>);

impl Receipt {
    /// A receipt and the promise that it waits for.
    pub fn promised() -> (Promise, Receipt) {
        let slot = Arc::new(Slot::default());
        (Promise(Arc::clone(&slot)), Receipt(slot))
    }

    /// A receipt whose outcome is known already.
    pub fn of(outcome: Kept) -> Receipt {
        Receipt(Arc::new(Slot { outcome: Mutex::new(Some(outcome)), known: Condvar::new() }))
    }

    /// The outcome, if it is known.
    pub fn outcome(&self) -> Option<Kept> {
        *self.0.lock()
    }

    /// Waits for the outcome, at most so long.
    pub fn wait(&self, limit: Duration) -> Option<Kept> {
        let waited = self.0.known.wait_timeout_while(self.0.lock(), limit, |outcome| outcome.is_none());
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// A second end that waits for the same.
    pub(super) fn share(&self) -> Receipt {
        Receipt(Arc::clone(&self.0))
    }
}

impl Promise {
    /// The frame is kept.
    pub fn keep(self) {
        self.tell(Kept::Yes);
    }

    fn tell(&self, outcome: Kept) {
        let mut slot = self.0.lock();
        if slot.is_none() {
            *slot = Some(outcome);
            drop(slot);
            self.0.known.notify_all();
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.tell(Kept::No);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_kept_or_broken_never_forgotten() {
        let (promise, receipt) = Receipt::promised();
        assert_eq!((receipt.outcome(), receipt.wait(Duration::ZERO)), (None, None));
        promise.keep();
        assert_eq!(receipt.wait(Duration::from_secs(60)), Some(Kept::Yes));
        let (promise, receipt) = Receipt::promised();
        let waiting = std::thread::spawn(move || receipt.wait(Duration::from_secs(60)));
        drop(promise);
        assert_eq!(waiting.join().ok().flatten(), Some(Kept::No));
        assert_eq!(Receipt::of(Kept::Yes).outcome(), Some(Kept::Yes));
    }
}
