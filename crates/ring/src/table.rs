//! The table protocol: cells claimed, filled, published, counted in, and taken out, each told apart by a generation.
//!
//! A cell's directory word holds its generation and state. Claiming swaps FREE (or ENDED) of generation g to BUSY of
//! g + 1, then a release fence, then the identity words are stored (relaxed), then ACTIVE is stored (release). A reader
//! loads the directory word (acquire), copies the cell if ACTIVE, then an acquire fence, then loads the directory word
//! again: equal means that the identity is whole, by the same fence-fence argument as in `lane`. Counters move while the
//! cell is ACTIVE and are each a single word: they are atomic, but not a snapshot of one instant.
use crate::layout::dir;
use crate::sync::{Ordering, Word};

/// Cells looked at before giving up: bounds the time of a claim. At 90 % load all of 64 random cells are taken with
/// probability 0.9^64 = 0.1 %; eight directory words share a cache line, so it is 8 to 9 lines.
pub const PROBE_LIMIT: u64 = 64;

/// Claims a cell, looking from `hint` on: its index and new generation, or `None` after `PROBE_LIMIT` cells. The cell is
/// the caller's alone until `publish`.
#[inline]
pub fn claim<W: Word>(directory: &[W], hint: u64) -> Option<(u64, u64)> {
    let n = directory.len() as u64;
    for probe in 0..PROBE_LIMIT.min(n) {
        let index = (hint.wrapping_add(probe)) & (n - 1);
        let word = &directory[index as usize];
        let seen = word.load(Ordering::Relaxed);
        if matches!(dir::state(seen), dir::FREE | dir::ENDED) {
            // Generation 0 is skipped so that the bits of a reference are never 0.
            let generation = ((dir::generation(seen) + 1) & dir::GENERATION_MASK).max(1);
            if word.swap_if(seen, dir::word(generation, dir::BUSY)) {
                W::fence(Ordering::Release);
                return Some((index, generation));
            }
        }
    }
    None
}

/// Makes a claimed and filled cell valid.
#[inline]
pub fn publish<W: Word>(directory: &[W], index: u64, generation: u64) {
    directory[index as usize].store(dir::word(generation, dir::ACTIVE), Ordering::Release);
}

/// Whether a reference is current.
#[inline]
pub fn is_active<W: Word>(directory: &[W], index: u64, generation: u64) -> bool {
    directory.get(index as usize).is_some_and(|word| word.load(Ordering::Acquire) == dir::word(generation, dir::ACTIVE))
}

/// Takes a valid cell out of the table; exactly one of several callers gets it. The cell is the caller's alone until
/// `retire`.
#[inline]
pub fn take<W: Word>(directory: &[W], index: u64, generation: u64) -> bool {
    let Some(word) = directory.get(index as usize) else { return false };
    word.swap_if(dir::word(generation, dir::ACTIVE), dir::word(generation, dir::BUSY))
}

/// Ends a taken cell: `dir::FREE`, or `dir::ENDED` to keep it readable.
#[inline]
pub fn retire<W: Word>(directory: &[W], index: u64, generation: u64, state: u64) {
    directory[index as usize].store(dir::word(generation, state), Ordering::Release);
}
