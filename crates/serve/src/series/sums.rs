//! Sums over the life of a job on this server: for counters, and for what a day has lost.
use mycroft_diagnose::{Measured, Part, Stretch};
use mycroft_record::{HostTime, NANOS_PER_MS, NANOS_PER_SEC};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Upper bounds of iteration times, seconds: from the shortest that is told apart to ten minutes, three a decade.
pub(crate) const BOUNDS_S: [f64; 15] =
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0];
/// A day by hours.
const HOURS: usize = 24;
const HOUR_NS: u64 = 3_600 * NANOS_PER_SEC;
/// What iterations are longer and shorter than usual is set off against each other within a minute, so that jitter loses nothing.
const MINUTE_NS: u64 = 60 * NANOS_PER_SEC;

/// The sums.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    /// Iterations by the bound that they are within, the rest last.
    pub(crate) counts: [u64; BOUNDS_S.len() + 1],
    /// Iterations.
    pub(crate) count: u64,
    /// Seconds that they took.
    pub(crate) sum_s: f64,
    /// Seconds of all ranks together by [`Part::ALL`].
    pub(crate) spent_s: [f64; Part::ALL.len()],
    /// Seconds of all ranks together that iterations took longer than when nothing was wrong.
    pub(crate) lost_s: f64,
    /// The same by hour since the epoch, the newest [`HOURS`].
    by_hour: VecDeque<(u64, f64)>,
    /// The minute that is not over, and by how much its iterations were longer in it, seconds of all ranks.
    minute: (u64, f64),
    /// What ended before is in the hours that were read.
    read_until: HostTime,
}

/// What was lost, as it is written.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Lost {
    /// Nanoseconds since the epoch.
    pub(super) until_ns: u64,
    /// Hour since the epoch, seconds of all ranks.
    pub(super) by_hour: Vec<(u64, f64)>,
}

impl Sums {
    /// Takes in a stretch; `healthy_ms`: how long an iteration takes when nothing is wrong.
    pub(crate) fn push(&mut self, stretch: &Stretch, measured: &Measured, healthy_ms: Option<f64>) {
        let ranks = measured.ranks.len() as f64;
        for (end, ms) in &stretch.iterations {
            let seconds = ms / 1e3;
            let within = BOUNDS_S.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS_S.len());
            self.counts[within] += 1;
            self.count += 1;
            self.sum_s += seconds;
            let more_s = healthy_ms.map_or(0.0, |healthy| (ms - healthy) / 1e3 * ranks);
            self.longer(*end, more_s);
        }
        for spent in stretch.ranks.iter().flatten() {
            for (sum, ms) in self.spent_s.iter_mut().zip(spent.exposed_ms) {
                *sum += f64::from(ms) / 1e3 * stretch.iterations.len() as f64;
            }
        }
    }

    fn longer(&mut self, end: HostTime, seconds: f64) {
        if end < self.read_until {
            return;
        }
        let minute = end.0 / MINUTE_NS;
        if minute != self.minute.0 {
            let (over, lost) = self.minute;
            if lost > 0.0 {
                self.lose(over * MINUTE_NS / HOUR_NS, lost);
            }
            self.minute = (minute, 0.0);
        }
        self.minute.1 += seconds;
    }

    fn lose(&mut self, hour: u64, seconds: f64) {
        self.lost_s += seconds;
        match self.by_hour.back_mut() {
            Some((last, sum)) if *last >= hour => *sum += seconds,
            _ => self.by_hour.push_back((hour, seconds)),
        }
        while self.by_hour.len() > HOURS {
            self.by_hour.pop_front();
        }
    }

    /// The job stood still, with so many ranks.
    pub(crate) fn stood(&mut self, since: HostTime, until: HostTime, ranks: u64) {
        let mut at = since.max(HostTime(until.0.saturating_sub(HOURS as u64 * HOUR_NS)));
        while at < until {
            let next = HostTime((at.0 / HOUR_NS + 1) * HOUR_NS).min(until);
            self.lose(at.0 / HOUR_NS, next.since_ns(at) as f64 / NANOS_PER_SEC as f64 * ranks as f64);
            at = next;
        }
    }

    /// What was lost by hour since the epoch, and until when.
    pub(super) fn lost(&self) -> Lost {
        Lost { until_ns: self.minute.0 * MINUTE_NS, by_hour: self.by_hour.iter().copied().collect() }
    }

    /// Goes on with what was written. Counters begin at zero: whoever reads them expects that of a server that starts.
    pub(super) fn go_on(&mut self, lost: Lost) {
        self.read_until = HostTime(lost.until_ns);
        self.by_hour = lost.by_hour.into();
    }

    /// Seconds of all ranks that were lost in the last day, in whole hours and the minute that is not over.
    pub(crate) fn lost_in_a_day_s(&self, now: HostTime) -> f64 {
        let first = (now.0 / HOUR_NS).saturating_sub(HOURS as u64 - 1);
        let hours = self.by_hour.iter().filter(|(hour, _)| *hour >= first).map(|(_, seconds)| seconds).sum::<f64>();
        hours + if self.minute.0 * MINUTE_NS / HOUR_NS >= first { self.minute.1.max(0.0) } else { 0.0 }
    }
}

/// Milliseconds as whole microseconds.
pub(crate) fn us(ms: f64) -> u64 {
    (ms * (NANOS_PER_MS / 1_000) as f64).round().max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_diagnose::Seat;
    use mycroft_record::Rank;

    /// Iterations of so many milliseconds, one after the other from a time on, of two ranks.
    fn played(sums: &mut Sums, from_s: u64, ms: &[f64]) -> u64 {
        let seat = |rank| Seat { rank: Rank(rank), host: "host0".into(), peers: 0 };
        let mut now = HostTime(from_s * NANOS_PER_SEC);
        let mut stretch = Stretch { start: now, ..Stretch::default() };
        for ms in ms {
            now = HostTime(now.0 + (ms * 1e6) as u64);
            stretch.iterations.push((now, *ms));
        }
        stretch.end = now;
        let measured = Measured { ranks: vec![seat(0), seat(1)], ..Measured::default() };
        sums.push(&stretch, &measured, Some(100.0));
        now.0 / NANOS_PER_SEC + 1
    }

    #[test]
    fn jitter_loses_nothing_and_a_slow_minute_loses_what_it_is_longer_for_each_rank() {
        let mut sums = Sums::default();
        let jitter: Vec<f64> = (0..1200).map(|at| if at % 2 == 0 { 90.0 } else { 110.0 }).collect();
        let until = played(&mut sums, 3_600, &jitter);
        assert!(sums.lost_in_a_day_s(HostTime(until * NANOS_PER_SEC)) < 0.05, "{sums:?}");
        let until = played(&mut sums, 7_200, &[150.0; 600]);
        let now = HostTime(until * NANOS_PER_SEC);
        // 600 iterations of 50 ms more, two ranks.
        let lost = sums.lost_in_a_day_s(now);
        assert!((lost - 60.0).abs() < 0.5, "{lost} of {sums:?}");
        assert!((sums.sum_s - 210.0).abs() < 1e-6 && sums.count == 1800, "{sums:?}");
        assert_eq!((sums.counts[3], sums.counts[4]), (600, 1200), "up to 0.1 s and up to 0.2 s");
        // A day later it is not of the last day any more, and the counter never falls.
        let later = HostTime(now.0 + 25 * HOUR_NS);
        assert_eq!(sums.lost_in_a_day_s(later), 0.0);
        played(&mut sums, later.0 / NANOS_PER_SEC, &[100.0; 10]);
        assert!((sums.lost_s - 60.0).abs() < 0.5, "{sums:?}");
    }
}
