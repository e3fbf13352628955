//! What this process may still take: looked at before anything is made, so that the tracer neither runs into a limit whose
//! passing ends the job (RLIMIT_FSIZE raises SIGXFSZ) nor takes the last of what the job itself needs.
use crate::error::{CreateError, Scarce};
use crate::layout::MIN_SEGMENT_BYTES;
use crate::region::Space;
use crate::sys::{Resource, limit, read_text};
use std::fs::File;
use std::os::fd::AsRawFd;

/// Share of what is left that one process's tracer may take: a container's /dev/shm of 64 MB is also where NCCL puts its own
/// buffers, and 8 ranks at a sixteenth each leave it 60 %.
pub(crate) const SPACE_SHARE: u64 = 16;
/// Least memory, in smallest segments: below that even one would crowd out others.
const MEMORY_LEAST: u64 = 4 * MIN_SEGMENT_BYTES;
/// Least address space: a sixteenth of it holds the smallest segment and the tables beside it, which are smaller.
const ADDRESSES_LEAST: u64 = SPACE_SHARE * 2 * MIN_SEGMENT_BYTES;
/// Descriptors left to the job beside the tracer's one; an `init` of NCCL opens some hundred.
const DESCRIPTORS_LEAST: u64 = 16;

/// Bytes of a page where the system does not tell: x86-64's.
const PAGE_BYTES: u64 = 4096;

/// What a segment may take of one thing.
struct Room {
    scarce: Scarce,
    available: u64,
    needed: u64,
    most: u64,
}

/// How large a segment may be that was asked for with `requested` bytes; the file system of its directory has `space`.
pub(crate) fn segment_bytes(requested: u64, space: Space) -> Result<u64, CreateError> {
    let memory = space.available.min(crate::memory::room_bytes());
    let share = |scarce, available, needed| Room { scarce, available, needed, most: available / SPACE_SHARE };
    let file = limit(Resource::FileSize);
    let rooms = [
        Room { scarce: Scarce::FileSize, available: file, needed: MIN_SEGMENT_BYTES, most: file },
        share(Scarce::Memory, memory, MEMORY_LEAST),
        share(Scarce::AddressSpace, room(Resource::AddressSpace), ADDRESSES_LEAST),
        share(Scarce::Data, room(Resource::Data), ADDRESSES_LEAST),
    ];
    let mut bytes = requested;
    for Room { scarce, available, needed, most } in rooms {
        if available < needed {
            return Err(CreateError::NoSpace { scarce, available, needed });
        }
        bytes = bytes.min(most);
    }
    Ok(bytes.max(MIN_SEGMENT_BYTES))
}

/// Whether a mapping of so many bytes leaves the job enough of its address space and data limits.
pub fn may_map(bytes: usize) -> bool {
    let most = room(Resource::AddressSpace).min(room(Resource::Data)) / SPACE_SHARE;
    u64::try_from(bytes).is_ok_and(|bytes| bytes <= most)
}

/// Whether the job has descriptors left beside this one, which is the lowest that was free.
pub(crate) fn check_descriptors(file: &File) -> Result<(), CreateError> {
    let limit = limit(Resource::Descriptors);
    let lowest_free = u64::from(file.as_raw_fd().unsigned_abs());
    if lowest_free.saturating_add(DESCRIPTORS_LEAST) > limit {
        return Err(CreateError::Descriptors { limit });
    }
    Ok(())
}

/// The limit of descriptors.
pub(crate) fn descriptors() -> u64 {
    limit(Resource::Descriptors)
}

/// What is left of a limit on this process's memory; all of it where the process does not know how much it uses.
fn room(resource: Resource) -> u64 {
    let limit = limit(resource);
    if limit == u64::MAX {
        return limit;
    }
    let mut buffer = [0; 256];
    let text = read_text(c"/proc/self/statm", &mut buffer).unwrap_or("");
    let pages = used_pages(text, resource).unwrap_or(0);
    limit.saturating_sub(pages.saturating_mul(page_bytes()))
}

/// Pages in /proc/self/statm that count against a limit: all of them, or data with the stack.
fn used_pages(text: &str, resource: Resource) -> Option<u64> {
    let field = if resource == Resource::Data { 5 } else { 0 };
    text.split_ascii_whitespace().nth(field)?.parse().ok()
}

fn page_bytes() -> u64 {
    // SAFETY: takes a number, touches nothing.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).ok().filter(|bytes| *bytes > 0).unwrap_or(PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statm_is_read_as_proc_5_says() {
        let text = "9000 800 700 60 0 5000 0\n";
        assert_eq!(used_pages(text, Resource::AddressSpace), Some(9000));
        assert_eq!(used_pages(text, Resource::Data), Some(5000));
        assert_eq!(used_pages("", Resource::Data), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no limits")]
    fn a_segment_takes_a_sixteenth_of_what_is_left_and_nothing_of_too_little() {
        let space = |available| Space { total: available, available };
        let bytes = segment_bytes(u64::MAX, space(64 << 20)).expect("room");
        assert!(bytes <= 4 << 20, "{bytes}");
        assert_eq!(segment_bytes(1 << 20, space(1 << 40)), Ok(1 << 20));
        let refused = segment_bytes(1 << 20, space(MEMORY_LEAST - 1)).expect_err("too little");
        assert!(matches!(refused, CreateError::NoSpace { scarce: Scarce::Memory, .. }), "{refused}");
    }
}
