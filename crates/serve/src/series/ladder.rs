//! Pieces of time, finer for what is new: two seconds for two minutes, ten seconds for ten minutes, a minute for an hour, a quarter of an hour for a day.
use mycroft_record::{HostTime, NANOS_PER_SEC};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Pieces that are over and wait to be written, of each width: an hour of minutes.
const UNSAVED_MAX: usize = 64;
/// Width, nanoseconds, and number of the pieces that are kept, the finest first. What is looked at just after a change is in two
/// seconds: they are of before or of after.
const TIERS: [(u64, usize); 4] =
    [(2 * NANOS_PER_SEC, 60), (10 * NANOS_PER_SEC, 60), (60 * NANOS_PER_SEC, 60), (900 * NANOS_PER_SEC, 96)];
/// Pieces of this width and wider are written: finer ones a server that starts again lives through anyway.
const WRITTEN_NS: u64 = 60 * NANOS_PER_SEC;

/// When a piece began and ended, and its iterations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    pub(super) start: HostTime,
    pub(super) end: HostTime,
    pub(super) iterations: u32,
    /// How long they took together, milliseconds.
    pub(super) ms: f64,
}

impl Span {
    /// Adds a piece that is over.
    pub(super) fn join(&mut self, other: &Span) {
        if self.iterations == 0 {
            self.start = other.start;
        }
        self.end = other.end;
        self.iterations += other.iterations;
        self.ms += other.ms;
    }

    /// Adds what follows.
    pub(super) fn push(&mut self, start: HostTime, end: HostTime, iterations: &[(HostTime, f64)]) {
        if self.iterations == 0 {
            self.start = start;
        }
        self.end = end;
        self.iterations += iterations.len() as u32;
        self.ms += iterations.iter().map(|(_, ms)| ms).sum::<f64>();
    }
}

/// A piece that is not over.
pub(super) trait Open: Default + std::fmt::Debug {
    /// The same when it is over.
    type Over: std::fmt::Debug;
    /// Its span.
    fn span(&self) -> Span;
    /// What is kept of it.
    fn close(&self) -> Self::Over;
    /// Adds a piece that is over.
    fn absorb(&mut self, span: &Span, over: &Self::Over);
}

/// A piece that is to be written, or was: its width and for how long it is kept, nanoseconds, and what it has.
#[derive(Debug)]
pub(super) struct Wide<P> {
    pub(super) width_ns: u64,
    pub(super) kept_ns: u64,
    pub(super) span: Span,
    pub(super) piece: Arc<P>,
}

/// A piece that is over, with its span.
type Over<O> = (Span, Arc<<O as Open>::Over>);

#[derive(Debug)]
struct Tier<O: Open> {
    /// Number of the open piece since the epoch.
    number: u64,
    open: O,
    over: VecDeque<Over<O>>,
}

impl<O: Open> Tier<O> {
    fn closed(&self) -> Option<Over<O>> {
        let span = self.open.span();
        (span.iterations > 0).then(|| (span, Arc::new(self.open.close())))
    }
}

/// All pieces.
#[derive(Debug)]
pub(super) struct Ladder<O: Open> {
    tiers: [Tier<O>; TIERS.len()],
    unsaved: VecDeque<Wide<O::Over>>,
    /// What ended before is in pieces that were read: it is not added again to those that are written.
    read_until: HostTime,
}

impl<O: Open> Default for Ladder<O> {
    fn default() -> Ladder<O> {
        let tiers = TIERS.map(|_| Tier { number: 0, open: O::default(), over: VecDeque::new() });
        Ladder { tiers, unsaved: VecDeque::new(), read_until: HostTime::NONE }
    }
}

impl<O: Open> Ladder<O> {
    /// Adds what ended at `end` to the piece of each width that it is in.
    pub(super) fn push(&mut self, end: HostTime, add: impl Fn(&mut O)) {
        for (tier, (width_ns, kept)) in self.tiers.iter_mut().zip(TIERS) {
            let is_written = width_ns >= WRITTEN_NS;
            if is_written && end < self.read_until {
                continue;
            }
            let number = end.0 / width_ns;
            if number != tier.number {
                let closed = tier.closed();
                if let Some((span, piece)) = closed.clone().filter(|_| is_written) {
                    let kept_ns = width_ns * kept as u64;
                    self.unsaved.push_back(Wide { width_ns, kept_ns, span, piece });
                }
                tier.over.extend(closed);
                (tier.number, tier.open) = (number, O::default());
                if tier.over.len() > kept {
                    tier.over.pop_front();
                }
            }
            add(&mut tier.open);
        }
        while self.unsaved.len() > UNSAVED_MAX {
            self.unsaved.pop_front();
        }
    }

    /// Pieces that are over and were not asked for yet, the oldest first.
    pub(super) fn take_unsaved(&mut self) -> VecDeque<Wide<O::Over>> {
        std::mem::take(&mut self.unsaved)
    }

    /// Goes on with pieces that were written: width, span and what they have, oldest first. What of a wide piece was not over
    /// is put together from the narrow ones.
    pub(super) fn go_on(&mut self, pieces: impl Iterator<Item = (u64, Span, Arc<O::Over>)>) {
        for (width_ns, span, piece) in pieces {
            let Some(at) = TIERS.iter().position(|(width, _)| *width == width_ns) else { continue };
            let tier = &mut self.tiers[at];
            tier.number = span.end.0 / width_ns;
            tier.over.push_back((span, piece));
            if tier.over.len() > TIERS[at].1 {
                tier.over.pop_front();
            }
            self.read_until = self.read_until.max(HostTime((tier.number + 1) * width_ns));
        }
        let (narrow, wide) = (TIERS.len() - 2, TIERS.len() - 1);
        let Some(last) = self.tiers[narrow].over.back().map(|(span, _)| span.end.0 / TIERS[wide].0) else { return };
        self.read_until = HostTime((self.tiers[narrow].number + 1) * TIERS[narrow].0);
        if self.tiers[wide].number == last && !self.tiers[wide].over.is_empty() {
            return;
        }
        let inside: Vec<Over<O>> =
            self.tiers[narrow].over.iter().filter(|(span, _)| span.end.0 / TIERS[wide].0 == last).cloned().collect();
        let mut open = O::default();
        inside.iter().for_each(|(span, piece)| open.absorb(span, piece));
        (self.tiers[wide].number, self.tiers[wide].open) = (last, open);
    }

    /// What is known of a window: of the finest pieces that reach back to its beginning, those that have something of it; where
    /// none do, of the coarsest.
    pub(super) fn window(&self, from: HostTime, to: HostTime) -> Pieces<O::Over> {
        let reaches = |tier: &&Tier<O>| tier.over.front().is_some_and(|(span, _)| span.start <= from);
        let begins = |tier: &&Tier<O>| tier.over.front().map_or(tier.open.span().start, |(span, _)| span.start);
        let oldest = self
            .tiers
            .iter()
            .filter(|tier| tier.open.span().iterations > 0 || !tier.over.is_empty())
            .min_by_key(begins);
        let Some(tier) = self.tiers.iter().find(reaches).or(oldest) else { return Pieces::default() };
        let all = tier.over.iter().cloned().chain(tier.closed());
        Pieces(all.filter(|(span, _)| span.end > from && span.start < to).collect())
    }
}

/// Pieces of a window, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Pieces<P>(pub(super) Vec<(Span, Arc<P>)>);

impl<P> Default for Pieces<P> {
    fn default() -> Pieces<P> {
        Pieces(Vec::new())
    }
}

impl<P> Pieces<P> {
    /// Begin and end of what is known; `None`: nothing.
    pub(crate) fn span(&self) -> Option<(HostTime, HostTime)> {
        Some((self.0.first()?.0.start, self.0.last()?.0.end))
    }

    /// A number that is another one for other pieces: their times, iterations and lengths.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (span, _) in &self.0 {
            (span.start.0, span.end.0, span.iterations, span.ms.to_bits()).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Iterations, and their mean, milliseconds.
    pub(crate) fn iterations(&self) -> (u64, f64) {
        let count: u64 = self.0.iter().map(|(span, _)| u64::from(span.iterations)).sum();
        (count, self.0.iter().map(|(span, _)| span.ms).sum::<f64>() / count.max(1) as f64)
    }
}
