//! One value as it came into one type: the fixed rule for every type.
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

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use spillgate_model::{Type, Value};

use super::calendar;

/// What is wrong with a field, as the end of the sentence "FIELD …".
pub(super) type Problem = Cow<'static, str>;

/// A path or query part whose percent-encoding is broken.
pub(super) const UNREADABLE: Problem = Cow::Borrowed("is not percent-encoded UTF-8");

/// A value as it came.
#[derive(Clone, Debug)]
pub(super) enum Raw<'a> {
    /// From a path or query: read by the input's type.
    Text(Cow<'a, str>),
    /// The JSON text of one value, well-formed.
    Json(&'a str),
}

impl Raw<'_> {
    pub(super) fn is_null(&self) -> bool {
        matches!(self, Raw::Json("null"))
    }
}

/// What a JSON text holds.
pub(super) fn kind_of(json: &str) -> &'static str {
    match json.as_bytes().first() {
        Some(b'"') => "text",
        Some(b'[') => "a list",
        Some(b'{') => "an object",
        Some(b't' | b'f') => "true or false",
        Some(b'n') => "null",
        _ => "a number",
    }
}

/// Reads one value as `kind`.
pub(super) fn scalar(kind: Type, raw: &Raw<'_>) -> Result<Value, Problem> {
    match raw {
        Raw::Text(text) if kind == Type::Boolean => boolean(text).ok_or_else(|| found(kind, "other text")),
        Raw::Text(text) => from_text(kind, text),
        Raw::Json(json) => from_json(kind, json),
    }
}

fn from_json(kind: Type, json: &str) -> Result<Value, Problem> {
    match kind_of(json) {
        "text" if kind != Type::Boolean => {
            let inner = &json[1..json.len() - 1];
            if !inner.contains('\\') {
                return from_text(kind, inner);
            }
            let unescaped: String = serde_json::from_str(json).map_err(|_| Cow::Borrowed("holds an escape that is no character"))?;
            from_text(kind, &unescaped)
        }
        "true or false" if kind == Type::Boolean => boolean(json).ok_or_else(|| found(kind, "other text")),
        "a number" => match kind {
            Type::Integer => integer(json).ok_or_else(|| found(kind, number_fault(json))),
            Type::Number => number(json).ok_or_else(|| found(kind, "a number beyond a double")),
            Type::Decimal => decimal(json).ok_or_else(|| found(kind, number_fault(json))),
            _ => Err(found(kind, "a number")),
        },
        other => Err(found(kind, other)),
    }
}

fn from_text(kind: Type, text: &str) -> Result<Value, Problem> {
    let read = match kind {
        Type::Text if text.contains('\0') => return Err(Cow::Borrowed("holds a NUL character, which databases cut or refuse")),
        Type::Text => Some(Value::Text(text.into())),
        Type::Integer => integer(text),
        Type::Number => number(text),
        Type::Decimal => decimal(text),
        Type::Date => calendar::date(text).map(|date| Value::Date(date.into())),
        Type::Time => calendar::time(text).map(|time| Value::Time(time.into())),
        Type::Timestamp => calendar::timestamp(text).map(|timestamp| Value::Timestamp(timestamp.into())),
        Type::Binary => STANDARD.decode(text).ok().map(|bytes| Value::Binary(bytes.into())),
        Type::Boolean => None,
    };
    read.ok_or_else(|| found(kind, if text.is_empty() { "empty text" } else { number_fault(text) }))
}

fn found(kind: Type, what: &str) -> Problem {
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
    Cow::Owned(format!("expected {expected}, found {what}"))
}

/// What a number or text that did not fit has in it.
fn number_fault(text: &str) -> &'static str {
    if !is_number(text) {
        "other text"
    } else if text.contains(['e', 'E']) {
        "a number with an exponent"
    } else if text.contains('.') {
        "a number with a fraction"
    } else {
        "a number out of range"
    }
}

fn boolean(text: &str) -> Option<Value> {
    match text {
        "true" => Some(Value::Boolean(true)),
        "false" => Some(Value::Boolean(false)),
        _ => None,
    }
}

fn integer(text: &str) -> Option<Value> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    // The parser would also take a leading plus.
    text.parse().ok().filter(|_| plain).map(Value::Integer)
}

fn number(text: &str) -> Option<Value> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && is_number(text)).map(Value::Number)
}

fn decimal(text: &str) -> Option<Value> {
    let kept = text.strip_prefix('+').unwrap_or(text);
    let unsigned = if kept.len() < text.len() { kept } else { text.strip_prefix('-').unwrap_or(text) };
    let (whole, fraction) = match unsigned.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (unsigned, None),
    };
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (digits(whole) && fraction.is_none_or(digits)).then(|| Value::Decimal(kept.into()))
}

/// The number grammar of JSON: what a double's parser takes beyond it (`inf`, `.5`, `+1`) is no number here.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let exponent = exponent.map(|text| text.strip_prefix(['+', '-']).unwrap_or(text));
    digits(whole) && (whole == "0" || !whole.starts_with('0')) && fraction.is_none_or(digits) && exponent.is_none_or(digits)
}
