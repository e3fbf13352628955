//! What others may ask of the brain's thread.
use mycroft_diagnose::Report;
use mycroft_record::JobName;
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
}
