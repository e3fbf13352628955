//! The end of the shipping thread: what the server does not take in time waits in the spool for the next run.
use super::{BACKOFF_MIN, Link, Shipper};
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Shipper {
    /// Sends what is left while the server takes it and time is left, then spools the rest for the next run.
    pub(super) fn finish(&mut self, by: Instant) {
        if let Link::Up(client) = &mut self.link {
            client.wait_until_at_most(by);
        }
        while matches!(self.link, Link::Up(_)) && self.has_unsent() && Instant::now() < by {
            self.work();
            let pause = self.pause().min(by).saturating_duration_since(Instant::now());
            std::thread::sleep(pause);
        }
        if let Link::Up(client) = &mut self.link
            && let Err(error) = client.flush(by.saturating_duration_since(Instant::now()))
        {
            self.went_down(&error);
        }
        self.spool_fresh();
        self.spool_unacknowledged();
        let gaps = self.gap_batches();
        self.lost.clear();
        self.refused.clear();
        self.spool(&gaps);
        self.publish();
        self.shared.connected.store(false, Ordering::Relaxed);
    }

    /// Until when nothing can be sent: the server gave no credit, or what is left cannot be read now.
    fn pause(&self) -> Instant {
        let only_spooled = self.fresh.is_empty() && self.lost.is_empty() && self.refused.is_empty();
        if only_spooled { self.send_at.max(self.replay_at) } else { self.send_at }
    }

    fn has_unsent(&self) -> bool {
        !self.fresh.is_empty() || !self.lost.is_empty() || !self.refused.is_empty() || self.backlog.len() > 0
    }

    /// What a broken connection never got acknowledged is older than what waits in the spool, so the spool is turned
    /// round once behind it.
    fn spool_unacknowledged(&mut self) {
        let down = Link::Down { client: None, retry_at: Instant::now(), backoff: BACKOFF_MIN };
        let client = match std::mem::replace(&mut self.link, down) {
            Link::Up(client) => client,
            Link::Down { client: Some(client), .. } => client,
            Link::Down { client: None, .. } => return,
        };
        let unacknowledged = client.into_unacked();
        if unacknowledged.is_empty() {
            return;
        }
        if let Err(reason) = self.backlog.push_before(&unacknowledged, &mut self.lost) {
            self.tell_spool(reason);
        }
    }
}
