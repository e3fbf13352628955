//! Times in JSON: the exact nanoseconds and RFC 3339 text side by side.
use mycroft_record::HostTime;
pub use mycroft_record::time::rfc3339;
use serde::{Deserialize, Serialize};

/// A moment: `{"ns": 1735689600000000000, "text": "2025-01-01T00:00:00.000000000Z"}`.
///
/// `ns` is exact but exceeds 2^53, so a JavaScript reader should take `text`, which has all nine digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct TimeJson {
    /// Nanoseconds since the Unix epoch.
    pub ns: u64,
    /// RFC 3339, UTC, nine fractional digits.
    pub text: String,
}

impl TimeJson {
    /// The JSON form of a time; `None` for `HostTime::NONE` (JSON null).
    pub fn of(time: HostTime) -> Option<TimeJson> {
        time.some().map(TimeJson::exact)
    }

    /// The JSON form of a time that is known to be one.
    pub fn exact(time: HostTime) -> TimeJson {
        TimeJson { ns: time.0, text: rfc3339(time) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_time_is_null() {
        assert_eq!(TimeJson::of(HostTime::NONE), None);
        assert_eq!(TimeJson::of(HostTime(1)).map(|t| t.ns), Some(1));
    }
}
