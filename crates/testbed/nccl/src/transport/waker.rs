//! How the proxy thread of a communicator is woken.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering};

/// Wakes a proxy thread that sleeps in poll.
#[derive(Debug)]
pub struct ProxyWaker {
    event: OwnedFd,
    sleep: AtomicU8,
}

/// The thread runs, or will look once more before it sleeps.
const AWAKE: u8 = 0;
/// The thread sleeps until it is woken.
const ASLEEP: u8 = 1;
/// The thread sleeps and will look by itself soon.
const DOZING: u8 = 2;

impl ProxyWaker {
    /// A waker with its eventfd.
    ///
    /// # Errors
    /// No descriptor can be had.
    pub fn new() -> io::Result<ProxyWaker> {
        // SAFETY: plain system call without pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fd is fresh and owned by nobody else.
        Ok(ProxyWaker { event: unsafe { OwnedFd::from_raw_fd(fd) }, sleep: AtomicU8::new(AWAKE) })
    }

    /// Says that there may be work. Publish the work first.
    pub fn wake(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.sleep.load(Ordering::SeqCst) != AWAKE && self.sleep.swap(AWAKE, Ordering::SeqCst) != AWAKE {
            self.ring();
        }
    }

    /// Says that there is something to look at that can wait until the thread looks by itself, if it will soon.
    pub fn nudge(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        let asleep = self.sleep.load(Ordering::SeqCst) == ASLEEP;
        if asleep && self.sleep.compare_exchange(ASLEEP, AWAKE, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.ring();
        }
    }

    fn ring(&self) {
        let one = 1u64;
        // SAFETY: eight readable bytes, an open eventfd.
        unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Announces that the thread will sleep unless one more look finds work; `dozing`: not for long.
    pub fn about_to_sleep(&self, dozing: bool) {
        self.sleep.store(if dozing { DOZING } else { ASLEEP }, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// The thread is awake again.
    pub fn awake(&self) {
        self.sleep.store(AWAKE, Ordering::SeqCst);
        let mut count = 0u64;
        // SAFETY: eight writable bytes, an open non-blocking eventfd.
        unsafe { libc::read(self.event.as_raw_fd(), (&raw mut count).cast(), 8) };
    }

    /// The descriptor to poll for reading.
    pub fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}
