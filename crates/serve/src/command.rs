//! What others may ask of the brain's thread.
use crate::core::joined::Joining;
use crate::series::{ChangePoint, JobSeries, PathWindow, RankWindow, Summary};
use mycroft_diagnose::Report;
use mycroft_diagnose::operations::{Operations, Wanted};
use mycroft_record::{HostTime, JobName};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A question to the thread that owns the engines.
#[derive(Debug)]
pub(crate) enum Command {
    /// The report of a job now; `None` for a job that is not known.
    Report {
        /// The job.
        job: JobName,
        /// Where the answer goes; nobody may be left to take it.
        reply: oneshot::Sender<Option<Arc<Report>>>,
    },
    /// What the ranks of a job have done lately; `None` for a job that is not known.
    Operations {
        /// The job.
        job: JobName,
        /// What is wanted of it.
        wanted: Wanted,
        /// Where the answer goes.
        reply: oneshot::Sender<Option<Box<Operations>>>,
    },
    /// Jobs that another server had come to this one.
    Join(Joining),
    /// A partition of the bus is to be another server's: its jobs are let go, and not judged any more when the answer comes.
    LetGo {
        /// The partition.
        part: u32,
        /// Where the jobs go.
        reply: oneshot::Sender<BTreeSet<JobName>>,
    },
    /// The series of a job in a window; `None` for a job that is not known.
    Series {
        /// The job.
        job: JobName,
        /// Which of them.
        what: SeriesKind,
        /// Begin of the window.
        from: HostTime,
        /// Its end.
        to: HostTime,
        /// Where the answer goes.
        reply: oneshot::Sender<Option<Box<SeriesTold>>>,
    },
}

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
