//! From what a driver gave to what a flow declared: exact, or not at all.
//!
//! Invariants
//! 1. A conversion that would round, shorten, shift or guess is refused.
//! 2. Without a declaration ([`Raw::kind`]) a value passes as it is: nothing looks into it.
//!
//! Rules worth knowing: text is a number, date or timestamp only in its plain form (no exponent, no blanks); a double is
//! a decimal only where its shortest digits are at most 15 (every such decimal survives a double); integers are doubles up
//! to 2^53; `Z` becomes `+00:00`; a date is no timestamp.

use spillgate_model::rows::ValueTooLarge;
use spillgate_model::{RowsBuilder, Type};

use crate::{DatabaseError, Failure};

/// A value as the driver gave it. Text of dates, times and timestamps is canonical already.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Raw<'a> {
    Null,
    Boolean(bool),
    Integer(i64),
    Number(f64),
    Decimal(&'a str),
    Text(&'a str),
    Date(&'a str),
    Time(&'a str),
    Timestamp(&'a str),
    Binary(&'a [u8]),
}

impl Raw<'_> {
    /// Its own type; NULL has none.
    pub fn kind(self) -> Option<Type> {
        Some(match self {
            Raw::Null => return None,
            Raw::Boolean(_) => Type::Boolean,
            Raw::Integer(_) => Type::Integer,
            Raw::Number(_) => Type::Number,
            Raw::Decimal(_) => Type::Decimal,
            Raw::Text(_) => Type::Text,
            Raw::Date(_) => Type::Date,
            Raw::Time(_) => Type::Time,
            Raw::Timestamp(_) => Type::Timestamp,
            Raw::Binary(_) => Type::Binary,
        })
    }
}

/// Why a cell was not pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellError {
    /// It has no exact form in the declared type.
    Inexact,
    /// It is larger than the result may be.
    TooLarge(ValueTooLarge),
}

impl From<ValueTooLarge> for CellError {
    fn from(error: ValueTooLarge) -> Self {
        CellError::TooLarge(error)
    }
}

impl CellError {
    /// The failure of the call, for the column of that name and declared type.
    pub fn at(self, column: &str, kind: Type) -> DatabaseError {
        match self {
            CellError::TooLarge(error) => error.into(),
            CellError::Inexact => {
                let detail = format!("a value of column {column} has no exact form as {}", kind.name());
                DatabaseError::new(Failure::ValueInexact { column: column.into() }, detail.clone(), detail)
            }
        }
    }
}

/// Pushes a value as it is.
pub fn push(rows: &mut RowsBuilder, raw: Raw<'_>) -> Result<(), ValueTooLarge> {
    match raw {
        Raw::Null => rows.null(),
        Raw::Boolean(value) => rows.boolean(value),
        Raw::Integer(value) => rows.integer(value),
        Raw::Number(value) => rows.number(value),
        Raw::Decimal(text) => rows.text(Type::Decimal, text)?,
        Raw::Text(text) => rows.text(Type::Text, text)?,
        Raw::Date(text) => rows.text(Type::Date, text)?,
        Raw::Time(text) => rows.text(Type::Time, text)?,
        Raw::Timestamp(text) => rows.text(Type::Timestamp, text)?,
        Raw::Binary(bytes) => rows.binary(bytes)?,
    }
    Ok(())
}

/// Pushes a value in its declared type.
pub fn push_as(rows: &mut RowsBuilder, kind: Type, raw: Raw<'_>) -> Result<(), CellError> {
    if raw.kind().is_none_or(|own| own == kind) {
        return Ok(push(rows, raw)?);
    }
    match kind {
        Type::Integer => rows.integer(integer(raw).ok_or(CellError::Inexact)?),
        Type::Number => rows.number(number(raw).ok_or(CellError::Inexact)?),
        Type::Boolean => rows.boolean(boolean(raw).ok_or(CellError::Inexact)?),
        Type::Decimal => match raw {
            Raw::Integer(value) => rows.formatted(kind, value)?,
            Raw::Text(text) if is_decimal(text) => rows.text(kind, text)?,
            Raw::Number(value) => rows.text(kind, &short_digits(value).ok_or(CellError::Inexact)?)?,
            _ => return Err(CellError::Inexact),
        },
        Type::Text => match raw {
            Raw::Integer(value) => rows.formatted(kind, value)?,
            Raw::Number(value) => rows.formatted(kind, value)?,
            Raw::Boolean(value) => rows.formatted(kind, value)?,
            Raw::Decimal(text) | Raw::Date(text) | Raw::Time(text) | Raw::Timestamp(text) => rows.text(kind, text)?,
            _ => return Err(CellError::Inexact),
        },
        Type::Date => match raw {
            Raw::Text(text) if is_date(text) => rows.text(kind, text)?,
            Raw::Timestamp(text) => rows.text(kind, midnight(text).ok_or(CellError::Inexact)?)?,
            _ => return Err(CellError::Inexact),
        },
        Type::Time => match raw {
            Raw::Text(text) if is_time(text) => rows.text(kind, text)?,
            _ => return Err(CellError::Inexact),
        },
        Type::Timestamp => match raw {
            Raw::Text(text) => timestamp(rows, text)?,
            _ => return Err(CellError::Inexact),
        },
        Type::Binary => return Err(CellError::Inexact),
    }
    Ok(())
}

fn integer(raw: Raw<'_>) -> Option<i64> {
    match raw {
        Raw::Boolean(value) => Some(i64::from(value)),
        Raw::Number(value) if value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0 => {
            #[allow(clippy::cast_possible_truncation)] // a whole number within 2^53
            Some(value as i64)
        }
        Raw::Decimal(text) | Raw::Text(text) if is_decimal(text) => match text.split_once('.') {
            Some((whole, fraction)) => fraction.bytes().all(|digit| digit == b'0').then(|| whole.parse().ok())?,
            None => text.parse().ok(),
        },
        _ => None,
    }
}

fn number(raw: Raw<'_>) -> Option<f64> {
    match raw {
        #[allow(clippy::cast_precision_loss)] // within 2^53
        Raw::Integer(value) => (value.unsigned_abs() <= 1 << 53).then_some(value as f64),
        Raw::Decimal(text) | Raw::Text(text) if is_decimal(text) => {
            let value: f64 = text.parse().ok()?;
            (plain(&value.to_string()) == plain(text)).then_some(value)
        }
        _ => None,
    }
}

fn boolean(raw: Raw<'_>) -> Option<bool> {
    match raw {
        Raw::Text("true") => Some(true),
        Raw::Text("false") => Some(false),
        Raw::Text(_) => None,
        other => match if let Raw::Integer(value) = other { value } else { integer(other)? } {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        },
    }
}

/// Digits without what does not change their value: sign of zero, leading and trailing zeros.
fn plain(text: &str) -> (bool, &str, &str) {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    (negative && !(whole.is_empty() && fraction.is_empty()), whole, fraction)
}

/// The shortest digits that read back as this double, where they are so few that no other decimal of that length does.
fn short_digits(value: f64) -> Option<String> {
    let text = value.is_finite().then(|| value.to_string())?;
    let (_, whole, fraction) = plain(&text);
    let digits = if whole.is_empty() { fraction.trim_start_matches('0').len() } else { whole.len() + fraction.len() };
    (digits <= 15).then_some(text)
}

/// `-?digits[.digits]`.
fn is_decimal(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    unsigned.split_once('.').map_or_else(|| digits(unsigned), |(whole, fraction)| digits(whole) && digits(fraction))
}

/// Digits at `range`, as a number.
fn field(text: &str, range: std::ops::Range<usize>) -> Option<u32> {
    let part = text.get(range)?;
    part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())?
}

/// `YYYY-MM-DD` of a day that exists.
pub fn is_date(text: &str) -> bool {
    let fields = || {
        let (year, month, day) = (field(text, 0..4)?, field(text, 5..7)?, field(text, 8..10)?);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = match month {
            2 if leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
        let bytes = text.as_bytes();
        Some(bytes.len() == 10 && bytes[4] == b'-' && bytes[7] == b'-' && year > 0 && (1..=days).contains(&day))
    };
    fields().unwrap_or(false)
}

/// `HH:MM:SS[.fraction]`.
pub fn is_time(text: &str) -> bool {
    let fields = || {
        let (hour, minute, second) = (field(text, 0..2)?, field(text, 3..5)?, field(text, 6..8)?);
        let bytes = text.as_bytes();
        let fraction = match bytes.get(8) {
            None => true,
            Some(b'.') => bytes.len() > 9 && bytes[9..].iter().all(u8::is_ascii_digit),
            Some(_) => false,
        };
        Some(bytes[2] == b':' && bytes[5] == b':' && hour < 24 && minute < 60 && second < 60 && fraction)
    };
    fields().unwrap_or(false)
}

/// The date of a timestamp at midnight without offset.
fn midnight(text: &str) -> Option<&str> {
    let (date, time) = text.split_once('T')?;
    let rest = time.strip_prefix("00:00:00")?;
    (rest.is_empty() || rest.strip_prefix('.')?.bytes().all(|digit| digit == b'0')).then_some(date)
}

/// `YYYY-MM-DD`, `T` or a blank, `HH:MM:SS[.fraction]`, then nothing, `Z`, `+HH:MM` or `+HH`.
fn timestamp(rows: &mut RowsBuilder, text: &str) -> Result<(), CellError> {
    let parts = || {
        let (date, rest) = (text.get(..10)?, text.get(11..)?);
        let separated = matches!(text.as_bytes().get(10), Some(b'T' | b' '));
        let (time, offset) = rest.find(['Z', '+', '-']).map_or((rest, ""), |at| rest.split_at(at));
        let (offset, minutes) = match offset.len() {
            0 => ("", ""),
            1 if offset == "Z" => ("+00:00", ""),
            3 => (offset, ":00"),
            6 if offset.as_bytes()[3] == b':' && field(offset, 4..6)? < 60 => (offset, ""),
            _ => return None,
        };
        let offset_fits = offset.is_empty() || field(offset, 1..3)? < 24;
        (separated && is_date(date) && is_time(time) && offset_fits).then_some((date, time, offset, minutes))
    };
    let (date, time, offset, minutes) = parts().ok_or(CellError::Inexact)?;
    Ok(rows.formatted(Type::Timestamp, format_args!("{date}T{time}{offset}{minutes}"))?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spillgate_model::{Cell, Column};

    use super::*;

    fn converted(kind: Type, raw: Raw<'_>) -> Option<String> {
        let columns = Arc::new([Column { name: "C".into(), kind }]);
        let mut rows = RowsBuilder::new(columns, 1, 1_000);
        push_as(&mut rows, kind, raw).ok()?;
        rows.end_row();
        let rows = rows.finish();
        Some(match rows.row(0)[0] {
            Cell::Integer(value) => value.to_string(),
            Cell::Number(value) => format!("{value:?}"),
            Cell::Boolean(value) => value.to_string(),
            Cell::Null => "null".into(),
            cell @ Cell::Slice { .. } => rows.text(cell).into(),
        })
    }

    #[test]
    fn exact_forms_are_kept_and_all_others_refused() {
        use Raw::*;
        let cases: &[(Type, Raw<'_>, Option<&str>)] = &[
            (Type::Integer, Decimal("-9223372036854775808.000"), Some("-9223372036854775808")),
            (Type::Integer, Decimal("9223372036854775808"), None),
            (Type::Integer, Number(9_007_199_254_740_994.0), None),
            (Type::Integer, Text(" 1"), None),
            (Type::Integer, Text("+1"), None),
            (Type::Number, Decimal("0.10"), Some("0.1")),
            (Type::Number, Decimal("0.1000000000000000055511151231257827"), None),
            (Type::Number, Decimal("-0"), Some("-0.0")),
            (Type::Decimal, Number(45.7), Some("45.7")),
            (Type::Decimal, Number(0.1 + 0.2), None),
            (Type::Decimal, Number(f64::NAN), None),
            (Type::Decimal, Text("1."), None),
            (Type::Decimal, Text("1.5e3"), None),
            (Type::Boolean, Decimal("1.0"), Some("true")),
            (Type::Boolean, Text("Y"), None),
            (Type::Date, Timestamp("2026-01-02T00:00:00.000"), Some("2026-01-02")),
            (Type::Date, Timestamp("2026-01-02T00:00:01"), None),
            (Type::Date, Text("2100-02-29"), None),
            (Type::Date, Text("2026-1-2"), None),
            (Type::Time, Text("24:00:00"), None),
            (Type::Timestamp, Text("2026-01-02T03:04:05.123456789012Z"), Some("2026-01-02T03:04:05.123456789012+00:00")),
            (Type::Timestamp, Text("2026-01-02 03:04:05-07"), Some("2026-01-02T03:04:05-07:00")),
            (Type::Timestamp, Text("2026-01-02 03:04:05+05:45"), Some("2026-01-02T03:04:05+05:45")),
            (Type::Timestamp, Text("2026-01-02"), None),
            (Type::Timestamp, Text("2026-01-02 03:04:05 "), None),
            (Type::Timestamp, Text("2026-01-02ä03:04:05"), None),
            (Type::Timestamp, Text("2026-01-02 03:04:05+ä1"), None),
            (Type::Binary, Text("abc"), None),
            (Type::Text, Binary(b"abc"), None),
            (Type::Text, Null, Some("null")),
        ];
        for (kind, raw, wanted) in cases {
            assert_eq!(converted(*kind, *raw).as_deref(), *wanted, "{raw:?} as {kind:?}");
        }
    }
}
