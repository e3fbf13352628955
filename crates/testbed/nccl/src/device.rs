//! The device: streams, each with one thread that executes its items in order while the host runs ahead.

use crate::clock::monotonic_ns;
use crate::env::{Control, Identity};
use crate::kernel::Kernel;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Longest piece of sleep after which a fault or an abort is noticed.
const NOTICE_NS: u64 = 20_000_000;

/// Locks without minding a panic elsewhere: the data is plain and every holder leaves it consistent.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something that happens once on a stream and that others wait for.
#[derive(Debug, Default)]
pub struct Event {
    done: Mutex<bool>,
    changed: Condvar,
}

impl Event {
    /// Lets everybody pass.
    pub fn set(&self) {
        *lock(&self.done) = true;
        self.changed.notify_all();
    }

    /// Whether it has happened.
    pub fn is_set(&self) -> bool {
        *lock(&self.done)
    }

    /// Waits until it has happened, or `limit` is over; says whether it has.
    pub fn wait(&self, limit: Duration) -> bool {
        let done = lock(&self.done);
        let (done, _) = self.changed.wait_timeout_while(done, limit, |d| !*d).unwrap_or_else(PoisonError::into_inner);
        *done
    }
}

/// One thing on a stream.
#[derive(Debug)]
pub enum Item {
    /// A kernel that only computes, nominal nanoseconds.
    Compute(u64),
    /// A collective or point-to-point kernel.
    Kernel(Box<Kernel>),
    /// Do not go on before this.
    Wait(Arc<Event>),
    /// This point is reached.
    Record(Arc<Event>),
}

/// An ordered queue of device work with its thread.
#[derive(Debug)]
pub struct Stream {
    queue: Mutex<Queue>,
    changed: Condvar,
    closing: AtomicBool,
    control: Option<Control>,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    enqueued: u64,
    completed: u64,
}

impl Stream {
    /// A stream of the calling thread's identity.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn start() -> std::io::Result<Arc<Stream>> {
        let stream = Arc::new(Stream {
            queue: Mutex::default(),
            changed: Condvar::new(),
            closing: AtomicBool::new(false),
            control: Identity::current().control,
        });
        let worker = Arc::clone(&stream);
        std::thread::Builder::new().name("mtb-device".into()).spawn(move || worker.run())?;
        Ok(stream)
    }

    /// Puts work at the end.
    pub fn push(&self, item: Item) {
        let mut queue = lock(&self.queue);
        queue.items.push_back(item);
        queue.enqueued += 1;
        drop(queue);
        self.changed.notify_all();
    }

    /// Waits until everything enqueued before this call is done.
    pub fn synchronize(&self) {
        let queue = lock(&self.queue);
        let target = queue.enqueued;
        drop(self.changed.wait_while(queue, |q| q.completed < target).unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether everything enqueued is done.
    pub fn is_idle(&self) -> bool {
        let queue = lock(&self.queue);
        queue.completed == queue.enqueued
    }

    fn close(&self) {
        self.closing.store(true, Ordering::Release);
        // The lock orders the flag before the worker's next look at it.
        drop(lock(&self.queue));
        self.changed.notify_all();
    }

    fn run(&self) {
        loop {
            let queue = lock(&self.queue);
            let mut queue = self
                .changed
                .wait_while(queue, |q| q.items.is_empty() && !self.closing.load(Ordering::Acquire))
                .unwrap_or_else(PoisonError::into_inner);
            let Some(item) = queue.items.pop_front() else { return };
            drop(queue);
            // A panic in a kernel is a bug of this library; the stream must go on, or the host would wait for ever
            // without any sign of why.
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.execute(item)));
            if outcome.is_err() {
                crate::log::warn("a kernel panicked; its communicator is now broken");
            }
            lock(&self.queue).completed += 1;
            self.changed.notify_all();
        }
    }

    fn execute(&self, item: Item) {
        stop_here_if_told(self.control.as_ref(), || false);
        match item {
            Item::Compute(ns) => self.compute(ns),
            Item::Kernel(mut kernel) => kernel.run(),
            Item::Record(event) => event.set(),
            Item::Wait(event) => while !event.wait(Duration::from_secs(1)) {},
        }
    }

    fn compute(&self, ns: u64) {
        let scale = self.control.as_ref().map_or(1000, |c| c.rank().compute_scale_milli.load(Ordering::Relaxed));
        let end = monotonic_ns() + (u128::from(ns) * u128::from(scale) / 1000) as u64;
        loop {
            stop_here_if_told(self.control.as_ref(), || false);
            let now = monotonic_ns();
            if now >= end {
                return;
            }
            sleep_until(end.min(now + NOTICE_NS));
        }
    }
}

/// Sleeps until CLOCK_MONOTONIC shows `at_ns`.
pub(crate) fn sleep_until(at_ns: u64) {
    let at = libc::timespec { tv_sec: (at_ns / 1_000_000_000) as i64, tv_nsec: (at_ns % 1_000_000_000) as i64 };
    // SAFETY: `at` is a valid timespec; no remainder is asked for. An interrupted sleep returns early, and every
    // caller looks at the clock again.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &at, std::ptr::null_mut()) };
}

/// The fault `device_stop`: stays here until `released` (an abort) says otherwise.
pub(crate) fn stop_here_if_told(control: Option<&Control>, released: impl Fn() -> bool) {
    let Some(control) = control else { return };
    if control.rank().device_stop.load(Ordering::Relaxed) == 0 {
        return;
    }
    control.rank().state.store(crate::control::RankState::DeviceStopped as u64, Ordering::Relaxed);
    while !released() {
        sleep_until(monotonic_ns() + NOTICE_NS);
    }
}

static STREAMS: OnceLock<Mutex<HashMap<usize, Arc<Stream>>>> = OnceLock::new();

fn streams() -> &'static Mutex<HashMap<usize, Arc<Stream>>> {
    STREAMS.get_or_init(Mutex::default)
}

/// Makes a stream and gives the handle by which C callers name it.
///
/// # Errors
/// No thread can be had.
pub fn stream_create() -> std::io::Result<usize> {
    let stream = Stream::start()?;
    let handle = Arc::as_ptr(&stream) as usize;
    lock(streams()).insert(handle, stream);
    Ok(handle)
}

/// The stream of a handle; 0 is the process's default stream, made at first use.
pub fn stream_of(handle: usize) -> Option<Arc<Stream>> {
    if let Some(stream) = lock(streams()).get(&handle) {
        return Some(Arc::clone(stream));
    }
    if handle != 0 {
        return None;
    }
    let stream = Stream::start().ok()?;
    Some(Arc::clone(lock(streams()).entry(0).or_insert(stream)))
}

/// Ends a stream after its last item; false when there is no such stream.
pub fn stream_destroy(handle: usize) -> bool {
    match lock(streams()).remove(&handle) {
        Some(stream) => {
            stream.close();
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_run_in_order_and_the_host_runs_ahead() {
        let a = Stream::start().unwrap();
        let b = Stream::start().unwrap();
        let (go, seen) = (Arc::new(Event::default()), Arc::new(Event::default()));
        a.push(Item::Wait(Arc::clone(&go)));
        a.push(Item::Record(Arc::clone(&seen)));
        assert!(!a.is_idle() && !seen.is_set());
        b.push(Item::Compute(1_000_000));
        b.push(Item::Record(go));
        a.synchronize();
        b.synchronize();
        assert!(seen.is_set() && a.is_idle());
        a.close();
        b.close();
    }
}
