//! A seeded random source (SplitMix64): the same seed gives the same scenario on every machine.

/// The generator's step: 2^64 divided by the golden ratio, odd, so that all 2^64 states are visited.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Deterministic pseudo-random numbers; not for secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random(u64);

impl Random {
    /// A source that depends on `seed` only.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A source for one purpose of a seed (say, one rank): different `stream`s are unrelated.
    pub fn stream(seed: u64, stream: u64) -> Random {
        let mut random = Random(seed ^ stream.wrapping_add(1).wrapping_mul(0xD6E8_FEB8_6659_FD93));
        random.next_u64();
        random
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; 0 when `bound` is 0. The bias is below `bound` / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// 1 plus or minus at most `spread`, evenly spread.
    pub fn around_one(&mut self, spread: f64) -> f64 {
        1.0 + spread * (2.0 * self.unit() - 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_splitmix64() {
        // First outputs of the reference implementation for seed 0.
        let mut random = Random::new(0);
        assert_eq!(random.next_u64(), 0xE220_A839_7B1D_CDAF);
        assert_eq!(random.next_u64(), 0x6E78_9E6A_A1B9_65F4);
    }

    #[test]
    fn streams_differ_and_numbers_stay_in_range() {
        assert_ne!(Random::stream(1, 0).next_u64(), Random::stream(1, 1).next_u64());
        assert_eq!(Random::stream(9, 4), Random::stream(9, 4));
        let mut random = Random::new(42);
        for _ in 0..10_000 {
            assert!(random.below(7) < 7);
            assert!((0.0..1.0).contains(&random.unit()));
            assert!((0.9..=1.1).contains(&random.around_one(0.1)));
        }
        assert_eq!(random.below(0), 0);
    }
}
