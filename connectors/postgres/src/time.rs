//! Postgres' dates and times: days and microseconds since 2000-01-01, written as ISO 8601. No zone of any host has a say.

use std::fmt;

const DAY_US: i64 = 86_400_000_000;
/// Days from 0000-03-01 to 2000-01-01 in the proleptic Gregorian calendar.
const EPOCH_DAYS: i64 = 730_425;

/// A day of the years 1 to 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Date {
    year: i64,
    month: i64,
    day: i64,
}

/// Microseconds since midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time(i64);

/// Both, with the offset of a column that has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timestamp {
    date: Date,
    time: Time,
    zoned: bool,
}

impl Date {
    /// `None` beyond the years that four digits hold.
    pub(crate) fn from_days(days: i64) -> Option<Self> {
        // Years start in March here, so that the odd day of a leap year is the last.
        let days = days.checked_add(EPOCH_DAYS)?;
        let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * of_year + 2) / 153;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let date = Date { year, month, day: of_year - (153 * shifted_month + 2) / 5 + 1 };
        (1..=9_999).contains(&year).then_some(date)
    }
}

impl Time {
    pub(crate) fn from_us(us: i64) -> Option<Self> {
        (0..=DAY_US).contains(&us).then_some(Time(us))
    }
}

impl Timestamp {
    pub(crate) fn from_us(us: i64, zoned: bool) -> Option<Self> {
        Some(Timestamp { date: Date::from_days(us.div_euclid(DAY_US))?, time: Time(us.rem_euclid(DAY_US)), zoned })
    }
}

impl fmt::Display for Date {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, fraction) = (self.0 / 1_000_000, self.0 % 1_000_000);
        write!(out, "{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)?;
        if fraction == 0 {
            return Ok(());
        }
        let (mut digits, mut width) = (fraction, 6);
        while digits % 10 == 0 {
            digits /= 10;
            width -= 1;
        }
        write!(out, ".{digits:0width$}")
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}T{}{}", self.date, self.time, if self.zoned { "+00:00" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c6_days_and_microseconds_are_written_as_they_are() {
        let date = |days| Date::from_days(days).map(|date| date.to_string());
        assert_eq!(date(0).as_deref(), Some("2000-01-01"));
        assert_eq!(date(59).as_deref(), Some("2000-02-29"));
        assert_eq!(date(-1).as_deref(), Some("1999-12-31"));
        assert_eq!(date(-730_119).as_deref(), Some("0001-01-01"));
        assert_eq!(date(-730_120), None, "before year one");
        assert_eq!(date(2_921_939).as_deref(), Some("9999-12-31"));
        assert_eq!(date(2_921_940), None, "after year 9999");
        let timestamp = |us, zoned| Timestamp::from_us(us, zoned).map(|timestamp| timestamp.to_string());
        assert_eq!(timestamp(0, false).as_deref(), Some("2000-01-01T00:00:00"));
        assert_eq!(timestamp(-1, true).as_deref(), Some("1999-12-31T23:59:59.999999+00:00"));
        assert_eq!(timestamp(1_500_000, false).as_deref(), Some("2000-01-01T00:00:01.5"));
        assert_eq!(Time::from_us(DAY_US).map(|time| time.to_string()).as_deref(), Some("24:00:00"));
        assert_eq!(Time::from_us(-1), None);
    }
}
