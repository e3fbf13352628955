//! The gate's words in the segment that another library of this process made. A process has one segment for its records; a
//! second library in it maps the header of that one, and makes none of its own.
use super::words::{GATE_WORDS, gate};
use crate::collect::each_name;
use crate::fixed::{FixedPath, FixedText};
use crate::layout::{HEADER_BYTES, HEADER_WORDS, MAGIC, VERSION, header};
use crate::names::{FileName, Kind, Named};
use crate::narrow::low;
use crate::process::{Identity, effective_user};
use crate::sync::{AtomicU64, Ordering};
use crate::sys::open_at;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;

/// The gate's words in a segment's words; `None` where those are of a part of a segment.
pub fn of_words(words: &[AtomicU64]) -> Option<&[AtomicU64]> {
    words.get(gate::GRANT..gate::GRANT + GATE_WORDS)
}

/// The gate's words in the segment that this process has in `directory`, mapped for the rest of its life; `None` where there
/// is none. Takes no heap.
pub fn of_this_process(directory: &FixedPath) -> Option<&'static [AtomicU64]> {
    let identity = Identity::current().ok()?;
    let is_ours = |named: &Named| {
        named.pid == identity.pid && named.start_time == identity.start_time && named.kind == Kind::Segment
    };
    map(&segment_in(directory, is_ours, |_| true)?)
}

/// The segment in `directory` whose name and file are wanted. Takes no heap.
fn segment_in(
    directory: &FixedPath,
    is_named: impl Fn(&Named) -> bool,
    is_wanted: impl Fn(&File) -> bool,
) -> Option<File> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    let directory = open_at(libc::AT_FDCWD, directory.as_c_str(), flags, 0).ok()?;
    let mut found = None;
    each_name(&directory, |name| {
        if Named::of(name).is_some_and(|named| is_named(&named)) {
            let flags = libc::O_RDWR | libc::O_NONBLOCK;
            let file =
                FileName::new(name).and_then(|name| open_at(directory.as_raw_fd(), name.as_c_str(), flags, 0).ok());
            found = file.filter(|file| is_wanted(file));
        }
        found.is_none()
    });
    found
}

/// Another process's gate words, mapped until this is dropped.
#[derive(Debug)]
pub struct Visit {
    words: &'static [AtomicU64],
}

impl Visit {
    /// The segment that process `holder` has open as `descriptor`: whoever orders a meeting has the segment in which it is
    /// held open, and the place needs no path. Takes no heap. `None` where that process is gone or not ours.
    pub fn open(holder: u32, descriptor: u32) -> Option<Visit> {
        let path: FixedText<64> = FixedText::printed(format_args!("/proc/{holder}/fd/{descriptor}"));
        let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: a C string and flags; a new descriptor or an error comes back.
        let fd = unsafe { libc::open(path.as_c_str().as_ptr(), flags) };
        if fd < 0 {
            return None;
        }
        // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
        let file = unsafe { File::from_raw_fd(fd) };
        map(&file).map(|words| Visit { words })
    }

    /// The segment of process `holder` beside this process's own, whose inode number ends with these bits. Takes no heap. `None` where
    /// there is none.
    pub fn beside(directory: &FixedPath, holder: u32, inode: u32) -> Option<Visit> {
        let is_it = |file: &File| file.metadata().is_ok_and(|metadata| low(metadata.ino()) == inode);
        let file = segment_in(directory, |named| named.pid == holder && named.kind == Kind::Segment, is_it)?;
        map(&file).map(|words| Visit { words })
    }

    /// The words, the first of the gate first.
    pub fn words(&self) -> &[AtomicU64] {
        self.words
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        // The page's first word is so far before the gate's.
        let first = self.words.as_ptr().wrapping_sub(gate::GRANT);
        // SAFETY: `map` mapped this page, and whoever had its words borrowed them from here.
        unsafe { libc::munmap(first.cast_mut().cast(), HEADER_BYTES) };
    }
}

fn map(file: &File) -> Option<&'static [AtomicU64]> {
    let metadata = file.metadata().ok()?;
    let whole = metadata.is_file() && metadata.uid() == effective_user() && metadata.len() >= HEADER_BYTES as u64;
    if !whole {
        return None;
    }
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
    // SAFETY: a new shared mapping of the first page of a file we hold open and that is as long; no address is asked for.
    // The file has all its blocks, and only this user can shrink it.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), HEADER_BYTES, access, flags, file.as_raw_fd(), 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: a page of so many words, aligned, unmapped by nobody but a `Visit` that ends; others change them only atomically.
    let words = unsafe { std::slice::from_raw_parts(start.cast::<AtomicU64>().cast_const(), HEADER_WORDS) };
    let is = |at: usize, value: u64| words[at].load(Ordering::Acquire) == value;
    if is(header::MAGIC, MAGIC) && is(header::VERSION, VERSION) {
        return of_words(words);
    }
    // SAFETY: mapped above, and nobody has it.
    unsafe { libc::munmap(start, HEADER_BYTES) };
    None
}
