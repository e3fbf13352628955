//! Time that says which clock it is of.
use std::fmt;
use std::ops::{Add, Sub};

/// Nanoseconds in a millisecond.
pub const NANOS_PER_MS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Host wall-clock time, nanoseconds since the Unix epoch, as the agent calibrated the host's counter against
/// CLOCK_REALTIME. Comparable within a host to microseconds; across hosts to the error of their clock
/// synchronisation, which a detector must not assume to be zero. `HostTime(0)` means "not yet" or "unknown".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct HostTime(pub u64);

impl HostTime {
    /// Not yet happened, or unknown.
    pub const NONE: HostTime = HostTime(0);

    /// Whether the time is known.
    pub fn is_some(self) -> bool {
        self.0 != 0
    }

    /// The time if it is known.
    pub fn some(self) -> Option<HostTime> {
        if self.0 == 0 { None } else { Some(self) }
    }

    /// Nanoseconds from `earlier` to `self`, 0 if `earlier` is later.
    pub fn since_ns(self, earlier: HostTime) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for HostTime {
    type Output = HostTime;
    /// Later by `ns` nanoseconds, saturating.
    fn add(self, ns: u64) -> HostTime {
        HostTime(self.0.saturating_add(ns))
    }
}

impl Sub<u64> for HostTime {
    type Output = HostTime;
    /// Earlier by `ns` nanoseconds, saturating.
    fn sub(self, ns: u64) -> HostTime {
        HostTime(self.0.saturating_sub(ns))
    }
}

impl fmt::Display for HostTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / NANOS_PER_SEC, self.0 % NANOS_PER_SEC)
    }
}
