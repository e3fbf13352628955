//! How two windows differ, of one job or of two: by rank and part of an iteration, with how sure that is.
//!
//! The pieces of a window (two or ten seconds, a minute or a quarter of an hour) are its observations. Two windows are compared by
//! Welch's test (1947), which does not take them to vary alike; since a job has many ranks and parts, what chance alone would show among
//! so many comparisons is taken off as Benjamini and Hochberg do (1995).
use super::ladder::Span;
use super::ranks::{Cell, RankWindow, UNKNOWN, WHOLE};
use mycroft_diagnose::Part;
use mycroft_record::{HostName, Rank};
use statrs::distribution::{ContinuousCDF, StudentsT};
use std::collections::BTreeMap;

/// An interval has the true difference in so many of a hundred cases.
const SURE: f64 = 0.95;
/// Of the differences that are called clear, at most this share may be chance.
pub(crate) const CLEAR: f64 = 0.01;
/// The variance of a value that was rounded to a unit is this share of the unit's square.
const ROUNDING: f64 = 1.0 / 12.0;

/// Observations: their number, mean, and the variance of the mean.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Sample {
    count: f64,
    mean: f64,
    variance: f64,
}

impl Sample {
    /// Of values with as many iterations each, that are known to within `unit`.
    fn of(values: &[(f64, f64)], unit: f64) -> Option<Sample> {
        let weight: f64 = values.iter().map(|(_, iterations)| iterations).sum();
        if weight <= 0.0 {
            return None;
        }
        let count = values.len() as f64;
        let mean = values.iter().map(|(value, iterations)| value * iterations).sum::<f64>() / weight;
        let squares: f64 = values.iter().map(|(value, _)| (value - mean).powi(2)).sum();
        let spread = squares / (count - 1.0).max(1.0);
        // What does not vary is rounded alike each time: more values do not make that better.
        Some(Sample { count, mean, variance: spread / count + unit * unit * ROUNDING })
    }
}

/// How something differs between two windows, milliseconds per iteration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Difference {
    pub(crate) before_ms: f64,
    pub(crate) after_ms: f64,
    /// The difference is within so much of what is told, in 95 of 100 cases; `None`: one observation tells nothing of that.
    pub(crate) within_ms: Option<f64>,
    /// How likely chance alone makes such a difference, once it is known how many were compared; `None` as above.
    pub(crate) chance: Option<f64>,
}

impl Difference {
    /// How much more it is now.
    pub(crate) fn more_ms(&self) -> f64 {
        self.after_ms - self.before_ms
    }

    /// Whether it is more than chance.
    pub(crate) fn is_clear(&self) -> bool {
        self.chance.is_some_and(|chance| chance < CLEAR)
    }

    fn of(before: Sample, after: Sample) -> Difference {
        let mut difference = Difference { before_ms: before.mean, after_ms: after.mean, within_ms: None, chance: None };
        if before.count < 2.0 || after.count < 2.0 {
            return difference;
        }
        let variance = before.variance + after.variance;
        let freedom = variance.powi(2)
            / (before.variance.powi(2) / (before.count - 1.0) + after.variance.powi(2) / (after.count - 1.0));
        // Of values that do not vary there is nothing to ask.
        let Some(student) = StudentsT::new(0.0, 1.0, freedom).ok().filter(|_| variance > 0.0) else {
            return difference;
        };
        let error = variance.sqrt();
        difference.within_ms = Some(error * student.inverse_cdf(f64::midpoint(1.0, SURE)));
        difference.chance = Some(2.0 * student.sf((difference.more_ms() / error).abs()));
        difference
    }
}

/// How a rank differs.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct RankDifference {
    pub(crate) rank: Rank,
    pub(crate) host: HostName,
    /// Where it was before.
    pub(crate) host_before: HostName,
    /// All that it does itself.
    pub(crate) own: Difference,
    /// By [`Part::ALL`].
    pub(crate) parts: [Difference; Part::ALL.len()],
}

/// How two windows differ.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Compared {
    /// An iteration; `None`: one window has none.
    pub(crate) iteration: Option<Difference>,
    /// The ranks of both, those that clearly take more or less themselves first.
    pub(crate) ranks: Vec<RankDifference>,
    /// Ranks of one window only.
    pub(crate) only_before: Vec<Rank>,
    pub(crate) only_after: Vec<Rank>,
}

/// Compares two windows.
pub(crate) fn compare(before: &RankWindow, after: &RankWindow) -> Compared {
    let (seats_before, seats_after) = (seats(before), seats(after));
    let mut ranks: Vec<RankDifference> = Vec::new();
    for (rank, at) in &seats_after {
        let Some(other) = seats_before.get(rank) else { continue };
        let (own, parts) = difference(&cells(before, *other), &cells(after, *at));
        let (host, host_before) = (after.seats[*at].host.clone(), before.seats[*other].host.clone());
        ranks.push(RankDifference { rank: *rank, host, host_before, own, parts });
    }
    take_chance_off(&mut ranks);
    ranks.sort_by(|a, b| {
        let by = |one: &RankDifference| (one.own.is_clear(), one.own.more_ms().abs());
        let (x, y) = (by(a), by(b));
        y.0.cmp(&x.0).then(y.1.total_cmp(&x.1)).then(a.rank.cmp(&b.rank))
    });
    let missing = |of: &BTreeMap<Rank, usize>, other: &BTreeMap<Rank, usize>| {
        of.keys().filter(|rank| !other.contains_key(rank)).copied().collect()
    };
    Compared {
        iteration: iterations(before).zip(iterations(after)).map(|(before, after)| Difference::of(before, after)),
        ranks,
        only_before: missing(&seats_before, &seats_after),
        only_after: missing(&seats_after, &seats_before),
    }
}

/// Where in a window a rank is; one that moved, where it was last.
fn seats(window: &RankWindow) -> BTreeMap<Rank, usize> {
    let known =
        |at: &usize| window.pieces.0.iter().any(|(_, cells)| cells.get(*at).is_some_and(|cell| cell[0] != UNKNOWN));
    (0..window.seats.len()).filter(known).map(|at| (window.seats[at].rank, at)).collect()
}

fn iterations(window: &RankWindow) -> Option<Sample> {
    let value = |span: &Span| (span.ms / f64::from(span.iterations), f64::from(span.iterations));
    Sample::of(&window.pieces.0.iter().map(|(span, _)| value(span)).collect::<Vec<_>>(), 0.0)
}

fn cells(window: &RankWindow, at: usize) -> Vec<(Span, Cell)> {
    let known = |(span, cells): &(Span, std::sync::Arc<Vec<Cell>>)| {
        cells.get(at).filter(|cell| cell[0] != UNKNOWN).map(|cell| (*span, *cell))
    };
    window.pieces.0.iter().filter_map(known).collect()
}

/// How what a rank did itself differs, and each part.
fn difference(before: &[(Span, Cell)], after: &[(Span, Cell)]) -> (Difference, [Difference; Part::ALL.len()]) {
    let sample = |cells: &[(Span, Cell)], shares: &dyn Fn(&Cell) -> f64| {
        let unit = |span: &Span| span.ms / f64::from(span.iterations) / f64::from(WHOLE);
        let values: Vec<(f64, f64)> =
            cells.iter().map(|(span, cell)| (shares(cell) * unit(span), f64::from(span.iterations))).collect();
        Sample::of(&values, cells.iter().map(|(span, _)| unit(span)).fold(0.0, f64::max)).unwrap_or_default()
    };
    let both = |shares: &dyn Fn(&Cell) -> f64| Difference::of(sample(before, shares), sample(after, shares));
    let own = both(&|cell: &Cell| cell[..Part::OWN].iter().map(|share| f64::from(*share)).sum());
    (own, std::array::from_fn(|part| both(&|cell: &Cell| f64::from(cell[part]))))
}

/// Makes of each chance the least share of chance differences among all that are at least as sure.
fn take_chance_off(ranks: &mut [RankDifference]) {
    let all = |one: &RankDifference| one.parts.into_iter().chain([one.own]).filter_map(|one| one.chance);
    let mut chances: Vec<f64> = ranks.iter().flat_map(all).collect();
    chances.sort_by(f64::total_cmp);
    let count = chances.len() as f64;
    // From the least sure up: no surer one may be said to be more by chance.
    let mut least = 1.0f64;
    let mut corrected: Vec<f64> =
        chances.iter().enumerate().map(|(nth, chance)| chance * count / (nth + 1) as f64).collect();
    for share in corrected.iter_mut().rev() {
        least = least.min(*share);
        *share = least;
    }
    let correct = |one: &mut Difference| {
        if let Some(chance) = &mut one.chance {
            // The last of equals.
            let at = chances.partition_point(|other| other <= chance);
            *chance = corrected[at - 1];
        }
    };
    ranks.iter_mut().flat_map(|one| one.parts.iter_mut().chain([&mut one.own])).for_each(correct);
}

#[cfg(test)]
mod tests {
    use super::super::ranks::RankSeries;
    use super::*;
    use mycroft_diagnose::{Seat, Spent, Stretch};
    use mycroft_record::{HostTime, NANOS_PER_SEC};

    const BEGIN: u64 = 1_735_689_600 * NANOS_PER_SEC;

    /// Numbers from 0 to 1 that look drawn (xorshift, Marsaglia 2003).
    struct Drawn(u64);

    impl Drawn {
        fn next(&mut self) -> f32 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 40) as f32 / (1u32 << 24) as f32
        }
    }

    /// A window of so many seconds from `from_s` on, of ranks that compute 60 ms, give or take 5 %, and what `more` says.
    fn window(
        (from_s, seconds): (u64, u64),
        hosts: &[&str],
        drawn: &mut Drawn,
        more: impl Fn(usize) -> f32,
    ) -> RankWindow {
        let mut series = RankSeries::default();
        let seat = |(rank, host): (usize, &&str)| Seat { rank: Rank(rank as u32), host: (*host).into(), peers: 0 };
        series.seat(&hosts.iter().enumerate().map(seat).collect::<Vec<_>>());
        for second in 0..seconds {
            let start = HostTime(BEGIN + (from_s + second) * NANOS_PER_SEC);
            let end = start + NANOS_PER_SEC - 1;
            let mut spent = |rank: usize| {
                let computes = 60.0 * (0.95 + 0.1 * drawn.next()) + more(rank);
                let exposed_ms = [computes, 0.0, 0.0, 0.0, 0.0, 200.0 - computes];
                Some(Spent { took_ms: [computes, 0.0, 0.0, 0.0, 0.0], exposed_ms })
            };
            let ranks = (0..hosts.len()).map(&mut spent).collect();
            series.push(&Stretch { start, end, iterations: vec![(end, 200.0); 5], ranks, ..Stretch::default() });
        }
        series.window(HostTime(BEGIN), HostTime(u64::MAX))
    }

    #[test]
    fn a_rank_that_takes_more_is_told_with_how_sure_that_is() {
        let mut drawn = Drawn(88_172_645_463_325_252);
        let hosts = ["host0", "host0", "host1", "host1"];
        let before = window((0, 120), &hosts, &mut drawn, |_| 0.0);
        let after = window((3_600, 60), &["host0", "host0", "host1", "host9", "host9"], &mut drawn, |rank| {
            if rank == 3 { 4.0 } else { 0.0 }
        });
        let told = compare(&before, &after);
        let worst = &told.ranks[0];
        assert_eq!((worst.rank, &*worst.host_before, &*worst.host), (Rank(3), "host1", "host9"));
        let computation = worst.parts[0];
        let within = computation.within_ms.expect("sixty and thirty pieces");
        assert!(
            computation.is_clear() && (computation.more_ms() - 4.0).abs() < within && within < 1.5,
            "{computation:?}"
        );
        assert!(worst.parts[Part::OWN].more_ms() < -2.5, "it waits less: {worst:?}");
        assert!(told.ranks[1..].iter().all(|one| !one.own.is_clear()), "{told:?}");
        assert_eq!((told.ranks.len(), told.only_before.len(), &*told.only_after), (4, 0, &[Rank(4)][..]));
        let iteration = told.iteration.expect("both have iterations");
        assert!((iteration.more_ms()).abs() < 1e-9 && iteration.chance.is_none(), "they do not vary: {iteration:?}");
    }

    /// Where nothing differs, a hundredth of all pairs of windows shows anything at all.
    #[test]
    fn chance_alone_is_rarely_clear() {
        let mut drawn = Drawn(424_242);
        let hosts = ["host0"; 16];
        let mut clear = 0;
        for _ in 0..200 {
            let before = window((0, 60), &hosts, &mut drawn, |_| 0.0);
            let after = window((600, 60), &hosts, &mut drawn, |_| 0.0);
            let differs = |one: &RankDifference| one.own.is_clear() || one.parts.iter().any(Difference::is_clear);
            clear += usize::from(compare(&before, &after).ranks.iter().any(differs));
        }
        assert!(clear <= 8, "{clear} of 200: 2 are expected");
    }

    #[test]
    fn one_piece_tells_no_more_than_its_mean() {
        let mut drawn = Drawn(7);
        let before = window((0, 2), &["host0"; 2], &mut drawn, |_| 0.0);
        let after = window((600, 60), &["host0"; 2], &mut drawn, |_| 30.0);
        let own = compare(&before, &after).ranks[0].own;
        assert!((own.more_ms() - 30.0).abs() < 2.0 && own.within_ms.is_none() && !own.is_clear(), "{own:?}");
        let none = compare(&RankWindow::default(), &after);
        assert!(none.iteration.is_none() && none.ranks.is_empty() && none.only_after.len() == 2, "{none:?}");
    }
}
