//! What is known of one of a job's series in a window.
use super::{ChangePoint, JobSeries, PathWindow, RankWindow, Summary};
use mycroft_record::HostTime;

/// One of a job's series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SeriesKind {
    Iterations,
    Ranks,
    Paths,
}

/// What is known of one of a job's series in a window; the others are empty. It is copied, not worked out, on the brain's thread.
#[derive(Debug, Default)]
pub(crate) struct SeriesTold {
    /// Iterations ever.
    pub(crate) count: u64,
    /// Of the window, as finely as it is kept.
    pub(crate) iterations: Vec<Summary>,
    /// The level now, and the healthy one.
    pub(crate) levels: (Option<f64>, Option<f64>),
    /// Changes of the level, of the window or not.
    pub(crate) changes: Vec<ChangePoint>,
    /// What ranks took in the window.
    pub(crate) ranks: RankWindow,
    /// What paths between hosts carried in it.
    pub(crate) paths: PathWindow,
}

impl SeriesTold {
    /// What is known of a window.
    pub(crate) fn of(series: &JobSeries, what: SeriesKind, from: HostTime, to: HostTime) -> SeriesTold {
        let mut told = SeriesTold::default();
        match what {
            SeriesKind::Iterations => {
                let iterations = &series.iterations;
                (told.count, told.levels) = (iterations.count(), iterations.levels());
                told.iterations = iterations.between(from, to);
                told.changes = iterations.changes().copied().collect();
            }
            SeriesKind::Ranks => told.ranks = series.ranks.window(from, to),
            SeriesKind::Paths => told.paths = series.paths.window(from, to),
        }
        told
    }
}
