//! Silences inside an operation, counted by length.

/// Upper bounds of the counts, nanoseconds: stragglers make gaps of some 40 us (Pulse, section 6.1), late receivers of
/// milliseconds. The last count is of what is longer than all.
pub const GAP_BOUNDS_NS: [u64; 8] = [50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000];

/// A histogram of silences.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Gaps {
    /// How many are at most as long as each of [`GAP_BOUNDS_NS`] and longer than the bound before; then those longer than all.
    pub counts: [u32; GAP_BOUNDS_NS.len() + 1],
    /// The longest, nanoseconds.
    pub longest_ns: u64,
    /// All together, nanoseconds.
    pub sum_ns: u64,
}

impl Gaps {
    /// Counts a silence; none where it has no length.
    pub(super) fn add(&mut self, silence_ns: u64) {
        if silence_ns == 0 {
            return;
        }
        self.counts[GAP_BOUNDS_NS.partition_point(|bound| *bound < silence_ns)] += 1;
        self.longest_ns = self.longest_ns.max(silence_ns);
        self.sum_ns += silence_ns;
    }

    /// Counts those of another stretch as well.
    pub(super) fn join(&mut self, other: &Gaps) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.sum_ns += other.sum_ns;
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.counts.iter().sum()
    }
}
