//! Pieces of time, finer for what is new: ten seconds for ten minutes, a minute for an hour, a quarter of an hour for a day.
use mycroft_record::{HostTime, NANOS_PER_SEC};
use std::collections::VecDeque;
use std::sync::Arc;

/// Width, nanoseconds, and number of the pieces that are kept, the finest first.
const TIERS: [(u64, usize); 3] = [(10 * NANOS_PER_SEC, 60), (60 * NANOS_PER_SEC, 60), (900 * NANOS_PER_SEC, 96)];

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
}

impl<O: Open> Default for Ladder<O> {
    fn default() -> Ladder<O> {
        Ladder { tiers: TIERS.map(|_| Tier { number: 0, open: O::default(), over: VecDeque::new() }) }
    }
}

impl<O: Open> Ladder<O> {
    /// Adds what ended at `end` to the piece of each width that it is in.
    pub(super) fn push(&mut self, end: HostTime, add: impl Fn(&mut O)) {
        for (tier, (width_ns, kept)) in self.tiers.iter_mut().zip(TIERS) {
            let number = end.0 / width_ns;
            if number != tier.number {
                let closed = tier.closed();
                tier.over.extend(closed);
                (tier.number, tier.open) = (number, O::default());
                if tier.over.len() > kept {
                    tier.over.pop_front();
                }
            }
            add(&mut tier.open);
        }
    }

    /// What is known of a window: of the finest pieces that reach back to its beginning, those that have something of it; where
    /// none do, of the coarsest.
    pub(super) fn window(&self, from: HostTime, to: HostTime) -> Pieces<O::Over> {
        let reaches = |tier: &&Tier<O>| tier.over.front().is_some_and(|(span, _)| span.start <= from);
        let begins = |tier: &&Tier<O>| tier.over.front().map_or(tier.open.span().start, |(span, _)| span.start);
        let oldest = self.tiers.iter().filter(|tier| tier.open.span().iterations > 0).min_by_key(begins);
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

    /// Iterations, and their mean, milliseconds.
    pub(crate) fn iterations(&self) -> (u64, f64) {
        let count: u64 = self.0.iter().map(|(span, _)| u64::from(span.iterations)).sum();
        (count, self.0.iter().map(|(span, _)| span.ms).sum::<f64>() / count.max(1) as f64)
    }
}
