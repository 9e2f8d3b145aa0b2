//! The bounds a flow declares for its inputs. Decimals are compared digit by digit.

use std::borrow::Cow;
use std::cmp::Ordering;

use spillgate_config::plan::Input;
use spillgate_model::{Value, limits};

use super::convert::Problem;

/// `min`, `max` and `one_of` of a single value (of each item, in a list).
pub(super) fn check(input: &Input, value: &Value) -> Result<(), Problem> {
    if let Some(min) = input.min.as_ref().filter(|min| compare(value, min) == Some(Ordering::Less)) {
        return Err(Cow::Owned(format!("must be at least {}", show(min))));
    }
    if let Some(max) = input.max.as_ref().filter(|max| compare(value, max) == Some(Ordering::Greater)) {
        return Err(Cow::Owned(format!("must be at most {}", show(max))));
    }
    let allowed = |known: &Value| known == value || compare(known, value) == Some(Ordering::Equal);
    if !input.one_of.is_empty() && !input.one_of.iter().any(allowed) {
        let shown: Vec<String> = input.one_of.iter().map(show).collect();
        return Err(Cow::Owned(format!("must be one of {}", shown.join(", "))));
    }
    Ok(())
}

/// `min_length` and `max_length` of text (characters) and binary (bytes).
pub(super) fn check_length(input: &Input, value: &Value) -> Result<(), Problem> {
    if input.min_length.is_none() && input.max_length.is_none() {
        return Ok(());
    }
    match value {
        Value::Text(text) => within(input, text.chars().count(), "characters"),
        Value::Binary(bytes) => within(input, bytes.len(), "bytes"),
        _ => Ok(()),
    }
}

/// The number of a list's items: at least one, at most as many as a statement takes.
pub(super) fn check_items(input: &Input, count: usize) -> Result<(), Problem> {
    if count == 0 {
        return Err(Cow::Borrowed("must have at least 1 item"));
    }
    if count > limits::LIST_ITEMS {
        return Err(Cow::Owned(format!("has more than {} items", limits::LIST_ITEMS)));
    }
    within(input, count, "items")
}

fn within(input: &Input, length: usize, unit: &str) -> Result<(), Problem> {
    if let Some(min) = input.min_length.filter(|min| length < *min) {
        return Err(Cow::Owned(format!("must have at least {min} {unit}")));
    }
    if let Some(max) = input.max_length.filter(|max| length > *max) {
        return Err(Cow::Owned(format!("must have at most {max} {unit}")));
    }
    Ok(())
}

/// Orders two values of one type where the type has an order. Timestamps with a zone have none here.
fn compare(one: &Value, other: &Value) -> Option<Ordering> {
    match (one, other) {
        (Value::Integer(one), Value::Integer(other)) => Some(one.cmp(other)),
        (Value::Number(one), Value::Number(other)) => one.partial_cmp(other),
        (Value::Decimal(one), Value::Decimal(other)) => Some(compare_decimals(one, other)),
        (Value::Date(one), Value::Date(other)) | (Value::Time(one), Value::Time(other)) => Some(one.cmp(other)),
        (Value::Timestamp(one), Value::Timestamp(other)) if !zoned(one) && !zoned(other) => Some(one.cmp(other)),
        _ => None,
    }
}

fn zoned(timestamp: &str) -> bool {
    timestamp.get(11..).is_some_and(|clock| clock.contains(['Z', '+', '-']))
}

fn compare_decimals(one: &str, other: &str) -> Ordering {
    let (one, other) = (Digits::of(one), Digits::of(other));
    match (one.negative, other.negative) {
        (false, true) => Ordering::Greater,
        (true, false) => Ordering::Less,
        (false, false) => one.compare_size(&other),
        (true, true) => other.compare_size(&one),
    }
}

/// A decimal without the zeros that mean nothing.
struct Digits<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
}

impl<'a> Digits<'a> {
    fn of(text: &'a str) -> Self {
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        let zero = whole.is_empty() && fraction.is_empty();
        Digits { negative: unsigned.len() < text.len() && !zero, whole, fraction }
    }
    fn compare_size(&self, other: &Self) -> Ordering {
        let whole = self.whole.len().cmp(&other.whole.len()).then_with(|| self.whole.cmp(other.whole));
        whole.then_with(|| self.fraction.cmp(other.fraction))
    }
}

/// A bound as the flow file writes it.
fn show(value: &Value) -> String {
    match value {
        Value::Integer(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::Boolean(value) => value.to_string(),
        Value::Decimal(text) | Value::Text(text) | Value::Date(text) | Value::Time(text) | Value::Timestamp(text) => text.to_string(),
        Value::Null => "null".into(),
        Value::Binary(_) | Value::List(_) => "the listed values".into(),
    }
}
