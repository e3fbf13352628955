//! HTTP connections: few that have not shown the token yet, of which the oldest goes first, and readers.
use mycroft_wire::strangers::Strangers;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use mycroft_wire::sync::lock;

/// All connections of a server.
pub(crate) struct Guests {
    strangers: Mutex<Strangers<Arc<Notify>>>,
    most_strangers: usize,
    readers: Arc<Semaphore>,
    next: AtomicU64,
}

impl Guests {
    /// Places for so many.
    pub(crate) fn new(strangers: usize, readers: usize) -> Arc<Guests> {
        Arc::new(Guests {
            strangers: Mutex::default(),
            most_strangers: strangers,
            readers: Arc::new(Semaphore::new(readers)),
            next: AtomicU64::new(0),
        })
    }

    /// Lets a connection in. True: another one was put out for it.
    pub(crate) fn enter(self: &Arc<Guests>, from: IpAddr) -> (Guest, bool) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let out = Arc::new(Notify::new());
        let victim = lock(&self.strangers).enter(number, Some(from), Arc::clone(&out), self.most_strangers);
        let is_out = victim.is_some();
        if let Some(victim) = victim {
            victim.notify_one();
        }
        (Guest(Arc::new(Place { guests: Arc::clone(self), number, out, permit: Mutex::new(None) })), is_out)
    }
}

/// A connection, as its requests see it.
#[derive(Clone)]
pub(crate) struct Guest(Arc<Place>);

struct Place {
    guests: Arc<Guests>,
    number: u64,
    out: Arc<Notify>,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Guest {
    /// It has shown the token. False: there are too many readers, or it was put out a moment ago.
    pub(crate) fn become_reader(&self) -> bool {
        let mut permit = lock(&self.0.permit);
        if permit.is_some() {
            return true;
        }
        let Ok(place) = Arc::clone(&self.0.guests.readers).try_acquire_owned() else { return false };
        if lock(&self.0.guests.strangers).leave(self.0.number).is_none() {
            return false;
        }
        *permit = Some(place);
        true
    }

    /// Waits until it is put out.
    pub(crate) async fn put_out(&self) {
        self.0.out.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.guests.strangers).leave(self.number);
    }
}
