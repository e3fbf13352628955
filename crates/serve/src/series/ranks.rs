//! Where the time of each rank went.
//!
//! 60 + 60 + 60 + 96 pieces of 9 x 2 B a rank are 5.0 KB a rank, 51 MB at 10,240 ranks; four more that are not over, of 48 B a rank,
//! are 2 MB. A share is kept in units of 1/16,384 of the job's iteration: 61 us of a second.
use super::ladder::{Ladder, Open, Pieces, Span, Wide};
use mycroft_diagnose::{Part, Seat, Stretch};
use mycroft_record::{HostName, HostTime, Rank};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Ranks of a job, those of before a restart on other hosts included: 100,000 and some. Beyond, all begins anew.
const SEATS_MAX: usize = 1 << 17;
/// Parts of which it is kept apart what they took, since others hide it: copy, proxy, wire.
pub(crate) const HIDDEN: [Part; 3] = [Part::Copy, Part::Proxy, Part::Wire];
/// Values of a rank: six parts that are the iteration, and what the hidden ones took.
pub(super) const VALUES: usize = Part::ALL.len() + HIDDEN.len();
/// A share of 1.
pub(super) const WHOLE: f32 = 16_384.0;
/// Nothing is known of the rank.
pub(super) const UNKNOWN: u16 = u16::MAX;

/// Shares of an iteration.
pub(super) type Cell = [u16; VALUES];

/// Sums of a rank, milliseconds times iterations, and the iterations.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    iterations: f32,
    values: [f32; VALUES],
}

/// Sums of all ranks in a piece of time, by seat.
#[derive(Clone, Debug, Default)]
struct Sums {
    span: Span,
    ranks: Vec<Sum>,
}

impl Sums {
    fn push(&mut self, stretch: &Stretch, places: &[Option<u32>], seats: usize) {
        self.span.push(stretch.start, stretch.end, &stretch.iterations);
        let count = stretch.iterations.len() as f32;
        self.ranks.resize(seats.max(self.ranks.len()), Sum::default());
        for (spent, place) in stretch.ranks.iter().zip(places) {
            let (Some(spent), Some(place)) = (spent, place) else { continue };
            let sum = &mut self.ranks[*place as usize];
            let hidden = HIDDEN.map(|part| spent.took_ms[part as usize]);
            sum.iterations += count;
            for (sum, ms) in sum.values.iter_mut().zip(spent.exposed_ms.iter().chain(&hidden)) {
                *sum += ms * count;
            }
        }
    }
}

impl Open for Sums {
    /// By seat; seats that came later are missing.
    type Over = Vec<Cell>;

    fn span(&self) -> Span {
        self.span
    }

    fn close(&self) -> Vec<Cell> {
        let iteration_ms = (self.span.ms / f64::from(self.span.iterations)) as f32;
        let share = |ms: f32| (ms / iteration_ms.max(1e-6) * WHOLE).round().min(f32::from(UNKNOWN - 1)) as u16;
        let cell = |sum: &Sum| match sum.iterations > 0.0 {
            true => sum.values.map(|value| share(value / sum.iterations)),
            false => [UNKNOWN; VALUES],
        };
        self.ranks.iter().map(cell).collect()
    }

    fn absorb(&mut self, span: &Span, cells: &Vec<Cell>) {
        self.span.join(span);
        let seats = self.ranks.len().max(cells.len());
        self.ranks.resize(seats, Sum::default());
        for (sum, cell) in self.ranks.iter_mut().zip(cells).filter(|(_, cell)| cell[0] != UNKNOWN) {
            sum.iterations += span.iterations as f32;
            for (sum, share) in sum.values.iter_mut().zip(cell) {
                *sum += f32::from(*share) / WHOLE * span.ms as f32;
            }
        }
    }
}

/// Where the time of the ranks of one job went.
#[derive(Debug, Default)]
pub(crate) struct RankSeries {
    index: BTreeMap<(Rank, HostName), u32>,
    seats: Arc<Vec<Seat>>,
    /// By place in what is measured.
    places: Vec<Option<u32>>,
    ladder: Ladder<Sums>,
    /// How often all began anew: what was written before is about other seats.
    pub(super) generation: u32,
    /// Seats are new or do other work since they were written.
    is_changed: bool,
}

impl RankSeries {
    /// The ranks of the next stretches. Those without a number are left out: of several on a host nobody knows which is which.
    pub(crate) fn seat(&mut self, ranks: &[Seat]) {
        if self.seats.len() + ranks.len() > SEATS_MAX {
            *self = RankSeries { generation: self.generation + 1, ..RankSeries::default() };
        }
        if ranks.len() == self.places.len() && self.is_seated(ranks) {
            return;
        }
        self.is_changed = true;
        let seats = Arc::make_mut(&mut self.seats);
        let known = ranks.iter().take(SEATS_MAX).filter(|seat| seat.rank != Rank::UNKNOWN);
        for seat in known {
            let next = seats.len() as u32;
            let at = *self.index.entry((seat.rank, seat.host.clone())).or_insert(next);
            match seats.get_mut(at as usize) {
                Some(known) => known.peers = seat.peers,
                None => seats.push(seat.clone()),
            }
        }
        let place = |seat: &Seat| self.index.get(&(seat.rank, seat.host.clone())).copied();
        self.places = ranks.iter().map(place).collect();
    }

    /// Whether these are the ranks of before.
    fn is_seated(&self, ranks: &[Seat]) -> bool {
        let is_it = |(seat, place): (&Seat, &Option<u32>)| match place {
            Some(place) => self.seats.get(*place as usize) == Some(seat),
            None => seat.rank == Rank::UNKNOWN,
        };
        ranks.iter().zip(&self.places).all(is_it)
    }

    /// How many ranks were measured last.
    pub(crate) fn count(&self) -> u64 {
        self.places.len() as u64
    }

    /// Pieces that are over and were not asked for yet.
    pub(super) fn take_unsaved(&mut self) -> VecDeque<Wide<Vec<Cell>>> {
        self.ladder.take_unsaved()
    }

    /// The seats, where they changed since this was asked last.
    pub(super) fn take_changed(&mut self) -> Option<Arc<Vec<Seat>>> {
        std::mem::take(&mut self.is_changed).then(|| Arc::clone(&self.seats))
    }

    /// Goes on with what was written.
    pub(super) fn go_on(
        generation: u32,
        seats: Vec<Seat>,
        pieces: impl Iterator<Item = (u64, Span, Arc<Vec<Cell>>)>,
    ) -> RankSeries {
        let place = |(at, seat): (usize, &Seat)| ((seat.rank, seat.host.clone()), at as u32);
        let index = seats.iter().enumerate().map(place).collect();
        let mut series = RankSeries { index, seats: Arc::new(seats), generation, ..RankSeries::default() };
        series.ladder.go_on(pieces);
        series
    }

    /// Takes in about a second.
    pub(crate) fn push(&mut self, stretch: &Stretch) {
        let (places, seats) = (&self.places, self.seats.len());
        self.ladder.push(stretch.end, |open| open.push(stretch, places, seats));
    }

    /// What is known of a window.
    pub(crate) fn window(&self, from: HostTime, to: HostTime) -> RankWindow {
        RankWindow { seats: Arc::clone(&self.seats), pieces: self.ladder.window(from, to) }
    }
}

/// Pieces of a window; what they say together is worked out by whoever asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct RankWindow {
    pub(super) seats: Arc<Vec<Seat>>,
    pub(crate) pieces: Pieces<Vec<Cell>>,
}

/// What one rank took in a window, milliseconds per iteration.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct RankMean {
    pub(crate) seat: Seat,
    /// Iterations of which it is known.
    pub(crate) iterations: u64,
    /// By `Part::ALL`; together the iteration.
    pub(crate) exposed_ms: [f64; Part::ALL.len()],
    /// By `HIDDEN`.
    pub(crate) took_ms: [f64; HIDDEN.len()],
    /// What its own parts took more than those of its peers in the middle, by part, and all together.
    pub(crate) more_ms: [f64; Part::OWN],
    pub(crate) excess_ms: f64,
}

impl RankMean {
    /// All that it did itself.
    fn own_ms(&self) -> f64 {
        self.exposed_ms[..Part::OWN].iter().sum()
    }
}

impl RankWindow {
    /// The pieces that lie in a time as a whole, where there are two: one that is cut by its ends is of something else, too.
    pub(crate) fn inside(mut self, (from, to): (HostTime, HostTime)) -> RankWindow {
        let is_inside = |(span, _): &(Span, Arc<Vec<Cell>>)| span.start >= from && span.end <= to;
        if self.pieces.0.iter().filter(|piece| is_inside(piece)).count() >= 2 {
            self.pieces.0.retain(is_inside);
        }
        self
    }

    /// The ranks of which something is known, those that took most more than their peers first.
    pub(crate) fn means(&self) -> Vec<RankMean> {
        let mut means: Vec<RankMean> = (0..self.seats.len()).filter_map(|at| self.mean(at)).collect();
        compare(&mut means);
        let place = |mean: &RankMean| (mean.seat.rank, mean.seat.host.clone());
        means.sort_by(|a, b| b.excess_ms.total_cmp(&a.excess_ms).then_with(|| place(a).cmp(&place(b))));
        means
    }

    fn mean(&self, at: usize) -> Option<RankMean> {
        let (mut count, mut sums) = (0, [0.0; VALUES]);
        for (span, cells) in &self.pieces.0 {
            let Some(cell) = cells.get(at).filter(|cell| cell[0] != UNKNOWN) else { continue };
            count += u64::from(span.iterations);
            let unit = span.ms / f64::from(WHOLE);
            sums.iter_mut().zip(cell).for_each(|(sum, share)| *sum += f64::from(*share) * unit);
        }
        let ms = |value: usize| sums[value] / count.max(1) as f64;
        (count > 0).then(|| RankMean {
            seat: self.seats[at].clone(),
            iterations: count,
            exposed_ms: std::array::from_fn(ms),
            took_ms: std::array::from_fn(|hidden| ms(Part::ALL.len() + hidden)),
            more_ms: [0.0; Part::OWN],
            excess_ms: 0.0,
        })
    }
}

/// Compares each rank with its peers in the middle (FALCON 4.3); who has none, with all.
fn compare(means: &mut [RankMean]) {
    let mut groups: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, mean) in means.iter().enumerate() {
        groups.entry(mean.seat.peers).or_default().push(at);
    }
    let all: Vec<usize> = (0..means.len()).collect();
    for group in groups.values() {
        let peers = if group.len() > 1 { group } else { &all };
        let part = |part: usize| middle(peers.iter().map(|at| means[*at].exposed_ms[part]).collect());
        let parts: [f64; Part::OWN] = std::array::from_fn(part);
        let own = middle(peers.iter().map(|at| means[*at].own_ms()).collect());
        for at in group {
            let mean = &mut means[*at];
            mean.excess_ms = mean.own_ms() - own;
            mean.more_ms = std::array::from_fn(|part| mean.exposed_ms[part] - parts[part]);
        }
    }
}

/// The value in the middle, of two the lower one: of two ranks the faster one is how long it should take.
fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}
