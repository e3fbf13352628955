//! Why records could not be sent to or read from a database.

/// Why records could not be sent to or read from a database.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// It is no such URL, or others could listen on the way there.
    #[error("{0}")]
    Address(String),
    /// The server cannot be reached, refuses, or answers something else.
    #[error("{operation} {at}: {reason}")]
    Server {
        /// What was being done.
        operation: &'static str,
        /// Where: user, host and database.
        at: String,
        /// What went wrong, and what to look at.
        reason: String,
    },
    /// This program was built without it.
    #[error("this program was built without the feature clickhouse: build it with --features clickhouse")]
    NotBuilt,
}
