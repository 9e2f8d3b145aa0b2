//! One value from text, JSON or TOML into one type: the fixed rule for every type.
//!
//! | type | JSON | path or query |
//! |---|---|---|
//! | integer | a number or text of digits with an optional minus, from -2^63 to 2^63-1; no fraction, no exponent | the same digits |
//! | number | a number that is finite as a double, or its text | its text |
//! | decimal | a number or text of digits with optional sign and point; no exponent; every digit kept | the same text |
//! | text | a string, never looked at; no NUL character | as it is |
//! | boolean | true or false | `true` or `false` |
//! | date, time, timestamp | text that is a real date or time (ISO 8601) | the same text |
//! | binary | text in base64 with padding | the same text |
//!
//! Invariants
//! 1. A value is taken exactly or refused; nothing is rounded, shortened or guessed.
//! 2. The texts of decimals, dates, times and timestamps that come out are canonical (see [`spillgate_model::Type`]).
//! 3. A problem never repeats what a caller sent.

mod bounds;
mod calendar;

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use spillgate_model::{Type, Value};

use crate::raw::Raw;

pub(crate) use bounds::compare;

/// What is wrong with a value, as the end of the sentence "NAME …".
pub type Problem = Cow<'static, str>;

/// Reads a value of `kind` from text, as query strings and paths carry it.
pub fn from_text(kind: Type, text: &str) -> Result<Value, Problem> {
    let read = match kind {
        Type::Text if text.contains('\0') => return Err(Cow::Borrowed("holds a NUL character, which databases cut or refuse")),
        Type::Text => Some(Value::Text(text.into())),
        Type::Integer => integer(text),
        Type::Number => number(text),
        Type::Decimal => decimal(text),
        Type::Boolean => boolean(text),
        Type::Date => calendar::date(text).map(|date| Value::Date(date.into())),
        Type::Time => calendar::time(text).map(|time| Value::Time(time.into())),
        Type::Timestamp => calendar::timestamp(text).map(|timestamp| Value::Timestamp(timestamp.into())),
        Type::Binary => STANDARD.decode(text).ok().map(|bytes| Value::Binary(bytes.into())),
    };
    read.ok_or_else(|| mismatch(kind, fault_of(kind, text)))
}

/// Reads a value of `kind` from the JSON text of one value, which is well-formed.
pub fn from_json(kind: Type, json: &str) -> Result<Value, Problem> {
    let numeric = matches!(kind, Type::Integer | Type::Number | Type::Decimal);
    match json_kind(json) {
        "text" if kind != Type::Boolean => {
            let inner = &json[1..json.len() - 1];
            if !inner.contains('\\') {
                return from_text(kind, inner);
            }
            let unescaped: String = serde_json::from_str(json).map_err(|_| Cow::Borrowed("holds an escape that is no character"))?;
            from_text(kind, &unescaped)
        }
        "true or false" if kind == Type::Boolean => from_text(kind, json),
        "a number" if numeric => from_text(kind, json),
        other => Err(mismatch(kind, other)),
    }
}

/// What a JSON text holds.
pub fn json_kind(json: &str) -> &'static str {
    match json.as_bytes().first() {
        Some(b'"') => "text",
        Some(b'[') => "a list",
        Some(b'{') => "an object",
        Some(b't' | b'f') => "true or false",
        Some(b'n') => "null",
        _ => "a number",
    }
}

/// Reads a value of `kind` as a file writes it: a TOML value of that type, or text of that form where TOML has no such type.
pub(crate) fn from_raw(kind: Type, raw: &Raw) -> Result<Value, Problem> {
    let refused = || mismatch(kind, &raw.show());
    let read = |text: &str| from_text(kind, text).map_err(|_| refused());
    match (kind, raw) {
        (Type::Text, Raw::Text(text)) => from_text(kind, text),
        (Type::Integer | Type::Number | Type::Decimal, Raw::Integer(text)) => read(text),
        // TOML writes a plus where no other number has one.
        (Type::Number | Type::Decimal, Raw::Float(text)) => read(text.strip_prefix('+').unwrap_or(text)),
        (Type::Boolean, Raw::Boolean(value)) => Ok(Value::Boolean(*value)),
        (Type::Date | Type::Time | Type::Timestamp, Raw::Datetime(text)) => read(text),
        (Type::Decimal | Type::Date | Type::Time | Type::Timestamp | Type::Binary, Raw::Text(text)) => read(text),
        _ => Err(refused()),
    }
}

fn mismatch(kind: Type, found: &str) -> Problem {
    let expected = match kind {
        Type::Integer => "an integer (digits only, from -9223372036854775808 to 9223372036854775807)",
        Type::Number => "a finite number",
        Type::Decimal => "a decimal (digits with optional sign and point, no exponent)",
        Type::Text => "text",
        Type::Boolean => "true or false",
        Type::Date => "a date (YYYY-MM-DD)",
        Type::Time => "a time (HH:MM:SS)",
        Type::Timestamp => "a timestamp (YYYY-MM-DDTHH:MM:SS, optional fraction and zone)",
        Type::Binary => "base64 with padding",
    };
    Cow::Owned(format!("expected {expected}, found {found}"))
}

/// What a text that did not fit has in it.
fn fault_of(kind: Type, text: &str) -> &'static str {
    match kind {
        _ if text.is_empty() => "empty text",
        _ if !is_number(text) => "other text",
        Type::Number => "a number beyond a double",
        Type::Integer | Type::Decimal if text.contains(['e', 'E']) => "a number with an exponent",
        Type::Integer | Type::Decimal if text.contains('.') => "a number with a fraction",
        Type::Integer | Type::Decimal => "a number out of range",
        _ => "a number",
    }
}

fn boolean(text: &str) -> Option<Value> {
    matches!(text, "true" | "false").then(|| Value::Boolean(text == "true"))
}

fn integer(text: &str) -> Option<Value> {
    let plain = text.strip_prefix('-').unwrap_or(text).bytes().all(|byte| byte.is_ascii_digit());
    // The parser would also take a leading plus.
    text.parse().ok().filter(|_| plain).map(Value::Integer)
}

fn number(text: &str) -> Option<Value> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && is_number(text)).map(Value::Number)
}

/// Kept digit by digit; a plus sign goes.
fn decimal(text: &str) -> Option<Value> {
    let kept = text.strip_prefix('+').unwrap_or(text);
    let unsigned = text.strip_prefix('-').unwrap_or(kept);
    let (whole, fraction) = split(unsigned, ['.']);
    (all_digits(whole) && fraction.is_none_or(all_digits)).then(|| Value::Decimal(kept.into()))
}

/// The number grammar of JSON: what a double's parser takes beyond it (`inf`, `.5`, `+1`) is no number here.
fn is_number(text: &str) -> bool {
    let (mantissa, exponent) = split(text.strip_prefix('-').unwrap_or(text), ['e', 'E']);
    let (whole, fraction) = split(mantissa, ['.']);
    let exponent = exponent.map(|text| text.strip_prefix(['+', '-']).unwrap_or(text));
    let sound_whole = all_digits(whole) && (whole == "0" || !whole.starts_with('0'));
    sound_whole && fraction.is_none_or(all_digits) && exponent.is_none_or(all_digits)
}

fn split<const MARKS: usize>(text: &str, marks: [char; MARKS]) -> (&str, Option<&str>) {
    text.split_once(marks).map_or((text, None), |(before, after)| (before, Some(after)))
}

fn all_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
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
        for (text, kept) in [("-123.450", "-123.450"), ("+1", "1"), ("0.10", "0.10")] {
            assert_eq!(from_text(Type::Decimal, text), Ok(Value::Decimal(kept.into())));
        }
        for text in ["1e3", "1.", ".", ".5", "", "-", "1,5", "0x1", "inf", "--1"] {
            assert!(from_text(Type::Decimal, text).is_err(), "{text}");
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
        assert!(from_raw(Type::Text, &Raw::Text("a\0b".into())).is_err(), "databases cut or refuse a NUL");
    }
}
