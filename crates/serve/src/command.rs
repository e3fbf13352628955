//! What others may ask of the brain's thread.
use crate::core::joined::Joining;
use crate::series::{SeriesKind, SeriesTold};
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
