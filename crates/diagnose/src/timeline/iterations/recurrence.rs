//! How a line of the program comes again: when it ended each time, and in what rhythm.
use super::{ITERATION_MAX_NS, LAYER_NS_MAX, MARKER_MIN, YOUNG_ENDS, make_room};
use mycroft_record::{HostTime, NANOS_PER_SEC, OpSeq};
use std::collections::VecDeque;

/// Ends kept of each signature: 256 x 8 B = 2 KiB.
const ENDS_KEPT: usize = 256;

/// Of the time of a regular line one part in so many at least is in its even intervals, the rest are checkpoints and evaluations. Of a
/// size that not more than every second iteration has, layers that follow each other in it fill less than that.
const REST_MOST: u64 = 2;

/// Regular for so many ends: layers of one iteration follow each other as evenly, and an iteration has gaps by then.
const STEADY_ENDS: usize = 16;

/// How well a signature marks iterations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Weight {
    /// A collective that carries something.
    #[default]
    Large,
    /// A loss, a norm or a barrier: it comes when it comes, often enough every fourth iteration only.
    Small,
    /// Sends to, or receives from, one peer: several in each iteration, the last resort.
    PointToPoint,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Recurrence {
    pub(super) count: u64,
    pub(super) weight: Weight,
    pub(super) last_seq: OpSeq,
    /// When each of the last ended.
    pub(super) ends: VecDeque<HostTime>,
    /// One of them ended before the one before it, by what its records say.
    is_disordered: bool,
}

impl Recurrence {
    /// It has not come yet.
    pub(super) fn of(weight: Weight) -> Recurrence {
        Recurrence { weight, ..Recurrence::default() }
    }

    /// It came once more.
    pub(super) fn end(&mut self, at: HostTime) {
        self.count += 1;
        if self.ends.len() >= ENDS_KEPT {
            self.ends.pop_front();
        }
        make_room(&mut self.ends);
        self.is_disordered |= self.ends.back().is_some_and(|last| *last > at);
        self.ends.push_back(at);
    }

    /// How often it ended since a moment, as far as that is kept.
    pub(super) fn since(&self, at: HostTime) -> u64 {
        self.ends.iter().rev().take_while(|end| **end >= at).count() as u64
    }

    /// Every so many-th end, counted from the first that there was. Of those up to `known` only the last, where that can be
    /// told without looking at all: they are asked for at every look.
    pub(super) fn every(&self, every: u64, known: HostTime) -> impl Iterator<Item = HostTime> + Clone {
        let gone = self.count - self.ends.len() as u64;
        let first = (every - 1 - gone % every) as usize;
        let every = every as usize;
        let before = if self.is_disordered { 0 } else { self.ends.partition_point(|end| *end <= known) };
        let skip = before.saturating_sub(first + 1) / every * every;
        self.ends.iter().skip(first + skip).step_by(every).copied()
    }
}

/// Seen once or twice, and not so long ago that it should have come again.
pub(super) fn may_recur(seen: &Recurrence, oldest: HostTime, newest: HostTime) -> bool {
    let (Some(&first), Some(&last)) = (seen.ends.front(), seen.ends.back()) else { return false };
    let period = last.since_ns(first).max(first.since_ns(oldest));
    period <= ITERATION_MAX_NS && seen.count < MARKER_MIN && newest.since_ns(last) <= 2 * period + NANOS_PER_SEC
}

/// Recurs at even intervals, and not so often as layers do.
pub(super) fn is_even(seen: &Recurrence) -> bool {
    Rhythm::of(seen).is_some_and(|rhythm| rhythm.is_even && rhythm.median >= LAYER_NS_MAX)
}

/// Recurs at even intervals, and these are most of the time. Of a size that only some iterations have, the layers of
/// one follow each other evenly, and then none comes until the next iteration with that size.
pub(super) fn is_regular(seen: &Recurrence) -> bool {
    Rhythm::of(seen).is_some_and(|rhythm| rhythm.is_even && rhythm.in_rhythm * REST_MOST >= rhythm.all)
}

/// Whether it has come regularly since the start: what makes it irregular later is a fault.
pub(super) fn is_steady(seen: &Recurrence) -> bool {
    (STEADY_ENDS..YOUNG_ENDS).contains(&seen.ends.len()) && is_regular(seen)
}

/// The intervals of a line, nanoseconds.
struct Rhythm {
    median: u64,
    /// Three quarters of them are within 0.67 and 1.5 of it. Layers are not so even: those of a backward pass take twice as
    /// long, and between two iterations there is more than a layer.
    is_even: bool,
    /// The sum of those, and of all.
    in_rhythm: u64,
    all: u64,
}

impl Rhythm {
    fn of(seen: &Recurrence) -> Option<Rhythm> {
        let ends = seen.ends.iter();
        let mut ns: Vec<u64> = ends.clone().zip(ends.skip(1)).map(|(a, b)| b.since_ns(*a)).collect();
        ns.sort_unstable();
        let median = *ns.get(ns.len() / 2)?;
        let even: Vec<u64> = ns.iter().copied().filter(|&ns| 3 * ns >= 2 * median && 2 * ns <= 3 * median).collect();
        let is_even = 4 * even.len() >= 3 * ns.len();
        Some(Rhythm { median, is_even, in_rhythm: even.iter().sum(), all: ns.iter().sum() })
    }
}

pub(super) fn mean_period(seen: &Recurrence) -> u64 {
    match (seen.ends.front(), seen.ends.back(), seen.ends.len() as u64) {
        (Some(first), Some(last), n) if n >= 2 => last.since_ns(*first) / (n - 1),
        _ => 0,
    }
}

pub(super) fn recurs(seen: &Recurrence, newest: HostTime) -> bool {
    let n = seen.ends.len();
    if n < 2 {
        return false;
    }
    let mean = mean_period(seen);
    mean <= ITERATION_MAX_NS && newest.since_ns(seen.ends[n - 1]) <= 4 * mean + 2 * NANOS_PER_SEC
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// Whatever is known, and in whatever order they came: all ends that are new, after the last one before them.
        #[test]
        fn new_ends_are_found_without_looking_at_all(
            steps in proptest::collection::vec(-2i64..30, 0..600), every in 1u64..9, known in 0u64..18_000,
        ) {
            let mut seen = Recurrence::default();
            let (mut at, mut all) = (1_000i64, Vec::new());
            for step in steps {
                at += step;
                seen.end(HostTime(at as u64));
                all.push(HostTime(at as u64));
            }
            let kept = all.len().saturating_sub(ENDS_KEPT);
            let numbered = all.iter().enumerate().skip(kept).filter(|(at, _)| (*at as u64 + 1).is_multiple_of(every));
            let all: Vec<HostTime> = numbered.map(|(_, end)| *end).collect();
            let known = HostTime(known);
            let pairs = |ends: Vec<HostTime>| -> Vec<(HostTime, HostTime)> {
                ends.iter().copied().zip(ends.iter().copied().skip(1)).filter(|(_, end)| *end > known).collect()
            };
            let some: Vec<HostTime> = seen.every(every, known).collect();
            prop_assert!(seen.is_disordered || some.iter().filter(|end| **end <= known).count() <= 1);
            prop_assert_eq!(pairs(some), pairs(all));
        }
    }
}
