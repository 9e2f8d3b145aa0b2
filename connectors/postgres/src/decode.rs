//! Values on their way from the server: raw bytes in, exact cells out.

use std::error::Error;
use std::fmt::Display;

use spillgate_connector::exact::{self, CellError, Raw};
use spillgate_model::{RowsBuilder, Type};
use tokio_postgres::types::{FromSql, Kind, Type as Sent};

use crate::numeric::Numeric;
use crate::time::{Date, Time, Timestamp};

/// How the bytes of one column are read. Chosen once, when the statement is prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decoder {
    Boolean,
    Int2,
    Int4,
    Int8,
    Oid,
    Float4,
    Float8,
    Numeric,
    Text,
    /// One byte, none of it where that is zero.
    Char,
    /// Blank-padded to its length; the padding is no part of the value.
    Padded,
    Jsonb,
    Uuid,
    Bytes,
    Date,
    Time,
    Timestamp,
    TimestampZoned,
    Void,
}

impl Decoder {
    /// `None` for a type that has no exact form here.
    pub(crate) fn of(sent: &Sent) -> Option<Self> {
        Some(match *sent {
            Sent::BOOL => Decoder::Boolean,
            Sent::INT2 => Decoder::Int2,
            Sent::INT4 => Decoder::Int4,
            Sent::INT8 => Decoder::Int8,
            Sent::OID => Decoder::Oid,
            Sent::FLOAT4 => Decoder::Float4,
            Sent::FLOAT8 => Decoder::Float8,
            Sent::NUMERIC => Decoder::Numeric,
            Sent::TEXT | Sent::VARCHAR | Sent::NAME | Sent::UNKNOWN | Sent::JSON | Sent::XML => Decoder::Text,
            Sent::CHAR => Decoder::Char,
            Sent::BPCHAR => Decoder::Padded,
            Sent::JSONB => Decoder::Jsonb,
            Sent::UUID => Decoder::Uuid,
            Sent::BYTEA => Decoder::Bytes,
            Sent::DATE => Decoder::Date,
            Sent::TIME => Decoder::Time,
            Sent::TIMESTAMP => Decoder::Timestamp,
            Sent::TIMESTAMPTZ => Decoder::TimestampZoned,
            Sent::VOID => Decoder::Void,
            _ => match sent.kind() {
                Kind::Enum(_) => Decoder::Text,
                Kind::Domain(inner) => Decoder::of(inner)?,
                Kind::Simple if sent.name() == "citext" => Decoder::Text,
                _ => return None,
            },
        })
    }

    /// The type of its cells.
    pub(crate) fn kind(self) -> Type {
        match self {
            Decoder::Boolean => Type::Boolean,
            Decoder::Int2 | Decoder::Int4 | Decoder::Int8 | Decoder::Oid => Type::Integer,
            Decoder::Float4 | Decoder::Float8 => Type::Number,
            Decoder::Numeric => Type::Decimal,
            Decoder::Text | Decoder::Char | Decoder::Padded | Decoder::Jsonb | Decoder::Uuid | Decoder::Void => Type::Text,
            Decoder::Bytes => Type::Binary,
            Decoder::Date => Type::Date,
            Decoder::Time => Type::Time,
            Decoder::Timestamp | Decoder::TimestampZoned => Type::Timestamp,
        }
    }

    /// Pushes one cell, in its declared type where there is one.
    pub(crate) fn push(self, rows: &mut RowsBuilder, bytes: Option<&[u8]>, declared: Option<Type>) -> Result<(), CellError> {
        let mut cell = Target { rows, declared };
        let Some(bytes) = bytes else { return cell.raw(Raw::Null) };
        match self {
            Decoder::Boolean => cell.raw(Raw::Boolean(fixed::<1>(bytes)?[0] != 0)),
            Decoder::Int2 => cell.raw(Raw::Integer(i16::from_be_bytes(fixed(bytes)?).into())),
            Decoder::Int4 => cell.raw(Raw::Integer(i32::from_be_bytes(fixed(bytes)?).into())),
            Decoder::Int8 => cell.raw(Raw::Integer(i64::from_be_bytes(fixed(bytes)?))),
            Decoder::Oid => cell.raw(Raw::Integer(u32::from_be_bytes(fixed(bytes)?).into())),
            Decoder::Float4 => cell.raw(Raw::Number(widened(f32::from_be_bytes(fixed(bytes)?)))),
            Decoder::Float8 => cell.raw(Raw::Number(f64::from_be_bytes(fixed(bytes)?))),
            Decoder::Numeric => cell.shown(Type::Decimal, Numeric::read(bytes)),
            Decoder::Text => cell.raw(Raw::Text(utf8(bytes)?)),
            Decoder::Char => cell.raw(Raw::Text(utf8(bytes)?.trim_end_matches('\0'))),
            Decoder::Padded => cell.raw(Raw::Text(utf8(bytes)?.trim_end_matches(' '))),
            Decoder::Jsonb => match bytes.split_first() {
                Some((1, text)) => cell.raw(Raw::Text(utf8(text)?)),
                _ => Err(CellError::Inexact),
            },
            Decoder::Uuid => cell.shown(Type::Text, Some(Uuid(fixed(bytes)?))),
            Decoder::Bytes => cell.raw(Raw::Binary(bytes)),
            Decoder::Date => match i32::from_be_bytes(fixed(bytes)?) {
                i32::MAX => cell.raw(Raw::Date("infinity")),
                i32::MIN => cell.raw(Raw::Date("-infinity")),
                days => cell.shown(Type::Date, Date::from_days(days.into())),
            },
            Decoder::Time => cell.shown(Type::Time, Time::from_us(i64::from_be_bytes(fixed(bytes)?))),
            Decoder::Timestamp | Decoder::TimestampZoned => match i64::from_be_bytes(fixed(bytes)?) {
                i64::MAX => cell.raw(Raw::Timestamp("infinity")),
                i64::MIN => cell.raw(Raw::Timestamp("-infinity")),
                us => cell.shown(Type::Timestamp, Timestamp::from_us(us, self == Decoder::TimestampZoned)),
            },
            Decoder::Void => cell.raw(Raw::Text("")),
        }
    }
}

struct Target<'r> {
    rows: &'r mut RowsBuilder,
    declared: Option<Type>,
}

impl Target<'_> {
    fn raw(&mut self, raw: Raw<'_>) -> Result<(), CellError> {
        match self.declared {
            None => Ok(exact::push(self.rows, raw)?),
            Some(kind) => exact::push_as(self.rows, kind, raw),
        }
    }
    /// A value that is written out in place; only another declared type needs the text first.
    fn shown(&mut self, kind: Type, value: Option<impl Display>) -> Result<(), CellError> {
        let value = value.ok_or(CellError::Inexact)?;
        match self.declared {
            Some(declared) if declared != kind => {
                let text = value.to_string();
                let raw = match kind {
                    Type::Decimal => Raw::Decimal(&text),
                    Type::Date => Raw::Date(&text),
                    Type::Time => Raw::Time(&text),
                    Type::Timestamp => Raw::Timestamp(&text),
                    _ => Raw::Text(&text),
                };
                exact::push_as(self.rows, declared, raw)
            }
            _ => Ok(self.rows.formatted(kind, value)?),
        }
    }
}

fn fixed<const SIZE: usize>(bytes: &[u8]) -> Result<[u8; SIZE], CellError> {
    bytes.try_into().map_err(|_| CellError::Inexact)
}

fn utf8(bytes: &[u8]) -> Result<&str, CellError> {
    std::str::from_utf8(bytes).map_err(|_| CellError::Inexact)
}

/// The double that shows the same shortest digits: 0.1 stays 0.1.
fn widened(value: f32) -> f64 {
    if value.is_finite() { value.to_string().parse().unwrap_or_else(|_| value.into()) } else { value.into() }
}

struct Uuid([u8; 16]);

impl Display for Uuid {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = u128::from_be_bytes(self.0);
        let part = |shift: u32, bits: u32| (value >> shift) & ((1 << bits) - 1);
        write!(out, "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", part(96, 32), part(80, 16), part(64, 16), part(48, 16), part(0, 48))
    }
}

/// The bytes of a column as they came.
pub(crate) struct Bytes<'a>(pub(crate) Option<&'a [u8]>);

impl<'a> FromSql<'a> for Bytes<'a> {
    fn from_sql(_sent: &Sent, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Bytes(Some(raw)))
    }
    fn from_sql_null(_sent: &Sent) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Bytes(None))
    }
    fn accepts(_sent: &Sent) -> bool {
        true
    }
}
