//! Four ways to find change points in a series; each answers with where a change began and where it was told.
use crate::noise::{place, time};
use mycroft_diagnose::change::Changes;

/// A change as told: the value at which it began, and at which it was known.
#[derive(Clone, Copy)]
pub(crate) struct Told {
    pub(crate) onset: usize,
    pub(crate) seen: usize,
}

/// The methods, in the order in which `all` answers.
pub(crate) const METHODS: [&str; 4] = ["sliding window", "BOCD", "BOCD + verification", "ours"];

/// What each method tells of a series.
pub(crate) fn all(values: &[f64]) -> [Vec<Told>; 4] {
    let plain = bocd(values);
    let verified = verified(&plain, values);
    [sliding_window(values), plain, verified, ours(values)]
}

/// Values in the sliding window, and values whose median it is compared with. The paper names neither.
const WINDOW: (usize, usize) = (10, 100);
/// Relative change that the sliding window and the verification ask for (FALCON 4.2, 7.2).
const ASKED: f64 = 0.10;
/// Chance of a change at a value, of plain BOCD: the value of the method's own paper (Adams and MacKay 2007) and of its
/// public implementations.
const HAZARD: f64 = 1.0 / 250.0;
/// Values after which a run is looked at: `Pr(r = 0)` itself is always the hazard, so implementations ask for the posterior of a
/// run that has just begun.
const JUST_BEGUN: usize = 10;
/// Posterior that is asked for (FALCON 4.2).
const SURE: f64 = 0.9;

/// The mean of the newest ten differs by more than a tenth from the median of the hundred before; told once until it is back.
fn sliding_window(values: &[f64]) -> Vec<Told> {
    let (few, many) = WINDOW;
    let mut told = Vec::new();
    let mut beyond = false;
    for end in few + many..=values.len() {
        let mut old = values[end - few - many..end - few].to_vec();
        let (_, median, _) = old.select_nth_unstable_by(many / 2, f64::total_cmp);
        let now = mean(&values[end - few..end]);
        let far = (now / *median - 1.0).abs() > ASKED;
        if far && !beyond {
            told.push(Told { onset: end - few, seen: end - 1 });
        }
        beyond = far;
    }
    told
}

/// The mean of some values.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// A run of values with a normal-gamma posterior.
#[derive(Clone, Copy)]
struct Run {
    began: usize,
    weight: f64,
    mean: f64,
    kappa: f64,
    alpha: f64,
    beta: f64,
}

impl Run {
    /// A run that begins: a spread of 2 % is expected, as ours expects.
    fn new(began: usize) -> Run {
        Run { began, weight: HAZARD, mean: 1.0, kappa: 0.01, alpha: 1.0, beta: 4e-4 }
    }

    /// Takes in a value: its density (Student's t) multiplies the weight.
    fn take(&mut self, value: f64, factors: &[f64]) {
        let (nu, from) = (2.0 * self.alpha, value - self.mean);
        let scale = self.beta * (self.kappa + 1.0) / (self.alpha * self.kappa);
        let density = factors[(nu - 2.0) as usize] / (nu * std::f64::consts::PI * scale).sqrt();
        self.weight *= density * (1.0 + from * from / (nu * scale)).powf(-self.alpha - 0.5);
        self.beta += self.kappa * from * from / (2.0 * (self.kappa + 1.0));
        self.mean += from / (self.kappa + 1.0);
        (self.kappa, self.alpha) = (self.kappa + 1.0, self.alpha + 0.5);
    }
}

/// Logarithm of the gamma function, to 1e-9 (Stirling's series, from 8 on).
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut below) = (x, 0.0);
    while x < 8.0 {
        below += x.ln();
        x += 1.0;
    }
    let series = 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1260.0 * x.powi(5));
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series - below
}

/// Adams and MacKay's online detection with normal values of unknown mean and spread, relative to the median of the first ten.
/// Runs whose weight falls below 1e-5 are dropped.
fn bocd(values: &[f64]) -> Vec<Told> {
    let mut first = values[..JUST_BEGUN].to_vec();
    let (_, unit, _) = first.select_nth_unstable_by(JUST_BEGUN / 2, f64::total_cmp);
    let unit = *unit;
    // The quotient of two gamma functions in Student's density, for each number of values in a run.
    let factor = |n: usize| (ln_gamma(n as f64 / 2.0 + 1.5) - ln_gamma(n as f64 / 2.0 + 1.0)).exp();
    let factors: Vec<f64> = (0..=values.len()).map(factor).collect();
    let (mut runs, mut told, mut beyond) = (vec![Run { weight: 1.0, ..Run::new(0) }], Vec::new(), true);
    for (at, value) in values.iter().enumerate() {
        runs.iter_mut().for_each(|run| run.take(value / unit, &factors));
        let sum: f64 = runs.iter().map(|run| run.weight).sum();
        runs.iter_mut().for_each(|run| run.weight /= sum);
        let young = |run: &&Run| at + 1 - run.began <= JUST_BEGUN;
        let likely: f64 = runs.iter().filter(young).map(|run| run.weight).sum();
        if likely > SURE && !beyond {
            let best = runs.iter().filter(young).max_by(|one, other| one.weight.total_cmp(&other.weight));
            told.extend(best.map(|run| Told { onset: run.began, seen: at }));
        }
        beyond = likely > SURE || (beyond && at < 2 * JUST_BEGUN);
        runs.retain_mut(|run| {
            run.weight *= 1.0 - HAZARD;
            run.weight > 1e-5
        });
        runs.push(Run::new(at + 1));
    }
    told
}

/// Those where the mean of ten values after differs by a tenth from that of ten before.
fn verified(plain: &[Told], values: &[f64]) -> Vec<Told> {
    let mut told = Vec::new();
    for &Told { onset, seen } in plain {
        let (from, to) = (onset.saturating_sub(JUST_BEGUN), (onset + JUST_BEGUN).min(values.len()));
        let (before, after) = (mean(&values[from..onset]), mean(&values[onset..to]));
        if (after / before - 1.0).abs() >= ASKED {
            told.push(Told { onset, seen: seen.max(to - 1) });
        }
    }
    told
}

/// The room `change`.
fn ours(values: &[f64]) -> Vec<Told> {
    let mut changes = Changes::new();
    let push = |(at, &value): (usize, &f64)| changes.push(time(at), value);
    let told: Vec<_> = values.iter().enumerate().filter_map(push).collect();
    told.iter().map(|change| Told { onset: place(change.onset), seen: place(change.seen_at) }).collect()
}
