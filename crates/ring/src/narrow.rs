//! The few places where a number becomes a narrower one, each with why nothing is lost, or what.
#![expect(clippy::cast_possible_truncation, reason = "what is cut off is said at each function")]

const _: () = assert!(usize::BITS == 64, "segments are larger than a 32-bit process should map");

/// An index or length from a word; nothing is lost, an address has 64 bits.
#[inline(always)]
pub(crate) const fn at(word: u64) -> usize {
    word as usize
}

/// The low half of a word; the other half is somebody else's.
#[inline(always)]
pub(crate) const fn low(word: u64) -> u32 {
    word as u32
}

/// The low 16 bits of a word: a cell's index, or a count that saturated at them; the rest is somebody else's.
#[inline(always)]
pub(crate) const fn low16(word: u64) -> u16 {
    word as u16
}
