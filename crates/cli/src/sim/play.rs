//! One scenario from its beginning to its verdict: simulator, brain and truth meet here only.
use crate::stop::Stop;
use anyhow::{Context, Result};
use mycroft_diagnose::{Case, How, Report};
use mycroft_record::{Finding, HostTime, NANOS_PER_MS, NANOS_PER_SEC};
use mycroft_serve::TICK;
use mycroft_serve::replay::{Player, TAIL};
use mycroft_sim::{Delivery, EPOCH, Family, Judgement, Progress, Scenario, Simulation, Truth, judge};
use mycroft_store::recording::RecordingWriter;
use mycroft_wire::codec;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// What a run shows while it goes on.
pub(crate) struct Moment {
    /// Simulated time since the start of the job, seconds.
    pub(crate) seconds: u64,
    /// Finished by the slowest rank.
    pub(crate) iterations: u64,
}

/// The family that a seed's scenario is of: it is named after it.
pub(crate) fn family_of(scenario: &Scenario) -> &'static str {
    let number = scenario.seed.to_string();
    let word = scenario.name.strip_suffix(&number).and_then(|rest| rest.strip_suffix('-')).unwrap_or_default();
    Family::ALL.iter().map(|family| family.as_str()).find(|known| *known == word).unwrap_or("other")
}

/// By which rule a case is due for a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dues {
    /// It lasts for some seconds and makes iterations 1.3 times as long: the older families'.
    Felt,
    /// Its cost is measured, and an ideal test would see it (`mycroft_sim::due`).
    Measured,
}

impl Dues {
    /// The rule for what a seed draws; `None`: a scenario that no seed drew.
    pub(crate) fn of(drawn_from: Option<&str>) -> Dues {
        let family = drawn_from.and_then(|word| word.parse::<Family>().ok());
        if drawn_from.is_none() || family.is_some_and(Family::is_measured) { Dues::Measured } else { Dues::Felt }
    }
}

/// What came of one scenario.
pub(crate) struct Run {
    pub(crate) truths: Vec<Truth>,
    pub(crate) report: Report,
    pub(crate) judgement: Judgement,
    pub(crate) progress: Progress,
    /// Iterations between the first fault and the first case, as the slowest rank counts them.
    pub(crate) iterations_to_detection: Option<u64>,
    pub(crate) records: u64,
    pub(crate) batches: u64,
    /// Simulated seconds per second of simulation and diagnosis together.
    pub(crate) speed: f64,
    /// The longest round of diagnosis.
    pub(crate) slowest_tick: Duration,
}

impl Run {
    /// The first case, which counts as the verdict.
    pub(crate) fn case(&self) -> Option<&Case> {
        self.report.cases.first()
    }
}

/// Iterations finished at the end of each simulated second.
#[derive(Default)]
struct Count(Vec<(u64, u64)>);

impl Count {
    /// Iterations finished at a time, to the second.
    fn at(&self, ns: u64) -> u64 {
        let later = self.0.partition_point(|(until, _)| *until <= ns);
        self.0.get(later).or(self.0.last()).map_or(0, |(_, iterations)| *iterations)
    }
}

/// When the time of a scenario's job is over, milliseconds since 1970.
pub(crate) fn end_ms(scenario: &Scenario) -> u64 {
    EPOCH / NANOS_PER_MS + (scenario.duration_s * 1e3) as u64
}

/// Seconds of the job that the simulation may be ahead of the diagnosis: enough for both to have work.
const AHEAD: usize = 1;

/// A second of the job, and the iterations that the slowest rank has finished by then.
type Second = (Vec<Delivery>, u64);

/// Simulates the job to its end, or until nobody wants more.
fn simulate(scenario: &Scenario, give: &SyncSender<Second>) -> Simulation {
    let mut simulation = Simulation::new(scenario);
    while let Some(stretch) = simulation.next_stretch() {
        if give.send((stretch, simulation.progress().iterations)).is_err() {
            break;
        }
    }
    simulation
}

/// Plays a scenario, which has passed its check; `None` when interrupted. Simulation and diagnosis go on side by side:
/// what comes of it does not depend on that, since deliveries go one way.
pub(crate) fn play(
    scenario: &Scenario,
    dues: Dues,
    recorder: Option<&mut RecordingWriter>,
    stop: &Stop,
    show: impl FnMut(&Moment),
) -> Result<Option<Run>> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let (give, take) = sync_channel(AHEAD);
        let simulating = scope.spawn(move || simulate(scenario, &give));
        let diagnosed = diagnose(take, began, recorder, stop, show)?;
        let simulation = simulating.join().unwrap_or_else(|panic| resume_unwind(panic));
        diagnosed.map(|diagnosed| conclude(scenario, dues, &simulation, began, diagnosed)).transpose()
    })
}

/// What the diagnosis has made of the deliveries.
struct Diagnosed {
    player: Player,
    count: Count,
    records: u64,
    batches: u64,
}

/// Takes in all deliveries; `None` when interrupted.
fn diagnose(
    seconds: Receiver<Second>,
    began: Instant,
    mut recorder: Option<&mut RecordingWriter>,
    stop: &Stop,
    mut show: impl FnMut(&Moment),
) -> Result<Option<Diagnosed>> {
    let mut player = Player::new(TICK).with_stopwatch(Box::new(move || began.elapsed()));
    let (mut records, mut batches, mut count) = (0, 0, Count::default());
    for (stretch, iterations) in seconds {
        if stop.asked() {
            return Ok(None);
        }
        for delivery in stretch {
            let mut batch = delivery.batch;
            // A recording keeps neither; its replay is to be the same to the last byte.
            if batch.records.is_empty() {
                continue;
            }
            codec::round_to_micros(&mut batch);
            let arrives_at = HostTime(delivery.arrives_at / 1000 * 1000);
            records += batch.records.len() as u64;
            batches += 1;
            player.deliver(arrives_at, &batch);
            if let Some(recorder) = &mut recorder {
                recorder.append(arrives_at, batch)?;
            }
        }
        let until = player.now().0.saturating_sub(EPOCH);
        count.0.push((until, iterations));
        show(&Moment { seconds: until / NANOS_PER_SEC, iterations });
    }
    Ok(Some(Diagnosed { player, count, records, batches }))
}

/// The verdict on a simulation that has ended.
fn conclude(
    scenario: &Scenario,
    dues: Dues,
    simulation: &Simulation,
    began: Instant,
    diagnosed: Diagnosed,
) -> Result<Run> {
    let Diagnosed { player, count, records, batches } = diagnosed;
    let mut truths = simulation.truth();
    let simulated_s = player.now().0.saturating_sub(EPOCH) as f64 / NANOS_PER_SEC as f64;
    let (_, played) =
        player.finish(TAIL).pop_first().context("the simulation told nothing: duration_s is too short")?;
    let since_start = |time: HostTime| time.0.saturating_sub(EPOCH);
    let first = played.report.cases.first();
    let fault = truths.iter().map(|truth| HostTime(truth.at_ms * NANOS_PER_MS)).min();
    let iterations_to_detection = first
        .zip(fault)
        .map(|(case, fault)| count.at(since_start(case.opened_at)).saturating_sub(count.at(since_start(fault))));
    match dues {
        Dues::Felt => {
            for (truth, slowdown) in truths.iter_mut().zip(simulation.slowdowns()) {
                truth.slowdown = slowdown;
            }
        }
        Dues::Measured => {
            for (truth, due) in truths.iter_mut().zip(simulation.dues()) {
                truth.slowdown = Some(1.0 + due.cost);
                truth.due = Some(due);
            }
        }
    }
    let findings: Vec<&Finding> = played.report.cases.iter().map(|case| &case.finding).collect();
    let ending = played.report.lives.last().and_then(|life| life.ended.as_ref());
    let from_outside = ending.is_some_and(|ending| ending.how == How::Outside);
    Ok(Run {
        judgement: judge(&truths, &findings, end_ms(scenario)).with_ending(&truths, from_outside),
        truths,
        progress: simulation.progress(),
        iterations_to_detection,
        records,
        batches,
        speed: simulated_s / began.elapsed().as_secs_f64().max(1e-9),
        slowest_tick: played.slowest_tick,
        report: played.report,
    })
}
