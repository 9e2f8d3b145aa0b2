//! Typed values from text and TOML: the one fixed rule for numbers, dates and the rest (written in the reference).
//!
//! Invariants
//! 1. A value is taken exactly or refused; nothing is rounded, shortened or guessed.
//! 2. The texts of decimals, dates, times and timestamps that come out are canonical (see [`spillgate_model::Type`]).

use std::cmp::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use spillgate_model::{Type, Value};

use crate::plan::Input;
use crate::raw::Raw;

/// Reads a value of `kind` from text, as query strings and paths carry it. `Err` says what was expected.
pub fn from_text(kind: Type, text: &str) -> Result<Value, &'static str> {
    match kind {
        Type::Integer => integer(text).map(Value::Integer),
        Type::Number => number(text).map(Value::Number),
        Type::Decimal => decimal(text).map(Value::Decimal),
        Type::Text => Some(Value::Text(text.into())),
        Type::Boolean => matches!(text, "true" | "false").then(|| Value::Boolean(text == "true")),
        Type::Date => date(text).then(|| Value::Date(text.into())),
        Type::Time => time(text).then(|| Value::Time(text.into())),
        Type::Timestamp => timestamp(text).map(Value::Timestamp),
        Type::Binary => STANDARD.decode(text).ok().map(|bytes| Value::Binary(bytes.into())),
    }
    .ok_or(expected(kind))
}

/// What a fault says was expected.
fn expected(kind: Type) -> &'static str {
    match kind {
        Type::Integer => "a whole number of at most 64 bits",
        Type::Number => "a finite number",
        Type::Decimal => "a decimal (digits with optional sign and point, no exponent)",
        Type::Text => "text",
        Type::Boolean => "true or false",
        Type::Date => "a date such as 2026-11-01",
        Type::Time => "a time such as 10:00:00",
        Type::Timestamp => "a timestamp such as 2026-11-01T10:00:00",
        Type::Binary => "text in base64",
    }
}

/// Optional minus and digits, within 64 bits.
fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    all_digits(digits).then(|| text.parse().ok()).flatten()
}

/// A finite double in the usual forms.
fn number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    plain.then(|| text.parse().ok()).flatten().filter(|number: &f64| number.is_finite())
}

/// Sign, digits, point: kept digit by digit; a plus sign goes, a missing zero before the point comes.
fn decimal(text: &str) -> Option<Box<str>> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').map_or((digits, None), |(whole, fraction)| (whole, Some(fraction)));
    let sound = (all_digits(whole) || whole.is_empty() && fraction.is_some()) && fraction.is_none_or(all_digits);
    if !sound {
        return None;
    }
    let mut canonical = String::with_capacity(text.len() + 1);
    canonical.push_str(if negative { "-" } else { "" });
    canonical.push_str(if whole.is_empty() { "0" } else { whole });
    if let Some(fraction) = fraction {
        canonical.push('.');
        canonical.push_str(fraction);
    }
    Some(canonical.into())
}

fn all_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `YYYY-MM-DD` that is in the calendar.
fn date(text: &str) -> bool {
    let fixed = text.len() == 10 && text.bytes().enumerate().all(|(index, byte)| (byte == b'-') == (index == 4 || index == 7));
    fixed && text.parse::<jiff::civil::Date>().is_ok_and(|date| date.year() > 0)
}

/// `HH:MM:SS` with up to twelve digits of a fraction.
fn time(text: &str) -> bool {
    const FRACTION: usize = 12;
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, fraction)| (whole, Some(fraction)));
    let parts: Vec<&str> = whole.split(':').collect();
    let within = |part: &str, limit: u8| part.len() == 2 && all_digits(part) && part.parse::<u8>().is_ok_and(|part| part < limit);
    let sound = matches!(parts[..], [hour, minute, second] if within(hour, 24) && within(minute, 60) && within(second, 60));
    sound && fraction.is_none_or(|fraction| all_digits(fraction) && fraction.len() <= FRACTION)
}

/// Date, `T` or a blank, time, and `Z` or an offset where one is written.
fn timestamp(text: &str) -> Option<Box<str>> {
    let (day, rest) = text.split_once(['T', ' '])?;
    let zone = rest.find(['Z', '+', '-']).unwrap_or(rest.len());
    let (clock, offset) = rest.split_at(zone);
    let sound_offset = match offset {
        "" | "Z" => true,
        offset => offset[1..].len() == 5 && time(&format!("{}:00", &offset[1..])),
    };
    (date(day) && time(clock) && sound_offset).then(|| format!("{day}T{clock}{offset}").into())
}

/// Reads a value of `kind` as a file writes it: a TOML value of that type, or text of that form where TOML has no such type.
pub(crate) fn from_raw(kind: Type, raw: &Raw) -> Result<Value, String> {
    let refused = || format!("expected {}, found {}", expected(kind), raw.show());
    let read = |text: &str| from_text(kind, text).map_err(|_| refused());
    match (kind, raw) {
        (Type::Integer | Type::Number | Type::Decimal, Raw::Integer(text)) => read(text),
        (Type::Number | Type::Decimal, Raw::Float(text)) => read(text),
        (Type::Boolean, Raw::Boolean(value)) => Ok(Value::Boolean(*value)),
        (Type::Date | Type::Time | Type::Timestamp, Raw::Datetime(text)) => read(text),
        (Type::Decimal | Type::Text | Type::Date | Type::Time | Type::Timestamp | Type::Binary, Raw::Text(text)) => read(text),
        _ => Err(refused()),
    }
}

/// Compares two decimals (or integers) in the text form of [`Value::Decimal`], digit by digit.
pub fn compare_decimals(left: &str, right: &str) -> Ordering {
    let (left, right) = (Digits::of(left), Digits::of(right));
    match (left.negative, right.negative) {
        (false, true) => Ordering::Greater,
        (true, false) => Ordering::Less,
        (false, false) => left.magnitude(&right),
        (true, true) => right.magnitude(&left),
    }
}

struct Digits<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
}

impl<'a> Digits<'a> {
    fn of(text: &'a str) -> Self {
        let unsigned = text.trim_start_matches(['-', '+']);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        let zero = whole.is_empty() && fraction.is_empty();
        Digits { negative: text.starts_with('-') && !zero, whole, fraction }
    }
    fn magnitude(&self, other: &Digits<'_>) -> Ordering {
        let whole = self.whole.len().cmp(&other.whole.len()).then_with(|| self.whole.cmp(other.whole));
        whole.then_with(|| self.fraction.cmp(other.fraction))
    }
}

/// Compares numbers or dates of the same type; `None` for values that have no order here.
pub(crate) fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Integer(left), Value::Integer(right)) => Some(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => left.partial_cmp(right),
        (Value::Decimal(left), Value::Decimal(right)) => Some(compare_decimals(left, right)),
        (Value::Date(left), Value::Date(right)) => Some(left.cmp(right)),
        (Value::Timestamp(left), Value::Timestamp(right)) if !zoned(left) && !zoned(right) => Some(left.cmp(right)),
        _ => None,
    }
}

/// Timestamps with an offset have no order as texts.
fn zoned(timestamp: &str) -> bool {
    timestamp.get(11..).is_some_and(|clock| clock.contains(['Z', '+', '-']))
}

fn same(left: &Value, right: &Value) -> bool {
    compare(left, right).map_or_else(|| left == right, Ordering::is_eq)
}

impl Input {
    /// Whether a value of this input's type keeps its bounds. `Err` says which it breaks. NULL keeps all.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        match value {
            Value::Null => Ok(()),
            Value::List(items) => {
                self.check_length(items.len(), "items")?;
                items.iter().try_for_each(|item| self.check_one(item))
            }
            Value::Text(text) if !self.list => {
                self.check_length(text.chars().count(), "characters")?;
                self.check_one(value)
            }
            Value::Binary(bytes) if !self.list => {
                self.check_length(bytes.len(), "bytes")?;
                self.check_one(value)
            }
            value => self.check_one(value),
        }
    }

    fn check_length(&self, length: usize, unit: &str) -> Result<(), String> {
        match (self.min_length, self.max_length) {
            (Some(least), _) if length < least => Err(format!("must have at least {least} {unit}, has {length}")),
            (_, Some(most)) if length > most => Err(format!("must have at most {most} {unit}, has {length}")),
            _ => Ok(()),
        }
    }

    fn check_one(&self, value: &Value) -> Result<(), String> {
        let beyond = |bound: &Option<Value>, wrong| bound.as_ref().filter(|bound| compare(value, bound) == Some(wrong)).map(show);
        if let Some(least) = beyond(&self.min, Ordering::Less) {
            return Err(format!("must be at least {least}"));
        }
        if let Some(most) = beyond(&self.max, Ordering::Greater) {
            return Err(format!("must be at most {most}"));
        }
        if !self.one_of.is_empty() && !self.one_of.iter().any(|allowed| same(allowed, value)) {
            let allowed: Vec<String> = self.one_of.iter().map(show).collect();
            return Err(format!("must be one of {}", allowed.join(", ")));
        }
        Ok(())
    }
}

/// A bound or allowed value in words.
fn show(value: &Value) -> String {
    match value {
        Value::Integer(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::Boolean(value) => value.to_string(),
        Value::Decimal(text) | Value::Date(text) | Value::Time(text) | Value::Timestamp(text) => text.to_string(),
        Value::Text(text) => format!("\"{text}\""),
        Value::Binary(bytes) => STANDARD.encode(bytes),
        Value::Null => "null".into(),
        Value::List(_) => "a list".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_exact_to_64_bits_and_nothing_else() {
        for text in ["0", "-1", "9223372036854775807", "-9223372036854775808", "007"] {
            assert!(from_text(Type::Integer, text).is_ok(), "{text}");
        }
        for text in ["", "-", "+1", "1.0", "1e3", " 1", "1_000", "9223372036854775808", "null"] {
            assert!(from_text(Type::Integer, text).is_err(), "{text}");
        }
    }

    #[test]
    fn decimals_keep_every_digit() {
        for (text, kept) in [("-123.450", "-123.450"), ("+1", "1"), (".5", "0.5"), ("-.5", "-0.5"), ("0.10", "0.10")] {
            assert_eq!(from_text(Type::Decimal, text), Ok(Value::Decimal(kept.into())));
        }
        for text in ["1e3", "1.", ".", "", "-", "1,5", "0x1", "inf", "--1"] {
            assert!(from_text(Type::Decimal, text).is_err(), "{text}");
        }
        for (left, right, order) in [
            ("1.10", "1.1", Ordering::Equal),
            ("-0", "0", Ordering::Equal),
            ("-2", "-10", Ordering::Greater),
            ("0.9", "0.10", Ordering::Greater),
            ("99999999999999999999.1", "99999999999999999999.2", Ordering::Less),
        ] {
            assert_eq!(compare_decimals(left, right), order, "{left} {right}");
        }
    }

    #[test]
    fn numbers_are_finite_and_dates_are_in_the_calendar() {
        assert!(from_text(Type::Number, "1e300").is_ok());
        for text in ["inf", "NaN", "1e999", "infinity"] {
            assert!(from_text(Type::Number, text).is_err(), "{text}");
        }
        assert!(from_text(Type::Date, "2024-02-29").is_ok());
        for text in ["2023-02-29", "2024-2-9", "20240229", "0000-01-01", "2024-02-29T00:00:00"] {
            assert!(from_text(Type::Date, text).is_err(), "{text}");
        }
        for text in ["2026-01-02T03:04:05", "2026-01-02 03:04:05.123456789012", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05+01:00"] {
            let canonical = text.replace(' ', "T");
            assert_eq!(from_text(Type::Timestamp, text), Ok(Value::Timestamp(canonical.into())));
        }
        for text in ["2026-01-02", "2026-01-02T25:00:00", "2026-01-02T03:04", "2026-01-02T03:04:05+1", "2026-01-02T03:04:05.1234567890123"]
        {
            assert!(from_text(Type::Timestamp, text).is_err(), "{text}");
        }
    }

    #[test]
    fn text_that_looks_like_a_number_stays_text() {
        assert_eq!(from_text(Type::Text, "12e3"), Ok(Value::Text("12e3".into())));
        assert!(from_raw(Type::Integer, &Raw::Text("12".into())).is_err());
        assert!(from_raw(Type::Text, &Raw::Integer("12".into())).is_err());
    }
}
