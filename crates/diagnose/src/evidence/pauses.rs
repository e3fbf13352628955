//! Proxy threads that sleep again and again: a test of events, since most iterations have none.
use crate::measure::{Row, Slept};
use mycroft_record::{HostTime, NANOS_PER_SEC};
use std::collections::BTreeMap;

/// The share of the time for which a proxy thread of a healthy job sleeps: half a second once in a week, or as much in one (a host that
/// swaps, somebody's debugger).
const BY_CHANCE: f64 = 0.5 / (7.0 * 86_400.0);

/// Pauses so far.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    /// They are taken in up to here.
    until: HostTime,
    /// By slot of the rank, as long as they may go on.
    of: BTreeMap<u32, Seen>,
}

/// Pauses of one rank.
#[derive(Clone, Copy, Debug)]
struct Seen {
    count: u32,
    first: HostTime,
    last: HostTime,
    /// Of all together, seconds.
    slept: f64,
}

/// What a row says of the pauses of a rank.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Told {
    pub(super) slot: u32,
    /// When the first began.
    pub(super) since: HostTime,
    /// By how much it is likelier that they go on than that they came by chance: a log-likelihood ratio.
    pub(super) gain: f64,
    /// For which share of the time the thread slept.
    pub(super) share: f64,
}

impl Pauses {
    /// Wald's test of Poisson events: that a thread sleeps for the share of the time that counts, `cost`, as often as it did up to the last
    /// time, against by chance. Each pause is taken in once, however many rows show it.
    pub(super) fn take(&mut self, row: &Row, cost: f64) -> Vec<Told> {
        let from = row.start.max(self.until);
        if row.end <= from {
            return Vec::new();
        }
        self.until = row.end;
        let new = || row.slept.iter().filter(|slept| slept.at > from);
        for Slept { slot, at, ms, .. } in new() {
            let seen = self.of.entry(*slot).or_insert(Seen { count: 0, first: *at, last: *at, slept: 0.0 });
            *seen = Seen { count: seen.count + 1, last: *at, slept: seen.slept + ms / 1e3, ..*seen };
        }
        let seconds = row.end.since_ns(from) as f64 / NANOS_PER_SEC as f64;
        let told = |(slot, seen): (&u32, &Seen)| {
            let now = || new().filter(|slept| slept.slot == *slot);
            let slept = now().map(|slept| slept.chance * slept.ms / 1e3).sum::<f64>();
            let awake = (seconds - slept).max(0.0);
            let count: f64 = now().map(|slept| slept.chance).sum();
            let gain = count * (cost / BY_CHANCE).ln() - seen.rate(cost) * awake;
            let since = seen.first - (seen.slept * 1e9) as u64;
            Told { slot: *slot, since, gain, share: slept / seconds }
        };
        self.of.iter().map(told).collect()
    }

    /// They are over.
    pub(super) fn forget(&mut self, slot: u32) {
        self.of.remove(&slot);
    }
}

impl Seen {
    /// How many came a second, from the first to the last; of one, as many as would cost what counts.
    fn rate(&self, cost: f64) -> f64 {
        let seconds = self.last.since_ns(self.first) as f64 / NANOS_PER_SEC as f64;
        if self.count > 1 && seconds > 0.0 { f64::from(self.count - 1) / seconds } else { cost / self.slept }
    }
}
