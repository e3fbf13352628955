//! Finds lines that may tell something, at the speed of memory.
//!
//! A word of seven bytes or more holds four whole bytes at a position that is a multiple of four, wherever it begins. So
//! every fourth position is looked up in a table of the four bytes at the first four positions of each word; a hit is then
//! compared in earnest.
use super::table::TRIGGERS;

/// Bits of the table: 54 words x 4 positions set 0.3 % of them.
const TABLE_BITS: u32 = 16;

/// The table.
pub(super) struct Search {
    bits: Vec<u64>,
}

fn slot(word: [u8; 4]) -> usize {
    // Fibonacci hashing: the upper bits of a product with 2^32 / golden ratio.
    (u32::from_le_bytes(word).wrapping_mul(0x9e37_79b1) >> (32 - TABLE_BITS)) as usize
}

impl Search {
    pub(super) fn new() -> Search {
        let mut bits = vec![0_u64; 1 << (TABLE_BITS - 6)];
        for trigger in TRIGGERS {
            for window in trigger.as_bytes().windows(4).take(4) {
                if let Ok(word) = <[u8; 4]>::try_from(window) {
                    let at = slot(word);
                    bits[at / 64] |= 1 << (at % 64);
                }
            }
        }
        Search { bits }
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
            let at = (from + words.get(from..)?.iter().position(hit)?) * 4;
            let around = &bytes[at.saturating_sub(AROUND)..(at + AROUND).min(bytes.len())];
            if TRIGGERS.iter().any(|words| contains(around, words.as_bytes())) {
                return Some(at);
            }
            from = at / 4 + 1;
        }
    }
}

/// How far from a hit the word may reach: the longest has 25 bytes.
const AROUND: usize = 28;

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_found_at_every_offset() {
        let search = Search::new();
        for word in TRIGGERS {
            assert!(word.len() <= 25, "{word}");
            for before in 0..9 {
                let text = format!("{}{word}", "x".repeat(before));
                assert!(search.find(text.as_bytes()).is_some(), "{word} behind {before} bytes");
            }
        }
        assert_eq!(search.find(b"step 5 loss 0.3 lr 1e-4\n".repeat(1000).as_slice()), None);
        assert_eq!(search.find(b""), None);
    }
}
