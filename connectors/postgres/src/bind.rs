//! Values on their way to the server.
//!
//! Binary where that is the very same value (integers in range, booleans, doubles, bytes); all else as text, which Postgres' own
//! input functions read exactly. What an input function would round or shift in silence is refused.

use std::error::Error;
use std::fmt;

use bytes::{BufMut as _, BytesMut};
use spillgate_model::Value;
use tokio_postgres::types::{Format, IsNull, Kind, ToSql, Type};

/// Why a value does not fit its marker. The driver hands it back as the source of its own error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Misfit {
    #[error("a whole number is out of the range of its target")]
    Range,
    #[error("a whole number has no exact form as a double")]
    Inexact,
    #[error("a timestamp with an offset would lose it in a target without time zone")]
    OffsetLost,
    #[error("a timestamp without offset has no meaning in a target with time zone; give it one, or convert it in the statement")]
    OffsetMissing,
    #[error("a list is bound item by item")]
    List,
}

/// A value in the form in which the driver takes it: by reference, without a box.
pub(crate) struct Bound<'a>(pub(crate) &'a Value);

impl fmt::Debug for Bound<'_> {
    /// The driver writes parameters into its own debug log; callers' values have no place there.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

/// A domain takes what the type below it takes.
fn base(kind: &Type) -> &Type {
    match kind.kind() {
        Kind::Domain(inner) => base(inner),
        _ => kind,
    }
}

impl ToSql for Bound<'_> {
    fn to_sql(&self, target: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let target = base(target);
        match self.0 {
            Value::Null => return Ok(IsNull::Yes),
            Value::Integer(value) => integer(*value, target, out)?,
            Value::Boolean(value) if *target == Type::BOOL => out.put_u8(u8::from(*value)),
            Value::Boolean(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
            Value::Number(value) if *target == Type::FLOAT8 => out.put_f64(*value),
            Value::Number(value) => number(*value, out),
            Value::Binary(bytes) if *target == Type::BYTEA => out.extend_from_slice(bytes),
            Value::Binary(bytes) => hex(bytes, out),
            Value::Timestamp(text) => timestamp(text, target, out)?,
            Value::Decimal(text) | Value::Text(text) | Value::Date(text) | Value::Time(text) => out.extend_from_slice(text.as_bytes()),
            Value::List(_) => return Err(Misfit::List.into()),
        }
        Ok(IsNull::No)
    }
    fn accepts(_target: &Type) -> bool {
        true
    }
    fn encode_format(&self, target: &Type) -> Format {
        let target = base(target);
        let binary = match self.0 {
            Value::Integer(_) => matches!(*target, Type::INT2 | Type::INT4 | Type::INT8),
            Value::Boolean(_) => *target == Type::BOOL,
            Value::Number(_) => *target == Type::FLOAT8,
            Value::Binary(_) => *target == Type::BYTEA,
            _ => false,
        };
        if binary { Format::Binary } else { Format::Text }
    }
    fn to_sql_checked(&self, target: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        self.to_sql(target, out)
    }
}

fn integer(value: i64, target: &Type, out: &mut BytesMut) -> Result<(), Misfit> {
    let exact_up_to = match *target {
        Type::INT2 => {
            out.put_i16(i16::try_from(value).map_err(|_| Misfit::Range)?);
            return Ok(());
        }
        Type::INT4 => {
            out.put_i32(i32::try_from(value).map_err(|_| Misfit::Range)?);
            return Ok(());
        }
        Type::INT8 => {
            out.put_i64(value);
            return Ok(());
        }
        Type::FLOAT8 => 1 << 53,
        Type::FLOAT4 => 1 << 24,
        _ => u64::MAX,
    };
    if value.unsigned_abs() > exact_up_to {
        return Err(Misfit::Inexact);
    }
    text(out, format_args!("{value}"));
    Ok(())
}

fn number(value: f64, out: &mut BytesMut) {
    if value.is_finite() {
        text(out, format_args!("{value:e}"));
    } else if value.is_nan() {
        out.extend_from_slice(b"NaN");
    } else {
        out.extend_from_slice(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
    }
}

fn timestamp(value: &str, target: &Type, out: &mut BytesMut) -> Result<(), Misfit> {
    // A date has no sign after its eleventh letter; a time has none but that of its offset.
    let offset = value.get(11..).is_some_and(|time| time.contains(['+', '-', 'Z']));
    match *target {
        Type::TIMESTAMP | Type::DATE | Type::TIME if offset => return Err(Misfit::OffsetLost),
        Type::TIMESTAMPTZ if !offset && !value.ends_with("infinity") => return Err(Misfit::OffsetMissing),
        _ => out.extend_from_slice(value.as_bytes()),
    }
    Ok(())
}

fn hex(bytes: &[u8], out: &mut BytesMut) {
    out.extend_from_slice(b"\\x");
    for byte in bytes {
        text(out, format_args!("{byte:02x}"));
    }
}

fn text(out: &mut BytesMut, value: fmt::Arguments<'_>) {
    use fmt::Write as _;
    let _the_buffer_grows = out.write_fmt(value);
}
