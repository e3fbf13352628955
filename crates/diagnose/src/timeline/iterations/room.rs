//! How many operations are kept of an iteration that is not over.

/// Operations of one iteration of a rank at most: a pipeline of 64 micro-batches and 48 layers has so many.
const OPS_MAX: usize = 20_000;
/// .. and at least, whatever the size of the job: 1,536 x 28 B = 42 KiB a rank.
const OPS_MIN: usize = 1_536;
/// Of all ranks together: 8 M x 28 B = 224 MB.
const OPS_OF_ALL: usize = 8_000_000;
/// Operations whose flows' sums are kept at least: 512 x 40 B = 20 KiB a rank.
const SUMS_MIN: usize = 512;
/// Of all ranks together: 4 M x 40 B = 160 MB.
const SUMS_OF_ALL: usize = 4_000_000;

/// What each rank of a job may keep. A large job has room for shorter iterations.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Room {
    ranks: usize,
}

impl Room {
    /// Of a job of so many ranks.
    pub(crate) fn of(ranks: usize) -> Room {
        Room { ranks: ranks.max(1) }
    }

    /// Completed operations.
    pub(super) fn ops(self) -> usize {
        (OPS_OF_ALL / self.ranks).clamp(OPS_MIN, OPS_MAX)
    }

    /// Operations whose flows' sums are kept.
    pub(super) fn sums(self) -> usize {
        (SUMS_OF_ALL / self.ranks).clamp(SUMS_MIN, OPS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ranks_together_stay_within_their_room() {
        for ranks in [1, 64, 400, 1_024, 5_000] {
            assert!(ranks * Room::of(ranks).ops() <= OPS_OF_ALL);
        }
        assert_eq!((Room::of(64).ops(), Room::of(64).sums()), (OPS_MAX, OPS_MAX));
        assert_eq!((Room::of(102_400).ops(), Room::of(102_400).sums()), (OPS_MIN, SUMS_MIN));
    }
}
