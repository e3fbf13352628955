//! Why ranks are not held.
use super::who::Who;
use crate::error::{OpenError, ReadError};
use crate::gate::Left;
use std::path::PathBuf;
use thiserror::Error;

/// Why ranks are not, or no longer, held. By then all have been let go.
#[derive(Debug, Error)]
pub enum HoldError {
    /// The directory of segments cannot be read.
    #[error("cannot list segments in {path}: {source}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// No process of the job lives here.
    #[error("no process of job {job:?} has a segment in {path}; is MYCROFT_DIR the job's?")]
    Nobody {
        /// The job.
        job: String,
        /// The directory.
        path: PathBuf,
    },
    /// A segment cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A segment cannot be read or written.
    #[error("cannot reach the gate of {who}: {source}")]
    Reach {
        /// Whose.
        who: Who,
        /// The reason.
        source: ReadError,
    },
    /// Nobody counts the calls of a process.
    #[error("{0} has no gate: start the job with LD_PRELOAD=libmycroft_preload.so")]
    NoGate(Who),
    /// Another requester is at work.
    #[error("{0} is being held by another requester")]
    Busy(Who),
    /// The calls of a rank are not all counted.
    #[error("{0} makes calls that its gate does not count (a communicator of an unknown kind, or too many peers)")]
    Untracked(Who),
    /// A communicator has members on other hosts, or in processes without a gate.
    #[error("communicator {comm:016x} has {members} ranks, {here} of them in gates that were found")]
    Elsewhere {
        /// The communicator.
        comm: u64,
        /// Ranks in it.
        members: u32,
        /// Of them here.
        here: usize,
    },
    /// A rank did not come to the point in time.
    #[error("{0} did not come to where all can wait in time")]
    Missing(Who),
    /// A process ended.
    #[error("{0} ended")]
    Ended(Who),
    /// A process runs no tasks.
    #[error("{0} runs no tests: its libmycroft_preload.so is older, or a test there did not end")]
    Unable(Who),
    /// A rank went on by itself.
    #[error("{0} went on by itself: {1:?}")]
    Left(Who, Left),
    /// The requester of a host cannot do it.
    #[error("host {host}: {text}")]
    Host {
        /// Which.
        host: String,
        /// Why.
        text: String,
    },
    /// The way to the requesters of other hosts is broken.
    #[error("{0}")]
    Line(String),
}
