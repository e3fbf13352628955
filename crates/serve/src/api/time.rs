//! Times in JSON: the exact nanoseconds and RFC 3339 text side by side.
use mycroft_record::{HostTime, NANOS_PER_SEC};
use serde::{Deserialize, Serialize};

/// Seconds in a day (RFC 3339 and Unix time know no leap second).
const SECS_PER_DAY: u64 = 86_400;

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

/// RFC 3339 text in UTC with nine fractional digits: `2025-01-01T00:00:00.000000000Z`.
pub fn rfc3339(time: HostTime) -> String {
    let secs = time.0 / NANOS_PER_SEC;
    let (year, month, day) = civil_from_days(secs / SECS_PER_DAY);
    let in_day = secs % SECS_PER_DAY;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:09}Z",
        in_day / 3600,
        in_day / 60 % 60,
        in_day % 60,
        time.0 % NANOS_PER_SEC
    )
}

/// Proleptic Gregorian date of a day number since 1970-01-01 (H. Hinnant, "chrono-compatible low-level date
/// algorithms", `civil_from_days`, for days >= 0). u64 nanoseconds end in the year 2554, far inside its range.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    /// Days from 0000-03-01 to 1970-01-01.
    const EPOCH_SHIFT: u64 = 719_468;
    /// Days in 400 years.
    const ERA: u64 = 146_097;
    let z = days + EPOCH_SHIFT;
    let day_of_era = z % ERA;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153; // 0 = March
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = z / ERA * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments_print_as_date_prints_them() {
        // Left column by `date -u -d @SECS +%FT%TZ`.
        for (text, secs) in [
            ("1970-01-01T00:00:00", 0),
            ("1972-02-29T23:59:59", 68_255_999),
            ("2000-02-29T12:00:00", 951_825_600),
            ("2000-03-01T00:00:00", 951_868_800),
            ("2024-12-31T23:59:59", 1_735_689_599),
            ("2025-01-01T00:00:00", 1_735_689_600),
            ("2100-02-28T23:59:59", 4_107_542_399),
            ("2100-03-01T00:00:00", 4_107_542_400),
        ] {
            assert_eq!(rfc3339(HostTime(secs * NANOS_PER_SEC)), format!("{text}.000000000Z"));
        }
        assert_eq!(rfc3339(HostTime(u64::MAX)), "2554-07-21T23:34:33.709551615Z");
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for number in 0..213_000 {
            assert_eq!(civil_from_days(number), (year, month, day));
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 => 28 + u64::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > length {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
        }
    }

    #[test]
    fn an_unknown_time_is_null() {
        assert_eq!(TimeJson::of(HostTime::NONE), None);
        assert_eq!(TimeJson::of(HostTime(1)).map(|t| t.ns), Some(1));
    }
}
