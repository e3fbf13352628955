//! Where a reader's bytes come from. The agent reads with pread(2) into its own memory and never maps a segment: a file
//! that is truncated under a mapping kills the reader with SIGBUS, a pread that comes back short is an error like others.
use crate::error::ReadError;
use crate::layout::WORD_BYTES;
use crate::sync::{AtomicU64, Ordering, Word};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Copies words out of a segment.
pub trait Source {
    /// Copies `into.len()` words from word offset `at`. The words may be copied in any order, each whole.
    ///
    /// # Errors
    /// The segment ends before, or the system refused; `into` is then undefined but initialized.
    fn read(&self, at: u64, into: &mut [u64]) -> Result<(), ReadError>;

    /// Orders everything copied before against everything copied after.
    fn acquire_fence(&self);
}

/// A file, read by pread(2).
///
/// Linux copies aligned 8-byte words whole on x86-64 and arm64 (its copy routines move aligned units of at least that
/// size). The processor may still let a later pread overtake an earlier one, so fences are needed as between loads.
pub(crate) struct FileSource {
    file: File,
    bytes_read: AtomicU64,
}

impl FileSource {
    pub(crate) fn new(file: File) -> FileSource {
        FileSource { file, bytes_read: AtomicU64::new(0) }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Bytes asked of the file so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }
}

impl Source for FileSource {
    fn read(&self, at: u64, into: &mut [u64]) -> Result<(), ReadError> {
        let bytes = std::mem::size_of_val(into);
        // SAFETY: `into` is initialized and exclusively ours; every byte pattern is a u64, and u8 needs no alignment.
        let buffer = unsafe { std::slice::from_raw_parts_mut(into.as_mut_ptr().cast::<u8>(), bytes) };
        let at = at * WORD_BYTES as u64;
        self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
        self.file.read_exact_at(buffer, at).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => ReadError::Truncated { at, end: at + bytes as u64 },
            _ => ReadError::Io { at, source },
        })
    }

    fn acquire_fence(&self) {
        std::sync::atomic::fence(Ordering::Acquire);
    }
}

/// Words in memory, read one by one: for models, loom and miri.
#[doc(hidden)]
pub struct WordSource<'a, W>(pub &'a [W]);

impl<W: Word> Source for WordSource<'_, W> {
    fn read(&self, at: u64, into: &mut [u64]) -> Result<(), ReadError> {
        let end = at.saturating_add(into.len() as u64);
        let words = usize::try_from(at).ok().and_then(|at| self.0.get(at..at + into.len()));
        let Some(words) = words else {
            return Err(ReadError::Truncated { at: at * WORD_BYTES as u64, end: end * WORD_BYTES as u64 });
        };
        for (to, from) in into.iter_mut().zip(words) {
            *to = from.load(Ordering::Relaxed);
        }
        Ok(())
    }

    fn acquire_fence(&self) {
        W::fence(Ordering::Acquire);
    }
}
