//! Clocks of hosts: what a server measures of one.
use crate::time::{HostTime, NANOS_PER_SEC};

/// How the clock of the batch's host stands against the server's: what the server measured of it and wrote into the
/// stream before the records that it holds for. At a server time `t` from `since` on, the host's clock is ahead by
/// `offset_ns + drift_ppb x (t - at) / 10^9`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockOffset {
    /// When it was measured, by the server's clock.
    pub at: HostTime,
    /// By how much the host's clock is ahead of the server's, nanoseconds; negative: behind.
    pub offset_ns: i64,
    /// How much more it is ahead after a second, billionths of a second.
    pub drift_ppb: i32,
    /// The true offset differs from that by at most so much; [`ClockOffset::UNKNOWN`]: nobody knows by how much.
    pub bound_ns: u64,
    /// The first moment it holds for, by the server's clock: the host's clock was set then, or nothing is known of
    /// before. `NONE`: it holds for everything before as well.
    pub since: HostTime,
}

impl ClockOffset {
    /// The `bound_ns` of an offset that is a guess: the clock is jumping, or only one direction was measured.
    pub const UNKNOWN: u64 = u64::MAX;

    /// Whether the offset is known to within its bound.
    pub fn is_known(&self) -> bool {
        self.bound_ns != ClockOffset::UNKNOWN
    }

    /// By how much the host's clock is ahead at a server's time, nanoseconds.
    pub fn offset_at(&self, server: HostTime) -> i64 {
        let since_ns = i128::from(server.0) - i128::from(self.at.0);
        let drifted = since_ns * i128::from(self.drift_ppb) / i128::from(NANOS_PER_SEC);
        let all = i128::from(self.offset_ns) + drifted;
        i64::try_from(all).unwrap_or(if all < 0 { i64::MIN } else { i64::MAX })
    }

    /// The server's time at which the host's clock shows `host`; an unknown time stays unknown.
    pub fn server_time(&self, host: HostTime) -> HostTime {
        if !host.is_some() {
            return host;
        }
        if self.drift_ppb == 0 {
            return shifted(host, self.offset_ns);
        }
        // The drift over the offset itself is what is left out: 200 ppm of 3,600 s are 0.7 s, so it is asked twice.
        let near = shifted(host, self.offset_ns);
        let near = shifted(host, self.offset_at(near));
        shifted(host, self.offset_at(near))
    }
}

/// A known time earlier by `ns`, which stays a known time.
fn shifted(time: HostTime, ns: i64) -> HostTime {
    HostTime(time.0.saturating_add_signed(ns.checked_neg().unwrap_or(i64::MAX)).max(1))
}
