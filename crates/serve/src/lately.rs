//! What the server tells of records that it dropped, and for how long.
use mycroft_record::{HostTime, NANOS_PER_SEC};

/// How long a server that dropped records says so: long enough for a scrape every 15 or 30 s to see it.
pub(crate) const CALM_NS: u64 = 60 * NANOS_PER_SEC;

/// Told while records are dropped by the queue or the store.
pub(crate) const DROPS_TEXT: &str = "records were dropped within the last minute because the server could not keep up \
                                     (health and metrics say where): give it more processor, or move \
                                     jobs to another server";
/// Told while records name more than is kept.
pub(crate) const LIMITS_TEXT: &str = "records were not diagnosed within the last minute because they name more ranks, \
                                      hosts, communicators or interfaces than this server keeps (a job's caveats say \
                                      whose): check for agents that invent them";

/// Whether a count has risen lately.
#[derive(Default)]
pub(crate) struct Lately {
    seen: u64,
    /// Then all is well again.
    calm_at: HostTime,
}

impl Lately {
    /// Looks at the count; whether it has risen within the last minute.
    pub(crate) fn is_lately(&mut self, count: u64, now: HostTime) -> bool {
        if count > self.seen {
            self.seen = count;
            self.calm_at = now + CALM_NS;
        }
        now < self.calm_at
    }
}
