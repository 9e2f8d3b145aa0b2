//! Types and values of inputs and bound parameters.
//!
//! Invariants
//! 1. A value is exact: decimals keep their digits as text, integers are 64 bits, dates and timestamps are canonical
//!    ISO 8601 text without a zone unless one was given.
//! 2. Text is never looked at: text that looks like a number stays text.

/// A type of the configuration files. Columns may have all of them; inputs all but `Time`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// 64-bit signed integer.
    Integer,
    /// IEEE 754 double.
    Number,
    /// Exact decimal, kept as its digits.
    Decimal,
    /// Text.
    Text,
    /// True or false.
    Boolean,
    /// `YYYY-MM-DD`.
    Date,
    /// `HH:MM:SS[.fraction]`.
    Time,
    /// `YYYY-MM-DDTHH:MM:SS[.fraction]`, with an offset only where the column has one.
    Timestamp,
    /// Bytes; base64 on the wire.
    Binary,
}

impl Type {
    /// Every type, in the order the reference lists them.
    pub const ALL: [Type; 9] =
        [Type::Integer, Type::Number, Type::Decimal, Type::Text, Type::Boolean, Type::Date, Type::Time, Type::Timestamp, Type::Binary];
    /// The name in files and schemas.
    pub fn name(self) -> &'static str {
        match self {
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Decimal => "decimal",
            Type::Text => "text",
            Type::Boolean => "boolean",
            Type::Date => "date",
            Type::Time => "time",
            Type::Timestamp => "timestamp",
            Type::Binary => "binary",
        }
    }
    /// The type of a value. NULL and lists, which have none, count as text.
    pub fn of(value: &Value) -> Type {
        match value {
            Value::Integer(_) => Type::Integer,
            Value::Number(_) => Type::Number,
            Value::Decimal(_) => Type::Decimal,
            Value::Boolean(_) => Type::Boolean,
            Value::Date(_) => Type::Date,
            Value::Time(_) => Type::Time,
            Value::Timestamp(_) => Type::Timestamp,
            Value::Binary(_) => Type::Binary,
            Value::Text(_) | Value::Null | Value::List(_) => Type::Text,
        }
    }
    /// The type of that name.
    pub fn parse(name: &str) -> Option<Type> {
        Type::ALL.into_iter().find(|known| known.name() == name)
    }
}

/// A value to bind, or a typed input. Text forms are canonical (see [`Type`]).
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    Null,
    Integer(i64),
    Number(f64),
    Decimal(Box<str>),
    Text(Box<str>),
    Boolean(bool),
    Date(Box<str>),
    Time(Box<str>),
    Timestamp(Box<str>),
    Binary(Box<[u8]>),
    /// A list input: as many markers as items. Never nested, never empty.
    List(Box<[Value]>),
}
