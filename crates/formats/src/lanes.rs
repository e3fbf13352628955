//! Numbers for process groups and kinds of operations of a trace, and its times.
use crate::budget::number_of;
use mycroft_record::trace::TraceLane;
use std::collections::BTreeMap;

/// Process groups and kinds of operations of one trace.
const LANES_MAX: usize = 1024;

/// Those that were seen, in the order in which they came.
#[derive(Default)]
pub(crate) struct Lanes(BTreeMap<TraceLane, u32>);

impl Lanes {
    /// Its number; `None`: there are too many.
    pub(crate) fn number(&mut self, lane: TraceLane) -> Option<u32> {
        let next = self.0.len();
        let known = self.0.get(&lane).copied();
        known.or_else(|| {
            (next < LANES_MAX).then(|| {
                self.0.insert(lane, number_of(next));
                number_of(next)
            })
        })
    }

    /// All of them, by number.
    pub(crate) fn list(self) -> Vec<TraceLane> {
        let mut lanes: Vec<(TraceLane, u32)> = self.0.into_iter().collect();
        lanes.sort_unstable_by_key(|(_, number)| *number);
        lanes.into_iter().map(|(lane, _)| lane).collect()
    }
}

/// Microseconds with a fraction as nanoseconds; `None` for what is no time.
#[expect(clippy::cast_possible_truncation, reason = "the range is looked at")]
pub(crate) fn nanos(micros: f64) -> Option<i64> {
    // 2^63 ns are 292 years.
    (0.0..9.0e15).contains(&micros).then(|| (micros * 1e3).round() as i64)
}
