//! Times on the command line: a number and its unit.
use std::time::Duration;

/// Units, and their seconds. `ms` stands before `m` and `s`: the first that fits is meant.
const UNITS: [(&str, f64); 5] = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)];

/// `500ms`, `1.5s`, `30` (seconds), `10m`, `2h`, `7d`: seconds from `least` to `most`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn span(text: &str, least: f64, most: f64) -> Result<Duration, String> {
    let cut = |(name, unit): &(&str, f64)| Some((text.strip_suffix(name)?.to_owned(), *unit));
    let (number, unit) = UNITS.iter().find_map(cut).unwrap_or((text.to_owned(), 1.0));
    let seconds =
        number.parse::<f64>().map_err(|_| format!("{text:?} is no time, such as 500ms, 1.5s, 10m, 2h or 7d"))? * unit;
    if (least..=most).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("{text:?} is not between {least} and {most} s"))
    }
}

/// A silence: up to a week.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn silence(text: &str) -> Result<Duration, String> {
    span(text, 0.0, 7.0 * 86_400.0)
}

/// How long a token holds: ten years at most, which is longer than anybody remembers it.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn holding(text: &str) -> Result<Duration, String> {
    span(text, 1.0, 3660.0 * 86_400.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_its_unit_is_a_time() {
        for (text, seconds) in [
            ("500ms", 0.5),
            ("1.5s", 1.5),
            ("30", 30.0),
            ("10m", 600.0),
            ("2h", 7200.0),
            ("7d", 604_800.0),
            ("0s", 0.0),
        ] {
            assert_eq!(silence(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "s", "-1s", "8d", "1w", "NaN", "inf", "1e300h"] {
            assert!(silence(text).is_err_and(|said| said.contains(text)), "{text}");
        }
    }
}
