//! The shape of a sudden change: a step, or a line from one level to the other.
use super::limits::{LEVEL_MIN, RUNS};
use super::recent::spread;
use super::told::Shape;

/// Where a level ends and the next begins: places among the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    /// The first value that is no more of the old level.
    pub(super) from: usize,
    /// The first of the new level; `from` for a step.
    pub(super) to: usize,
    pub(super) shape: Shape,
}

/// Fits both shapes to `values`, oldest first, with a change near `at`, by the sum of absolute deviations; the line, which has
/// one parameter more, must be better by that much in Schwarz's criterion (Laplace's distribution: n ln of the sum), and
/// takes at least `LEVEL_MIN` values.
pub(super) fn fit(values: &[f32], at: usize) -> Found {
    let n = values.len();
    let (first, last) = ((at.saturating_sub(RUNS / 2)).max(LEVEL_MIN), (at + RUNS / 2).min(n - LEVEL_MIN));
    let froms: Vec<Side> = (first..=last).map(|from| Side::before(values, from)).collect();
    let tos: Vec<Side> = (first..=last).map(|to| Side::after(values, to)).collect();
    let mut step = (f64::INFINITY, at, at);
    let mut line = step;
    for (from, old) in froms.iter().enumerate() {
        let cost = old.cost + tos[from].cost;
        if cost < step.0 {
            step = (cost, first + from, first + from);
        }
        // Every second place will do for the ends of a line.
        for (to, new) in tos.iter().enumerate().skip(from + LEVEL_MIN).step_by(2) {
            let cost = old.cost + new.cost + between(&values[first + from..first + to], old.centre, new.centre);
            if cost < line.0 {
                line = (cost, first + from, first + to);
            }
        }
    }
    // A perfect fit of rounded values costs nothing: one millionth of a logarithm a value is that.
    let least = 1e-6 * n as f64;
    let better = n as f64 * ((step.0 + least) / (line.0 + least)).ln();
    if better > 2.0 * (n as f64).ln() {
        Found { from: line.1, to: line.2, shape: Shape::Ramp }
    } else {
        Found { from: step.1, to: step.2, shape: Shape::Step }
    }
}

/// One level: its median, and what the values of it deviate by.
struct Side {
    centre: f64,
    cost: f64,
}

impl Side {
    fn of(values: &[f32]) -> Side {
        let centre = spread(values).centre;
        Side { centre, cost: values.iter().map(|&value| (f64::from(value) - centre).abs()).sum() }
    }

    fn before(values: &[f32], from: usize) -> Side {
        Side::of(&values[..from])
    }

    fn after(values: &[f32], to: usize) -> Side {
        Side::of(&values[to..])
    }
}

/// What values deviate by from a line that leaves `old` and comes to `new` with the value after them.
fn between(values: &[f32], old: f64, new: f64) -> f64 {
    let by = (new - old) / (values.len() + 1) as f64;
    let on_line = |at: usize| old + by * (at + 1) as f64;
    values.iter().enumerate().map(|(at, &value)| (f64::from(value) - on_line(at)).abs()).sum()
}
