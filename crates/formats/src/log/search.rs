//! Finds lines that may tell something, at the speed of memory.
//!
//! A word of seven bytes or more holds four whole bytes at a position that is a multiple of four, wherever it begins. So
//! every fourth position is looked up in a table of the four bytes at the first four positions of each word; a hit is then
//! compared in earnest.
use super::table::TRIGGERS;
use memchr::memmem;

/// Bits of the table: 67 words x 4 positions set 0.3 % of them.
const TABLE_BITS: u32 = 16;

/// The table, and the words behind it.
pub(super) struct Search {
    bits: Vec<u64>,
    /// Slot of four bytes, the word that holds them, and where in it; in the order of the slots.
    places: Vec<(usize, &'static [u8], usize)>,
    /// By slot the first of its places.
    first: Vec<u16>,
}

fn slot(word: [u8; 4]) -> usize {
    // Fibonacci hashing: the upper bits of a product with 2^32 / golden ratio.
    (u32::from_le_bytes(word).wrapping_mul(0x9e37_79b1) >> (32 - TABLE_BITS)) as usize
}

impl Search {
    pub(super) fn new() -> Search {
        let mut bits = vec![0_u64; 1 << (TABLE_BITS - 6)];
        let mut places = Vec::new();
        for trigger in TRIGGERS {
            for (offset, window) in trigger.as_bytes().windows(4).take(4).enumerate() {
                if let Ok(word) = <[u8; 4]>::try_from(window) {
                    let at = slot(word);
                    bits[at / 64] |= 1 << (at % 64);
                    places.push((at, trigger.as_bytes(), offset));
                }
            }
        }
        places.sort_unstable();
        let mut first = vec![0; 1 << TABLE_BITS];
        for (place, (at, ..)) in places.iter().enumerate().rev() {
            first[*at] = u16::try_from(place).unwrap_or(u16::MAX);
        }
        Search { bits, places, first }
    }

    /// A position in a line that may tell something, at or behind the beginning of `bytes`.
    pub(super) fn find(&self, bytes: &[u8]) -> Option<usize> {
        let (words, _) = bytes.as_chunks::<4>();
        let hit = |word: &[u8; 4]| {
            let at = slot(*word);
            self.bits[at / 64] >> (at % 64) & 1 == 1
        };
        let mut from = 0;
        loop {
            let found = from + words.get(from..)?.iter().position(hit)?;
            if self.is_word(bytes, found * 4) {
                return Some(found * 4);
            }
            from = found + 1;
        }
    }

    /// Whether a word lies across the four bytes at `at`.
    fn is_word(&self, bytes: &[u8], at: usize) -> bool {
        let Some(here) = bytes[at..].first_chunk().map(|here| slot(*here)) else { return false };
        let places = self.places.get(usize::from(self.first[here])..).unwrap_or_default();
        let mut same = places.iter().take_while(|(of, ..)| *of == here);
        let starts = |word: &[u8], offset: usize| {
            at.checked_sub(offset).and_then(|start| bytes.get(start..)).is_some_and(|rest| rest.starts_with(word))
        };
        same.any(|(_, word, offset)| starts(word, *offset))
    }
}

/// Rates of progress bars, which are too short for the table: `1.5s/it`, `1.5it/s`.
pub(super) struct Bars<'a> {
    bytes: &'a [u8],
    /// The next of each at or behind where it was looked for last.
    next: [Option<usize>; 2],
}

impl<'a> Bars<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Bars<'a> {
        let next = [b"s/it", b"it/s"].map(|word| memmem::find(bytes, word));
        Bars { bytes, next }
    }

    /// The first at or behind `from`, which does not fall.
    pub(super) fn next(&mut self, from: usize) -> Option<usize> {
        for (next, word) in self.next.iter_mut().zip([b"s/it", b"it/s"]) {
            if next.is_some_and(|at| at < from) {
                *next = memmem::find(&self.bytes[from..], word).map(|at| from + at);
            }
        }
        self.next.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_found_at_every_offset() {
        let search = Search::new();
        for word in TRIGGERS {
            for before in 0..9 {
                let text = format!("{}{word}", "x".repeat(before));
                assert!(search.find(text.as_bytes()).is_some(), "{word} behind {before} bytes");
            }
        }
        assert_eq!(search.find(b"step 5 loss 0.3 lr 1e-4\n".repeat(1000).as_slice()), None);
        assert_eq!(search.find(b""), None);
    }
}
