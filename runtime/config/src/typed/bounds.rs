//! The bounds a flow declares for its inputs. Decimals are compared digit by digit.

use std::cmp::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use spillgate_model::{Value, limits};

use crate::plan::Input;

use super::Problem;

impl Input {
    /// Whether a value of this input's type keeps its bounds. `Err` says which it breaks. NULL keeps all.
    pub fn check(&self, value: &Value) -> Result<(), Problem> {
        // Characters are only counted where there is a bound for them.
        let bounded = self.min_length.is_some() || self.max_length.is_some();
        match value {
            Value::Null => return Ok(()),
            Value::List(items) => {
                self.check_count(items.len())?;
                return items.iter().try_for_each(|item| self.check_item(item));
            }
            Value::Text(text) if bounded => self.check_length(text.chars().count(), "character")?,
            Value::Binary(bytes) if bounded => self.check_length(bytes.len(), "byte")?,
            _ => {}
        }
        self.check_item(value)
    }

    /// The number of a list's items: at least one, at most as many as a statement takes.
    pub fn check_count(&self, count: usize) -> Result<(), Problem> {
        match count {
            0 => Err("must have at least 1 item".into()),
            count if count > limits::LIST_ITEMS => Err(format!("has more than {} items", limits::LIST_ITEMS).into()),
            count => self.check_length(count, "item"),
        }
    }

    /// `min`, `max` and `one_of` of a single value (of one item, in a list).
    pub fn check_item(&self, value: &Value) -> Result<(), Problem> {
        let beyond = |bound: &Option<Value>, wrong| bound.as_ref().filter(|bound| compare(value, bound) == Some(wrong)).map(show);
        if let Some(least) = beyond(&self.min, Ordering::Less) {
            return Err(format!("must be at least {least}").into());
        }
        if let Some(most) = beyond(&self.max, Ordering::Greater) {
            return Err(format!("must be at most {most}").into());
        }
        let same = |allowed: &Value| allowed == value || compare(allowed, value) == Some(Ordering::Equal);
        if !self.one_of.is_empty() && !self.one_of.iter().any(same) {
            let allowed: Vec<String> = self.one_of.iter().map(show).collect();
            return Err(format!("must be one of {}", allowed.join(", ")).into());
        }
        Ok(())
    }

    fn check_length(&self, length: usize, unit: &str) -> Result<(), Problem> {
        let units = |count: usize| format!("{count} {unit}{}", if count == 1 { "" } else { "s" });
        match (self.min_length, self.max_length) {
            (Some(least), _) if length < least => Err(format!("must have at least {}, has {length}", units(least)).into()),
            (_, Some(most)) if length > most => Err(format!("must have at most {}, has {length}", units(most)).into()),
            _ => Ok(()),
        }
    }
}

/// Orders two values of one type where the type has an order. Timestamps with a zone have none here.
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

fn zoned(timestamp: &str) -> bool {
    timestamp.get(11..).is_some_and(|clock| clock.contains(['Z', '+', '-']))
}

fn compare_decimals(left: &str, right: &str) -> Ordering {
    let (left, right) = (Digits::of(left), Digits::of(right));
    match (left.negative, right.negative) {
        (false, true) => Ordering::Greater,
        (true, false) => Ordering::Less,
        (false, false) => left.magnitude(&right),
        (true, true) => right.magnitude(&left),
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
    fn magnitude(&self, other: &Digits<'_>) -> Ordering {
        let whole = self.whole.len().cmp(&other.whole.len()).then_with(|| self.whole.cmp(other.whole));
        whole.then_with(|| self.fraction.cmp(other.fraction))
    }
}

/// A bound or allowed value in words.
fn show(value: &Value) -> String {
    match value {
        Value::Integer(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::Boolean(value) => value.to_string(),
        Value::Decimal(text) | Value::Text(text) | Value::Date(text) | Value::Time(text) | Value::Timestamp(text) => text.to_string(),
        Value::Binary(bytes) => STANDARD.encode(bytes),
        Value::Null => "null".into(),
        Value::List(_) => "a list".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_compared_to_the_digit() {
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
}
