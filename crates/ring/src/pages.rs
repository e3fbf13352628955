//! Memory of our own in the job's process: anonymous mappings, so that a lack of memory is an error and not an abort.
use crate::error::Errno;
use crate::sync::AtomicU64;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize};

/// Zeroed private memory, given back when dropped.
pub struct Pages {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain memory that nothing else refers to.
unsafe impl Send for Pages {}
// SAFETY: as above; it is only given out as a pointer.
unsafe impl Sync for Pages {}

/// When the memory behind an address is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// At once, so that no later access waits for it.
    Now,
    /// Page by page, with the first access to each.
    WhenTouched,
}

impl Pages {
    /// Maps at least `bytes`.
    ///
    /// # Errors
    /// The system refused: a limit of this process or of the host.
    pub fn new(bytes: usize, backing: Backing) -> Result<Pages, Errno> {
        let bytes = bytes.max(1);
        let populate = if backing == Backing::Now && !cfg!(miri) { libc::MAP_POPULATE } else { 0 };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | populate;
        // SAFETY: a new private mapping at no given address, so nothing that exists changes.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        match NonNull::new(at.cast::<u8>()) {
            Some(at_start) if at != libc::MAP_FAILED => Ok(Pages { at: at_start, bytes }),
            _ => Err(Errno::last()),
        }
    }

    /// Takes pages over again that were forgotten.
    ///
    /// # Safety
    /// `at` and `bytes` must be of pages that were made by `new` and forgotten, and be taken over once.
    pub(crate) unsafe fn of(at: NonNull<u8>, bytes: usize) -> Pages {
        Pages { at, bytes }
    }

    /// The first byte; aligned to a page.
    pub fn start(&self) -> NonNull<u8> {
        self.at
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping of `new`; who kept a pointer promised that it does not outlive this.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// A type for which all bytes zero are a value, and which needs no drop.
///
/// # Safety
/// Both must be true.
pub unsafe trait Zeroed {}

// SAFETY: an integer.
unsafe impl Zeroed for AtomicU64 {}
// SAFETY: an integer.
unsafe impl Zeroed for AtomicU32 {}
// SAFETY: an integer.
unsafe impl Zeroed for AtomicUsize {}
// SAFETY: NULL is a value of a pointer.
unsafe impl<T> Zeroed for AtomicPtr<T> {}
// SAFETY: any bytes, also none that mean something.
unsafe impl<T> Zeroed for UnsafeCell<MaybeUninit<T>> {}

/// A fixed number of values in pages of their own, all zero at first.
pub struct Slab<T> {
    pages: Pages,
    len: usize,
    of: std::marker::PhantomData<T>,
}

impl<T: Zeroed> Slab<T> {
    /// `len` zeroed values.
    ///
    /// # Errors
    /// The system refused the memory.
    pub fn new(len: usize, backing: Backing) -> Result<Slab<T>, Errno> {
        const { assert!(align_of::<T>() <= 4096, "a page is the largest alignment there is") };
        let bytes = len.checked_mul(size_of::<T>()).ok_or(Errno(libc::ENOMEM))?;
        Ok(Slab { pages: Pages::new(bytes, backing)?, len, of: std::marker::PhantomData })
    }
}

impl<T> Deref for Slab<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: page-aligned memory for `len` values, zeroed, which is a value of each; shared access only, and it lives
        // as long as `self`.
        unsafe { std::slice::from_raw_parts(self.pages.at.as_ptr().cast::<T>(), self.len) }
    }
}

/// One value in a page of its own that lives as long as the process; `None` where there is no memory for it.
pub fn leak<T>(value: T) -> Option<&'static T> {
    const { assert!(align_of::<T>() <= 4096, "a page is the largest alignment there is") };
    let pages = Pages::new(size_of::<T>(), Backing::Now).ok()?;
    let at = pages.at.cast::<T>();
    std::mem::forget(pages);
    // SAFETY: aligned, large enough, ours alone.
    unsafe { at.write(value) };
    // SAFETY: written just now and never unmapped.
    Some(unsafe { at.as_ref() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_slab_is_zeroed_and_impossible_ones_are_errors() {
        let slab = Slab::<AtomicU64>::new(1000, Backing::WhenTouched).expect("8 KB");
        assert!(slab.len() == 1000 && slab.iter().all(|word| word.load(Relaxed) == 0));
        slab[999].store(7, Relaxed);
        assert_eq!(slab[999].load(Relaxed), 7);
        assert!(Slab::<AtomicU64>::new(usize::MAX / 4, Backing::WhenTouched).is_err());
        assert!(Slab::<AtomicU64>::new(0, Backing::Now).expect("nothing").is_empty());
    }
}
