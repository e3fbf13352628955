//! A server that starts again goes on with series as if it had not stopped.
use super::JobSeries;
use mycroft_diagnose::{Carried, Measured, Seat, Spent, Stretch};
use mycroft_record::{HostTime, JobName, NANOS_PER_SEC, Rank};
use mycroft_store::meta::Meta;
use mycroft_store::series::SeriesRows;
use proptest::prelude::*;
use std::collections::BTreeMap;

const BEGIN: u64 = 1_735_689_600 * NANOS_PER_SEC;
/// What a server lives through again when it starts, seconds: ten minutes, of a large job less. The minute that was not over is enough.
const WARM_S: std::ops::RangeInclusive<u64> = 60..=600;

/// Two iterations that end in a second: 400 ms each, rank 1 computes more as time goes on.
fn second(second: u64) -> Measured {
    let start = HostTime(BEGIN + second * NANOS_PER_SEC);
    let ends = [start + 450_000_000, start + 900_000_000];
    let spent = |computes: f32| {
        Some(Spent {
            took_ms: [computes, 0.0, 0.0, 0.0, 3.0],
            exposed_ms: [computes, 0.0, 0.0, 0.0, 2.0, 398.0 - computes],
        })
    };
    let seats = [0, 1].map(|rank| Seat { rank: Rank(rank), host: format!("host{rank}").into(), peers: 0 });
    let way = Carried { from: "host0".into(), to: "host1".into(), sent_ms: 7.0, mb: 100.0 + (second % 7) as f32 };
    let stretch = Stretch {
        start,
        end: ends[1],
        iterations: ends.map(|end| (end, 400.0)).to_vec(),
        ranks: vec![spent(50.0), spent(50.0 + (second % 3600) as f32 / 100.0)],
        ways: vec![way],
    };
    Measured { ranks: seats.to_vec(), stretches: vec![stretch] }
}

fn save(meta: &Meta, rows: Option<SeriesRows>) {
    if let Some(rows) = rows {
        meta.put_series(&rows, HostTime::NONE).expect("kept");
    }
}

/// How many iterations have been written, by what they are about and width.
fn written(meta: &Meta) -> BTreeMap<(String, u64), u64> {
    let mut written = BTreeMap::new();
    for piece in meta.series("job").expect("read").pieces {
        *written.entry((piece.what, piece.width_s)).or_default() += piece.iterations;
    }
    written
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    /// Whatever is asked and written, a server that was killed and started again says of the last day what one says that went on.
    #[test]
    fn a_restart_is_not_seen(before_s in 20u64..9_000, away_s in 0u64..200, after_s in 1u64..4_000, back_s in 0u64..12_000, warm_s in WARM_S) {
        let (job, meta) = (JobName::from("job"), Meta::in_memory().expect("memory"));
        let (mut one, mut other) = (JobSeries::default(), JobSeries::default());
        let meta_one = Meta::in_memory().expect("memory");
        for at in 0..before_s {
            one.take(&second(at));
            save(&meta_one, one.unsaved(&job));
            other.take(&second(at));
            save(&meta, other.unsaved(&job));
        }
        let mut other = JobSeries::go_on(&meta.series("job").expect("read"));
        let warm = before_s.saturating_sub(warm_s)..before_s;
        for at in warm.chain(before_s + away_s..before_s + away_s + after_s) {
            if at >= before_s {
                one.take(&second(at));
                save(&meta_one, one.unsaved(&job));
            }
            other.take(&second(at));
            save(&meta, other.unsaved(&job));
        }
        prop_assert_eq!(written(&meta_one), written(&meta));
        let now = BEGIN + (before_s + away_s + after_s) * NANOS_PER_SEC;
        let (from, to) = (HostTime(now - back_s * NANOS_PER_SEC), HostTime(now));
        let count = |series: &JobSeries| series.iterations.between(from, to).iter().map(|one| u64::from(one.count)).sum::<u64>();
        // A minute or ten that the window cuts is in it as a whole, or by its iterations.
        prop_assert!(count(&one).abs_diff(count(&other)) <= 2 * 600, "{} and {} iterations", count(&one), count(&other));
        let all = |series: &JobSeries| series.iterations.between(HostTime::NONE, to).iter().map(|one| u64::from(one.count)).sum::<u64>();
        prop_assert_eq!(all(&one), all(&other));
        prop_assert_eq!(one.iterations.count(), other.iterations.count());
        let (whole, mine) = (one.ranks.window(HostTime::NONE, to), other.ranks.window(HostTime::NONE, to));
        prop_assert_eq!(whole.pieces.iterations().0, mine.pieces.iterations().0);
        for (a, b) in whole.means().iter().zip(mine.means()) {
            prop_assert_eq!(&a.seat, &b.seat);
            prop_assert!(a.exposed_ms.iter().zip(b.exposed_ms).all(|(a, b)| (a - b).abs() < 0.1), "{:?} {:?}", a, b);
        }
        let (whole, mine) = (one.paths.window(HostTime::NONE, to).means(), other.paths.window(HostTime::NONE, to).means());
        prop_assert_eq!(whole.len(), mine.len());
        prop_assert!((whole[0].mb - mine[0].mb).abs() < 0.01 && (whole[0].sent_ms - mine[0].sent_ms).abs() < 0.01);
    }
}

/// What is usual is known from before: a server that starts again in a job that became slow does not take slow for healthy.
#[test]
fn what_was_lost_and_what_is_healthy_is_known_after_a_restart() {
    let (job, meta) = (JobName::from("job"), Meta::in_memory().expect("memory"));
    let mut series = JobSeries::default();
    let slow = |at: u64| {
        let mut measured = second(at);
        let ms = if at < 1_000 { 400.0 } else { 480.0 + (at % 3) as f64 };
        measured.stretches[0].iterations.iter_mut().for_each(|one| one.1 = ms);
        measured
    };
    for at in 0..2_400 {
        series.take(&slow(at));
        save(&meta, series.unsaved(&job));
    }
    let mut again = JobSeries::go_on(&meta.series("job").expect("read"));
    (1_800..2_400).for_each(|at| again.take(&slow(at)));
    let (level, healthy) = again.iterations.levels();
    assert!((level.expect("known") - 481.0).abs() < 1.0 && (healthy.expect("known") - 400.0).abs() < 1.0);
    assert_eq!(again.iterations.changes().count(), 1);
    let now = HostTime(BEGIN + 2_400 * NANOS_PER_SEC);
    let lost = [&series, &again].map(|series| series.sums.lost_in_a_day_s(now));
    // 1,400 s of two iterations that take 81 ms more, for two ranks.
    assert!((lost[0] - 453.6).abs() < 20.0 && (lost[0] - lost[1]).abs() < 1.0, "{lost:?}");
}

/// Bytes of another version, of a disk that failed: what can be read is used.
#[test]
fn damaged_rows_cost_themselves_only() {
    let (job, meta) = (JobName::from("job"), Meta::in_memory().expect("memory"));
    let mut series = JobSeries::default();
    for at in 0..1_300 {
        series.take(&second(at));
        save(&meta, series.unsaved(&job));
    }
    let mut stored = meta.series("job").expect("read");
    for piece in &mut stored.pieces {
        piece.body.truncate(3);
    }
    for (_, json) in stored.states.iter_mut().filter(|(what, _)| what == "paths") {
        json.truncate(json.len() / 2);
    }
    let mut again = JobSeries::go_on(&stored);
    assert_eq!(again.iterations.between(HostTime::NONE, HostTime(u64::MAX)), []);
    assert_eq!(again.iterations.count(), 2_522, "as of when the last minute was over");
    again.take(&second(1_259));
    assert_eq!(again.iterations.count(), 2_522, "lived through again");
    again.take(&second(1_301));
    assert_eq!(again.iterations.count(), 2_524);
    assert_eq!(again.ranks.window(HostTime::NONE, HostTime(u64::MAX)).means().len(), 2);
}
