//! What can go wrong when a testbed is built or run.
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// A testbed that could not be built or run. Each says what was tried, where, what happened and what to do.
#[derive(Debug, Error)]
pub enum TestbedError {
    /// The scenario does not fit together.
    #[error("scenario {name}: {message}")]
    Scenario {
        /// Its name.
        name: String,
        /// The field and what was expected.
        message: String,
    },
    /// A file or directory of the run could not be made, read or removed.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// "make", "read", "map" and so on.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A library that ranks need is not there.
    #[error("{name} not found in {looked}: build it with `cargo build --workspace`, or set MYCROFT_LIB_DIR")]
    LibraryMissing {
        /// File name.
        name: String,
        /// Where it was looked for.
        looked: String,
    },
    /// A library could not be loaded, or lacks a function.
    #[error("cannot use {}: {message}", path.display())]
    Library {
        /// The file.
        path: PathBuf,
        /// What the loader said.
        message: String,
    },
    /// A process could not be started.
    #[error("cannot start {program}: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// `ip` or `tc` refused something.
    #[error("`{command}` failed: {message}")]
    Tool {
        /// The command line.
        command: String,
        /// What it printed.
        message: String,
    },
    /// Ranks ended although the job had not.
    #[error("rank {rank} ended early ({status}): {last_line}")]
    RankEnded {
        /// Its global rank.
        rank: u32,
        /// Exit status in words.
        status: String,
        /// Last line it wrote, empty if none.
        last_line: String,
    },
    /// Something did not happen in time.
    #[error("{what} within {seconds:.1} s; {hint}")]
    TimedOut {
        /// What was waited for, as in "iteration 5 was not reached".
        what: String,
        /// The limit.
        seconds: f64,
        /// Where it stands.
        hint: String,
    },
    /// A fault could not be injected.
    #[error("cannot inject {fault}: {message}")]
    Fault {
        /// The fault.
        fault: String,
        /// Why, and what to do.
        message: String,
    },
    /// A collective call failed in a rank.
    #[error("{call} failed: {message}")]
    Collective {
        /// The function.
        call: String,
        /// What the library says.
        message: String,
    },
    /// Received data is wrong.
    #[error("wrong data in {what}: expected {expected}, got {got}")]
    WrongData {
        /// The operation and element.
        what: String,
        /// What it should have been.
        expected: f64,
        /// What it was.
        got: f64,
    },
}

impl TestbedError {
    /// A [`TestbedError::File`] from its parts.
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> TestbedError {
        TestbedError::File { action, path: path.into(), source }
    }
}
