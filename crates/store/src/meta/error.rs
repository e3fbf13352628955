//! Why the database could not be used.
use std::path::PathBuf;

/// Why the database could not be used.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    /// SQLite said no.
    #[error("{operation} {path}: {source}; check that the file is writable and a mycroft database")]
    Sqlite {
        /// What was being done.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// A newer release has written it.
    #[error(
        "opening {place}: table layout {found}, this release knows {known}; use the newer release or another {other}"
    )]
    Newer {
        /// The file, or the database.
        place: String,
        /// Its layout.
        found: i64,
        /// The newest that this release knows.
        known: i64,
        /// What to use in place of it.
        other: &'static str,
    },
    /// PostgreSQL said no, or nothing.
    #[error("{operation} {place}: {reason}")]
    Postgres {
        /// What was being done.
        operation: &'static str,
        /// User, host and database, never the password.
        place: String,
        /// What was said, and what to do.
        reason: String,
        /// The database cannot be used now; else this row cannot be written, or never.
        is_away: bool,
    },
    /// What is said about the database makes no sense.
    #[error("the database of cases: {0}")]
    Address(String),
    /// The name of the store in the database, or rows that wait beside it, cannot be used.
    #[error("{operation} {path}: {source}")]
    File {
        /// What was being done.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl MetaError {
    /// Whether nothing can be read or written now: another row would meet the same.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self, MetaError::Postgres { is_away: true, .. })
    }
}
