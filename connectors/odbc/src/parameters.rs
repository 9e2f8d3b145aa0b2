//! Values to bound parameters.
//!
//! Nothing is ever written into a statement's text. Decimals, dates and timestamps travel as their exact digits; text as UTF-16 with its
//! length; NULL in the type the marker has, where driver and database can tell. Text with a NUL letter in it is refused: some drivers
//! would end it there.

use odbc_api::sys::{CDataType, SqlDataType};
use spillgate_model::Value;

use crate::driver::{Diagnostics, Statement};

/// Db2's longest VARCHAR; longer values go as the long types.
const VARCHAR_BYTES: usize = 32_672;

/// How the marker of a NULL is described: asked once, since it can cost a round trip.
pub(crate) type MarkerTypes = Vec<Option<(SqlDataType, usize, i16)>>;

/// Sets and binds all parameters of a statement.
pub(crate) fn bind(statement: &mut Statement, markers: &mut MarkerTypes, values: &[Value], booleans: Booleans) -> Result<(), Diagnostics> {
    if values.iter().any(holds_nul) {
        return Err(Diagnostics::own("22021", "text with a NUL letter in it"));
    }
    let mut index = 0;
    for value in values {
        match value {
            Value::List(items) => {
                for item in items {
                    set(statement, markers, index, item, booleans);
                    index += 1;
                }
            }
            single => {
                set(statement, markers, index, single, booleans);
                index += 1;
            }
        }
    }
    statement.parameters().truncate(index);
    statement.bind_parameters()
}

fn holds_nul(value: &Value) -> bool {
    match value {
        Value::Text(text) => text.contains('\0'),
        Value::List(items) => items.iter().any(holds_nul),
        _ => false,
    }
}

/// How true and false are bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Booleans {
    /// Where a boolean takes no number (Postgres).
    Bit,
    /// As 0 and 1: Db2 for i and older Db2 have no boolean columns.
    SmallInt,
}

fn set(statement: &mut Statement, markers: &mut MarkerTypes, index: usize, value: &Value, booleans: Booleans) {
    let null = match value {
        Value::Null => Some(marker(statement, markers, index)),
        _ => None,
    };
    let parameters = statement.parameters();
    if parameters.len() == index {
        parameters.push(crate::driver::Parameter::empty());
    }
    let parameter = &mut parameters[index];
    match value {
        Value::Null => {
            let (sql_type, size, digits) = null.flatten().unwrap_or((SqlDataType::VARCHAR, 1, 0));
            parameter.set_null(sql_type, size, digits);
        }
        Value::Integer(value) => parameter.set(CDataType::SBigInt, SqlDataType::EXT_BIG_INT, 19, 0, &value.to_ne_bytes()),
        Value::Number(value) => parameter.set(CDataType::Double, SqlDataType::DOUBLE, 15, 0, &value.to_ne_bytes()),
        Value::Boolean(value) => match booleans {
            Booleans::Bit => parameter.set(CDataType::Bit, SqlDataType::EXT_BIT, 1, 0, &[u8::from(*value)]),
            Booleans::SmallInt => parameter.set(CDataType::SShort, SqlDataType::SMALLINT, 5, 0, &i16::from(*value).to_ne_bytes()),
        },
        Value::Decimal(digits) => {
            let (precision, scale) = precision_and_scale(digits);
            parameter.set(CDataType::Char, SqlDataType::DECIMAL, precision, scale, digits.as_bytes());
        }
        Value::Text(text) => set_text(parameter, text),
        Value::Date(text) => parameter.set(CDataType::Char, SqlDataType::DATE, 10, 0, text.as_bytes()),
        Value::Time(text) => match fraction(text) {
            0 => parameter.set(CDataType::Char, SqlDataType::TIME, 8, 0, text.as_bytes()),
            // The standard type has no fraction: as text nothing of it is lost.
            _ => set_text(parameter, text),
        },
        Value::Timestamp(text) if has_offset(text) => set_text(parameter, text),
        Value::Timestamp(text) => {
            let text = with_microseconds(text);
            let digits = fraction(&text);
            let size = 20 + usize::from(digits.unsigned_abs());
            parameter.set(CDataType::Char, SqlDataType::TIMESTAMP, size, digits, text.as_bytes());
        }
        Value::Binary(bytes) => {
            let kind = if bytes.len() > VARCHAR_BYTES { SqlDataType::EXT_LONG_VAR_BINARY } else { SqlDataType::EXT_VAR_BINARY };
            parameter.set(CDataType::Binary, kind, bytes.len().max(1), 0, bytes);
        }
        // Refused by the model: lists are never nested.
        Value::List(_) => parameter.set_null(SqlDataType::VARCHAR, 1, 0),
    }
}

fn set_text(parameter: &mut crate::driver::Parameter, text: &str) {
    let units: Vec<u8> = text.encode_utf16().flat_map(u16::to_ne_bytes).collect();
    let kind = if text.len() > VARCHAR_BYTES { SqlDataType::EXT_LONG_VARCHAR } else { SqlDataType::VARCHAR };
    // The size counts bytes at the database: in UTF-8 there are more of them than letters.
    parameter.set(CDataType::WChar, kind, text.len().max(1), 0, &units);
}

fn marker(statement: &Statement, markers: &mut MarkerTypes, index: usize) -> Option<(SqlDataType, usize, i16)> {
    if markers.len() <= index {
        markers.resize(index + 1, None);
    }
    if markers[index].is_none() {
        let number = u16::try_from(index + 1).ok()?;
        markers[index] = Some(statement.describe_parameter(number).unwrap_or((SqlDataType::VARCHAR, 1, 0)));
    }
    markers[index]
}

/// The smallest DECIMAL(precision, scale) that holds these digits.
fn precision_and_scale(digits: &str) -> (usize, i16) {
    let unsigned = digits.trim_start_matches('-');
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let precision = whole.trim_start_matches('0').len() + fraction.len();
    (precision.max(1), i16::try_from(fraction.len()).unwrap_or(i16::MAX))
}

/// Digits of the fraction of a second.
fn fraction(text: &str) -> i16 {
    let digits = text.split_once('.').map_or(0, |(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count());
    i16::try_from(digits).unwrap_or(i16::MAX)
}

/// The form drivers read, with at least the six digits that are Db2's default: some databases know no shorter form.
fn with_microseconds(timestamp: &str) -> String {
    let mut text = timestamp.replacen('T', " ", 1);
    let digits = fraction(&text);
    if digits == 0 {
        text.push('.');
    }
    (digits..6).for_each(|_| text.push('0'));
    text
}

fn has_offset(timestamp: &str) -> bool {
    timestamp.split_once('T').is_some_and(|(_, clock)| clock.contains(['+', '-', 'Z']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b1_a_decimal_is_bound_with_its_own_precision_and_scale() {
        let tiny = format!("-0.{}1", "0".repeat(30));
        let cases = [("-123.45", (5, 2)), ("0.00", (2, 2)), ("100", (3, 0)), ("0", (1, 0)), (tiny.as_str(), (31, 31))];
        for (digits, wanted) in cases {
            assert_eq!(precision_and_scale(digits), wanted, "{digits}");
        }
    }

    #[test]
    fn a5_a_timestamp_keeps_its_fraction_and_its_offset() {
        assert_eq!(fraction("2026-01-02T03:04:05.123456"), 6);
        assert_eq!(fraction("2026-01-02T03:04:05.123456+01:00"), 6);
        assert_eq!(with_microseconds("2026-01-02T03:04:05"), "2026-01-02 03:04:05.000000");
        assert_eq!(with_microseconds("2026-01-02T03:04:05.123456789012"), "2026-01-02 03:04:05.123456789012");
        assert!(has_offset("2026-01-02T03:04:05-07:00") && !has_offset("2026-01-02T03:04:05"));
    }
}
