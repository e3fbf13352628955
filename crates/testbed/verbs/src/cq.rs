//! Completion queues, and queues of events with a descriptor to wait at.
use crate::abi;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Locks; a thread that panicked has left nothing half done that matters more than going on.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Events that wait at most; later ones are dropped, since nobody takes them.
const EVENTS_MAX: usize = 4096;

/// Events in order, and a descriptor that counts them.
#[derive(Debug)]
pub(crate) struct Events {
    queue: Mutex<VecDeque<(c_int, usize)>>,
    count: OwnedFd,
}

impl Events {
    pub(crate) fn new() -> io::Result<Arc<Events>> {
        Ok(Arc::new(Events { queue: Mutex::default(), count: eventfd(libc::EFD_SEMAPHORE)? }))
    }

    pub(crate) fn fd(&self) -> c_int {
        self.count.as_raw_fd()
    }

    /// Adds an event about the object at `handle`.
    pub(crate) fn push(&self, kind: c_int, handle: usize) {
        let mut queue = lock(&self.queue);
        if queue.len() < EVENTS_MAX {
            queue.push_back((kind, handle));
            ring(&self.count);
        }
    }

    /// Forgets what is about the object at `handle`.
    pub(crate) fn forget(&self, handle: usize) {
        lock(&self.queue).retain(|(_, about)| *about != handle);
    }

    /// Waits for an event, or fails with `EAGAIN` where somebody made the descriptor non-blocking.
    ///
    /// # Errors
    /// As read(2).
    pub(crate) fn take(&self) -> io::Result<(c_int, usize)> {
        loop {
            let mut word = 0u64;
            // SAFETY: eight writable bytes, an open descriptor.
            if unsafe { libc::read(self.fd(), (&raw mut word).cast(), 8) } != 8 {
                return Err(io::Error::last_os_error());
            }
            // What was forgotten is still counted.
            if let Some(event) = lock(&self.queue).pop_front() {
                return Ok(event);
            }
        }
    }
}

/// A descriptor that counts.
pub(crate) fn eventfd(flags: c_int) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call.
    let fd = unsafe { libc::eventfd(0, flags | libc::EFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is fresh and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Adds one to a descriptor that counts.
pub(crate) fn ring(fd: &OwnedFd) {
    let one = 1u64;
    // SAFETY: eight readable bytes, an open descriptor.
    unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast(), 8) };
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    ready: Mutex<VecDeque<abi::Wc>>,
    /// How many are ready, to look at without the lock.
    count: AtomicUsize,
    capacity: usize,
    armed: AtomicBool,
    channel: Option<Arc<Events>>,
    /// Where the program's structure is, once it is made.
    pub(crate) handle: AtomicUsize,
    events: Arc<Events>,
}

impl Cq {
    pub(crate) fn new(capacity: usize, channel: Option<Arc<Events>>, events: Arc<Events>) -> Arc<Cq> {
        Arc::new(Cq {
            ready: Mutex::default(),
            count: AtomicUsize::new(0),
            capacity,
            armed: AtomicBool::new(false),
            channel,
            handle: AtomicUsize::new(0),
            events,
        })
    }

    /// Adds a completion. Where there is no room it is lost and the program hears of it, as with a NIC.
    pub(crate) fn push(&self, wc: abi::Wc) {
        let mut ready = lock(&self.ready);
        if ready.len() >= self.capacity {
            self.events.push(abi::EVENT_CQ_ERR, self.handle.load(Ordering::Relaxed));
            return;
        }
        ready.push_back(wc);
        self.count.store(ready.len(), Ordering::Release);
        if let (Some(channel), true) = (&self.channel, self.armed.swap(false, Ordering::AcqRel)) {
            channel.push(0, self.handle.load(Ordering::Relaxed));
        }
    }

    /// The next completion.
    pub(crate) fn pop(&self) -> Option<abi::Wc> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut ready = lock(&self.ready);
        let wc = ready.pop_front();
        self.count.store(ready.len(), Ordering::Release);
        wc
    }

    /// The next completion rings the channel.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::Release);
    }

    /// Forgets the completions and events that nobody will take.
    pub(crate) fn close(&self) {
        let handle = self.handle.load(Ordering::Relaxed);
        self.events.forget(handle);
        if let Some(channel) = &self.channel {
            channel.forget(handle);
        }
    }
}
