//! The ring protocol: one writer, any number of readers that never touch it.
//!
//! Record `n` lives in slot `n % slots`. The writer
//! 1. makes a release fence, then marks the slot odd (`2n + 1`),
//! 2. stores the payload words (relaxed),
//! 3. marks the slot even (`2n + 2`, release),
//! 4. stores `head = n + 1` (release).
//!
//! A reader loads `head`, makes an acquire fence, copies slots of records below it, makes another acquire fence, then
//! loads `head` again.
//!
//! *Complete*: a record below the first `head` was fully stored before the copy began: the first load read the release
//! of step 4 (or a later one), the fence behind it acquires. *Not overwritten*: steps 1 and 2 of record `m = n + slots`
//! overwrite record `n`. If the copy saw any word of them, mark or payload, the writer's release fence of step 1 and the
//! reader's second acquire fence synchronize, so the second load sees everything the writer stored before that fence, in
//! particular `head = m` of the record before. Hence record `n` is whole, mark and payload, whenever
//! `n + slots > head` at the second load. This uses only fence-fence synchronization of the C++ model, so it holds on ARM
//! as on x86 (where both fences cost nothing); the fence must stand before the mark, or on ARM a reader could see the
//! next owner's mark without its head and take a lapped slot for a damaged one. The mark is checked besides: it never
//! decides between whole and lapped, it catches a broken or hostile writer.
use crate::error::ReadError;
use crate::layout::ring;
use crate::source::Source;
use crate::sync::{Ordering, Word};

/// Mark of a slot while record `n` is being stored.
#[inline]
pub fn mark_busy(n: u64) -> u64 {
    n.wrapping_mul(2).wrapping_add(1)
}

/// Mark of a slot that holds record `n`.
#[inline]
pub fn mark_whole(n: u64) -> u64 {
    n.wrapping_mul(2).wrapping_add(2)
}

/// Stores record `n` in `slot` (its sequence word and `N` payload words) and publishes it in the ring header. Only the
/// ring's owner may call it, with `n` the current head and `slot` the words of slot `n % slots`.
#[inline]
pub fn store<W: Word, const N: usize>(header: &[W], slot: &[W], n: u64, payload: &[u64; N]) {
    let slot = &slot[..=N];
    W::fence(Ordering::Release);
    slot[0].store(mark_busy(n), Ordering::Relaxed);
    for i in 0..N {
        slot[i + 1].store(payload[i], Ordering::Relaxed);
    }
    slot[0].store(mark_whole(n), Ordering::Release);
    header[ring::HEAD].store(n + 1, Ordering::Release);
}

/// Claims a ring for the thread `owner` (not 0): its head, or `None` when another thread has it. The acquire of the swap
/// makes the previous owner's records and head visible, so the sequence goes on without a break.
pub fn claim<W: Word>(header: &[W], owner: u64) -> Option<u64> {
    if header[ring::OWNER].load(Ordering::Relaxed) != 0 || !header[ring::OWNER].swap_if(0, owner) {
        return None;
    }
    let claims = header[ring::CLAIMS].load(Ordering::Relaxed);
    header[ring::CLAIMS].store(claims.wrapping_add(1), Ordering::Relaxed);
    Some(header[ring::HEAD].load(Ordering::Relaxed))
}

/// Gives a ring back. Only its owner may call it.
pub fn release<W: Word>(header: &[W]) {
    header[ring::OWNER].store(0, Ordering::Release);
}

/// The oldest record that a reader which saw `head` may still take: the slot of the one before may be in the writer's
/// hands.
#[inline]
pub fn oldest_whole(head: u64, slots: u64) -> u64 {
    (head + 1).saturating_sub(slots)
}

/// Where one ring lies in a source of words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneAt {
    /// Word offset of its header.
    pub header: u64,
    /// Word offset of its first slot.
    pub slots_at: u64,
    /// Slots.
    pub slots: u64,
    /// Words of a slot: the sequence and the payload.
    pub slot_words: u64,
}

/// The head of a ring, ordered before every copy that follows.
///
/// # Errors
/// The segment can no longer be read.
pub fn load_head<S: Source>(source: &S, at: &LaneAt) -> Result<u64, ReadError> {
    let mut head = [0];
    source.read(at.header + ring::HEAD as u64, &mut head)?;
    source.acquire_fence();
    Ok(head[0])
}

/// Copies whole slots from record `position` on into `chunk`; they must lie below a head that was loaded before, and not
/// cross the edge of the ring. Gives the oldest record that is surely not overwritten: what is older in `chunk` is lost.
///
/// # Errors
/// The segment can no longer be read.
pub fn copy<S: Source>(source: &S, at: &LaneAt, position: u64, head: u64, chunk: &mut [u64]) -> Result<u64, ReadError> {
    source.read(at.slots_at + position % at.slots * at.slot_words, chunk)?;
    source.acquire_fence();
    let mut after = [0];
    source.read(at.header + ring::HEAD as u64, &mut after)?;
    // A head that fell or exploded is a lie; then the marks of the slots decide alone.
    let after = if (head..=HEAD_LIMIT).contains(&after[0]) { after[0] } else { head };
    Ok(oldest_whole(after, at.slots))
}

/// Heads beyond are impossible: 2^56 records are two years at one per nanosecond. Sums over 64 rings stay below 2^62.
pub const HEAD_LIMIT: u64 = 1 << 56;
