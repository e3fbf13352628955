//! Why a store operation failed.
use crate::meta::MetaError;
use crate::remote::RecordsError;
use mycroft_wire::codec::EncodeError;
use std::path::PathBuf;

/// Why a store operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file or directory could not be used.
    #[error("{operation} {path}: {source}; check that the directory exists, is writable and has space")]
    Io {
        /// What was being done.
        operation: &'static str,
        /// To what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A file of the store cannot be read or written; the others are not affected.
    #[error("segment {path}: {reason}; move the file away if it is not mycroft's or is damaged")]
    Segment {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A part of a log is no whole entry and was passed over.
    #[error(
        "log {path}: {bytes} bytes at {offset} are damaged or were not written to their end, and are passed over; \
         what lies behind them is read"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the part begins.
        offset: u64,
        /// How long it is.
        bytes: u64,
    },
    /// A batch is too large.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The database of cases.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// The database of records.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// The database is in memory only, and this must outlive the process.
    #[error("it cannot be written down ({why}): mend the database first")]
    NotKept {
        /// Why the database is in memory only.
        why: String,
    },
}

impl StoreError {
    /// Whether the disk (or the user's share of it) has no room left.
    pub fn is_full(&self) -> bool {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match self {
            StoreError::Io { source, .. } | StoreError::Meta(MetaError::File { source, .. }) => {
                matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
            }
            StoreError::Meta(MetaError::Sqlite { source, .. }) => {
                source.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
            }
            StoreError::Segment { .. }
            | StoreError::Damaged { .. }
            | StoreError::Encode(_)
            | StoreError::Records(_)
            | StoreError::NotKept { .. }
            | StoreError::Meta(MetaError::Newer { .. } | MetaError::Postgres { .. } | MetaError::Address(_)) => false,
        }
    }
}
