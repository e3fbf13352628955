//! What earlier processes of this user left in the directory, when a new one attaches.
//!
//! A killed process leaves its segment. An agent reads and removes it; where none runs, dead segments would fill the shared
//! memory that the next job needs. So a process that attaches removes the oldest of them, as many as take more than their
//! share: those whose lock nobody holds and whose process is gone. With an agent in the directory it removes nothing.
//! The work is bounded whatever the directory holds, and needs no heap.
use crate::limits::SPACE_SHARE;
use crate::names::{AGENT_LOCK, FileName, Kind, Named};
use crate::process::{ProcStat, effective_user};
use crate::region::Space;
use crate::sys::{open_at, unlink_at};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;

/// Dead segments that one attach removes: 128 of the default 64 MiB are 8 GiB.
const REMOVED_MAX: usize = 128;
/// Files that one attach looks at: 512 at about 10 us are 5 ms.
const LOOKS_MAX: usize = 512;
/// Entries whose names one attach reads: 16,384 of 56 bytes are 230 reads of 4 KiB, about 2 ms.
const ENTRIES_MAX: usize = 16_384;
/// A dead segment of this age is removed however small: an agent that comes a day late tells nobody anything.
const DEAD_KEPT_S: i64 = 24 * 3600;
/// An unfinished segment that nobody wrote to for so long is nobody's: making one takes milliseconds.
const UNFINISHED_KEPT_S: i64 = 60;

/// The file of a process that is gone.
#[derive(Clone, Copy)]
struct Dead {
    name: FileName,
    bytes: u64,
    changed_s: i64,
}

/// Removes segments whose process is gone from an open directory, and unfinished ones that a killed process left. `unwanted`
/// says for each name whether nobody needs it any more; what it refuses stays. Gives the removed names, sorted.
///
/// # Errors
/// The directory cannot be looked at.
pub fn collect_dead(directory: &File, mut unwanted: impl FnMut(&OsStr) -> bool) -> io::Result<Vec<OsString>> {
    let owner = directory.metadata()?.uid();
    let now_s = now_s();
    let mut names = Vec::new();
    each_name(directory, |name| {
        let is_dead = Named::of(name).is_some_and(|named| dead(directory, name, named, owner, now_s).is_some());
        if is_dead && unwanted(OsStr::from_bytes(name)) {
            names.push(name.to_vec());
        }
        true
    });
    names.retain(|name| FileName::new(name).is_some_and(|name| unlink_at(directory, name.as_c_str()).is_ok()));
    names.sort_unstable();
    Ok(names.into_iter().map(OsString::from_vec).collect())
}

fn now_s() -> i64 {
    i64::try_from(crate::clock::realtime_ns() / mycroft_record::NANOS_PER_SEC).unwrap_or(i64::MAX)
}

/// Removes dead segments that together take more than one living one may, the oldest first. What fails is left to the next.
pub(crate) fn at_attach(directory: &File, space: Space) {
    if is_agent_there(directory) {
        return;
    }
    let mut found = [Dead { name: FileName::EMPTY, bytes: 0, changed_s: 0 }; REMOVED_MAX];
    let now_s = now_s();
    let (count, more) = find(directory, now_s, &mut found);
    let found = &mut found[..count];
    found.sort_unstable_by_key(|dead| dead.changed_s);
    let mut total: u64 = found.iter().map(|dead| dead.bytes).sum();
    for dead in found {
        let old = now_s.saturating_sub(dead.changed_s) >= DEAD_KEPT_S;
        if !more && !old && total <= space.total / SPACE_SHARE {
            break;
        }
        // Somebody else may just have removed it.
        let _ = unlink_at(directory, dead.name.as_c_str());
        total = total.saturating_sub(dead.bytes);
    }
}

/// Fills `found` with dead segments: how many, and whether there may be more.
fn find(directory: &File, now_s: i64, found: &mut [Dead]) -> (usize, bool) {
    let owner = effective_user();
    let (mut count, mut looks, mut entries) = (0, 0, 0);
    let complete = each_name(directory, |name| {
        entries += 1;
        let Some(named) = Named::of(name) else { return entries < ENTRIES_MAX };
        looks += 1;
        if let Some(dead) = dead(directory, name, named, owner, now_s) {
            found[count] = dead;
            count += 1;
        }
        count < found.len() && looks < LOOKS_MAX && entries < ENTRIES_MAX
    });
    (count, !complete && count == found.len())
}

/// The file if it is a plain one of its owner, nobody holds its lock, and its process is not among the living of this pid
/// namespace. The lock decides for processes of other namespaces.
fn dead(directory: &File, name: &[u8], named: Named, owner: u32, now_s: i64) -> Option<Dead> {
    let lives = |stat: ProcStat| stat.start_time == named.start_time && !matches!(stat.state, 'Z' | 'X' | 'x');
    if crate::process::stat(named.pid).is_ok_and(lives) {
        return None;
    }
    let name = FileName::new(name)?;
    let file = open_at(directory.as_raw_fd(), name.as_c_str(), libc::O_RDONLY | libc::O_NONBLOCK, 0).ok()?;
    let metadata: Metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.uid() != owner || file.try_lock_shared().is_err() {
        return None;
    }
    let changed_s = metadata.ctime();
    if named.kind == Kind::Unfinished && now_s.saturating_sub(metadata.mtime()) < UNFINISHED_KEPT_S {
        return None;
    }
    Some(Dead { name, bytes: metadata.blocks().saturating_mul(512), changed_s })
}

/// Whether an agent holds the directory, or may.
fn is_agent_there(directory: &File) -> bool {
    let Some(name) = FileName::new(AGENT_LOCK.as_bytes()) else { return true };
    let file = match open_at(directory.as_raw_fd(), name.as_c_str(), libc::O_RDONLY | libc::O_NONBLOCK, 0) {
        Ok(file) => file,
        Err(error) => return error != crate::error::Errno(libc::ENOENT),
    };
    // SAFETY: an all-zero flock is valid: from the begin, of any length, of no process.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = lock_type(libc::F_WRLCK);
    // SAFETY: a struct to read and write, and a descriptor that is open.
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    rc != 0 || lock.l_type != lock_type(libc::F_UNLCK)
}

/// A kind of lock in the width that the struct has for it; the kinds are 0 to 2.
fn lock_type(kind: libc::c_int) -> libc::c_short {
    libc::c_short::try_from(kind).unwrap_or(libc::c_short::MAX)
}

/// Calls `visit` with each name until it gives false; whether all were visited.
pub(crate) fn each_name(directory: &File, mut visit: impl FnMut(&[u8]) -> bool) -> bool {
    // A description of its own, so that its place in the directory is nobody else's.
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    let Ok(listing) = open_at(directory.as_raw_fd(), c".", flags, 0) else { return true };
    let mut buffer = [0u64; 512];
    loop {
        let at = buffer.as_mut_ptr().cast::<u8>();
        let bytes = std::mem::size_of_val(&buffer);
        // SAFETY: the buffer is writable for `bytes` bytes and aligned for the kernel's records.
        let got = unsafe { libc::syscall(libc::SYS_getdents64, listing.as_raw_fd(), at, bytes) };
        let Some(got) = usize::try_from(got).ok().filter(|got| *got > 0) else { return true };
        // SAFETY: the kernel filled so many bytes of the buffer, and any bytes are a u8.
        let mut records = unsafe { std::slice::from_raw_parts(at.cast_const(), got.min(bytes)) };
        while let Some((name, rest)) = first_name(records) {
            if !visit(name) {
                return false;
            }
            records = rest;
        }
    }
}

/// The name in the first of getdents64's records (8 bytes inode, 8 offset, 2 length, 1 type, name), and the rest.
fn first_name(records: &[u8]) -> Option<(&[u8], &[u8])> {
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let length = usize::from(u16::from_ne_bytes([*records.get(LENGTH)?, *records.get(LENGTH + 1)?]));
    let name = records.get(NAME..length)?;
    let end = name.iter().position(|&byte| byte == 0)?;
    Some((&name[..end], &records[length..]))
}
