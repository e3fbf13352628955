//! Flows by addresses: a hash table of flow numbers with open addressing, for a mirror port, where queue pair numbers of
//! many NICs meet (Pulse, section 4.2, has one NIC and needs none).
use alloc::vec;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

/// Places at first.
const PLACES_MIN: usize = 64;

/// The table. The keys lie with the flows; whoever looks says how to compare.
pub(crate) struct Keyed {
    /// Flow numbers plus one, 0 where there is none; a power of two, at most half of them used.
    places: Vec<u32>,
    used: usize,
    seed: u64,
}

impl Keyed {
    /// An empty table. The seed keeps whoever makes packets from choosing those that share a place.
    pub(crate) fn new(seed: u64) -> Keyed {
        Keyed { places: vec![0; PLACES_MIN], used: 0, seed }
    }

    /// The flow of a key, for which `is_key` says yes.
    pub(crate) fn get<K: Hash>(&self, key: &K, is_key: impl Fn(u32) -> bool) -> Option<u32> {
        let mut place = self.first(key);
        loop {
            let flow = self.places.get(place)?.checked_sub(1)?;
            if is_key(flow) {
                return Some(flow);
            }
            place = (place + 1) & (self.places.len() - 1);
        }
    }

    /// Whether one more needs [`Keyed::fill`] with more places first.
    pub(crate) fn is_full(&self) -> bool {
        (self.used + 1) * 2 > self.places.len()
    }

    /// Adds the flow of a key that is not there.
    pub(crate) fn add<K: Hash>(&mut self, key: &K, flow: u32) {
        debug_assert!(!self.is_full(), "half of the places stay free");
        let mut place = self.first(key);
        while self.places.get(place).is_some_and(|held| *held != 0) {
            place = (place + 1) & (self.places.len() - 1);
        }
        if let Some(held) = self.places.get_mut(place) {
            *held = flow + 1;
            self.used += 1;
        }
    }

    /// Begins anew with these keys, so many at most, and room for one more.
    pub(crate) fn fill<'a, K: Hash + 'a>(&mut self, count: usize, keys: impl Iterator<Item = (&'a K, u32)>) {
        self.places = vec![0; ((count + 1) * 4).next_power_of_two().max(PLACES_MIN)];
        self.used = 0;
        for (key, flow) in keys {
            self.add(key, flow);
        }
    }

    /// Bytes that the table holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.places.capacity() * size_of::<u32>()
    }

    fn first<K: Hash>(&self, key: &K) -> usize {
        let mut mix = Mix(self.seed);
        key.hash(&mut mix);
        // The upper half of a product depends on all bits below it.
        usize::try_from(mix.finish() >> 32).unwrap_or(0) & (self.places.len() - 1)
    }
}

/// A multiplying hash of words: short, and enough for tables that a poll bounds.
struct Mix(u64);

impl Mix {
    fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(8) {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(piece) {
                *to = *from;
            }
            self.word(u64::from_le_bytes(word));
        }
    }

    fn write_u16(&mut self, word: u16) {
        self.word(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.word(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.word(word);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }
}
