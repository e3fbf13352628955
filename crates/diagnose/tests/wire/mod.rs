//! Rate curves by hand: who sends how much to whom, and when.
use mycroft_diagnose::flow::{Rule, Sent, Suspect, rejoin, segment, suspects};
use std::collections::BTreeMap;

/// Epochs.
pub(crate) const EPOCH_NS: u64 = 8_000;
/// What ends an operation.
pub(crate) const GAP_NS: u64 = 1_000_000;
/// Of a slice of 1 MB at 200 Gb/s, half a port for each of two channels.
pub(crate) const SLICE_NS: u64 = 40_000;
/// Its bytes.
pub(crate) const SLICE: u64 = 1 << 20;
/// From one round to the next.
pub(crate) const PERIOD_NS: u64 = 20_000_000;

/// Numbers that look random, the same for each seed.
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn stream(seed: u64, of: u64) -> Draw {
        Draw((seed << 8 | of).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Curves by sender, receiver and channel.
#[derive(Default)]
pub(crate) struct Wire {
    pub(crate) flows: BTreeMap<(u32, u32, u32), BTreeMap<u64, u32>>,
    pub(crate) until_ns: u64,
}

impl Wire {
    /// Sends bytes at an even rate from one time to another.
    pub(crate) fn send(&mut self, flow: (u32, u32, u32), from_ns: u64, to_ns: u64, bytes: u64) {
        let epochs = self.flows.entry(flow).or_default();
        let mut at = from_ns;
        while at < to_ns {
            let next = (at / EPOCH_NS + 1) * EPOCH_NS;
            let part = bytes as f64 * (next.min(to_ns) - at) as f64 / (to_ns - from_ns) as f64;
            *epochs.entry(at / EPOCH_NS).or_default() += part.round() as u32;
            at = next;
        }
        self.until_ns = self.until_ns.max(to_ns);
    }

    pub(crate) fn suspects(&self) -> Vec<Suspect> {
        let rule = Rule { gap_ns: GAP_NS, ..Rule::default() };
        let curves: Vec<_> = self.flows.iter().map(|(key, epochs)| (*key, Vec::from_iter(epochs.clone()))).collect();
        let sent = |((from, to, _), epochs): &'static (Key, Vec<(u64, u32)>)| {
            let operations = segment(epochs.iter().map(|(epoch, bytes)| (*epoch, u64::from(*bytes))), EPOCH_NS, &rule);
            Sent { from: *from, to: *to, epochs, operations: rejoin(operations) }
        };
        let curves: &'static [_] = curves.leak();
        suspects(curves.iter().map(sent).collect(), EPOCH_NS, GAP_NS, self.until_ns)
    }
}

/// Sender, receiver, channel.
pub(crate) type Key = (u32, u32, u32);

/// The senders of suspects.
pub(crate) fn names(found: &[Suspect]) -> Vec<u32> {
    found.iter().map(|suspect| suspect.from).collect()
}
