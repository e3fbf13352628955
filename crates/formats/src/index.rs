//! A hash index over values that live elsewhere: finds the number of an equal one.
use crate::budget::Budget;
use crate::fault::Fault;

/// Longest search for a free or equal slot. Past it a value counts as new: a file made of colliding values then costs
/// memory (which has its own limit), not time.
const PROBES_MAX: usize = 64;

/// Slots of a fresh index.
const FIRST_SLOTS: usize = 64;

/// A free slot.
const FREE: u32 = u32::MAX;

/// Open-addressed table of (hash, number); at most half full.
#[derive(Debug, Default)]
pub(crate) struct Index {
    slots: Vec<(u32, u32)>,
    used: usize,
}

impl Index {
    /// The number of an equal value, if there is one.
    pub(crate) fn find(&self, hash: u32, mut equal: impl FnMut(u32) -> bool) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let mask = self.slots.len() - 1;
        for probe in 0..PROBES_MAX {
            let (stored, number) = self.slots[(hash as usize + probe) & mask];
            if number == FREE {
                return None;
            }
            if stored == hash && equal(number) {
                return Some(number);
            }
        }
        None
    }

    /// Remembers the number of a value that [`Index::find`] did not find.
    pub(crate) fn insert(&mut self, budget: &mut Budget, hash: u32, number: u32) -> Result<(), Fault> {
        if self.used * 2 >= self.slots.len() {
            self.grow(budget)?;
        }
        self.place(hash, number);
        Ok(())
    }

    fn place(&mut self, hash: u32, number: u32) {
        let mask = self.slots.len() - 1;
        for probe in 0..PROBES_MAX {
            let slot = &mut self.slots[(hash as usize + probe) & mask];
            if slot.1 == FREE {
                *slot = (hash, number);
                self.used += 1;
                return;
            }
        }
    }

    #[cold]
    fn grow(&mut self, budget: &mut Budget) -> Result<(), Fault> {
        let slots = (self.slots.len() * 2).max(FIRST_SLOTS);
        let size = size_of::<(u32, u32)>();
        budget.charge(slots * size)?;
        let old = std::mem::replace(&mut self.slots, vec![(0, FREE); slots]);
        self.used = 0;
        for &(hash, number) in &old {
            if number != FREE {
                self.place(hash, number);
            }
        }
        budget.release(old.len() * size);
        Ok(())
    }
}

/// Odd constant with well spread bits (2^64 divided by the golden ratio).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes one word into a hash.
#[inline]
pub(crate) fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(SPREAD)
}

/// The 32 bits of a hash that an [`Index`] uses.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the upper half is folded in")]
pub(crate) fn fold(hash: u64) -> u32 {
    (hash ^ (hash >> 32)) as u32
}

/// Hash of a string.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u32 {
    let mut hash = bytes.len() as u64;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    fold(mix(hash, u64::from_le_bytes(last)))
}
