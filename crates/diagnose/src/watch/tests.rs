//! What the trigger takes for how long iterations usually take.
use super::track::{SPREAD_MIN, at_least};
use super::*;
use mycroft_record::*;

#[test]
fn chances_are_those_of_throws() {
    assert!((at_least(1, 1, 0.25) - 0.25).abs() < 1e-12);
    assert!((at_least(1, 2, 0.5) - 0.75).abs() < 1e-12);
    assert!((at_least(0, 5, 0.1) - 1.0).abs() < 1e-12);
    assert!((at_least(5, 5, 0.1) - 1e-5).abs() < 1e-15);
    assert!((at_least(4, 5, 0.0053) - 3.93e-9).abs() < 1e-11);
}

/// Iterations of a restless job, milliseconds.
const RESTLESS: [f64; 20] = [
    600.0, 700.0, 800.0, 620.0, 780.0, 700.0, 600.0, 800.0, 690.0, 710.0, 600.0, 700.0, 800.0, 620.0, 780.0, 700.0,
    600.0, 800.0, 690.0, 710.0,
];

/// Plays iterations of so many milliseconds on from `start`; the end of the last.
fn play(track: &mut Track, config: &Config, start: HostTime, ms: &[f64]) -> HostTime {
    ms.iter().fold(start, |start, ms| {
        let end = start + (ms * 1e6) as u64;
        track.take(config, Iteration { start, end, ..Iteration::default() }, *ms);
        end
    })
}

/// The first fault of a restless job must not be what its second is compared with.
#[test]
fn iterations_since_an_open_case_began_are_no_healthy_ones() {
    let (config, mut track) = (Config::default(), Track::default());
    let onset = play(&mut track, &config, HostTime(NANOS_PER_SEC), &RESTLESS);
    let usual = track.healthy.0.clone();
    let now = play(&mut track, &config, onset, &[900.0; 5]);
    assert!(track.recent.iter().all(|lap| !lap.slow), "its iterations vary too much for that");
    track.raise(Some(onset));
    assert_eq!(track.healthy.0, usual, "what came before the case was opened is forgotten");
    play(&mut track, &config, now, &[900.0; 30]);
    assert_eq!(track.healthy.0, usual, "and what comes while it is open is not taken");
}

/// However long a case was not seen, a level is left that says what is usual.
#[test]
fn a_level_is_left_where_a_case_began_before_all_that_is_remembered() {
    let (config, mut track) = (Config::default(), Track::default());
    play(&mut track, &config, HostTime(NANOS_PER_SEC), &RESTLESS);
    track.raise(Some(HostTime(1)));
    assert_eq!(track.healthy.0.len(), SPREAD_MIN);
}

/// Layers of a job's first moments come evenly, and between two iterations there is more than a layer.
#[test]
fn a_long_one_among_short_ones_makes_no_level() {
    let (config, mut track) = (Config::default(), Track::default());
    let mut layers = [39.0; 10];
    layers[5] = 1_300.0;
    let now = play(&mut track, &config, HostTime(NANOS_PER_SEC), &layers);
    assert!(!track.healthy.is_ready(&config), "ten layers of 39 ms and what lies between two iterations");
    play(&mut track, &config, now, &[39.0; 10]);
    assert!(track.healthy.is_ready(&config), "so many are iterations, short as they are");
}

/// A second more is a pause where iterations take a second, and how they vary where they take half a minute.
#[test]
fn a_second_more_is_no_pause_where_iterations_are_long() {
    let pause = |usual_ms: f64| {
        let (config, mut track) = (Config::default(), Track::default());
        let usual: Vec<f64> = (0..20).map(|nth| usual_ms * [1.0, 1.01, 0.99][nth % 3]).collect();
        let start = play(&mut track, &config, HostTime(NANOS_PER_SEC), &usual);
        let longer_ms = usual_ms + 1_000.0;
        let end = start + (longer_ms * 1e6) as u64;
        track.take(&config, Iteration { start, end, ..Iteration::default() }, longer_ms).is_some()
    };
    assert!(pause(1_000.0) && !pause(30_000.0));
}

/// A loss in every fourth iteration, and an evaluation now and then, take longer whenever they come.
#[test]
fn an_iteration_of_more_operations_is_compared_with_those_of_as_many() {
    let config = Config::default();
    let (usual, loss, evaluation) = ((10, 620.0), (11, 790.0), (14, 880.0));
    let slow = |laps: &[(u32, f64)]| {
        let mut track = Track::default();
        laps.iter().fold(HostTime(NANOS_PER_SEC), |start, (ops, ms)| {
            let end = start + (ms * 1e6) as u64;
            track.take(&config, Iteration { start, end, ops: *ops, ..Iteration::default() }, *ms);
            end
        });
        track.recent.iter().rev().map(|lap| if lap.slow { 's' } else { '.' }).take(4).collect::<String>()
    };
    let healthy = [&[usual; 3][..], &[loss], &[usual; 3], &[loss], &[usual; 2]].concat();
    let then = |laps: &[(u32, f64)]| slow(&[&healthy[..], laps].concat());
    assert_eq!(then(&[loss, evaluation, loss, usual]), "..s.", "nobody knows what an evaluation takes");
    assert_eq!(then(&[loss, evaluation, usual, loss, usual, usual, evaluation]), "....", "now it is known");
    assert_eq!(then(&[(10, 790.0), (10, 790.0), (11, 960.0), (9, 790.0)]), "ssss", "longer than those of as many");
    // Where the usual iteration has more operations than earlier ones, a fault's own do not tell how long it takes.
    let later = [&[(10, 600.0); 16][..], &[loss; 16], &[(11, 1_600.0); 20]].concat();
    assert_eq!(slow(&later), "ssss", "for how long ever");
}

/// Where every fifth iteration is as long, because some device of many straggles, three of the last four are chance; a steady job has
/// no such iterations.
#[test]
fn a_few_long_iterations_are_chance_where_single_ones_were_as_long() {
    let config = Config::default();
    let after = |usual: &[f64], ms: &[f64]| {
        let mut track = Track::default();
        let onset = play(&mut track, &config, HostTime(NANOS_PER_SEC), usual);
        play(&mut track, &config, onset, ms);
        track.slow(&config).map(|slow| slow.slow)
    };
    let steady: Vec<f64> = (0..25).map(|nth| [700.0, 705.0, 695.0][nth % 3]).collect();
    let straggling: Vec<f64> = (0..25).map(|nth| if nth % 5 == 3 { 1_200.0 } else { steady[nth] }).collect();
    let few = [1_200.0, 1_200.0, 700.0, 1_200.0];
    assert_eq!(after(&steady, &few), Some(3));
    assert_eq!(after(&straggling, &few), None, "they come by chance");
    assert_eq!(after(&straggling, &[1_200.0; 6]), None, "once in 15,000 iterations six follow each other");
    assert_eq!(after(&straggling, &[1_200.0; 12]), Some(4), "so many in a row are no chance");
    let slow_start = [&[1_200.0; 3][..], &steady[3..]].concat();
    assert_eq!(after(&slow_start, &few), Some(3), "the first iterations connect");
    assert_eq!(after(&straggling, &[2_000.0, 2_000.0, 700.0, 2_000.0]), Some(3), "none was as long");
}

/// What a case was about is not what happens by chance.
#[test]
fn iterations_of_a_case_that_is_over_are_no_chance() {
    let (config, mut track) = (Config::default(), Track::default());
    let usual: Vec<f64> = (0..14).map(|nth| [700.0, 705.0, 695.0][nth % 3]).collect();
    let onset = play(&mut track, &config, HostTime(NANOS_PER_SEC), &usual);
    let relief = play(&mut track, &config, onset, &[1_200.0; 4]);
    track.raise(Some(onset));
    let again = play(&mut track, &config, relief, &[1_200.0; 2]);
    track.raise(None);
    let again = play(&mut track, &config, again, &usual[..8]);
    play(&mut track, &config, again, &[1_200.0; 3]);
    assert_eq!(track.slow(&config).map(|slow| slow.slow), Some(3));
}

/// An iteration is an operation that ends at its end, milliseconds.
const ITERATION_MS: u64 = 200;

/// What the agent of a rank told at a time in milliseconds: a look, and the operation of `op_ms` that ended then or that it is in.
fn tell(timeline: &mut Timeline, rank: u32, at_ms: u64, op_ms: u64) {
    let at = |ms: u64| HostTime(NANOS_PER_SEC + ms * 1_000_000);
    let end_ms = at_ms.next_multiple_of(ITERATION_MS);
    let op = OpMeta {
        id: OpId { comm: CommId(1), class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(end_ms / ITERATION_MS) },
        kind: OpKind::AllReduce,
        nccl_seq: end_ms / ITERATION_MS,
        comm_rank: CommRank(rank),
        count: 64,
        datatype: Datatype::Float32,
        root: u32::MAX,
        algorithm: Algorithm::Ring,
        protocol: Protocol::Simple,
        n_channels: 1,
        enqueued_at: at(end_ms - op_ms),
        started_at: at(end_ms - op_ms),
        started_last_at: HostTime::NONE,
    };
    let (now, ended, began) = (at(at_ms), at_ms == end_ms, end_ms - op_ms <= at_ms);
    let told = match (ended, began) {
        (true, _) => Some(Record::OpDone(OpDone { op, ended_first_at: now, ended_at: now, flows: 0, observed: true })),
        (false, true) => {
            let (kernels_started, kernels_stopped, flows_started, flows_done) = (1, 0, 0, 0);
            let state = OpState { sampled_at: now, op, kernels_started, kernels_stopped, flows_started, flows_done };
            Some(Record::OpState(state))
        }
        (false, false) => None,
    };
    let ops_in_flight = u32::from(!ended && began);
    let look = Sampled { at: now, ops_in_flight, flows_in_flight: 0, alive: true, stopped: false };
    let process = Some(ProcessKey { rank: Rank(rank), pid: rank + 1, nonce: 1 });
    let source = Source { job: "job".into(), host: format!("host{rank}").into(), process };
    let records = told.into_iter().chain([Record::Sampled(look)]).collect();
    timeline.observe(&Batch { source, collected_at: now, records }, 500_000);
}

/// Records of three ranks of four are on their way for longer than agents let wait; the last of them say that they are inside of an iteration.
#[test]
fn an_iteration_of_which_no_end_came_yet_does_not_crawl() {
    let (config, mut timeline, mut watch) = (Config::default(), Timeline::default(), Watch::default());
    let late_ms = 20_100;
    let unknown_ms = late_ms + config.no_data_after_ns / 1_000_000;
    for at_ms in (100..28_000).step_by(100) {
        (0..if at_ms <= late_ms { 4 } else { 1 }).for_each(|rank| tell(&mut timeline, rank, at_ms, 110));
        timeline.settle();
        if at_ms <= late_ms || at_ms > unknown_ms {
            let now = HostTime(NANOS_PER_SEC + at_ms * 1_000_000);
            assert_eq!(watch.look(&timeline, &config, false, None, now).crawl, None, "at {at_ms} ms");
        }
    }
    let until = timeline.newest_sample;
    let shown = timeline.with_running(until, config.no_data_after_ns, |timeline| {
        let newest = |rank| timeline.ranks.get(&Rank(rank)).and_then(|state| state.iterations.list().back().copied());
        (0..4).filter(|rank| newest(*rank).is_some_and(|iteration| iteration.end == until)).collect::<Vec<u32>>()
    });
    assert!(
        shown.iter().all(|rank| *rank == 0),
        "of ranks not looked at nobody knows whether it still runs: {shown:?}"
    );
}

/// All ranks wait for data for nine tenths of each iteration. What is usual without that is not how long an iteration lasts.
#[test]
fn a_job_that_idles_for_most_of_each_iteration_does_not_crawl() {
    let (config, mut timeline, mut watch) = (Config::default(), Timeline::default(), Watch::default());
    for at_ms in (20..28_000).step_by(20) {
        (0..4).for_each(|rank| tell(&mut timeline, rank, at_ms, 20));
        timeline.settle();
        let now = HostTime(NANOS_PER_SEC + at_ms * 1_000_000);
        assert_eq!(watch.look(&timeline, &config, false, None, now).crawl, None, "at {at_ms} ms");
    }
    assert!(watch.tracks.values().any(|track| track.healthy.is_ready(&config)), "something is usual");
}
