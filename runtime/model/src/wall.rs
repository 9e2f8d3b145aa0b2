//! Wall time as a number and as text. It labels, and decides nothing.

use std::time::{Duration, SystemTime};

/// Milliseconds since 1970; 0 for a clock that stands before that.
pub fn milliseconds(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// `2026-11-30T01:02:03.004Z` of milliseconds since 1970.
pub fn timestamp(milliseconds: u64) -> String {
    const DAY: u64 = 86_400_000;
    // Nothing here is about a time past the year 9999.
    let milliseconds = milliseconds.min(253_402_300_799_999);
    let (year, month, day) = civil(milliseconds / DAY);
    let rest = milliseconds % DAY;
    let (hour, minute, second) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", rest % 1_000)
}

/// Year, month and day of a number of days since 1970, in the Gregorian calendar. Years are counted from March, so that the day that not
/// every year has is the last one (Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / ERA, shifted % ERA);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_counted_from_1970_on() {
        let moment = Duration::from_micros(1_793_000_000_042_999);
        let at = [SystemTime::UNIX_EPOCH + moment, SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH - moment];
        assert_eq!(at.map(milliseconds), [1_793_000_000_042, 0, 0]);
    }

    #[test]
    fn a_time_is_written_as_everywhere() {
        let known = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_793_000_000_042, "2026-10-26T07:33:20.042Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (u64::MAX, "9999-12-31T23:59:59.999Z"),
        ];
        for (milliseconds, text) in known {
            assert_eq!(timestamp(milliseconds), text);
        }
    }
}
