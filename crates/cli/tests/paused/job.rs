//! A simulated job: who is in it, what each rank has issued after so many entries, and how long each test of it takes.
use mycroft_ring::gate::plan::Lane;
use mycroft_ring::gate::task::{Answer, Ending, Kind, Times};
use mycroft_ring::gate::{LaneKey, LaneKind};

pub(crate) const RANKS_PER_HOST: u32 = 8;
/// The communicator of all ranks.
const WORLD: u64 = 0x5eed_0001;
/// That of the first host; each has one.
const INSIDE: u64 = 0x5eed_1000;
/// A rank issues one after the other: a collective inside its host, a send to the next rank, a receive of the one before, a
/// collective of all.
const ENTRIES_A_ROUND: u64 = 4;
/// What all have issued.
const ROUNDS: u64 = 1_000;

/// Times of healthy ones, nanoseconds: three sizes of products, a copy, copies in memory and how late a thread wakes up, a large
/// and a small message.
const PRODUCTS: [u64; 3] = [1_000_000, 4_000_000, 16_000_000];
const COPY: [u64; 1] = [8_000_000];
const HOST: [u64; 2] = [2_000_000, 60_000];
const MESSAGES: [u64; 2] = [2_000_000, 40_000];
/// A whole test, nanoseconds: what the command tells in advance.
const CHECK_NS: u64 = 120_000_000;
const WAY_NS: u64 = 250_000_000;

/// A job of so many ranks, eight on each host.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) ranks: u32,
    /// One device and one way are slow.
    pub(crate) has_slow: bool,
}

/// A number that looks like any other, the same for the same numbers.
pub(crate) fn drawn(of: [u64; 4]) -> u64 {
    let mix = |seed: u64, number: u64| {
        let mixed = (seed ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    of.into_iter().fold(0, mix)
}

impl Job {
    pub(crate) fn hosts(self) -> u32 {
        self.ranks / RANKS_PER_HOST
    }

    /// Its device takes 1.3 times as long.
    pub(crate) fn slow_device(self) -> u32 {
        self.ranks / 3
    }

    /// The way between these two takes 1.5 times as long; they are on two hosts.
    pub(crate) fn slow_way(self) -> (u32, u32) {
        let first_of_host = self.hosts() / 2 * RANKS_PER_HOST;
        (first_of_host - 1, first_of_host)
    }

    /// Entries of a rank when somebody begins to ask: some are a few behind.
    pub(crate) fn entries_at_first(self, rank: u32) -> u64 {
        ENTRIES_A_ROUND * ROUNDS + drawn([1, rank.into(), 0, 0]) % 6
    }

    /// What a rank shows after so many entries.
    pub(crate) fn lanes(self, rank: u32, entries: u64) -> Vec<Lane> {
        let (host, place) = (rank / RANKS_PER_HOST, rank % RANKS_PER_HOST);
        let inside = INSIDE + u64::from(host);
        let (next, before) = ((rank + 1) % self.ranks, (rank + self.ranks - 1) % self.ranks);
        let lane = |number: u64, comm, kind, own, other| Lane {
            key: LaneKey { comm, kind, own, other },
            count: (entries + ENTRIES_A_ROUND - 1 - number) / ENTRIES_A_ROUND,
        };
        vec![
            lane(0, inside, LaneKind::Collective, place, RANKS_PER_HOST),
            lane(1, WORLD, LaneKind::Send, rank, next),
            lane(2, WORLD, LaneKind::Recv, rank, before),
            lane(3, WORLD, LaneKind::Collective, rank, self.ranks),
        ]
    }

    /// How many times as long as that of others.
    fn factor(self, rank: u32, kind: &Kind) -> f64 {
        let (one, other) = self.slow_way();
        match kind {
            Kind::Device if self.has_slow && rank == self.slow_device() => 1.3,
            Kind::Pair(way) if self.has_slow && [(one, other), (other, one)].contains(&(rank, way.peer)) => 1.5,
            _ => 1.0,
        }
    }

    /// How long a test takes from its begin to its answer.
    pub(crate) fn test_ns(self, rank: u32, kind: &Kind) -> u64 {
        let usual_ns = if matches!(kind, Kind::Pair(_)) { WAY_NS } else { CHECK_NS };
        (usual_ns as f64 * self.factor(rank, kind)) as u64
    }

    /// What this rank measures in its test with this number: up to 4 % more than the fastest there is.
    pub(crate) fn answer(self, rank: u32, kind: &Kind, number: u64) -> Answer {
        let (code, usual): (u64, &[u64]) = match kind {
            Kind::Device => (1, &PRODUCTS),
            Kind::Copy => (2, &COPY),
            Kind::Processor => (3, &PRODUCTS),
            Kind::Host => (4, &HOST),
            Kind::Pair(_) => (5, &[MESSAGES, MESSAGES].concat()),
        };
        let mut values = [Times { fastest_ns: 0, median_ns: 0 }; 4];
        for (part, (value, usual_ns)) in (0..).zip(values.iter_mut().zip(usual)) {
            let more = drawn([code, part, rank.into(), number]) % 1_000;
            let fastest_ns = *usual_ns as f64 * self.factor(rank, kind) * (1.0 + 0.04 * more as f64 / 1_000.0);
            *value = Times { fastest_ns: fastest_ns as u32, median_ns: (fastest_ns * 1.02) as u32 };
        }
        Answer { ending: Ending::Done, values }
    }
}
