//! What was already told of the in-flight tables, so that a sample tells changes only.
use mycroft_record::{HostTime, NANOS_PER_MS};
use mycroft_ring::{FlowSnapshot, OpSnapshot};

/// Memory of one table: 16 bytes a cell, for 4096 operations and 16384 flows 320 KiB a process.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    cells: Vec<Told>,
}

/// What was told last of the entry in one cell.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    fingerprint: u64,
    generation: u32,
    /// Milliseconds since the epoch, modulo 2^32; 0 never.
    at_ms: u32,
}

impl Seen {
    /// Whether the entry of this generation in the cell `index` should be told now: it is new, its fingerprint changed,
    /// or it was told `repeat_ns` ago. If so it counts as told.
    pub(crate) fn is_news(
        &mut self,
        index: u16,
        generation: u32,
        fingerprint: u64,
        now: HostTime,
        repeat_ns: u64,
    ) -> bool {
        let index = usize::from(index);
        if index >= self.cells.len() {
            self.cells.resize(index + 1, Told::default());
        }
        let told = &mut self.cells[index];
        // The cast keeps the low bits; 0 is taken for "never" once in 50 days, which tells an entry once too often.
        let now_ms = (now.0 / NANOS_PER_MS) as u32;
        let since_ms = u64::from(now_ms.wrapping_sub(told.at_ms));
        let known = told.at_ms != 0 && told.generation == generation && told.fingerprint == fingerprint;
        if known && since_ms < repeat_ns / NANOS_PER_MS {
            return false;
        }
        *told = Told { fingerprint, generation, at_ms: now_ms };
        true
    }

    /// Forgets everything: all is news again.
    pub(crate) fn forget(&mut self) {
        self.cells.fill(Told::default());
    }
}

/// A fingerprint of numbers: equal numbers give equal fingerprints, different ones differ but for one case in 2^64.
pub(crate) fn fingerprint(words: &[u64]) -> u64 {
    // The multiplication and shift of SplitMix64, which spread every input bit over the word.
    words.iter().fold(0x9e37_79b9_7f4a_7c15, |hash, word| {
        let mixed = (hash ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 29)
    })
}

/// What makes an operation's state news.
pub(crate) fn op_fingerprint(op: &OpSnapshot) -> u64 {
    fingerprint(&[
        op.kernels_started,
        op.kernels_stopped,
        op.flows_started,
        op.flows_done,
        op.op.started_ticks,
        op.op.started_last_ticks,
    ])
}

/// What makes a flow's state news. Not the polls that found the peer without credit: they move all the time.
pub(crate) fn flow_fingerprint(flow: &FlowSnapshot) -> u64 {
    let c = &flow.counters;
    let two = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    fingerprint(&[
        two(c.total_chunks, c.posted),
        two(c.ready, c.transmitted),
        u64::from(c.done),
        flow.bytes,
        flow.first_ready_ticks,
        flow.last_progress_ticks,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const REPEAT_NS: u64 = 1000 * NANOS_PER_MS;
    const START_NS: u64 = 1_700_000_000_000 * NANOS_PER_MS;

    #[test]
    fn news_is_what_is_new_changed_or_long_untold() {
        let mut seen = Seen::default();
        let mut ask = |generation, print, ms| {
            seen.is_news(7, generation, print, HostTime(START_NS + ms * NANOS_PER_MS), REPEAT_NS)
        };
        assert!(ask(1, 5, 0), "new");
        assert!(!ask(1, 5, 100), "unchanged");
        assert!(ask(1, 6, 200), "changed");
        assert!(!ask(1, 6, 1199));
        assert!(ask(1, 6, 1200), "a second after it was told");
        assert!(ask(2, 6, 1300), "another entry in the same cell");
        seen.forget();
        assert!(seen.is_news(7, 2, 6, HostTime(START_NS + 1400 * NANOS_PER_MS), REPEAT_NS));
    }

    #[test]
    fn fingerprints_depend_on_value_and_place() {
        assert_eq!(fingerprint(&[1, 2]), fingerprint(&[1, 2]));
        for other in [&[2, 1][..], &[1, 3], &[1], &[1, 2, 0], &[0, 1, 2]] {
            assert_ne!(fingerprint(&[1, 2]), fingerprint(other), "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_map_of_what_was_told(
            asks in prop::collection::vec((0u16..8, 0u32..3, 0u64..3, 0u64..700), 1..200)
        ) {
            let mut seen = Seen::default();
            let mut model: BTreeMap<u16, (u32, u64, u64)> = BTreeMap::new();
            let mut ms = 0;
            for (index, generation, print, step) in asks {
                ms += step;
                let expected = match model.get(&index) {
                    Some(&(g, p, told)) => (g, p) != (generation, print) || ms - told >= 1000,
                    None => true,
                };
                let now = HostTime(START_NS + ms * NANOS_PER_MS);
                prop_assert_eq!(seen.is_news(index, generation, print, now, REPEAT_NS), expected);
                if expected {
                    model.insert(index, (generation, print, ms));
                }
            }
        }
    }
}
