//! The middle of some values: what all rooms compare, since one odd value does not move it.

/// Standard deviation of a normal distribution by its median absolute deviation.
pub(crate) const SIGMA_PER_MAD: f64 = 1.4826;
/// The root of pi / 2: the standard deviation of a normal distribution by its mean deviation, and the standard error of a median
/// by that of a mean.
pub(crate) const ROOT_HALF_PI: f64 = 1.2533;

/// The median; between the two in the middle where their number is even. `None` of nothing.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let mid = values.len() / 2;
    Some(if values.len() % 2 == 1 { values[mid] } else { (values[mid - 1] + values[mid]) / 2.0 })
}

/// The middle of a list, of two in the middle the lower one: faults make slower. `None`: an empty list.
pub(crate) fn low_median(mut list: Vec<f64>) -> Option<f64> {
    list.sort_by(f64::total_cmp);
    list.get(list.len().saturating_sub(1) / 2).copied()
}
