//! Time that says which clock it is of.
use std::fmt;
use std::ops::{Add, Sub};

/// Nanoseconds in a millisecond.
pub const NANOS_PER_MS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Host wall-clock time, nanoseconds since the Unix epoch, as the agent calibrated the host's counter against
/// CLOCK_REALTIME. Comparable within a host to microseconds; across hosts to the error of their clock
/// synchronisation, which a detector must not assume to be zero. `HostTime(0)` means "not yet" or "unknown".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct HostTime(pub u64);

impl HostTime {
    /// Not yet happened, or unknown.
    pub const NONE: HostTime = HostTime(0);

    /// Whether the time is known.
    pub fn is_some(self) -> bool {
        self.0 != 0
    }

    /// The time if it is known.
    pub fn some(self) -> Option<HostTime> {
        if self.0 == 0 { None } else { Some(self) }
    }

    /// Nanoseconds from `earlier` to `self`, 0 if `earlier` is later.
    pub fn since_ns(self, earlier: HostTime) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for HostTime {
    type Output = HostTime;
    /// Later by `ns` nanoseconds, saturating.
    fn add(self, ns: u64) -> HostTime {
        HostTime(self.0.saturating_add(ns))
    }
}

impl Sub<u64> for HostTime {
    type Output = HostTime;
    /// Earlier by `ns` nanoseconds, saturating.
    fn sub(self, ns: u64) -> HostTime {
        HostTime(self.0.saturating_sub(ns))
    }
}

impl fmt::Display for HostTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / NANOS_PER_SEC, self.0 % NANOS_PER_SEC)
    }
}

/// Seconds in a day (RFC 3339 and Unix time know no leap second).
const SECS_PER_DAY: u64 = 86_400;

/// RFC 3339 text in UTC with nine fractional digits: `2025-01-01T00:00:00.000000000Z`.
pub fn rfc3339(time: HostTime) -> String {
    let secs = time.0 / NANOS_PER_SEC;
    let (year, month, day) = date_of_day(secs / SECS_PER_DAY);
    let in_day = secs % SECS_PER_DAY;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:09}Z",
        in_day / 3600,
        in_day / 60 % 60,
        in_day % 60,
        time.0 % NANOS_PER_SEC
    )
}

/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_SHIFT: u64 = 719_468;
/// Days in 400 years.
const ERA: u64 = 146_097;

/// Year, month and day (proleptic Gregorian) of a day number since 1970-01-01 (H. Hinnant, "chrono-compatible low-level
/// date algorithms", `civil_from_days`, for days >= 0). u64 nanoseconds end in the year 2554, far inside its range.
#[must_use]
pub fn date_of_day(days: u64) -> (u64, u64, u64) {
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

/// The day number since 1970-01-01 of a date (Hinnant's `days_from_civil`); `None`: there is no such date, or it is
/// before 1970 or after the year 9999.
#[must_use]
pub fn day_of_date(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let shifted = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (shifted / 400, shifted % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * ERA + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - EPOCH_SHIFT;
    (date_of_day(days) == (year, month, day)).then_some(days)
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
    fn what_is_no_date_has_no_day() {
        let max = u64::MAX;
        for (year, month, day) in [
            (1969, 12, 31),
            (2026, 13, 1),
            (2026, 0, 1),
            (2026, 1, 0),
            (2026, 2, 29),
            (2100, 2, 29),
            (2026, 4, 31),
            (10_000, 1, 1),
            (max, 1, 1),
            (2026, max, 1),
            (2026, 1, max),
            (0, 0, 0),
        ] {
            assert_eq!(day_of_date(year, month, day), None, "{year}-{month}-{day}");
        }
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for number in 0..213_000 {
            assert_eq!(date_of_day(number), (year, month, day));
            assert_eq!(day_of_date(year, month, day), Some(number));
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
}
