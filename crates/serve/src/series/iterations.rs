//! The iterations of a job: all of the last hour, then least, median and most of each minute for a day, and of each ten
//! minutes for a week.
//!
//! At most 65,536 x 16 B = 1.0 MB of single ones, (1,440 + 1,008) x 40 B = 98 KB of summaries, 256 x 48 B of changes and 2 KiB
//! for the level: 1.2 MB a job, however many ranks it has. Whoever asks gets a copy of 65,536 x 40 B = 2.6 MB at most.
use mycroft_diagnose::change::{Changes, Level};
use mycroft_record::{HostTime, NANOS_PER_SEC};
use std::collections::VecDeque;

/// Single iterations are kept for so long ..
const SINGLE_NS: u64 = 3_600 * NANOS_PER_SEC;
/// .. and so many of them: an hour of iterations of 55 ms.
const SINGLE_MAX: usize = 65_536;
/// A minute, for a day.
const MINUTE: Tier = Tier::of(60, 24 * 60);
/// Ten minutes, for a week.
const TEN_MINUTES: Tier = Tier::of(600, 7 * 24 * 6);
/// Summaries that are over and wait to be written: an hour of minutes.
const UNSAVED_MAX: usize = 64;
/// Change points kept.
const CHANGES_MAX: usize = 256;

/// One iteration, or what is known of several.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Summary {
    /// When the first ended.
    pub(crate) first: HostTime,
    /// When the last ended.
    pub(crate) last: HostTime,
    pub(crate) count: u32,
    pub(crate) min_ms: f32,
    /// The lower one of two. Of summaries that are put together, the median of their medians by count.
    pub(crate) median_ms: f32,
    pub(crate) max_ms: f32,
    pub(crate) sum_ms: f64,
}

impl Summary {
    fn one((end, ms): (HostTime, f32)) -> Summary {
        let sum_ms = f64::from(ms);
        Summary { first: end, last: end, count: 1, min_ms: ms, median_ms: ms, max_ms: ms, sum_ms }
    }

    /// Several that follow each other; `None` of none.
    fn of(several: &[Summary]) -> Option<Summary> {
        let (first, last) = (several.first()?.first, several.last()?.last);
        let count = several.iter().map(|one| one.count).sum();
        let mut medians: Vec<(f32, u32)> = several.iter().map(|one| (one.median_ms, one.count)).collect();
        medians.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut before = 0;
        let median = medians.iter().find(|(_, n)| {
            before += n;
            2 * before >= count
        });
        Some(Summary {
            first,
            last,
            count,
            min_ms: several.iter().map(|one| one.min_ms).fold(f32::INFINITY, f32::min),
            median_ms: median?.0,
            max_ms: several.iter().map(|one| one.max_ms).fold(0.0, f32::max),
            sum_ms: several.iter().map(|one| one.sum_ms).sum(),
        })
    }
}

/// At most `most` summaries: neighbours are put together, as many as fit the same number of iterations or summaries.
pub(crate) fn thin(points: &[Summary], most: usize) -> Vec<Summary> {
    let together = points.len().div_ceil(most.max(1)).max(1);
    points.chunks(together).filter_map(Summary::of).collect()
}

/// A change of the level of iteration times.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ChangePoint {
    /// The first iteration of the new level.
    pub(crate) at: HostTime,
    pub(crate) before_ms: f64,
    pub(crate) after_ms: f64,
}

/// What is known of iterations besides summaries.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Known {
    /// Iterations ever, and when the last of them ended.
    pub(super) iterations: u64,
    pub(super) until: HostTime,
    pub(super) changes: Vec<ChangePoint>,
    /// The healthy level, milliseconds.
    pub(super) healthy: Option<Level>,
}

/// How wide summaries are, and how many are kept.
#[derive(Clone, Copy, Debug)]
struct Tier {
    width_ns: u64,
    kept: usize,
}

impl Tier {
    const fn of(seconds: u64, kept: usize) -> Tier {
        Tier { width_ns: seconds * NANOS_PER_SEC, kept }
    }

    /// The end of the piece that a time is in.
    fn end_of(self, at: HostTime) -> HostTime {
        HostTime((at.0 / self.width_ns + 1) * self.width_ns)
    }
}

/// Pieces of one width that are over.
#[derive(Debug)]
struct Pieces {
    tier: Tier,
    /// Where the piece that is not over ends.
    open_until: HostTime,
    /// That one was read: it is over.
    is_read: bool,
    over: VecDeque<Summary>,
    unsaved: VecDeque<Summary>,
}

impl Pieces {
    fn new(tier: Tier) -> Pieces {
        let (over, unsaved) = Default::default();
        Pieces { tier, open_until: HostTime::NONE, is_read: false, over, unsaved }
    }

    /// An iteration ended at `end`: the piece before is summarized from `single`, which has all of its iterations, or, where the
    /// server started again in it, from narrower pieces that were read.
    fn reach(&mut self, end: HostTime, single: &VecDeque<(HostTime, f32)>, narrower: &VecDeque<Summary>) {
        if end < self.open_until {
            return;
        }
        if !std::mem::take(&mut self.is_read) {
            let from = HostTime(self.open_until.0.saturating_sub(self.tier.width_ns));
            let single_from = single.front().map_or(HostTime(u64::MAX), |(first, _)| *first);
            let before = |piece: &&Summary| piece.first >= from && piece.first < single_from;
            let mut inside: Vec<Summary> = narrower.iter().filter(before).copied().collect();
            let from = inside.last().map_or(from, |piece| piece.last + 1);
            let alone: Vec<Summary> =
                single.iter().rev().take_while(|(at, _)| *at >= from).map(|one| Summary::one(*one)).collect();
            inside.extend(alone.into_iter().rev());
            if let Some(summary) = Summary::of(&inside) {
                self.keep(summary);
                self.unsaved.push_back(summary);
                if self.unsaved.len() > UNSAVED_MAX {
                    self.unsaved.pop_front();
                }
            }
        }
        self.open_until = self.tier.end_of(end);
    }

    fn keep(&mut self, summary: Summary) {
        self.over.push_back(summary);
        if self.over.len() > self.tier.kept {
            self.over.pop_front();
        }
    }

    /// Goes on behind a piece that was written.
    fn go_on(&mut self, summary: Summary) {
        (self.open_until, self.is_read) = (self.tier.end_of(summary.last), true);
        self.keep(summary);
    }

    /// The first of those that end after `until`, and where what is finer begins: at the end of the last one that has something
    /// of before `finer_from`.
    fn before(&self, finer_from: HostTime) -> impl Iterator<Item = &Summary> {
        self.over.iter().take_while(move |piece| piece.first < finer_from)
    }
}

/// The iterations of one job.
#[derive(Debug)]
pub(crate) struct Iterations {
    single: VecDeque<(HostTime, f32)>,
    minutes: Pieces,
    tens: Pieces,
    changes: Changes,
    points: VecDeque<ChangePoint>,
    count: u64,
    /// Those that ended until then were counted before the server started.
    counted_until: HostTime,
}

impl Default for Iterations {
    fn default() -> Iterations {
        Iterations {
            single: VecDeque::new(),
            minutes: Pieces::new(MINUTE),
            tens: Pieces::new(TEN_MINUTES),
            changes: Changes::new(),
            points: VecDeque::new(),
            count: 0,
            counted_until: HostTime::NONE,
        }
    }
}

impl Iterations {
    /// An iteration ended. One that ended before another that is known is passed over: a clock was set back, or the job is
    /// measured by another rank.
    pub(crate) fn push(&mut self, end: HostTime, ms: f64) {
        if self.single.back().is_some_and(|(last, _)| *last >= end) || !ms.is_finite() || ms < 0.0 {
            return;
        }
        self.minutes.reach(end, &self.single, &VecDeque::new());
        self.tens.reach(end, &self.single, &self.minutes.over);
        self.single.push_back((end, ms as f32));
        while self.single.len() > SINGLE_MAX
            || self.single.front().is_some_and(|(first, _)| end.since_ns(*first) > SINGLE_NS)
        {
            self.single.pop_front();
        }
        self.count += u64::from(end > self.counted_until);
        if let Some(change) = self.changes.push(end, ms) {
            let (before_ms, after_ms) = (change.before.centre, change.after.centre);
            // What a server that starts lives through again it has told before.
            if change.seen_at <= self.counted_until {
                return;
            }
            self.points.push_back(ChangePoint { at: change.onset, before_ms, after_ms });
            if self.points.len() > CHANGES_MAX {
                self.points.pop_front();
            }
        }
    }

    /// When the newest ended.
    pub(crate) fn last(&self) -> HostTime {
        self.single.back().map_or(HostTime::NONE, |(last, _)| *last)
    }

    /// Summaries that are over and were not asked for yet: width and for how long they are kept, nanoseconds, and what they say.
    pub(super) fn take_unsaved(&mut self) -> Vec<(u64, u64, Summary)> {
        let taken = [&mut self.minutes, &mut self.tens].map(|pieces| {
            let (width_ns, kept) = (pieces.tier.width_ns, pieces.tier.kept as u64);
            std::mem::take(&mut pieces.unsaved).into_iter().map(move |one| (width_ns, width_ns * kept, one))
        });
        taken.into_iter().flatten().collect()
    }

    /// Goes on with summaries that were written, by their width, oldest first, and with what was known besides.
    pub(super) fn go_on(&mut self, pieces: impl Iterator<Item = (u64, Summary)>, known: &Known) {
        for (width_ns, summary) in pieces {
            let of_width = [&mut self.minutes, &mut self.tens].into_iter().find(|one| one.tier.width_ns == width_ns);
            if let Some(pieces) = of_width {
                pieces.go_on(summary);
            }
        }
        // Of ten minutes that were not over, the minutes know the rest.
        if let Some(last) =
            self.minutes.over.back().map(|piece| piece.last).filter(|last| *last >= self.tens.open_until)
        {
            (self.tens.open_until, self.tens.is_read) = (self.tens.tier.end_of(last), false);
        }
        (self.count, self.counted_until) = (known.iterations, known.until);
        self.points = known.changes.iter().copied().collect();
        if let Some(healthy) = known.healthy {
            self.changes.go_on(healthy);
        }
    }

    /// What is known besides the pieces.
    pub(super) fn known(&self) -> Known {
        Known {
            iterations: self.count,
            until: self.last(),
            changes: self.points.iter().copied().collect(),
            healthy: self.changes.healthy(),
        }
    }

    /// All iterations ever.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The level now, and the lowest that held for a while, milliseconds.
    pub(crate) fn levels(&self) -> (Option<f64>, Option<f64>) {
        let centre = |level: Option<mycroft_diagnose::change::Level>| level.map(|level| level.centre);
        (centre(self.changes.level()), centre(self.changes.healthy()))
    }

    /// Changes of the level, oldest first.
    pub(crate) fn changes(&self) -> impl Iterator<Item = &ChangePoint> {
        self.points.iter()
    }

    /// What is known of the iterations that ended from `from` to `to`, oldest first, each once, as finely as it is kept.
    pub(crate) fn between(&self, from: HostTime, to: HostTime) -> Vec<Summary> {
        let single_from = self.single.front().map_or(HostTime(u64::MAX), |(first, _)| *first);
        let mut out: Vec<Summary> = Vec::new();
        let minutes_from = self.minutes.over.front().map_or(single_from, |piece| piece.first);
        out.extend(self.tens.before(minutes_from.min(single_from)));
        let tens_until = out.last().map_or(HostTime::NONE, |piece| piece.last);
        out.extend(self.minutes.before(single_from).filter(|piece| piece.first > tens_until));
        let until = out.last().map_or(HostTime::NONE, |piece| piece.last);
        out.extend(self.single.iter().filter(|(end, _)| *end > until).map(|one| Summary::one(*one)));
        out.retain(|piece| piece.last >= from && piece.first <= to);
        out
    }

    /// The newest iterations, at most `most`, microseconds, oldest first: for a small picture.
    pub(crate) fn newest(&self, most: usize) -> Vec<u64> {
        let from = self.single.len().saturating_sub(most);
        self.single.range(from..).map(|(_, ms)| (f64::from(*ms) * 1e3) as u64).collect()
    }
}
