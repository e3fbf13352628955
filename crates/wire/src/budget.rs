//! Memory that frames of all connections together may take, from their first byte until they are handed over.
//!
//! A frame is charged before it takes: while its bytes arrive for those that are there, before it is decoded for what it
//! opens to. Who finds no room waits in order of arrival, and is told to send again when that takes too long.
use crate::codec::{FrameHeader, MAX_RAW_BYTES, MAX_RECORDS, MAX_STRINGS};
use crate::sync::lock;
use mycroft_record::Record;
use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What frames of a server may open to at once: three of the largest (150 MiB each by `decoded_bytes`), or 250 of the
/// 4,096 records and 2 MiB that an agent sends at full speed. A processor decodes such a frame in 5 ms, so two of them
/// never need more than a few.
pub const DECODING_BYTES: u64 = 512 << 20;
/// What frames may take while their bytes arrive: 15 of the largest (17 MB). Frames of up to [`SMALL_BYTES`] are not
/// counted.
pub const RECEIVING_BYTES: u64 = 256 << 20;
/// A frame of so many bytes is received without a charge: 4,096 agents x 64 KiB = 256 MiB, and 64 KiB is a second of a
/// busy host.
pub const SMALL_BYTES: usize = 64 << 10;
/// Records that a frame may hold whatever its size: what an agent puts into one.
const RECORDS_UNPROVEN: u64 = 32 << 10;
/// Above that, records for each compressed byte. Columns without any change take no bytes at all, but a job whose records
/// tell something needs more than a byte for each of them.
const RECORDS_PER_BYTE: u64 = 64;

/// Cells of a record while it is decoded: at most 27 columns of 8 bytes.
const CELLS_BYTES: u64 = 27 * 8;
/// The run of the order that a record may need.
const RUN_BYTES: u64 = size_of::<(u8, usize)>() as u64;
/// A name takes so much besides its text.
const NAME_BYTES: u64 = 40;

const _: () = assert!(most_decoded() <= DECODING_BYTES, "the largest frame fits");
const _: () = assert!(crate::codec::MAX_FRAME_BYTES as u64 <= RECEIVING_BYTES, "the largest frame fits");

const fn decoded_bytes_of(records: u64, raw_bytes: u64) -> u64 {
    let names = if raw_bytes < MAX_STRINGS as u64 { raw_bytes } else { MAX_STRINGS as u64 };
    records * (size_of::<Record>() as u64 + CELLS_BYTES + RUN_BYTES) + 2 * raw_bytes + names * NAME_BYTES
}

const fn most_decoded() -> u64 {
    decoded_bytes_of(MAX_RECORDS as u64, MAX_RAW_BYTES as u64)
}

/// What decoding a frame takes at most, by what its head says: the codec gives up where the content differs from it.
pub(super) fn decoded_bytes(head: &FrameHeader) -> u64 {
    decoded_bytes_of(u64::from(head.records), u64::from(head.raw_bytes))
}

/// Why a frame is more than a peer's share.
pub(super) fn overclaims(head: &FrameHeader) -> Option<String> {
    let (records, bytes) = (u64::from(head.records), head.frame_bytes as u64);
    let most = RECORDS_UNPROVEN.max(bytes * RECORDS_PER_BYTE);
    (records > most).then(|| format!("a frame of {bytes} bytes claims {records} records, at most {most} are believed"))
}

/// Memory that several threads share.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    used: u64,
    /// Most that was ever used.
    peak: u64,
    next_ticket: u64,
    /// Who waits; the lowest is next.
    waiting: BTreeSet<u64>,
}

/// Memory taken; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Charge<'a> {
    budget: &'a Budget,
    bytes: u64,
}

/// The two budgets of a server.
#[derive(Clone, Debug)]
pub struct Budgets {
    /// For frames that arrive.
    pub receiving: Arc<Budget>,
    /// For frames that are decoded.
    pub decoding: Arc<Budget>,
}

/// Those of this process, shared by all its listeners.
static SHARED: LazyLock<Budgets> = LazyLock::new(|| Budgets {
    receiving: Arc::new(Budget::new(RECEIVING_BYTES)),
    decoding: Arc::new(Budget::new(DECODING_BYTES)),
});

impl Default for Budgets {
    fn default() -> Budgets {
        SHARED.clone()
    }
}

impl Budget {
    /// So many bytes.
    pub fn new(limit: u64) -> Budget {
        Budget { limit, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Bytes taken now, and most that were ever taken.
    pub fn used(&self) -> (u64, u64) {
        let state = self.lock();
        (state.used, state.peak)
    }

    /// Takes memory, waiting for it until `by`; first come, first served. `None`: there was none in time, or never is.
    pub(super) fn take(&self, bytes: u64, by: Instant) -> Option<Charge<'_>> {
        if bytes > self.limit {
            return None;
        }
        let mut state = self.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.insert(ticket);
        let blocked = |state: &mut State| state.waiting.first() != Some(&ticket) || state.used + bytes > self.limit;
        let left = by.saturating_duration_since(Instant::now());
        let (mut state, _) =
            self.changed.wait_timeout_while(state, left, blocked).unwrap_or_else(PoisonError::into_inner);
        let granted = !blocked(&mut state);
        state.waiting.remove(&ticket);
        if granted {
            state.used += bytes;
            state.peak = state.peak.max(state.used);
        }
        drop(state);
        // Whoever is next looks again.
        self.changed.notify_all();
        // Not `then_some`: a charge that is made gives back when it is dropped.
        granted.then(|| Charge { budget: self, bytes })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Charge<'_> {
    /// Adds another charge of the same budget.
    pub(super) fn join(&mut self, mut other: Charge<'_>) {
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut state = self.budget.lock();
            state.used = state.used.saturating_sub(self.bytes);
            drop(state);
            self.budget.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_taken_is_given_back_and_never_exceeded() {
        let budget = Budget::new(10);
        let past = Instant::now();
        let mut first = budget.take(6, past).expect("room");
        assert!(budget.take(5, past).is_none(), "no room");
        assert!(budget.take(11, past + Duration::from_secs(60)).is_none(), "never room, so no wait");
        first.join(budget.take(4, past).expect("room"));
        assert_eq!(budget.used(), (10, 10));
        drop(first);
        assert_eq!(budget.used(), (0, 10));
    }

    #[test]
    fn who_waits_is_served_in_order_also_behind_a_large_one() {
        let budget = Budget::new(10);
        let far = Instant::now() + Duration::from_secs(600);
        let held = budget.take(5, far).expect("room");
        std::thread::scope(|scope| {
            let large = scope.spawn(|| budget.take(10, far).map(drop).is_some());
            while budget.lock().waiting.is_empty() {
                std::thread::yield_now();
            }
            assert!(budget.take(1, Instant::now()).is_none(), "a small one does not overtake");
            drop(held);
            assert!(large.join().expect("no panic"));
        });
        assert!(budget.take(10, Instant::now()).is_some(), "everything is back");
    }

    #[test]
    fn a_frame_is_charged_by_what_it_opens_to() {
        let head = |records, raw_bytes, frame_bytes| FrameHeader { records, raw_bytes, frame_bytes };
        let bomb = head(MAX_RECORDS as u32, 500, 84);
        assert!(overclaims(&bomb).is_some_and(|why| why.contains("84 bytes claims 262144 records")));
        assert!(decoded_bytes(&bomb) > 64 << 20, "{}", decoded_bytes(&bomb));
        let busy = head(4096, 300_000, 60_000);
        assert_eq!(overclaims(&busy), None);
        assert!(DECODING_BYTES / decoded_bytes(&busy) > 64, "{}", decoded_bytes(&busy));
        assert_eq!(overclaims(&head(32 << 10, 500, 84)), None, "as many as an agent sends at once");
    }
}
