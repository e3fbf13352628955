//! What can go wrong: errors that keep an agent from starting, and notices about what it meets while it runs.
use mycroft_record::text::printable;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why an agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The directory cannot be made or read.
    #[error(
        "{operation} segment directory {path}: {source}; give the directory that MYCROFT_DIR names in the job, \
         readable by this user"
    )]
    Dir {
        /// What was being done.
        operation: &'static str,
        /// Where.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Others could plant segments.
    #[error(
        "segment directory {path} belongs to user {owner} with mode {mode:04o}, expected user {expected} and no write \
         permission for others; run the agent as the job's user, or chmod 0700 the directory"
    )]
    DirUnsafe {
        /// Where.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Whom we expected.
        expected: u32,
        /// Its permission bits.
        mode: u32,
    },
    /// Another agent works there.
    #[error(
        "locking {path}: another agent already uses this directory; stop it, or give this one a segment directory \
         of its own"
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// The lock file cannot be made.
    #[error("locking {path}: {source}; check that this user may write there")]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The spool cannot be used.
    #[error(transparent)]
    Spool(#[from] mycroft_wire::spool::SpoolError),
    /// A setting that cannot work.
    #[error("agent setting {name} is {value}, expected {expected}")]
    Setting {
        /// Which.
        name: &'static str,
        /// What was given.
        value: String,
        /// What would do.
        expected: &'static str,
    },
    /// No thread.
    #[error("starting the agent's {name} thread: {source}; raise the limit of processes (ulimit -u)")]
    Thread {
        /// Which.
        name: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// Something that a person should know, told once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A segment is left alone.
    BadSegment {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        reason: String,
    },
    /// More segments than the agent watches.
    TooManySegments {
        /// The limit.
        limit: usize,
    },
    /// The segment directory became unreadable.
    DirUnreadable {
        /// The directory.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The server answers and says no; told again only when the reason changes or after it took this agent in.
    ServerRefused {
        /// The server.
        endpoint: String,
        /// Its reason.
        reason: String,
    },
    /// The server will never take what it was sent, and it is lost.
    Rejected {
        /// The server.
        endpoint: String,
        /// Its reason.
        reason: String,
    },
    /// The server cannot be reached; told again only when the reason changes or after it was reached.
    ServerAway {
        /// The server.
        endpoint: String,
        /// Why.
        reason: String,
    },
    /// The server was reached again.
    ServerBack {
        /// The server.
        endpoint: String,
    },
    /// A thread of the agent panicked: a defect.
    Defect,
    /// The spool failed; records are dropped while it does.
    SpoolFailed {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::BadSegment { path, reason } => {
                let (path, reason) = (path.display().to_string(), printable(reason));
                write!(f, "segment {} is left alone: {reason}", printable(&path))
            }
            Notice::TooManySegments { limit } => {
                write!(f, "more than {limit} segments: the rest is not watched until some end")
            }
            Notice::DirUnreadable { path, reason } => {
                let path = path.display().to_string();
                let (path, reason) = (printable(&path), printable(reason));
                write!(f, "segment directory {path}: {reason}; no new process is found until it is readable")
            }
            Notice::ServerRefused { endpoint, reason } => {
                let reason = printable(reason);
                write!(f, "refused by server {endpoint}: {reason}; records are spooled and sent when it takes them")
            }
            Notice::Rejected { endpoint, reason } => {
                let reason = printable(reason);
                write!(f, "server {endpoint} rejected records for good: {reason}; they are lost and told as a gap")
            }
            Notice::ServerAway { endpoint, reason } => {
                let reason = printable(reason);
                write!(f, "server {endpoint} is away: {reason}; records are spooled and sent when it is back")
            }
            Notice::ServerBack { endpoint } => write!(f, "server {endpoint} is connected"),
            Notice::Defect => f.write_str("a thread of the agent failed; please report it with the lines above"),
            Notice::SpoolFailed { reason } => {
                write!(f, "spool: {}; records are dropped until it works", printable(reason))
            }
        }
    }
}
