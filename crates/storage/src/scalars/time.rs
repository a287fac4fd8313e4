//! [`Date`] and [`Timestamp`]: days and moments of the proleptic Gregorian calendar, in UTC and without leap seconds.

use std::fmt;

/// Microseconds of a day.
const DAY_MICROS: i64 = 86_400_000_000;

/// A day, as the number of days since 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Date(pub i32);

/// A moment, as the number of microseconds since 1970-01-01 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Date {
    /// The day with this year, month (1 to 12) and day of the month; `None` when there is no such day, or it is too far away.
    ///
    /// ```
    /// use atrapos_storage::Date;
    ///
    /// assert_eq!(Date::from_ymd(2000, 2, 29).unwrap().to_string(), "2000-02-29");
    /// assert_eq!(Date::from_ymd(1900, 2, 29), None);
    /// ```
    #[must_use]
    pub fn from_ymd(year: i32, month: u32, day: u32) -> Option<Date> {
        if !(1..=12).contains(&month) || day == 0 || day > 31 {
            return None;
        }
        let days = days_of(i64::from(year), i64::from(month), i64::from(day));
        let date = i32::try_from(days).ok().map(Date)?;
        // The thirty-first of a short month would be a day of the next one.
        (date.ymd() == (year, month, day)).then_some(date)
    }

    /// Year, month and day of the month.
    #[must_use]
    pub fn ymd(self) -> (i32, u32, u32) {
        let (year, month, day) = civil_of(i64::from(self.0));
        (year as i32, month as u32, day as u32)
    }
}

/// Days since 1970-01-01. Years are taken to begin in March, so that the leap day is the last of one, and come in eras of 400.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of a number of days since 1970-01-01.
fn civil_of(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

fn write_day(f: &mut fmt::Formatter<'_>, days: i64) -> fmt::Result {
    let (year, month, day) = civil_of(days);
    let sign = if year < 0 { "-" } else { "" };
    write!(f, "{sign}{:04}-{month:02}-{day:02}", year.unsigned_abs())
}

/// Shows a date as `2026-11-22`; years before the first one are 0 and negative.
impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_day(f, i64::from(self.0))
    }
}

/// Shows a moment as `2026-11-22 10:51:58.000001`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_day(f, self.0.div_euclid(DAY_MICROS))?;
        let micros = self.0.rem_euclid(DAY_MICROS);
        let seconds = micros / 1_000_000;
        let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
        write!(f, " {hours:02}:{minutes:02}:{:02}.{:06}", seconds % 60, micros % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_come_back_over_many_centuries() {
        let mut before = None;
        for days in (-800_000..800_000).step_by(if cfg!(miri) { 9_973 } else { 1 }) {
            let (year, month, day) = Date(days).ymd();
            assert_eq!(Date::from_ymd(year, month, day), Some(Date(days)));
            assert!(before < Some((year, month, day)));
            before = Some((year, month, day));
        }
        assert_eq!(Date(0).ymd(), (1970, 1, 1));
        assert_eq!(Date::from_ymd(2026, 11, 22), Some(Date(20_779)));
    }

    #[test]
    fn days_that_are_not_are_refused() {
        for (year, month, day) in [(2023, 2, 29), (2023, 4, 31), (2023, 0, 1), (2023, 13, 1), (2023, 1, 0)] {
            assert_eq!(Date::from_ymd(year, month, day), None);
        }
        assert_eq!(Date::from_ymd(i32::MAX, 1, 1), None);
    }

    #[test]
    fn days_and_moments_are_shown() {
        assert_eq!(Date(-719_528).to_string(), "0000-01-01");
        assert_eq!(Date(-719_529).to_string(), "-0001-12-31");
        assert_eq!(Timestamp(0).to_string(), "1970-01-01 00:00:00.000000");
        assert_eq!(Timestamp(-1).to_string(), "1969-12-31 23:59:59.999999");
        assert_eq!(Timestamp(i64::MAX).to_string(), "294247-01-10 04:00:54.775807");
        assert_eq!(Date(i32::MIN).to_string(), "-5877641-06-23");
    }
}
