//! What can go wrong when a segment is made, opened or read.
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Number of a system error. Unlike `io::Error` it is told without the heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

/// Longest description of a system error; glibc's longest is 49 bytes.
const DESCRIPTION_BYTES: usize = 128;

impl Errno {
    /// Of the latest failed call of this thread.
    pub fn last() -> Errno {
        Errno::of(&io::Error::last_os_error())
    }

    /// Of an error that a system call gave.
    pub fn of(error: &io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut buffer = [0u8; DESCRIPTION_BYTES];
        // SAFETY: the buffer is writable for its whole length, which is what is passed.
        let rc = unsafe { libc::strerror_r(self.0, buffer.as_mut_ptr().cast(), buffer.len()) };
        let text = CStr::from_bytes_until_nul(&buffer).ok().and_then(|text| text.to_str().ok());
        match text.filter(|text| rc == 0 && !text.is_empty()) {
            Some(text) => f.write_str(text),
            None => write!(f, "system error {}", self.0),
        }
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(errno.0)
    }
}

/// What leaves too little room for a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scarce {
    /// The file system of the segment directory, or the memory limit of the control group, which its pages count against.
    Memory,
    /// RLIMIT_AS.
    AddressSpace,
    /// RLIMIT_DATA.
    Data,
    /// RLIMIT_FSIZE.
    FileSize,
}

impl fmt::Display for Scarce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scarce::Memory => "file system and memory limit",
            Scarce::AddressSpace => "the address space limit (ulimit -v)",
            Scarce::Data => "the data limit (ulimit -d)",
            Scarce::FileSize => "the file size limit (ulimit -f)",
        })
    }
}

/// A segment could not be made. The job goes on without tracing. Holds no heap, because it arises where there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CreateError {
    /// The directory cannot be made or looked at.
    #[error("cannot use the segment directory: {0}; set MYCROFT_DIR to a directory of your own")]
    Directory(Errno),
    /// The directory belongs to somebody else.
    #[error(
        "refusing the segment directory: it belongs to user {owner}, this process runs as user {user}; set MYCROFT_DIR \
         to a directory of your own"
    )]
    Foreign {
        /// Who owns it.
        owner: u32,
        /// Who we are.
        user: u32,
    },
    /// Others may put files into the directory.
    #[error(
        "refusing the segment directory: others may write to it (mode {mode:04o}); set MYCROFT_DIR to a directory of your own"
    )]
    Writable {
        /// Its permission bits.
        mode: u32,
    },
    /// Not even the smallest segment fits.
    #[error(
        "no room for a segment: {available} bytes left by {scarce}, tracing needs {needed}; make it larger, or set \
         MYCROFT_DIR to another file system"
    )]
    NoSpace {
        /// What leaves too little.
        scarce: Scarce,
        /// Bytes that it leaves.
        available: u64,
        /// Bytes there would have to be, so that the tracer does not crowd out the job.
        needed: u64,
    },
    /// The process has hardly a descriptor left.
    #[error("the process may open {limit} descriptors and has hardly one left; raise the limit (ulimit -n)")]
    Descriptors {
        /// The limit.
        limit: u64,
    },
    /// The file could not be made.
    #[error("cannot {operation} the segment: {source}")]
    File {
        /// What was being done.
        operation: &'static str,
        /// The system's reason.
        source: Errno,
    },
    /// /proc does not tell who this process is.
    #[error("cannot read {path} to identify this process: {source}; is /proc mounted?")]
    Identity {
        /// The file in /proc.
        path: &'static str,
        /// The system's reason.
        source: Errno,
    },
}

impl std::error::Error for Errno {}

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
