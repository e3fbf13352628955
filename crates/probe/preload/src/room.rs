//! Memory for tests, mapped for as long as one lasts: a job's process has none of it otherwise.
use std::ffi::c_void;

/// Mapped memory, all zero.
pub(crate) struct Room {
    start: *mut u8,
    bytes: usize,
}

impl Room {
    /// So many bytes, all of them there; `None` where the system has no more.
    pub(crate) fn new(bytes: usize) -> Option<Room> {
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE);
        // SAFETY: a new private mapping without a file; no address is asked for.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        (start != libc::MAP_FAILED).then(|| Room { start: start.cast(), bytes })
    }

    /// Where it begins, for a call that reads and writes it.
    pub(crate) fn start(&self) -> *mut c_void {
        self.start.cast()
    }

    /// The memory as numbers.
    pub(crate) fn floats(&mut self) -> &mut [f32] {
        // SAFETY: mapped, aligned to a page, of so many bytes, borrowed for as long as this room is; any bits are numbers.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), self.bytes / size_of::<f32>()) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; who did not get it back never drops it.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}
