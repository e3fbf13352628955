//! What series keep of what they are given, on drawn jobs.
use super::iterations::{Iterations, Summary, thin};
use super::ranks::RankSeries;
use mycroft_diagnose::{Part, Seat, Spent, Stretch};
use mycroft_record::{HostTime, NANOS_PER_SEC, Rank};
use proptest::prelude::*;

const BEGIN: u64 = 1_735_689_600 * NANOS_PER_SEC;

/// A job of iterations with pauses: end and milliseconds of each.
fn iterations() -> impl Strategy<Value = Vec<(HostTime, f64)>> {
    let lengths = prop::collection::vec((10u32..30_000, 0u32..120), 1..400);
    (lengths, 1u64..300).prop_map(|(lengths, stretch)| {
        let mut at = BEGIN;
        let one = |(ms, pause_s): (u32, u32)| {
            let pause_s = if pause_s > 110 { u64::from(pause_s) * stretch } else { 0 };
            at += u64::from(ms) * 1_000_000 + pause_s * NANOS_PER_SEC;
            (HostTime(at), f64::from(ms))
        };
        lengths.into_iter().map(one).collect()
    })
}

fn filled(all: &[(HostTime, f64)]) -> Iterations {
    let mut series = Iterations::default();
    all.iter().for_each(|(end, ms)| series.push(*end, *ms));
    series
}

fn lower_median(mut ms: Vec<f64>) -> f64 {
    ms.sort_by(f64::total_cmp);
    ms[(ms.len() - 1) / 2]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    /// Each iteration of the last day is in one piece, whose least, median, most and sum are those of its iterations; all of the
    /// last hour are single.
    #[test]
    fn pieces_are_what_their_iterations_were(all in iterations()) {
        let series = filled(&all);
        let pieces = series.between(HostTime::NONE, HostTime(u64::MAX));
        let newest = all[all.len() - 1].0;
        let mut left = all.as_slice();
        for piece in &pieces {
            while left.first().is_some_and(|(end, _)| *end < piece.first) {
                let week_ns = 7 * 86_400 * NANOS_PER_SEC;
                prop_assert!(newest.since_ns(left[0].0) > week_ns - 1200 * NANOS_PER_SEC, "an iteration is lost");
                left = &left[1..];
            }
            let (inside, after) = left.split_at(piece.count as usize);
            left = after;
            let ms: Vec<f64> = inside.iter().map(|(_, ms)| *ms).collect();
            prop_assert_eq!((piece.first, piece.last), (inside[0].0, inside[inside.len() - 1].0));
            prop_assert_eq!(f64::from(piece.min_ms), ms.iter().copied().fold(f64::INFINITY, f64::min));
            prop_assert_eq!(f64::from(piece.max_ms), ms.iter().copied().fold(0.0, f64::max));
            prop_assert_eq!(f64::from(piece.median_ms), lower_median(ms.clone()));
            prop_assert!((piece.sum_ms - ms.iter().sum::<f64>()).abs() < 1e-6);
            prop_assert!(piece.count == 1 || newest.since_ns(piece.first) > 3_600 * NANOS_PER_SEC, "{:?}", piece);
        }
        prop_assert!(left.is_empty(), "{} are in no piece", left.len());
    }

    /// Fewer points say the same of all iterations together, and a window has those that end in it.
    #[test]
    fn thinner_points_keep_counts_extremes_and_sums(all in iterations(), most in 1usize..50) {
        let pieces = filled(&all).between(HostTime::NONE, HostTime(u64::MAX));
        let thinner = thin(&pieces, most);
        let count = |points: &[Summary]| points.iter().map(|point| u64::from(point.count)).sum::<u64>();
        let sum = |points: &[Summary]| points.iter().map(|point| point.sum_ms).sum::<f64>();
        let most_ms = |points: &[Summary]| points.iter().map(|point| point.max_ms).fold(0.0, f32::max);
        prop_assert!(thinner.len() <= most);
        prop_assert_eq!((count(&thinner), most_ms(&thinner)), (count(&pieces), most_ms(&pieces)));
        prop_assert!((sum(&thinner) - sum(&pieces)).abs() < 1e-6 * sum(&pieces));
        prop_assert!(thinner.iter().all(|point| point.min_ms <= point.median_ms && point.median_ms <= point.max_ms));
        let (from, to) = (all[all.len() / 3].0, all[all.len() / 2].0);
        let window = filled(&all).between(from, to);
        prop_assert!(window.iter().all(|piece| piece.last >= from && piece.first <= to));
        prop_assert!(window.iter().any(|piece| piece.first <= from && piece.last >= from));
    }

    /// The parts of a rank over any window that is known are the mean of what they were, whichever pieces tell it.
    #[test]
    fn means_of_ranks_are_those_of_their_rows(
        rows in prop::collection::vec((50.0f32..400.0, 0.0f32..1.0, any::<bool>()), 2..200),
        ranks in 1u32..6,
    ) {
        let mut series = RankSeries::default();
        let seats: Vec<Seat> =
            (0..ranks).map(|rank| Seat { rank: Rank(rank), host: "host0".into(), peers: 0 }).collect();
        series.seat(&seats);
        let mut own = vec![(0.0f64, 0u32); ranks as usize];
        for (second, (ms, share, is_known)) in rows.iter().enumerate() {
            let start = HostTime(BEGIN + second as u64 * 5 * NANOS_PER_SEC);
            let spent = |rank: u32| {
                let computes = ms * share * (rank + 1) as f32 / ranks as f32;
                let exposed_ms = [computes, 0.0, 0.0, 0.0, 0.0, ms - computes];
                (rank > 0 || *is_known).then_some(Spent { took_ms: [computes, 0.0, 0.0, 0.0, 0.0], exposed_ms })
            };
            let end = start + 3 * NANOS_PER_SEC;
            let all: Vec<Option<Spent>> = (0..ranks).map(spent).collect();
            for (sum, spent) in own.iter_mut().zip(&all) {
                sum.0 += spent.map_or(0.0, |spent| f64::from(spent.exposed_ms[0]));
                sum.1 += u32::from(spent.is_some());
            }
            series.push(&Stretch { start, end, iterations: vec![(end, f64::from(*ms))], ranks: all, ..Stretch::default() });
        }
        let window = series.window(HostTime(BEGIN), HostTime(u64::MAX));
        prop_assert_eq!(window.pieces.iterations().0, rows.len() as u64);
        for mean in window.means() {
            let whole: f64 = mean.exposed_ms.iter().sum();
            if mean.seat.rank.0 > 0 {
                let (sum, count) = own[mean.seat.rank.0 as usize];
                let wanted = sum / f64::from(count);
                prop_assert!((mean.exposed_ms[0] - wanted).abs() < 0.01 * window.pieces.iterations().1, "{:?} {}", mean, wanted);
                prop_assert!((whole / window.pieces.iterations().1 - 1.0).abs() < 0.01, "{}", whole);
            }
            prop_assert!(mean.exposed_ms[Part::OWN] >= -1e-6);
        }
    }
}

/// A week of a job of ten iterations a second, and half a million iterations of two milliseconds.
#[test]
fn what_is_kept_is_bounded() {
    for (ms, count) in [(100, 600_000), (2, 500_000), (30_000, 25_000)] {
        let mut series = Iterations::default();
        (1..=count).for_each(|nth| series.push(HostTime(BEGIN + nth * ms * 1_000_000), ms as f64));
        let pieces = series.between(HostTime::NONE, HostTime(u64::MAX));
        assert!(pieces.len() <= 65_536 + 1_440 + 1_008, "{} pieces", pieces.len());
        let counted: u64 = pieces.iter().map(|piece| u64::from(piece.count)).sum();
        assert!(counted + 25_000 > count.min(7 * 86_400_000 / ms) && counted <= count, "{counted} of {count}");
    }
}

/// Two days of three ranks: the last two minutes, the last ten, the last hour and the last day are known, as finely as is said.
#[test]
fn ranks_are_known_for_a_day_and_bounded() {
    let mut series = RankSeries::default();
    let seats: Vec<Seat> = (0..3).map(|rank| Seat { rank: Rank(rank), host: "host0".into(), peers: 0 }).collect();
    series.seat(&seats);
    let end = BEGIN + 2 * 86_400 * NANOS_PER_SEC;
    for second in (0..2 * 86_400).step_by(2) {
        let start = HostTime(BEGIN + second * NANOS_PER_SEC);
        let end = start + 2 * NANOS_PER_SEC;
        let ranks = vec![Some(Spent { took_ms: [1.0; 5], exposed_ms: [1.0; 6] }); 3];
        series.push(&Stretch { start, end, iterations: vec![(end, 6.0)], ranks, ..Stretch::default() });
    }
    for (back_s, fine_s) in [(100, 2), (500, 10), (3_000, 60), (80_000, 900)] {
        let from = HostTime(end - back_s * NANOS_PER_SEC);
        let window = series.window(from, HostTime(end));
        let (known_from, known_to) = window.pieces.span().expect("known");
        assert!(known_from <= from && from.since_ns(known_from) <= fine_s * NANOS_PER_SEC, "{back_s} s");
        assert!(HostTime(end).since_ns(known_to) <= 2 * NANOS_PER_SEC, "{back_s} s");
    }
    let all = series.window(HostTime(BEGIN), HostTime(end)).pieces.span().expect("known");
    assert!(HostTime(end).since_ns(all.0) <= (86_400 + 900) * NANOS_PER_SEC, "not more than a day");
}
