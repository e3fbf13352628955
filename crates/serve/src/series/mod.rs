//! Series of a job: its iterations over a week, where the time of each rank went and what each path between hosts
//! carried over a day. In memory, and in the store:
//! a server that starts again goes on with what was over, and lives through the rest again.
mod compare;
mod iterations;
mod kept;
mod ladder;
mod paths;
mod ranks;
#[cfg(test)]
mod restarts;
mod saved;
mod standing;
mod sums;
#[cfg(test)]
mod tests;
mod told;

pub(crate) use compare::{Compared, Difference, RankDifference, compare};
pub(crate) use iterations::{ChangePoint, Iterations, Summary, thin};
pub(crate) use kept::KeptSeries;
pub(crate) use ladder::Pieces;
pub(crate) use paths::{PathMean, PathSeries, PathWindow};
pub(crate) use ranks::{HIDDEN, RankMean, RankSeries, RankWindow};
pub(crate) use standing::stands_since;
pub(crate) use sums::{BOUNDS_S, Sums, us};
pub(crate) use told::{SeriesKind, SeriesTold};

use mycroft_diagnose::Measured;
use mycroft_record::HostTime;

/// The series of one job: 1.2 MB at most for iterations, 53 MB at 10,240 ranks for where their time went, and as much for paths (the files
/// below have the sums).
#[derive(Debug, Default)]
pub(crate) struct JobSeries {
    pub(crate) iterations: Iterations,
    pub(crate) ranks: RankSeries,
    pub(crate) paths: PathSeries,
    pub(crate) sums: Sums,
    /// Since when a case that is open stops the job.
    stands_since: Option<HostTime>,
}

impl JobSeries {
    /// Takes in what the engine has measured since the last look.
    pub(crate) fn take(&mut self, measured: &Measured) {
        if measured.stretches.is_empty() {
            return;
        }
        self.ranks.seat(&measured.ranks);
        for stretch in &measured.stretches {
            for (end, ms) in &stretch.iterations {
                self.iterations.push(*end, *ms);
            }
            self.ranks.push(stretch);
            self.paths.push(stretch);
            self.sums.push(stretch, measured, self.iterations.levels().1);
        }
    }
}
