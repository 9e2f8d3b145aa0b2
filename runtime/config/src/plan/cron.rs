//! Cron: minute, hour, day of month, month, day of week, in UTC.
//!
//! Invariants
//! 1. An expression that was read fires: one for a day that no year has (30 February) is refused.
//! 2. As cron has it: where both days are restricted either one will do; a field that starts with `*` restricts nothing.
//! 3. Pure over numbers: no clock, no time zone, no leap seconds.
//!
//! It refuses: seconds, years, `@daily`, `L`, `W`, `#` and `?`.

use std::fmt;

const MINUTE: i64 = 60;
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;
/// A 29 February may be eight years away (around 2100).
const YEARS_LOOKED_AT: i64 = 9;
const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// A field: what it is called, what it may be, names that stand for numbers.
struct Field {
    name: &'static str,
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", least: 0, most: 59, names: &[] },
    Field { name: "hour", least: 0, most: 23, names: &[] },
    Field { name: "day of month", least: 1, most: 31, names: &[] },
    Field { name: "month", least: 1, most: 12, names: MONTHS },
    // 7 is Sunday, too.
    Field { name: "day of week", least: 0, most: 7, names: WEEKDAYS },
];

/// A proven cron expression.
#[derive(Clone, PartialEq, Eq)]
pub struct Cron {
    written: Box<str>,
    /// Bit `n`: the value `n` fits.
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Both days are restricted: either will do.
    either_day: bool,
}

impl fmt::Debug for Cron {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Cron").field(&self.written).finish()
    }
}

/// What is wrong with an expression, and the byte where it starts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CronFault {
    pub(crate) offset: usize,
    pub(crate) message: String,
}

impl Cron {
    /// Reads five fields.
    pub(crate) fn parse(text: &str) -> Result<Self, CronFault> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let words: [&str; 5] = words.try_into().map_err(|words: Vec<&str>| CronFault {
            offset: 0,
            message: format!(
                "expected minute, hour, day of month, month and day of week, such as \"30 2 * * mon-fri\", found {} fields",
                words.len()
            ),
        })?;
        let mut sets = [0u64; 5];
        for ((set, word), field) in sets.iter_mut().zip(words).zip(&FIELDS) {
            let offset = word.as_ptr() as usize - text.as_ptr() as usize;
            *set = field.read(word).map_err(|message| CronFault { offset, message })?;
        }
        let [minutes, hours, days, months, mut weekdays] = sets;
        weekdays |= weekdays >> 7 & 1;
        let either_day = !words[2].starts_with('*') && !words[4].starts_with('*');
        let cron = Cron { written: words.join(" ").into(), minutes, hours, days, months, weekdays, either_day };
        match cron.next_after(0) {
            Some(_) => Ok(cron),
            None => Err(CronFault { offset: 0, message: "this never comes: no year has such a day".into() }),
        }
    }

    /// As written, one space between fields.
    pub fn written(&self) -> &str {
        &self.written
    }

    /// The first moment after this one that fits, both in seconds since 1970.
    pub fn next_after(&self, unix_seconds: i64) -> Option<i64> {
        // Fits within minutes: look from the next whole one.
        let from = (unix_seconds.checked_add(MINUTE)?).div_euclid(MINUTE) * MINUTE;
        let first_day = from.div_euclid(DAY);
        for day in first_day..=first_day.checked_add(YEARS_LOOKED_AT * 366)? {
            if !self.fits_day(day) {
                continue;
            }
            let from = if day == first_day { from.rem_euclid(DAY) } else { 0 };
            let hours = (from / HOUR..24).filter(|hour| is_in(self.hours, *hour));
            for hour in hours {
                let least = if hour == from / HOUR { from % HOUR / MINUTE } else { 0 };
                if let Some(minute) = (least..60).find(|minute| is_in(self.minutes, *minute)) {
                    return day.checked_mul(DAY)?.checked_add(hour * HOUR + minute * MINUTE);
                }
            }
        }
        None
    }

    fn fits_day(&self, day: i64) -> bool {
        let (month, day_of_month) = month_and_day(day);
        // 1 January 1970 was a Thursday.
        let weekday = is_in(self.weekdays, (day + 4).rem_euclid(7));
        let day = is_in(self.days, day_of_month);
        is_in(self.months, month) && if self.either_day { day || weekday } else { day && weekday }
    }
}

fn is_in(set: u64, value: i64) -> bool {
    (0..64).contains(&value) && set >> value & 1 == 1
}

/// Month and day of a day since 1970 in the Gregorian calendar, from 1. (Years begin in March here, so that a leap day ends them.)
fn month_and_day(day: i64) -> (i64, i64) {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    let day = (day + 719_468).rem_euclid(DAYS_OF_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    (if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 }, day_of_month)
}

fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl Field {
    /// A list of values, ranges and steps, as bits.
    fn read(&self, word: &str) -> Result<u64, String> {
        word.split(',').try_fold(0, |set, part| Ok(set | self.part(part)?))
    }

    /// `*`, `5`, `mon-fri`, `*/15`, `10-40/10`; `5/10` is from 5 on.
    fn part(&self, part: &str) -> Result<u64, String> {
        let (range, step) = match part.split_once('/') {
            None => (part, 1),
            Some((range, step)) => {
                let step = digits(step).filter(|step| (1..=self.most).contains(step));
                (range, step.ok_or_else(|| self.refused(part))?)
            }
        };
        let (least, most) = match range.split_once('-') {
            _ if range == "*" => (self.least, self.most),
            Some((least, most)) => (self.value(least, part)?, self.value(most, part)?),
            None if part.contains('/') => (self.value(range, part)?, self.most),
            None => (self.value(range, part)?, self.value(range, part)?),
        };
        // As in `sat-sun`, where Sunday is the 7th.
        let most = if self.most == 7 && most == 0 && least > 0 { 7 } else { most };
        if least > most {
            return Err(format!("{}: `{part}` runs backwards", self.name));
        }
        Ok((least..=most).step_by(usize::try_from(step).unwrap_or(1)).fold(0, |set, value| set | 1 << value))
    }

    fn value(&self, text: &str, part: &str) -> Result<u32, String> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let named = named.and_then(|index| u32::try_from(index).ok()).map(|index| index + if self.most == 12 { 1 } else { 0 });
        named.or_else(|| digits(text)).filter(|value| (self.least..=self.most).contains(value)).ok_or_else(|| self.refused(part))
    }

    fn refused(&self, part: &str) -> String {
        let names = match (self.names.first(), self.names.last()) {
            (Some(first), Some(last)) => format!(" or {first} to {last}"),
            _ => String::new(),
        };
        let found = crate::raw::printable(part);
        format!(
            "{}: expected {} to {}{names}, as `*`, a value, a range or a list, with a step where meant, found `{found}`",
            self.name, self.least, self.most
        )
    }
}

#[cfg(test)]
mod tests;
