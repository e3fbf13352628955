//! Change points of series that are drawn here: none where nothing changes, each that is there.
#[path = "change/noise.rs"]
mod noise;

use mycroft_diagnose::change::{Change, Changes, Shape};
use mycroft_record::HostTime;
use noise::{KINDS, Kind, Random, change, healthy, place, time};

/// What is told of a series.
fn told(values: &[f64]) -> Vec<Change> {
    let mut changes = Changes::new();
    values.iter().enumerate().filter_map(|(at, &value)| changes.push(time(at), value)).collect()
}

/// Values about 1 with normal noise.
fn normal(n: usize, sigma: f64, seed: u64) -> Vec<f64> {
    let mut random = Random(seed);
    (0..n).map(|_| 1.0 + sigma * random.normal()).collect()
}

#[test]
fn healthy_noise_of_any_kind_is_no_change() {
    let mut alarms = Vec::new();
    for seed in 0..1000 {
        let kind = KINDS[seed as usize % KINDS.len()];
        let found = told(&healthy(kind, 2000, &mut Random(1_000_000 + seed)));
        alarms.extend(found.iter().map(|change| format!("seed {seed} {kind:?}: {change:?}")));
    }
    assert!(alarms.is_empty(), "{} changes in 1,000 healthy series:\n{}", alarms.len(), alarms.join("\n"));
}

#[test]
fn a_step_of_8_percent_is_found_soon_where_it_is() {
    let (mut late, mut off) = (Vec::new(), Vec::new());
    for seed in 0..300 {
        let mut random = Random(2_000_000 + seed);
        let onset = random.number(30, 1000);
        let mut values = normal(onset + 20, 0.02, 3_000_000 + seed);
        change(&mut values, onset, 0, 1.08);
        let found = told(&values);
        match found.as_slice() {
            [one] if place(one.onset).abs_diff(onset) <= 5 => assert!(one.ratio() > 1.04 && one.posterior > 0.9),
            [one] => off.push((seed, onset, place(one.onset))),
            _ => late.push((seed, onset, found.len())),
        }
    }
    assert!(late.is_empty() && off.is_empty(), "not within 20 values: {late:?}; onset off by more than 5: {off:?}");
}

#[test]
fn a_ramp_is_found_however_slow() {
    let mut missed = Vec::new();
    let mut by_shape = [0, 0];
    for seed in 0..200 {
        let mut random = Random(4_000_000 + seed);
        let (onset, over) = (random.number(60, 800), random.number(5, 300));
        let by = random.between(1.10, 1.4);
        let mut values = normal(onset + over + 200, 0.01, 5_000_000 + seed);
        change(&mut values, onset, over, by);
        let found = told(&values);
        let good = found.first().is_some_and(|one| {
            by_shape[usize::from(one.shape == Shape::Ramp)] += 1;
            let begun = place(one.onset);
            begun + 10 + over >= onset && begun <= onset + over && one.ratio() > 1.04
        });
        if !good {
            missed.push((seed, onset, over, by, found));
        }
    }
    assert!(missed.is_empty(), "{} of 200 ramps: {missed:#?}", missed.len());
    assert!(by_shape[1] > by_shape[0], "steps and ramps told: {by_shape:?}");
}

#[test]
fn relief_is_told_as_a_change_is() {
    let mut bad = Vec::new();
    for seed in 0..100 {
        let mut random = Random(6_000_000 + seed);
        let (onset, end) = (random.number(40, 200), random.number(230, 400));
        let mut values = normal(end + 30, 0.015, 7_000_000 + seed);
        change(&mut values[..end], onset, 0, 1.15);
        let found = told(&values);
        let places: Vec<usize> = found.iter().map(|change| place(change.onset)).collect();
        let right = |[begun, ended]: [usize; 2]| begun.abs_diff(onset) <= 5 && ended.abs_diff(end) <= 5;
        if !<[usize; 2]>::try_from(places.as_slice()).is_ok_and(right) || found[1].ratio() > 0.92 {
            bad.push((seed, onset, end, found));
        }
    }
    assert!(bad.is_empty(), "{} of 100: {bad:#?}", bad.len());
}

#[test]
fn steps_below_the_least_add_up() {
    // FALCON 7.2: its one miss is of consecutive degradations, each below its limit.
    let mut values = normal(900, 0.01, 8);
    for onset in [200, 350, 500] {
        change(&mut values, onset, 0, 1.035);
    }
    let found = told(&values);
    assert!(found.iter().any(|change| change.ratio() > 1.05), "{found:?}");
}

#[test]
fn the_same_values_give_the_same_changes_in_any_unit() {
    let mut values = healthy(Kind::HeavyTail, 600, &mut Random(9));
    change(&mut values, 300, 0, 1.2);
    let found = told(&values);
    assert_eq!(found, told(&values));
    assert_eq!(found.len(), 1);
    for unit in [1e-9, 4096.0, 1e12] {
        let scaled: Vec<f64> = values.iter().map(|value| value * unit).collect();
        let places = |found: &[Change]| found.iter().map(|change| (change.onset, change.seen_at)).collect::<Vec<_>>();
        assert_eq!(places(&told(&scaled)), places(&found), "times {unit}");
    }
}

#[test]
fn the_first_iterations_are_no_level() {
    // As in a recording: 15 iterations, the first of start-up, a delay from the ninth on.
    let values = [14970.0, 854., 836., 871., 874., 871., 872., 872., 1148., 1080., 1081., 1079., 1084., 1081., 1081.];
    let found = told(&values);
    assert_eq!(found.iter().map(|change| place(change.onset)).collect::<Vec<_>>(), [8]);
    assert!(told(&values[..8]).is_empty());
}

#[test]
fn levels_are_learned_and_the_healthy_one_is_kept() {
    let mut changes = Changes::new();
    assert!(changes.level().is_none() && changes.healthy().is_none());
    let mut values = normal(600, 0.02, 10);
    change(&mut values, 200, 0, 1.3);
    change(&mut values, 400, 0, 0.7);
    let near = |level: Option<mycroft_diagnose::change::Level>, centre: f64| {
        level.is_some_and(|level| (level.centre / centre - 1.0).abs() < 0.02 && level.sigma < 0.04 * centre)
    };
    for (at, &value) in values.iter().enumerate() {
        changes.push(time(at), value);
        let (now, healthy) = if at < 200 {
            (1.0, 1.0)
        } else if at < 400 {
            (1.3, 1.0)
        } else {
            (0.91, 0.91)
        };
        if at % 200 >= 50 {
            assert!(near(changes.level(), now), "{at}: {:?}", changes.level());
            assert!(near(changes.healthy(), healthy), "{at}: {:?}", changes.healthy());
        }
    }
}

#[test]
fn what_is_no_value_is_passed_over() {
    let mut changes = Changes::new();
    for (at, value) in [f64::NAN, f64::INFINITY, -1.0].into_iter().chain([0.0; 40]).enumerate() {
        assert!(changes.push(HostTime(at as u64 + 1), value).is_none());
    }
    assert_eq!(changes.level().map(|level| level.n), Some(40));
    // From nothing to something.
    assert!((50..70).any(|at| changes.push(HostTime(at), 5e6).is_some()));
}

#[test]
fn a_series_is_small() {
    assert!(size_of::<Changes>() <= 2048, "{}", size_of::<Changes>());
}
