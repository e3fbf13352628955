//! Choices by chance.
use crate::random::Random;

/// One of several, each as likely as the others.
pub(super) fn pick<'a, T>(chance: &mut Random, of: &'a [T]) -> &'a T {
    &of[chance.below(of.len() as u64) as usize]
}

/// A number in a range.
pub(super) fn between(chance: &mut Random, least: f64, most: f64) -> f64 {
    least + (most - least) * chance.unit()
}

/// Heads or tails.
pub(super) fn coin(chance: &mut Random) -> bool {
    chance.below(2) == 0
}

/// A number in a range, each factor as likely.
pub(super) fn log_between(chance: &mut Random, least: f64, most: f64) -> f64 {
    between(chance, least.ln(), most.ln()).exp()
}
