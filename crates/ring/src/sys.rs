//! System calls of the job's side, which take no heap: names relative to an open directory, small files into a buffer.
use crate::error::Errno;
use std::ffi::{CStr, c_int};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

/// Opens `name` relative to a directory (or `libc::AT_FDCWD`), never through a link in its last part.
pub(crate) fn open_at(directory: RawFd, name: &CStr, flags: c_int, mode: libc::mode_t) -> Result<File, Errno> {
    let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: a C string and numbers; a new descriptor or an error comes back.
    let fd = unsafe { libc::openat(directory, name.as_ptr(), flags, libc::c_uint::from(mode)) };
    if fd < 0 {
        return Err(Errno::last());
    }
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Removes `name` from an open directory.
pub(crate) fn unlink_at(directory: &File, name: &CStr) -> Result<(), Errno> {
    // SAFETY: a C string and a descriptor that is open.
    let rc = unsafe { libc::unlinkat(directory.as_raw_fd(), name.as_ptr(), 0) };
    if rc == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// Gives `from` in an open directory the name `to`.
pub(crate) fn rename_at(directory: &File, from: &CStr, to: &CStr) -> Result<(), Errno> {
    let fd = directory.as_raw_fd();
    // SAFETY: C strings and a descriptor that is open.
    let rc = unsafe { libc::renameat(fd, from.as_ptr(), fd, to.as_ptr()) };
    if rc == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// Makes one directory, private to this user; that it is there already is no error.
pub(crate) fn make_directory(path: &CStr) -> Result<(), Errno> {
    // SAFETY: a C string.
    let rc = unsafe { libc::mkdir(path.as_ptr(), 0o700) };
    match if rc == 0 { Ok(()) } else { Err(Errno::last()) } {
        Err(Errno(libc::EEXIST)) => Ok(()),
        other => other,
    }
}

/// The begin of a file, as much as fits into the buffer.
pub(crate) fn read_small<'a>(path: &CStr, buffer: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    let file = open_at(libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_NONBLOCK, 0)?;
    let mut len = 0;
    while len < buffer.len() {
        match std::io::Read::read(&mut &file, &mut buffer[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Errno::of(&e)),
        }
    }
    Ok(&buffer[..len])
}

/// The text of a small file; what is not UTF-8 ends it.
pub(crate) fn read_text<'a>(path: &CStr, buffer: &'a mut [u8]) -> Result<&'a str, Errno> {
    let bytes = read_small(path, buffer)?;
    let valid = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    Ok(valid)
}

/// The limit that now applies to this process; `u64::MAX` for none.
pub(crate) fn limit(resource: Resource) -> u64 {
    let number = match resource {
        Resource::FileSize => libc::RLIMIT_FSIZE,
        Resource::AddressSpace => libc::RLIMIT_AS,
        Resource::Data => libc::RLIMIT_DATA,
        Resource::Descriptors => libc::RLIMIT_NOFILE,
    };
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a struct to write to; the resource is one of Linux's.
    let rc = unsafe { libc::getrlimit(number, &raw mut limit) };
    if rc != 0 || limit.rlim_cur == libc::RLIM_INFINITY { u64::MAX } else { limit.rlim_cur }
}

/// What `setrlimit` limits, as far as it concerns the tracer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Resource {
    /// Bytes of a file; writing beyond raises SIGXFSZ.
    FileSize,
    /// Bytes of address space.
    AddressSpace,
    /// Bytes of private writable memory.
    Data,
    /// Descriptors.
    Descriptors,
}
