//! The wall clock: the one place in this room (and below it) that reads it; and what times looks.
use crate::core::Stopwatch;
use mycroft_record::HostTime;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Reads the server's wall clock; tests put their own time behind it.
pub(crate) type Clock = Arc<dyn Fn() -> HostTime + Send + Sync>;

/// Now, as every case and report of this server sees it. A clock before 1970 reads as 1 ns (0 means "unknown").
pub(crate) fn wall_now() -> HostTime {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    HostTime(u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX).max(1))
}

/// A stopwatch that nobody sets, running from now on.
pub(crate) fn elapsed() -> Stopwatch {
    let begun = Instant::now();
    Box::new(move || begun.elapsed())
}
