//! How far another clock is ahead of ours, from the times of messages that went both ways.
//!
//! A message takes some time, and nobody knows how long; it never takes less than none. So each message that comes says
//! that the other clock is ahead by at least so much, each that went by at most so much, and the truth lies between the
//! best of both: the middle is what a network time protocol takes, half the distance is the most it can be wrong by,
//! however unequal the two ways are. A reading fades as fast as two clocks can part. No clock is read here.
use mycroft_record::{HostTime, NANOS_PER_MS, NANOS_PER_SEC};
use std::collections::VecDeque;

/// As fast as two clocks part: 500 ppm that the kernel may slew by, 100 ppm of an oscillator, 400 ppm that an agent follows
/// its host's clock by. In parts per billion.
pub const RATE_PPB_MAX: i64 = 1_000_000;
/// Readings that contradict each other by less do not show a clock that was set: such a step is within what is stated.
const STEP_LEAST_NS: i64 = NANOS_PER_MS.cast_signed();
/// Of each so many nanoseconds the narrowest reading is kept for the drift.
const MARK_NS: u64 = 4 * NANOS_PER_SEC;
/// Readings kept: two minutes, in which 50 ppm are 6 ms, well beyond the millisecond that a reading is wrong by.
const MARKS_MAX: usize = 32;
/// A line through readings that lie nearer to each other shows nothing but their errors.
const LINE_LEAST_NS: u64 = 8 * NANOS_PER_SEC;
/// A clock that was set twice within this is jumping: where it is now says nothing of where it is next.
const JUMPING_NS: u64 = 60 * NANOS_PER_SEC;

/// What one reading says at a time of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Edge {
    at: HostTime,
    ns: i64,
}

impl Edge {
    /// How much it has faded, not less.
    fn faded(&self, now: HostTime) -> i64 {
        let age = now.0.abs_diff(self.at.0);
        i64::try_from((u128::from(age) * RATE_PPB_MAX as u128).div_ceil(u128::from(NANOS_PER_SEC))).unwrap_or(i64::MAX)
    }
}

/// The narrowest reading of a few seconds.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: HostTime,
    middle_ns: i64,
    half_ns: i64,
}

/// What is known of another clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Estimate {
    /// By how much it is ahead of ours, nanoseconds.
    pub offset_ns: i64,
    /// How much more it is ahead after a second, billionths; 0 where no drift shows beyond the error.
    pub drift_ppb: i32,
    /// The truth differs by at most so much; `None`: one direction only was read, or the clock is jumping.
    pub bound_ns: Option<u64>,
    /// The other clock was set after this time of ours; `NONE`: it was not, as far as was seen.
    pub since: HostTime,
}

/// Estimates how far another clock is ahead of ours.
#[derive(Clone, Debug, Default)]
pub struct OffsetEstimator {
    /// It is ahead by at least ..
    low: Option<Edge>,
    /// .. and by at most.
    high: Option<Edge>,
    marks: VecDeque<Mark>,
    since: HostTime,
    /// The newest reading that fitted what was known before it.
    fitted_at: HostTime,
    /// When it was seen to have been set, the last two times.
    steps: [HostTime; 2],
}

/// Nanoseconds from one time to another, either way.
fn apart(from: HostTime, to: HostTime) -> i64 {
    let ns = i128::from(to.0) - i128::from(from.0);
    // A third of the range: sums and differences of two stay inside.
    let most = i64::MAX / 3;
    i64::try_from(ns).unwrap_or(if ns < 0 { -most } else { most }).clamp(-most, most)
}

impl OffsetEstimator {
    /// A message came at `received` of our clock that left at `sent` of the other.
    pub fn came(&mut self, sent: HostTime, received: HostTime) {
        let edge = Edge { at: received, ns: apart(received, sent) };
        if self.high_ns(received).is_some_and(|high| edge.ns > high.saturating_add(STEP_LEAST_NS)) {
            self.step(received);
        }
        if self.low_ns(received).is_none_or(|low| edge.ns >= low) {
            self.low = Some(edge);
        }
        self.fit(received);
    }

    /// A message that left at `sent` of our clock came at `received` of the other.
    pub fn went(&mut self, sent: HostTime, received: HostTime) {
        let edge = Edge { at: sent, ns: apart(sent, received) };
        if self.low_ns(sent).is_some_and(|low| edge.ns < low.saturating_sub(STEP_LEAST_NS)) {
            self.step(sent);
        }
        if self.high_ns(sent).is_none_or(|high| edge.ns <= high) {
            self.high = Some(edge);
        }
        self.fit(sent);
    }

    /// The other clock was set between the last reading and now: nothing of before holds any more.
    pub fn step(&mut self, now: HostTime) {
        self.steps = [self.steps[1], now];
        self.since = self.fitted_at.max(HostTime(1));
        (self.low, self.high) = (None, None);
        self.marks.clear();
    }

    /// Forgets old readings and keeps a mark of the new.
    fn fit(&mut self, now: HostTime) {
        self.fitted_at = self.fitted_at.max(now);
        let Some((middle_ns, half_ns)) = self.middle(now) else { return };
        let mark = Mark { at: now, middle_ns, half_ns };
        match self.marks.back_mut().filter(|last| now.0 / MARK_NS == last.at.0 / MARK_NS) {
            Some(last) if half_ns < last.half_ns => *last = mark,
            Some(_) => {}
            None => self.marks.push_back(mark),
        }
        if self.marks.len() > MARKS_MAX {
            self.marks.pop_front();
        }
    }

    fn low_ns(&self, now: HostTime) -> Option<i64> {
        self.low.map(|edge| edge.ns.saturating_sub(edge.faded(now)))
    }

    fn high_ns(&self, now: HostTime) -> Option<i64> {
        self.high.map(|edge| edge.ns.saturating_add(edge.faded(now)))
    }

    /// The middle of what is possible, and the larger half of its width.
    fn middle(&self, now: HostTime) -> Option<(i64, i64)> {
        let (low, high) = (self.low_ns(now)?, self.high_ns(now)?);
        let half = (high - low) / 2;
        // They cross by a step that is too small to be told.
        Some((low + half, if half < 0 { STEP_LEAST_NS } else { high - low - half }))
    }

    /// A line through the narrowest readings of the older and of the newer half; 0 where its error is more than it says.
    fn drift_ppb(&self) -> i32 {
        let narrowest = |marks: &mut dyn Iterator<Item = &Mark>| marks.min_by_key(|mark| mark.half_ns).copied();
        let half = self.marks.len() / 2;
        let (old, new) = (narrowest(&mut self.marks.iter().take(half)), narrowest(&mut self.marks.iter().skip(half)));
        let Some((old, new)) = old.zip(new) else { return 0 };
        let between = i128::from(new.at.since_ns(old.at));
        if between < i128::from(LINE_LEAST_NS) {
            return 0;
        }
        let per_second = |ns: i128| ns * i128::from(NANOS_PER_SEC) / between;
        let drift = per_second(i128::from(new.middle_ns) - i128::from(old.middle_ns));
        let error = per_second(i128::from(old.half_ns) + i128::from(new.half_ns));
        if drift.abs() <= error {
            return 0;
        }
        let most = i128::from(RATE_PPB_MAX);
        i32::try_from(drift.clamp(-most, most)).unwrap_or(0)
    }

    /// What is known now; `None` before the first reading.
    pub fn estimate(&self, now: HostTime) -> Option<Estimate> {
        let is_jumping = self.steps[0].is_some() && now.since_ns(self.steps[0]) < JUMPING_NS;
        let since = self.since;
        if let Some((offset_ns, half_ns)) = self.middle(now) {
            let bound_ns = u64::try_from(half_ns).ok().filter(|_| !is_jumping);
            return Some(Estimate { offset_ns, drift_ppb: self.drift_ppb(), bound_ns, since });
        }
        // As if the one message had taken no time.
        let offset_ns = self.low_ns(now).or(self.high_ns(now))?;
        Some(Estimate { offset_ns, drift_ppb: 0, bound_ns: None, since })
    }
}
