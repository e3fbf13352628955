//! Synthetic jobs: 10,000 iterations each, with the rates, durations and shapes of FALCON 3.2 and 3.3.
use crate::noise::{Random, change};

/// Iterations of a job (3.2, 3.3).
const ITERATIONS: usize = 10_000;

/// Which of the paper's two sets of jobs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// 392 jobs of one host, 6 of them slow; 80 minutes.
    Computation,
    /// 107 jobs of four hosts, 43 of them slow; five hours.
    Communication,
}

/// How much longer an iteration becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// As in the paper's figures.
    Paper,
    /// So that the mean loss while a fault lasts is the mean of its Table 1.
    Mild,
    /// As in the figures, in rougher noise.
    Rough,
}

/// A level that the job was at: from `onset`, along a line of `over` iterations, until `end`.
pub(crate) struct Fault {
    pub(crate) onset: usize,
    pub(crate) over: usize,
    pub(crate) end: usize,
}

/// Iteration times and what is true of them.
pub(crate) struct Job {
    pub(crate) values: Vec<f64>,
    pub(crate) faults: Vec<Fault>,
}

impl Side {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Side::Computation => "Computation (FALCON, Table 4)",
            Side::Communication => "Communication (FALCON, Table 5)",
        }
    }

    /// What the paper reports of a method.
    pub(crate) fn paper(self, method: &str) -> &'static str {
        match (self, method) {
            (Side::Computation, "sliding window") => "99.5 %, 0 %, 25 %",
            (Side::Computation, "BOCD") => "77.8 %, 18.4 %, 0 %",
            (Side::Computation, "BOCD + verification") => "100 %, 0 %, 0 %",
            (Side::Communication, "sliding window") => "93.5 %, 1.5 %, 12.2 %",
            (Side::Communication, "BOCD") => "69.2 %, 34.0 %, 0 %",
            (Side::Communication, "BOCD + verification") => "99.1 %, 0 %, 2.3 %",
            _ => "-",
        }
    }

    /// Jobs, slow ones, minutes of a job, minutes of a fault in the mean.
    fn figures(self) -> (usize, usize, f64, f64) {
        match self {
            Side::Computation => (392, 6, 80.0, 10.0),
            Side::Communication => (107, 43, 300.0, 24.0),
        }
    }

    /// Longer by this much, least and most, evenly drawn by logarithm.
    fn losses(self, severity: Severity) -> (f64, f64) {
        match (self, severity) {
            (Side::Computation, Severity::Paper | Severity::Rough) => (0.10, 0.45),
            (Side::Communication, Severity::Paper | Severity::Rough) => (0.10, 0.84),
            (Side::Computation, Severity::Mild) => (0.055, 0.22),
            (Side::Communication, Severity::Mild) => (0.065, 0.31),
        }
    }
}

impl Severity {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Severity::Paper => "Losses as in the paper's figures",
            Severity::Mild => "Milder losses",
            Severity::Rough => "Rougher noise",
        }
    }

    pub(crate) fn says(self) -> &'static str {
        match self {
            Severity::Paper => {
                "An iteration becomes 10 to 45 % longer (computation: Figures 2 and 3 of the paper show 20 to 28 %) or 10 to 84 % \
                 (communication: Figure 4 shows 39 and 84 %), evenly by logarithm. One communication job degrades three times by 7 %: \
                 such a job is the paper's one miss (7.2). Noise is normal, 0.5 to 2 % and 1 to 4 %, and there is jitter of one to three \
                 iterations by 10 to 30 %, as often as the paper's plain BOCD gave false alarms: 87 in 392 jobs and 33 in 107."
            }
            Severity::Mild => {
                "The same, but 5.5 to 22 % and 6.5 to 31 % longer: 11.9 and 15.7 % in the mean, close to the means of the paper's \
                 Table 1 (11.79 and 15.45 %, of the whole job there). What is below 10 % is no slowdown by the paper's rule, and counts \
                 here as one all the same."
            }
            Severity::Rough => {
                "Losses as in the first part. The noise has heavy tails (Student's t with five degrees of freedom), there is a \
                 checkpoint each 100 to 1,000 iterations, up to one pause in 200 iterations, and jitter of one to four iterations by \
                 10 to 60 %, one in 4,000 and in 1,500 iterations. The paper does not speak of such jobs."
            }
        }
    }
}

/// All jobs of a side.
pub(crate) fn jobs(side: Side, severity: Severity, seed: u64) -> Vec<Job> {
    let (all, slow, ..) = side.figures();
    let stream = 1 + 3 * u64::from(side == Side::Communication) + severity as u64;
    let seed_of = |job: usize| seed.wrapping_mul(1_000_003) + stream * 1_000_000 + job as u64;
    (0..all).map(|at| job(side, severity, (at < slow).then_some(at), &mut Random(seed_of(at)))).collect()
}

/// One job; `slow` is its number among the slow ones.
fn job(side: Side, severity: Severity, slow: Option<usize>, random: &mut Random) -> Job {
    let (.., minutes, _) = side.figures();
    let mut values = if severity == Severity::Rough { rough(side, random) } else { plain(side, random) };
    let mut faults = Vec::new();
    // Two slowdowns in a job, as in Figures 2 and 4, or one; one half of the job each.
    let count = if slow.is_some() { random.number(1, 3) } else { 0 };
    for at in 0..count {
        let room = ITERATIONS / count;
        let ladder = side == Side::Communication && slow == Some(0);
        add(side, severity, (at * room, room, ladder), minutes, &mut values, &mut faults, random);
    }
    let usual = random.between(0.4, 4.0);
    values.iter_mut().for_each(|value| *value *= usual);
    Job { values, faults }
}

/// Adds a fault within `room` iterations from `start` on, or three steps of 7 %.
fn add(
    side: Side,
    severity: Severity,
    (start, room, ladder): (usize, usize, bool),
    minutes: f64,
    values: &mut [f64],
    faults: &mut Vec<Fault>,
    random: &mut Random,
) {
    let per_minute = ITERATIONS as f64 / minutes;
    let (.., mean) = side.figures();
    let lasts = (-mean * random.unit().ln()).max(1.0) * per_minute;
    let lasts = (lasts as usize).min(room - 300);
    let onset = start + random.number(100, room - lasts - 150);
    let end = onset + lasts;
    let (least, most) = side.losses(severity);
    let by = 1.0 + least * (most / least).powf(random.unit());
    // A device that gets hot becomes slow over half a minute to two; congestion and contention at once.
    let ramp = side == Side::Computation && random.unit() < 1.0 / 3.0;
    let over = if ramp { (random.between(0.5, 2.0) * per_minute) as usize } else { 0 };
    let steps: &[f64] = if ladder { &[1.07, 1.07, 1.07] } else { &[by] };
    let apart = lasts / steps.len();
    for (at, &by) in steps.iter().enumerate() {
        let onset = onset + at * apart;
        change(&mut values[..end], onset, over, by);
        let until = if at + 1 < steps.len() { onset + apart } else { end };
        faults.push(Fault { onset, over, end: until });
    }
}

/// Spread of the noise, by Table 2: within a host, and where the network takes a part.
fn sigma(side: Side, random: &mut Random) -> f64 {
    if side == Side::Communication { random.between(0.01, 0.04) } else { random.between(0.005, 0.02) }
}

/// Iteration times of a healthy job about 1: normal noise, rare and short jitter.
fn plain(side: Side, random: &mut Random) -> Vec<f64> {
    let sigma = sigma(side, random);
    let mut values: Vec<f64> = (0..ITERATIONS).map(|_| 1.0 + sigma * random.normal()).collect();
    let jitters = if side == Side::Communication { 33.0 / 107.0 } else { 87.0 / 392.0 };
    if random.unit() < jitters {
        let (at, over, by) = (random.number(10, ITERATIONS - 4), random.number(1, 4), random.between(1.1, 1.3));
        values[at..at + over].iter_mut().for_each(|value| *value *= by);
    }
    started(values)
}

/// The first iterations take longer.
fn started(mut values: Vec<f64>) -> Vec<f64> {
    values[0] *= 15.0;
    values[1] *= 1.5;
    values
}

/// The same with heavy tails, checkpoints, single pauses, and jitter.
fn rough(side: Side, random: &mut Random) -> Vec<f64> {
    let sigma = sigma(side, random);
    let (period, longer) = (random.number(100, 1001), random.between(1.2, 4.0));
    let often = if side == Side::Communication { 1.0 / 1500.0 } else { 1.0 / 4000.0 };
    let pauses = random.between(0.0, 0.005);
    let mut jitter = (0, 1.0);
    let values = (0..ITERATIONS).map(|at| {
        if random.unit() < often {
            jitter = (random.number(1, 5), random.between(1.1, 1.6));
        }
        let by = if jitter.0 > 0 { jitter.1 } else { 1.0 };
        jitter.0 = usize::saturating_sub(jitter.0, 1);
        let tail: f64 = (0..5).map(|_| random.normal().powi(2)).sum::<f64>() / 5.0;
        let pause = if random.unit() < pauses { -0.3 * random.unit().ln() } else { 0.0 };
        let saved = if at % period == period - 1 { longer } else { 1.0 };
        (1.0 + sigma * random.normal() / tail.sqrt() + pause).max(0.5) * by * saved
    });
    started(values.collect())
}
