//! Slowdowns as they are outside of a laboratory: a cost of 3 to 150 % of an iteration, onsets from sharp to creeping or from
//! the first second, one place or the whole job, in jobs whose iterations last 10 ms to a minute.
//!
//! A fault's severity is not guessed: it is searched for with the simulator until the job's iterations take as much longer as
//! was drawn. What a run then costs is measured again ([`crate::due`]).
mod cost;
mod fault;
mod shape;

pub use shape::share_out;

use super::chance::log_between;
use super::family::Family;
use crate::random::Random;
use crate::scenario::Scenario;

/// Cost of a fault, as a share of an iteration: drawn so that each factor is as likely.
const COST: (f64, f64) = (0.03, 1.5);
/// Stream of a seed, beside that of the other families.
const STREAM: u64 = 0x510E;

/// The scenario of a seed of the family `slow`, and the cost that was drawn for its fault as a share of an iteration; `None`
/// where no fault fitted the job.
pub fn slow_and_cost(seed: u64) -> (Scenario, Option<f64>) {
    draw(seed, Family::Slow)
}

/// A scenario of the family, which is `slow` or `steady`, and the cost that its fault was drawn with.
pub(super) fn draw(seed: u64, family: Family) -> (Scenario, Option<f64>) {
    let mut chance = Random::stream(seed, STREAM);
    let mut scenario = Scenario { name: format!("{family}-{seed}"), seed, ..Scenario::default() };
    let iteration_s = shape::draw(&mut scenario, &mut chance);
    shape::life(&mut scenario, &mut chance, iteration_s);
    let cost = log_between(&mut chance, COST.0, COST.1);
    let times = fault::times(&mut scenario, &mut chance, iteration_s, cost);
    let claimed = if family == Family::Slow { fault::draw(&mut scenario, &mut chance, times, cost) } else { None };
    fault::disturb(&mut scenario, &mut chance);
    (scenario, claimed)
}
