//! How wrong the times of hosts may be, and whose may be compared with those of others.
use super::Timeline;
use super::ranks::Slot;
use crate::clocks::UNKNOWN_NS;
use mycroft_record::{HostName, HostTime, NANOS_PER_MS};

impl Timeline {
    /// Times of a host may be wrong by so much from now on.
    pub(crate) fn on_clock(&mut self, host: &HostName, error_ns: u64) {
        if self.clock_errors.get(host) == Some(&error_ns) {
            return;
        }
        self.clock_errors.insert(host.clone(), error_ns);
        let known = self.clock_errors.values().copied().filter(|ns| *ns < UNKNOWN_NS);
        self.clock_error_ns = known.max().unwrap_or(0);
        for slot in self.ranks.slots().collect::<Vec<Slot>>() {
            let state = self.ranks.at_mut(slot);
            if state.host == *host {
                state.clock_error_ns = error_ns;
            }
        }
        self.count_unknown_clocks();
    }

    /// Counts the ranks of such hosts anew.
    pub(super) fn count_unknown_clocks(&mut self) {
        self.unknown_clocks = self.ranks.by_slot().iter().filter(|state| !state.knows_clock()).count();
    }

    /// Whether the clock of a host is known, so that its times may be compared with those of others.
    pub(crate) fn knows_clock_of(&self, host: &HostName) -> bool {
        self.clock_errors.get(host).is_none_or(|ns| *ns < UNKNOWN_NS)
    }

    /// An agent looked.
    pub(super) fn looked(&mut self, slot: Slot, at: HostTime) {
        if self.ranks.at(slot).knows_clock() || self.unknown_clocks == self.ranks.len() {
            self.newest_sample = self.newest_sample.max(at);
        }
    }

    /// A threshold for what is compared between hosts, and why it is that: what clocks may be wrong by says nothing.
    pub(crate) fn widened(&self, threshold_ns: u64, why: String) -> (u64, String) {
        let error_ms = self.clock_error_ns / NANOS_PER_MS;
        let why = if error_ms > 0 { format!("{why}, and {error_ms} ms for the clocks of hosts") } else { why };
        (threshold_ns.saturating_add(self.clock_error_ns), why)
    }
}
