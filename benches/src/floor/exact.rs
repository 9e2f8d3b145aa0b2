//! Decimals and timestamps as text, from what the drivers hand out: tokio-postgres has no type for the first and none
//! without a calendar crate for the second.

use std::error::Error;
use std::fmt;

use serde::{Serialize, Serializer};
use tokio_postgres::types::{FromSql, Type};

/// An exact decimal.
pub(crate) enum Decimal<'a> {
    /// Postgres' binary form: digits to the base 10,000.
    Numeric { bytes: &'a [u8], weight: i16, negative: bool, scale: u16 },
    /// As stored.
    Text(&'a str),
}

impl<'a> FromSql<'a> for Decimal<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let (head, bytes) = raw.split_at_checked(8).ok_or("a numeric has eight bytes of head")?;
        let field = |at: usize| [head[at], head[at + 1]];
        let negative = match u16::from_be_bytes(field(4)) {
            0 => false,
            0x4000 => true,
            _ => return Err("not a number".into()),
        };
        Ok(Decimal::Numeric { bytes, weight: i16::from_be_bytes(field(2)), negative, scale: u16::from_be_bytes(field(6)) })
    }
    fn accepts(kind: &Type) -> bool {
        *kind == Type::NUMERIC
    }
}

impl fmt::Display for Decimal<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, weight, negative, scale) = match *self {
            Decimal::Text(text) => return out.write_str(text),
            Decimal::Numeric { bytes, weight, negative, scale } => (bytes, weight, negative, scale),
        };
        let digit = |position: i16| -> u16 {
            let pair = usize::try_from(weight - position).ok().and_then(|index| bytes.get(index * 2..index * 2 + 2));
            pair.map_or(0, |pair| u16::from_be_bytes([pair[0], pair[1]]))
        };
        if negative {
            out.write_str("-")?;
        }
        write!(out, "{}", digit(weight.max(0)))?;
        for position in (0..weight.max(0)).rev() {
            write!(out, "{:04}", digit(position))?;
        }
        if scale > 0 {
            out.write_str(".")?;
        }
        let mut left = usize::from(scale);
        let mut position = -1;
        while left > 0 {
            let group = format_four(digit(position));
            let shown = left.min(4);
            out.write_str(std::str::from_utf8(&group[..shown]).map_err(|_| fmt::Error)?)?;
            left -= shown;
            position -= 1;
        }
        Ok(())
    }
}

fn format_four(digit: u16) -> [u8; 4] {
    [1000, 100, 10, 1].map(|place| b'0' + u8::try_from(digit / place % 10).unwrap_or(0))
}

impl Serialize for Decimal<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A timestamp without a zone.
pub(crate) enum Timestamp<'a> {
    /// Postgres' binary form: microseconds since the year 2000.
    Micros(i64),
    /// As stored.
    Text(&'a str),
}

impl<'a> FromSql<'a> for Timestamp<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Timestamp::Micros(i64::from_be_bytes(raw.try_into()?)))
    }
    fn accepts(kind: &Type) -> bool {
        *kind == Type::TIMESTAMP
    }
}

impl fmt::Display for Timestamp<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MICROS_PER_DAY: i64 = 86_400_000_000;
        const DAYS_TO_2000: i64 = 10_957;
        let micros = match *self {
            Timestamp::Text(text) => return out.write_str(text),
            Timestamp::Micros(micros) => micros,
        };
        let (year, month, day) = civil(micros.div_euclid(MICROS_PER_DAY) + DAYS_TO_2000);
        let in_day = micros.rem_euclid(MICROS_PER_DAY);
        let (seconds, fraction) = (in_day / 1_000_000, in_day % 1_000_000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if fraction > 0 {
            write!(out, ".{fraction:06}")?;
        }
        Ok(())
    }
}

/// Year, month and day of a day counted from 1970-01-01, by the usual count of days in eras of 400 years from March on.
fn civil(day: i64) -> (i64, i64, i64) {
    let shifted = day + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted_month + 2) / 5 + 1)
}

impl Serialize for Timestamp<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numerics_keep_their_digits() {
        let cases: [(i16, u16, u16, &[u16], &str); 7] = [
            (0, 0, 0, &[], "0"),
            (0, 0, 2, &[], "0.00"),
            (0, 0, 3, &[7, 5000], "7.500"),
            (1, 0x4000, 1, &[12, 345, 6000], "-120345.6"),
            (2, 0, 0, &[1], "100000000"),
            (-1, 0, 5, &[123, 4000], "0.01234"),
            (-2, 0, 8, &[1], "0.00000001"),
        ];
        for (weight, sign, scale, digits, shown) in cases {
            let mut raw = u16::try_from(digits.len()).expect("few digits").to_be_bytes().to_vec();
            raw.extend(weight.to_be_bytes());
            raw.extend(sign.to_be_bytes());
            raw.extend(scale.to_be_bytes());
            digits.iter().for_each(|digit| raw.extend(digit.to_be_bytes()));
            let decimal = Decimal::from_sql(&Type::NUMERIC, &raw).expect("well formed");
            assert_eq!(decimal.to_string(), shown);
        }
    }

    #[test]
    fn timestamps_are_civil_time() {
        for (micros, shown) in [
            (0, "2000-01-01T00:00:00"),
            (-1, "1999-12-31T23:59:59.999999"),
            (59 * 86_400_000_000 + 3_661_000_000, "2000-02-29T01:01:01"),
            (827_280_000_000_000, "2026-03-20T00:00:00"),
        ] {
            assert_eq!(Timestamp::Micros(micros).to_string(), shown);
        }
    }
}
