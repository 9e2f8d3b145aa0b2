//! What a column of a result is, how wide its buffer must be, and how it is read.

use odbc_api::sys::{CDataType, SqlDataType};
use spillgate_model::Type;

use crate::driver::{Column, ResultColumn};

/// Types of IBM's drivers beyond the standard ones.
mod ibm {
    pub(super) const BOOLEAN: i16 = 16;
    pub(super) const GRAPHIC: i16 = -95;
    #[cfg(test)]
    pub(super) const VAR_GRAPHIC: i16 = -96;
    pub(super) const BLOB: i16 = -98;
    #[cfg(test)]
    pub(super) const CLOB: i16 = -99;
    #[cfg(test)]
    pub(super) const DB_CLOB: i16 = -350;
    pub(super) const DECFLOAT: i16 = -360;
    #[cfg(test)]
    pub(super) const XML: i16 = -370;
}
const TIMESTAMP_WITH_TIMEZONE: i16 = 95;

/// Letters of a text, or bytes, that are made room for at first, whatever the column could hold.
const FIRST_LETTERS: usize = 8_192;
/// Letters that are made room for at most.
const MOST_LETTERS: usize = 64 << 20;
/// Digits of a number that are made room for at first: a decimal without bounds can have more.
const FIRST_DIGITS: usize = 64;
/// Sign and point.
const BESIDE_DIGITS: usize = 2;
/// Longest text of a date, time or timestamp.
const INSTANT_LETTERS: usize = 48;

/// How a column is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Integer,
    Double,
    Bit,
    /// Exact digits as text, in ASCII.
    Decimal,
    /// Text in UTF-16.
    Text {
        /// Of a fixed length: blanks at its end are padding.
        padded: bool,
    },
    Bytes,
    Date,
    Time,
    Timestamp,
}

impl Form {
    fn of(sql_type: SqlDataType) -> Form {
        match sql_type {
            SqlDataType::SMALLINT | SqlDataType::INTEGER | SqlDataType::EXT_BIG_INT | SqlDataType::EXT_TINY_INT => Form::Integer,
            SqlDataType::FLOAT | SqlDataType::REAL | SqlDataType::DOUBLE => Form::Double,
            SqlDataType::EXT_BIT | SqlDataType(ibm::BOOLEAN) => Form::Bit,
            SqlDataType::DECIMAL | SqlDataType::NUMERIC | SqlDataType(ibm::DECFLOAT) => Form::Decimal,
            SqlDataType::CHAR | SqlDataType::EXT_W_CHAR | SqlDataType(ibm::GRAPHIC) => Form::Text { padded: true },
            SqlDataType::EXT_BINARY | SqlDataType::EXT_VAR_BINARY | SqlDataType::EXT_LONG_VAR_BINARY | SqlDataType(ibm::BLOB) => {
                Form::Bytes
            }
            SqlDataType::DATE | SqlDataType::DATETIME => Form::Date,
            SqlDataType::TIME | SqlDataType::EXT_TIME_OR_INTERVAL => Form::Time,
            SqlDataType::TIMESTAMP | SqlDataType::EXT_TIMESTAMP | SqlDataType(TIMESTAMP_WITH_TIMEZONE) => Form::Timestamp,
            _ => Form::Text { padded: false },
        }
    }
    /// The type of its values.
    pub(crate) fn kind(self) -> Type {
        match self {
            Form::Integer => Type::Integer,
            Form::Double => Type::Number,
            Form::Bit => Type::Boolean,
            Form::Decimal => Type::Decimal,
            Form::Text { .. } => Type::Text,
            Form::Bytes => Type::Binary,
            Form::Date => Type::Date,
            Form::Time => Type::Time,
            Form::Timestamp => Type::Timestamp,
        }
    }
    /// What the driver is asked to write.
    pub(crate) fn c_type(self) -> CDataType {
        match self {
            Form::Integer => CDataType::SBigInt,
            Form::Double => CDataType::Double,
            Form::Bit => CDataType::Bit,
            Form::Decimal | Form::Date | Form::Time | Form::Timestamp => CDataType::Char,
            Form::Text { .. } => CDataType::WChar,
            Form::Bytes => CDataType::Binary,
        }
    }
}

/// A column and its place in the rowset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) form: Form,
    /// What the driver says of its size; 0 where it does not know.
    size: usize,
}

/// How much room values get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// What the driver says they need, within reason.
    AsDescribed,
    /// What a result of so many bytes could hold at all: text has no more letters than bytes.
    ForResultOf {
        /// Bytes of the result.
        max_bytes: usize,
    },
}

impl Plan {
    pub(crate) fn of(column: &ResultColumn) -> Plan {
        Plan { form: Form::of(column.sql_type), size: column.size }
    }
    /// Bytes of one value in a rowset, terminator not counted.
    fn width(&self, room: Room) -> usize {
        let letters = match room {
            Room::AsDescribed => Some(self.size).filter(|size| (1..=FIRST_LETTERS).contains(size)).unwrap_or(FIRST_LETTERS),
            Room::ForResultOf { max_bytes } => max_bytes.saturating_add(1).clamp(FIRST_LETTERS, MOST_LETTERS),
        };
        match self.form {
            Form::Integer | Form::Double => 8,
            Form::Bit => 1,
            Form::Decimal if room == Room::AsDescribed => FIRST_DIGITS.max(self.size.min(FIRST_LETTERS) + BESIDE_DIGITS),
            Form::Date | Form::Time | Form::Timestamp => INSTANT_LETTERS,
            Form::Text { .. } => letters * 2,
            Form::Bytes | Form::Decimal => letters,
        }
    }
    /// Bytes of one row of this column in a rowset, its indicator with it.
    pub(crate) fn row_bytes(&self, room: Room) -> usize {
        self.width(room) + 10
    }
    /// Memory for it.
    pub(crate) fn column(&self, room: Room, rows: usize) -> Column {
        Column::new(self.form.c_type(), self.width(room), rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(sql_type: i16, size: usize) -> Plan {
        Plan::of(&ResultColumn { name: "C".into(), sql_type: SqlDataType(sql_type), size, digits: 0 })
    }

    #[test]
    fn b5_db2_types_are_read_as_what_they_are() {
        let kinds = [
            (ibm::GRAPHIC, Form::Text { padded: true }),
            (ibm::VAR_GRAPHIC, Form::Text { padded: false }),
            (ibm::DB_CLOB, Form::Text { padded: false }),
            (ibm::XML, Form::Text { padded: false }),
            (ibm::BLOB, Form::Bytes),
            (-2, Form::Bytes),
            (ibm::DECFLOAT, Form::Decimal),
            (ibm::BOOLEAN, Form::Bit),
            (TIMESTAMP_WITH_TIMEZONE, Form::Timestamp),
        ];
        for (sql_type, form) in kinds {
            assert_eq!(plan(sql_type, 10).form, form, "{sql_type}");
        }
    }

    #[test]
    fn b4_buffers_are_of_the_described_size_within_reason_and_grow_to_the_results() {
        let bytes = |plan: Plan| plan.row_bytes(Room::AsDescribed);
        assert_eq!(bytes(plan(12, 20)), 50);
        assert_eq!(bytes(plan(ibm::CLOB, 2_147_483_647)), bytes(plan(12, 0)));
        assert_eq!(bytes(plan(12, 32_672)), FIRST_LETTERS * 2 + 10);
        assert!(bytes(plan(3, 31)) >= 31 + 2 && bytes(plan(3, 1_000)) >= 1_000 + 2);
        let grown = Room::ForResultOf { max_bytes: 1 << 20 };
        assert!(plan(12, 20).row_bytes(grown) > 2 << 20, "a driver's word on the size is not believed twice");
        assert_eq!(plan(4, 10).row_bytes(grown), bytes(plan(4, 10)));
    }
}
