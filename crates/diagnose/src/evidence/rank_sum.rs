//! Whether values are larger than others, without a word about how they vary: Mann and Whitney's test (1947).
//!
//! Iterations come in loads: sequences are long or short, and a job is as slow as its sequences. A few long ones in a row look
//! like slower devices where the spread is that of the short ones; ranks do not care how far values are apart.

/// By how many standard deviations values of `after` are rather larger than those of `before` than by chance; 0 where one is empty.
pub(super) fn larger(before: &[f64], after: &[f64]) -> f64 {
    let (n, m) = (before.len() as f64, after.len() as f64);
    if before.is_empty() || after.is_empty() {
        return 0.0;
    }
    let pairs = after.iter().flat_map(|value| before.iter().map(move |other| (value, other)));
    let won: f64 = pairs.map(|(value, other)| f64::from(value > other) + f64::from(value == other) / 2.0).sum();
    (won - n * m / 2.0) / (n * m * (n + m + 1.0) / 12.0).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_all_larger_are_as_sure_as_they_are_many() {
        let low: Vec<f64> = (0..14).map(f64::from).collect();
        let high: Vec<f64> = (20..34).map(f64::from).collect();
        assert!((larger(&low, &high) - 4.5).abs() < 0.05, "{}", larger(&low, &high));
        assert!((larger(&low[..3], &high[..3]) - 1.96).abs() < 0.01);
        assert!((larger(&high, &low) + larger(&low, &high)).abs() < 1e-9);
        assert!(larger(&[], &high).abs() < 1e-9 && larger(&low, &[]).abs() < 1e-9);
        assert!(larger(&[1.0; 20], &[1.0; 20]).abs() < 1e-9, "what is as large is not larger");
    }

    /// Of two loads that come by turns twenty of the larger in a row are no more than chance.
    #[test]
    fn a_run_of_the_larger_of_two_loads_is_not_larger() {
        let before: Vec<f64> = (0..20).map(|nth| if nth % 2 == 0 { 20.0 } else { 30.0 }).collect();
        assert!(larger(&before, &[30.0; 10]) < 3.0);
        assert!(larger(&before, &[31.0; 20]) > 4.5, "none was as long before");
    }
}
