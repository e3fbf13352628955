//! Lengths of time as they are typed.
use mycroft_flow::limits::{EPOCH_NS_MAX, EPOCH_NS_MIN, Grain};

/// A length of time as people write it: a number and ns, us or ms.
fn nanos(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// A silence, nanoseconds.
pub(super) fn gap(text: &str) -> Result<u64, String> {
    nanos(text).ok_or_else(|| "give a time, such as 1ms".to_owned())
}

/// An epoch.
pub(super) fn grain(text: &str) -> Result<Grain, String> {
    let grain = nanos(text).and_then(Grain::new);
    let (from, to) = (EPOCH_NS_MIN / 1_000, EPOCH_NS_MAX / 1_000_000);
    grain.ok_or_else(|| format!("give a time from {from}us to {to}ms, such as 32us"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(nanos("32us"), Some(32_000));
        assert_eq!(nanos("5ms"), Some(5_000_000));
        assert_eq!((nanos("32"), nanos("us"), nanos("-1ms"), nanos("1h")), (None, None, None, None));
        assert_eq!(nanos("99999999999999999999s"), None);
        assert!(grain("11ms").is_err() && grain("500ns").is_err() && grain("1us").is_ok());
    }
}
