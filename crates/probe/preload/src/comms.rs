//! Communicators: made, split and gone. Each gets a number that all its members work out alike: of its unique id, or of the
//! communicator it was split from, how many were split before, and the color.
//!
//! A communicator of another origin (`ncclCommInitAll`, `ncclCommShrink`, `ncclCommGrow`) has no number; calls on it are not
//! counted, and such a process is never held.
use crate::gate::{self, Op};
use crate::group;
use crate::real::{Comm, real};
use crate::table::{self, Made};
use crate::thread::this_thread;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// `ncclUniqueId`, which NCCL takes by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId {
    bytes: [c_char; 128],
}

impl std::fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UniqueId({:016x})", number_of(self))
    }
}

/// `ncclInProgress`: a communicator that does not block is being made.
const IN_PROGRESS: c_int = 7;
/// Members are asked of the communicator itself.
const ASK: u32 = u32::MAX;

/// Mixes a word into a number (the finalizer of splitmix64).
fn mix(number: u64, word: u64) -> u64 {
    let mut z = (number ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// The number of a communicator with this unique id; not 0.
fn number_of(id: &UniqueId) -> u64 {
    let words = id.bytes.as_chunks::<8>().0;
    words.iter().fold(1, |number, word| mix(number, u64::from_ne_bytes(word.map(c_char::cast_unsigned)))) | 1
}

/// `ncclCommInitRank`.
///
/// # Safety
/// As NCCL's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRank(comm: *mut Comm, ranks: c_int, id: UniqueId, rank: c_int) -> c_int {
    let code = real!("ncclCommInitRank" (*mut Comm, c_int, UniqueId, c_int) (comm, ranks, id, rank));
    note(comm, code, number_of(&id), ranks, rank);
    code
}

/// `ncclCommInitRankConfig`.
///
/// # Safety
/// As NCCL's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    comm: *mut Comm,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
    config: *mut c_void,
) -> c_int {
    let code = real!("ncclCommInitRankConfig" (*mut Comm, c_int, UniqueId, c_int, *mut c_void) (comm, ranks, id, rank, config));
    note(comm, code, number_of(&id), ranks, rank);
    code
}

/// `ncclCommInitRankScalable`, in NCCL 2.23 and newer.
///
/// # Safety
/// As NCCL's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankScalable(
    comm: *mut Comm,
    ranks: c_int,
    rank: c_int,
    n_ids: c_int,
    ids: *mut UniqueId,
    config: *mut c_void,
) -> c_int {
    let code = real!(
        "ncclCommInitRankScalable" (*mut Comm, c_int, c_int, c_int, *mut UniqueId, *mut c_void) (comm, ranks, rank, n_ids, ids, config)
    );
    // All members pass the same ids, so the first does.
    if !ids.is_null() && n_ids > 0 {
        // SAFETY: the caller gives `n_ids` of them, at least one.
        note(comm, code, number_of(unsafe { &*ids }), ranks, rank);
    }
    code
}

/// `ncclCommSplit`: a collective of the communicator that is split.
///
/// # Safety
/// As NCCL's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommSplit(
    comm: Comm,
    color: c_int,
    key: c_int,
    new: *mut Comm,
    config: *mut c_void,
) -> c_int {
    gate::before(comm.addr(), Op::Collective);
    let number = table::find(comm.addr()).map_or(0, |(_, entry)| {
        mix(mix(entry.id(), u64::from(entry.next_split()) + 1), u64::from(color.cast_unsigned())) | 1
    });
    let code = real!("ncclCommSplit" (Comm, c_int, c_int, *mut Comm, *mut c_void) (comm, color, key, new, config));
    if number != 0 && code != IN_PROGRESS {
        note(new, code, number, -1, -1);
    }
    code
}

/// `ncclCommDestroy`.
///
/// # Safety
/// As NCCL's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommDestroy(comm: Comm) -> c_int {
    gate::gone(comm.addr());
    real!("ncclCommDestroy"(Comm)(comm))
}

/// `ncclCommAbort`. Never waits: a watchdog calls it.
///
/// # Safety
/// As NCCL's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommAbort(comm: Comm) -> c_int {
    gate::gone(comm.addr());
    real!("ncclCommAbort"(Comm)(comm))
}

/// `ncclCommFinalize`. The communicator is still there until it is destroyed.
///
/// # Safety
/// As NCCL's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommFinalize(comm: Comm) -> c_int {
    real!("ncclCommFinalize"(Comm)(comm))
}

/// A communicator is made, or will be when its group ends.
fn note(place: *mut Comm, code: c_int, id: u64, ranks: c_int, rank: c_int) {
    if place.is_null() || (code != 0 && code != IN_PROGRESS) {
        return;
    }
    let number = |number: c_int| u32::try_from(number).unwrap_or(ASK);
    let made = Made { id, rank: number(rank), ranks: number(ranks) };
    if group::depth() == 0 {
        // SAFETY: NCCL has written it, or left it as it was: readable either way.
        keep(unsafe { place.read() }, made);
    } else {
        later(place, made);
    }
}

fn keep(comm: Comm, made: Made) {
    // No member of any part of a split.
    if comm.is_null() {
        return;
    }
    let (mut rank, mut ranks, mut version): (c_int, c_int, c_int) = (-1, -1, 0);
    real!("ncclGetVersion" (*mut c_int) (&raw mut version));
    if made.ranks == ASK {
        real!("ncclCommUserRank" (Comm, *mut c_int) (comm, &raw mut rank));
        real!("ncclCommCount" (Comm, *mut c_int) (comm, &raw mut ranks));
    }
    let known = |told: u32, asked: c_int| if told == ASK { u32::try_from(asked).ok() } else { Some(told) };
    if let (Some(rank), Some(ranks)) = (known(made.rank, rank), known(made.ranks, ranks)) {
        gate::made(comm.addr(), Made { rank, ranks, ..made }, u32::try_from(version).unwrap_or(0));
    }
}

/// Communicators of one process that groups make at the same time: one for each GPU, and splits.
const LATER: usize = 64;

/// A communicator whose group has not ended.
struct Later {
    /// The thread whose group it is, 0 for a free place, 1 while it is filled.
    thread: AtomicUsize,
    place: AtomicUsize,
    id: AtomicU64,
    rank: AtomicU32,
    ranks: AtomicU32,
}

static WAITING: [Later; LATER] = [const { Later::new() }; LATER];
/// How many wait; a group that made none looks no further.
static COUNT: AtomicU32 = AtomicU32::new(0);

impl Later {
    const fn new() -> Later {
        Later {
            thread: AtomicUsize::new(0),
            place: AtomicUsize::new(0),
            id: AtomicU64::new(0),
            rank: AtomicU32::new(0),
            ranks: AtomicU32::new(0),
        }
    }
}

fn later(place: *mut Comm, made: Made) {
    let take = |later: &&Later| {
        later.thread.load(Ordering::Relaxed) == 0
            && later.thread.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    // Without a place it is never known, and calls on it are not counted.
    let Some(later) = WAITING.iter().find(take) else { return };
    later.place.store(place.expose_provenance(), Ordering::Relaxed);
    later.id.store(made.id, Ordering::Relaxed);
    later.rank.store(made.rank, Ordering::Relaxed);
    later.ranks.store(made.ranks, Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Relaxed);
    later.thread.store(this_thread(), Ordering::Release);
}

/// The outermost group of this thread ended: what it made is there now.
pub(crate) fn group_ended() {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let thread = this_thread();
    for later in WAITING.iter().filter(|later| later.thread.load(Ordering::Acquire) == thread) {
        let place: *const Comm = std::ptr::with_exposed_provenance(later.place.load(Ordering::Relaxed));
        let made = Made {
            id: later.id.load(Ordering::Relaxed),
            rank: later.rank.load(Ordering::Relaxed),
            ranks: later.ranks.load(Ordering::Relaxed),
        };
        later.thread.store(0, Ordering::Release);
        COUNT.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: NCCL wrote it by the end of the group, and the caller promised NCCL that it stays until then.
        keep(unsafe { place.read() }, made);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_unique_ids_differ_in_every_byte() {
        let mut id = UniqueId { bytes: [0; 128] };
        let mut seen = std::collections::BTreeSet::from([number_of(&id)]);
        for i in 0..128 {
            id.bytes[i] = 1;
            assert!(seen.insert(number_of(&id)), "byte {i}");
        }
        assert!(seen.iter().all(|number| *number != 0));
    }
}
