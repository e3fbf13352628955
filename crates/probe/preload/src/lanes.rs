//! Which lane of the gate counts what: lanes in use, and the lane of each communicator's peers. Fixed tables, no lock: a
//! place is taken by compare-and-swap.
use mycroft_ring::gate::words::LANE_COUNT;
use std::sync::atomic::{AtomicU64, Ordering};

/// Places for peers: more than there are lanes, so that a search is short.
const PLACES: usize = 256;
/// Places that a search looks at.
const LOOKS: usize = 32;
/// A place that nobody took yet ends a search.
const EMPTY: u64 = 0;
/// A place that was given back.
const FREED: u64 = 1;
/// Bits of a place below its key: the lane.
const LANE_BITS: u32 = 8;

/// Bit of each lane in use.
static TAKEN: [AtomicU64; LANE_COUNT.div_ceil(64)] = [const { AtomicU64::new(0) }; LANE_COUNT.div_ceil(64)];
static PEERS: [AtomicU64; PLACES] = [const { AtomicU64::new(EMPTY) }; PLACES];

/// A free lane.
pub(crate) fn take() -> Option<usize> {
    let free = |lane: &usize| {
        let (word, bit) = (&TAKEN[lane / 64], 1 << (lane % 64));
        word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::AcqRel) & bit == 0
    };
    (0..LANE_COUNT).find(free)
}

/// The lane is free again.
pub(crate) fn give_back(lane: usize) {
    TAKEN[lane / 64].fetch_and(!(1 << (lane % 64)), Ordering::AcqRel);
}

/// One way between this process and a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Way {
    /// Place of the communicator in its table, at most 255.
    pub(crate) comm: usize,
    /// The peer.
    pub(crate) peer: u32,
    /// To the peer, not from it.
    pub(crate) is_send: bool,
}

impl Way {
    fn key(self) -> u64 {
        1 << 41 | (self.comm as u64 & 0xff) << 33 | u64::from(self.is_send) << 32 | u64::from(self.peer)
    }

    fn places(self) -> impl Iterator<Item = &'static AtomicU64> {
        let start = (self.key().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize;
        (start..start + LOOKS).map(|at| &PEERS[at % PLACES])
    }

    /// Its lane, if it has one.
    #[inline]
    pub(crate) fn lane(self) -> Option<usize> {
        for place in self.places() {
            let word = place.load(Ordering::Acquire);
            if word >> LANE_BITS == self.key() {
                return Some((word & 0xff) as usize);
            }
            if word == EMPTY {
                return None;
            }
        }
        None
    }

    /// Remembers its lane; false where there is no place. One thread at a time uses a communicator, so nobody else does so
    /// for the same way.
    pub(crate) fn remember(self, lane: usize) -> bool {
        let word = self.key() << LANE_BITS | lane as u64;
        let take = |place: &AtomicU64, was| {
            place.load(Ordering::Relaxed) == was
                && place.compare_exchange(was, word, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        self.places().any(|place| take(place, EMPTY) || take(place, FREED))
    }
}

/// Forgets all ways of a communicator; gives their lanes.
pub(crate) fn forget(comm: usize, mut each: impl FnMut(usize)) {
    for place in &PEERS {
        let word = place.load(Ordering::Acquire);
        if word > FREED && word >> (LANE_BITS + 33) == (1 << 8 | comm as u64 & 0xff) {
            place.store(FREED, Ordering::Release);
            each((word & 0xff) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_keep_their_lanes_until_their_communicator_goes() {
        let way = |comm, peer, is_send| Way { comm, peer, is_send };
        let mut ways = Vec::new();
        for comm in [0, 7, 255] {
            ways.extend((0..8).flat_map(|peer| [way(comm, peer, true), way(comm, peer, false)]));
        }
        let lanes: Vec<usize> = ways.iter().map(|_| take().expect("80 lanes")).collect();
        assert!(ways.iter().zip(&lanes).all(|(way, lane)| way.lane().is_none() && way.remember(*lane)));
        assert!(ways.iter().zip(&lanes).all(|(way, lane)| way.lane() == Some(*lane)));
        let mut freed = Vec::new();
        forget(7, |lane| freed.push(lane));
        freed.sort_unstable();
        assert_eq!(freed, lanes[16..32]);
        freed.iter().for_each(|lane| give_back(*lane));
        assert!(ways.iter().zip(&lanes).all(|(way, lane)| way.lane() == (way.comm != 7).then_some(*lane)));
        let left: Vec<usize> = std::iter::from_fn(take).collect();
        assert_eq!(left.len(), LANE_COUNT - 32, "each lane once: {left:?}");
    }
}
