//! What can go wrong when a segment is made, opened or read.
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// A segment could not be made. The job goes on without tracing.
#[derive(Debug, Error)]
pub enum CreateError {
    /// The directory cannot be made or looked at.
    #[error("cannot use segment directory {path}: {source}; set MYCROFT_DIR to a directory of your own")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The directory is not safely ours.
    #[error("refusing segment directory {path}: {problem}; set MYCROFT_DIR to a directory of your own")]
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Not even the smallest segment fits.
    #[error(
        "no room for a segment in {path}: {available} bytes left by file system and memory limit, tracing needs {needed}; \
         make the file system or the limit larger, or set MYCROFT_DIR to another file system"
    )]
    NoSpace {
        /// The directory.
        path: PathBuf,
        /// Bytes the file system and the memory limit leave.
        available: u64,
        /// Bytes there would have to be: four smallest segments, so that one does not crowd out others.
        needed: u64,
    },
    /// The file could not be made.
    #[error("cannot {operation} segment {path}: {source}")]
    File {
        /// What was being done.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// /proc does not tell who this process is.
    #[error("cannot read {path} to identify this process: {source}; is /proc mounted?")]
    Identity {
        /// The file in /proc.
        path: String,
        /// The system's reason.
        source: io::Error,
    },
}

/// A file is not a segment that this version can read.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The file cannot be opened or looked at.
    #[error("cannot open segment {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Not a plain file of the right owner.
    #[error("refusing segment {path}: {problem}")]
    Unsafe {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Not a segment, or not published yet.
    #[error("{path} is not a mycroft segment (first word {found:#018x}, expected {:#018x})", crate::layout::MAGIC)]
    NotASegment {
        /// The file.
        path: PathBuf,
        /// Its first word.
        found: u64,
    },
    /// Written on a machine of the other byte order.
    #[error("segment {path} was written with the other byte order; read it on the host that wrote it")]
    ByteOrder {
        /// The file.
        path: PathBuf,
    },
    /// Another version of the layout.
    #[error(
        "segment {path} has layout version {found}, this reader knows version {expected}: \
         use probe and agent of one release on a host"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Version in the file.
        found: u64,
        /// Version this code knows.
        expected: u64,
    },
    /// The header contradicts itself or the file.
    #[error("segment {path} is damaged: {field} is {found}, expected {expected}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The field.
        field: &'static str,
        /// What it says.
        found: u64,
        /// What it should say.
        expected: String,
    },
}

/// A segment that was open can no longer be read. Drop the reader; the process may go on undisturbed.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file is shorter than its header said.
    #[error("segment was truncated: no bytes {at}..{end}")]
    Truncated {
        /// First byte wanted.
        at: u64,
        /// Byte after the last wanted.
        end: u64,
    },
    /// The system refused.
    #[error("cannot read segment at byte {at}: {source}")]
    Io {
        /// First byte wanted.
        at: u64,
        /// The system's reason.
        source: io::Error,
    },
}
