//! Verification of a change point (FALCON 4.2): the levels before and after must differ, by 5 %, by the spread, and by more than
//! noise does by chance. FALCON asks for 10 % alone.
use super::limits::{CHANCE, LEVEL_MIN, RELATIVE_MIN};
use super::recent::{Spread, spread};
use crate::median::ROOT_HALF_PI;

/// Where the values after `at` began: earlier where the last before it are beyond the middle of both levels already, since the
/// first values of a new level may be odd themselves. Leaves `LEVEL_MIN` before.
pub(super) fn begun(values: &[f32], at: usize) -> usize {
    let (old, new) = (spread(&values[..at]).centre, spread(&values[at..]).centre);
    let middle = f64::midpoint(old, new);
    let beyond = |value: f32| (f64::from(value) > middle) == (new > old);
    let early = values[..at].iter().rev().take_while(|&&value| beyond(value)).count();
    at - early.min(at - LEVEL_MIN)
}

/// Whether the values after differ from those before; if so, whether they are higher.
pub(super) fn passes(before: &[f32], after: &[f32]) -> Option<bool> {
    let (old, new) = (spread(before), spread(after));
    (differs(old, new) && is_new(before, after, old, new)).then_some(new.centre > old.centre)
}

/// Whether two medians differ by `RELATIVE_MIN`, by the common spread, and by a t-test at `CHANCE`.
pub(super) fn differs(old: Spread, new: Spread) -> bool {
    let (n, m) = (f64::from(old.n), f64::from(new.n));
    if n.min(m) < LEVEL_MIN as f64 {
        return false;
    }
    let by = (new.centre - old.centre).abs();
    let both = (n * old.sigma * old.sigma + m * new.sigma * new.sigma) / (n + m);
    let sigma = Spread { centre: 0.0, sigma: both.sqrt(), n: old.n + new.n }.expected();
    let error = ROOT_HALF_PI * sigma * (1.0 / n + 1.0 / m).sqrt();
    by >= RELATIVE_MIN.ln_1p() && by >= sigma && by >= error * quantile(n + m - 2.0 + LEVEL_MIN as f64)
}

/// How many standard errors a normal difference of this many degrees of freedom has with the chance `CHANCE` at most: from the
/// tail of Student's t, which falls as (1 + t^2 / f)^(-f / 2).
fn quantile(freedom: f64) -> f64 {
    (freedom * (CHANCE.powf(-2.0 / freedom) - 1.0)).sqrt()
}

/// Whether values beyond the middle of both levels are more frequent after than they were before by more than chance: what
/// keeps lengths that come and go (two alternating ones, a checkpoint each so often) from being a change. Free of any
/// shape of the noise; so `n` values before and `LEVEL_MIN` after can be only so sure, and more is not asked. Fewer than `LEVEL_MIN` beyond are
/// jitter.
fn is_new(before: &[f32], after: &[f32], old: Spread, new: Spread) -> bool {
    let (middle, up) = (f64::midpoint(old.centre, new.centre), new.centre > old.centre);
    let beyond = |values: &[f32]| values.iter().filter(|&&value| (f64::from(value) > middle) == up).count();
    let surest = chance_of(0, before.len(), LEVEL_MIN, LEVEL_MIN);
    let chance = chance_of(beyond(before), before.len(), beyond(after), after.len());
    beyond(after) >= LEVEL_MIN && chance <= CHANCE.max(surest)
}

/// The chance that at least `j` of `k` values are such where `c` of `n` were: the tail of a beta-binomial distribution, with
/// half a value of either kind beforehand (Jeffreys).
fn chance_of(c: usize, n: usize, j: usize, k: usize) -> f64 {
    let (a, b) = (c as f64 + 0.5, (n - c) as f64 + 0.5);
    let mut of_i: f64 = (0..k).map(|i| (a + i as f64) / (a + b + i as f64)).product();
    let mut sum = of_i;
    for i in (j + 1..=k).rev() {
        let (i, rest) = (i as f64, (k - i) as f64);
        of_i *= i / (rest + 1.0) * (b + rest) / (a + i - 1.0);
        sum += of_i;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_the_beta_binomial_distribution_adds_up() {
        assert!((chance_of(3, 20, 0, 9) - 1.0).abs() < 1e-12);
        // All of two where none of one was: 1/4 x 3/6.
        assert!((chance_of(0, 1, 2, 2) - 0.125).abs() < 1e-12);
    }

    #[test]
    fn few_values_must_differ_by_more() {
        // Student's t, two-sided 1e-6: 4.89 for a normal distribution; the bound lies above it.
        assert!((5.2..5.3).contains(&quantile(1e6)));
        assert!(quantile(13.0) > 9.0);
    }
}
