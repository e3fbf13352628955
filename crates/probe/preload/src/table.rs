//! Communicators by their handle: a fixed table without a lock.
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Communicators at a time: Megatron at scale makes tens per process.
const ENTRIES: usize = 256;
/// Entries that a search looks at.
const LOOKS: usize = 32;
/// Values of a handle that are none: never taken, being filled, given back. No object lies at such addresses.
const EMPTY: usize = 0;
const BUSY: usize = 1;
const FREED: usize = 2;
/// No lane.
pub(crate) const NO_LANE: u32 = u32::MAX;

/// A communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Made {
    /// The same number at all its members, 0 for none.
    pub(crate) id: u64,
    /// This process's rank in it.
    pub(crate) rank: u32,
    /// Ranks in it.
    pub(crate) ranks: u32,
}

/// A communicator in the table.
pub(crate) struct Entry {
    handle: AtomicUsize,
    id: AtomicU64,
    rank: AtomicU32,
    lane: AtomicU32,
    splits: AtomicU32,
    /// The thread that issued its latest operation, 0 before the first.
    user: AtomicUsize,
    /// What its operations are recorded with, 0 where they are not.
    context: AtomicU64,
}

static TABLE: [Entry; ENTRIES] = [const { Entry::new() }; ENTRIES];

impl Entry {
    const fn new() -> Entry {
        Entry {
            handle: AtomicUsize::new(EMPTY),
            id: AtomicU64::new(0),
            rank: AtomicU32::new(0),
            lane: AtomicU32::new(NO_LANE),
            splits: AtomicU32::new(0),
            user: AtomicUsize::new(0),
            context: AtomicU64::new(0),
        }
    }

    /// The same number at all its members.
    pub(crate) fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// This process's rank in it.
    pub(crate) fn rank(&self) -> u32 {
        self.rank.load(Ordering::Relaxed)
    }

    /// The lane of its collectives.
    #[inline]
    pub(crate) fn lane(&self) -> Option<usize> {
        let lane = self.lane.load(Ordering::Relaxed);
        (lane != NO_LANE).then_some(lane as usize)
    }

    /// Notes who issues an operation of it.
    #[inline]
    pub(crate) fn used_by(&self, thread: usize) {
        self.user.store(thread, Ordering::Relaxed);
    }

    /// The thread that issued its latest operation, 0 before the first.
    pub(crate) fn user(&self) -> usize {
        self.user.load(Ordering::Relaxed)
    }

    /// What its operations are recorded with, 0 where they are not.
    #[inline]
    pub(crate) fn context(&self) -> u64 {
        self.context.load(Ordering::Relaxed)
    }

    /// Its operations are recorded with this.
    pub(crate) fn record_with(&self, context: u64) {
        self.context.store(context, Ordering::Relaxed);
    }

    /// How many communicators were split from it before: every member counts alike.
    pub(crate) fn next_split(&self) -> u32 {
        self.splits.fetch_add(1, Ordering::Relaxed)
    }
}

fn places(handle: usize) -> impl Iterator<Item = usize> {
    let start = (handle as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    (0..LOOKS).map(move |step| (start as usize + step) % ENTRIES)
}

/// The entry of a handle, and its place.
#[inline]
pub(crate) fn find(handle: usize) -> Option<(usize, &'static Entry)> {
    if handle <= FREED {
        return None;
    }
    for place in places(handle) {
        let entry = &TABLE[place];
        match entry.handle.load(Ordering::Acquire) {
            found if found == handle => return Some((place, entry)),
            EMPTY => return None,
            _ => {}
        }
    }
    None
}

/// The communicator of a number: its handle and its entry.
pub(crate) fn of_id(id: u64) -> Option<(usize, &'static Entry)> {
    let with_handle = |entry: &'static Entry| (entry.handle.load(Ordering::Acquire), entry);
    TABLE.iter().map(with_handle).find(|(handle, entry)| *handle > FREED && entry.id() == id)
}

/// The handles of all communicators.
pub(crate) fn handles() -> impl Iterator<Item = usize> {
    TABLE.iter().map(|entry| entry.handle.load(Ordering::Acquire)).filter(|handle| *handle > FREED)
}

/// Keeps a new communicator; false where there is no place.
pub(crate) fn keep(handle: usize, made: Made, lane: Option<usize>) -> bool {
    let take = |place: &usize| {
        let word = &TABLE[*place].handle;
        let was = word.load(Ordering::Relaxed);
        (was == EMPTY || was == FREED) && word.compare_exchange(was, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    let Some(place) = places(handle).find(take) else { return false };
    let entry = &TABLE[place];
    entry.id.store(made.id, Ordering::Relaxed);
    entry.rank.store(made.rank, Ordering::Relaxed);
    entry.lane.store(lane.and_then(|lane| u32::try_from(lane).ok()).unwrap_or(NO_LANE), Ordering::Relaxed);
    entry.splits.store(0, Ordering::Relaxed);
    entry.user.store(0, Ordering::Relaxed);
    entry.context.store(0, Ordering::Relaxed);
    entry.handle.store(handle, Ordering::Release);
    true
}

/// Forgets a communicator; gives its place and its lane.
pub(crate) fn forget(handle: usize) -> Option<(usize, Option<usize>)> {
    let (place, entry) = find(handle)?;
    let lane = entry.lane();
    let swapped = entry.handle.compare_exchange(handle, FREED, Ordering::AcqRel, Ordering::Relaxed);
    swapped.is_ok().then_some((place, lane))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_found_until_they_are_forgotten() {
        let handles: Vec<usize> = (1..=200).map(|i| 0x7f00_0000_0000 + i * 0x2340).collect();
        for (i, handle) in handles.iter().enumerate() {
            let made = Made { id: i as u64 + 1, rank: 3, ranks: 4 };
            assert!(find(*handle).is_none() && keep(*handle, made, Some(i % 80)));
        }
        for (i, handle) in handles.iter().enumerate() {
            let (_, entry) = find(*handle).expect("kept");
            assert_eq!((entry.id(), entry.rank(), entry.lane()), (i as u64 + 1, 3, Some(i % 80)));
            assert_eq!(of_id(i as u64 + 1).map(|(found, _)| found), Some(*handle));
        }
        for handle in &handles[..100] {
            assert!(forget(*handle).is_some() && forget(*handle).is_none() && find(*handle).is_none());
        }
        assert!(handles[100..].iter().all(|handle| find(*handle).is_some()), "past what was given back");
        let (mut all, mut left) = (super::handles().collect::<Vec<_>>(), handles[100..].to_vec());
        all.sort_unstable();
        left.sort_unstable();
        assert_eq!(all, left);
        assert!([0, 1, 2].iter().all(|none| find(*none).is_none() && forget(*none).is_none()));
    }
}
