//! A TOML value whose form no key fixes: defaults, bounds, stubbed rows, replies. Numbers keep their digits as written.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use spillgate_model::Datum;
use toml::Spanned;
use toml::de::{DeInteger, DeValue};

use crate::place::{FileText, Located, Place};

/// The value.
#[derive(Clone, Debug)]
pub(crate) enum Raw {
    Text(String),
    /// Decimal digits, whatever the base they were written in.
    Integer(String),
    Float(String),
    Boolean(bool),
    /// As TOML writes it.
    Datetime(String),
    List(Vec<Located<Raw>>),
    Table(Vec<(Located<String>, Located<Raw>)>),
}

impl Raw {
    pub(crate) fn read(file: &Arc<FileText>, value: &DeValue<'_>) -> Raw {
        let inner =
            |entry: &Spanned<DeValue<'_>>| Located { value: Raw::read(file, entry.get_ref()), place: Place::at(file, entry.span().start) };
        match value {
            DeValue::String(text) => Raw::Text(text.to_string()),
            DeValue::Integer(number) => Raw::Integer(digits(number)),
            DeValue::Float(number) => Raw::Float(number.as_str().to_owned()),
            DeValue::Boolean(value) => Raw::Boolean(*value),
            DeValue::Datetime(value) => Raw::Datetime(value.to_string()),
            DeValue::Array(items) => Raw::List(items.iter().map(inner).collect()),
            DeValue::Table(table) => {
                let name = |name: &Spanned<std::borrow::Cow<'_, str>>| Located {
                    value: name.get_ref().to_string(),
                    place: Place::at(file, name.span().start),
                };
                Raw::Table(table.iter().map(|(key, entry)| (name(key), inner(entry))).collect())
            }
        }
    }

    /// As a fault shows it: short, on one line.
    pub(crate) fn show(&self) -> String {
        match self {
            Raw::Text(text) => format!("\"{}\"", printable(text)),
            Raw::Integer(text) | Raw::Float(text) | Raw::Datetime(text) => printable(text),
            Raw::Boolean(value) => value.to_string(),
            Raw::List(_) => "a list".into(),
            Raw::Table(_) => "a table".into(),
        }
    }

    /// What a caller would send, or a reply holds: JSON with the digits as written; dates are text.
    pub(crate) fn to_json(&self) -> String {
        let mut out = String::new();
        self.write_json(&mut out);
        out
    }

    fn write_json(&self, out: &mut String) {
        match self {
            Raw::Text(text) | Raw::Datetime(text) => write_text(text, out),
            Raw::Integer(text) => out.push_str(text),
            Raw::Float(text) => match text.trim_start_matches('+') {
                // JSON has no such numbers: as replies write them.
                text if text.contains("inf") || text.contains("nan") => write_text(text, out),
                text => out.push_str(text),
            },
            Raw::Boolean(value) => {
                let _ = write!(out, "{value}");
            }
            Raw::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    item.value.write_json(out);
                }
                out.push(']');
            }
            Raw::Table(entries) => {
                out.push('{');
                for (index, (name, value)) in entries.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    write_text(&name.value, out);
                    out.push(':');
                    value.value.write_json(out);
                }
                out.push('}');
            }
        }
    }

    /// The tree a step gives. `Err` where a number has no place in it.
    pub(crate) fn to_datum(&self) -> Result<Datum, String> {
        Ok(match self {
            Raw::Text(text) | Raw::Datetime(text) => Datum::Text(Arc::from(&**text)),
            Raw::Integer(text) => Datum::Integer(text.parse().map_err(|_| format!("{text} does not fit 64 bits"))?),
            Raw::Float(text) => Datum::Number(text.parse().map_err(|_| format!("{text} is no number"))?),
            Raw::Boolean(value) => Datum::Boolean(*value),
            Raw::List(items) => Datum::List(items.iter().map(|item| item.value.to_datum()).collect::<Result<_, _>>()?),
            Raw::Table(entries) => {
                let one = |(name, value): &(Located<String>, Located<Raw>)| Ok((Arc::from(&*name.value), value.value.to_datum()?));
                Datum::Map(Arc::new(entries.iter().map(one).collect::<Result<BTreeMap<_, _>, String>>()?))
            }
        })
    }
}

fn write_text(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

/// Decimal digits of a TOML integer; one that fits no 128 bits keeps its own form and is refused by its reader.
fn digits(number: &DeInteger<'_>) -> String {
    i128::from_str_radix(number.as_str(), number.radix()).map_or_else(|_| number.to_string(), |number| number.to_string())
}

/// A TOML integer, exact.
pub(crate) fn integer(number: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Text from outside, fit for a message.
pub(crate) fn printable(text: &str) -> String {
    const SHOWN: usize = 60;
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}
