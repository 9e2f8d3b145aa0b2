//! What a column of a result is, how wide its buffer must be, and how it is read.

use odbc_api::sys::{CDataType, SqlDataType};
use spillgate_model::Type;

use crate::driver::{Column, ResultColumn};

/// Types of IBM's drivers beyond the standard ones.
mod ibm {
    pub(super) const BOOLEAN: i16 = 16;
    pub(super) const GRAPHIC: i16 = -95;
    pub(super) const VAR_GRAPHIC: i16 = -96;
    pub(super) const LONG_VAR_GRAPHIC: i16 = -97;
    pub(super) const BLOB: i16 = -98;
    pub(super) const CLOB: i16 = -99;
    pub(super) const DB_CLOB: i16 = -350;
    pub(super) const DECFLOAT: i16 = -360;
    pub(super) const XML: i16 = -370;
}
const TIMESTAMP_WITH_TIMEZONE: i16 = 95;

/// A longer text or binary column is read piece by piece instead of into a buffer of its full size.
const BOUND_LETTERS: usize = 8_192;
/// Longest text of a number: sign, point and terminator beside the digits; an unbounded decimal is read anew when it is longer.
const NUMBER_LETTERS: usize = 64;
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
            SqlDataType::EXT_BINARY | SqlDataType::EXT_VAR_BINARY | SqlDataType::EXT_LONG_VAR_BINARY | SqlDataType(ibm::BLOB) => Form::Bytes,
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
    /// Bytes of one value in a rowset, terminator not counted; `None`: it is read piece by piece.
    width: Option<usize>,
}

impl Plan {
    pub(crate) fn of(column: &ResultColumn) -> Plan {
        let form = Form::of(column.sql_type);
        let long = matches!(
            column.sql_type,
            SqlDataType::EXT_LONG_VARCHAR
                | SqlDataType::EXT_W_LONG_VARCHAR
                | SqlDataType::EXT_LONG_VAR_BINARY
                | SqlDataType(ibm::CLOB | ibm::DB_CLOB | ibm::BLOB | ibm::XML | ibm::LONG_VAR_GRAPHIC)
        );
        let bounded = !long && (1..=BOUND_LETTERS).contains(&column.size);
        debug_assert!(!matches!(column.sql_type, SqlDataType(ibm::VAR_GRAPHIC)) || matches!(form, Form::Text { .. }));
        let width = match form {
            Form::Integer | Form::Double => Some(8),
            Form::Bit => Some(1),
            Form::Decimal => Some(NUMBER_LETTERS.max(column.size.min(BOUND_LETTERS) + 3)),
            Form::Date | Form::Time | Form::Timestamp => Some(INSTANT_LETTERS),
            Form::Text { .. } => bounded.then_some(column.size * 2),
            Form::Bytes => bounded.then_some(column.size),
        };
        Plan { form, width }
    }
    /// Bytes of one row of this column in a rowset, its indicator with it; `None` where it is read piece by piece.
    pub(crate) fn row_bytes(&self) -> Option<usize> {
        self.width.map(|width| width + 10)
    }
    /// Memory for it.
    pub(crate) fn column(&self, rows: usize) -> Column {
        Column::new(self.form.c_type(), self.width.unwrap_or(0), rows)
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
    fn long_and_unbounded_columns_have_no_buffer_of_their_full_size() {
        assert_eq!(plan(ibm::CLOB, 2_147_483_647).row_bytes(), None);
        assert_eq!(plan(12, 0).row_bytes(), None);
        assert_eq!(plan(12, 32_672).row_bytes(), None);
        assert_eq!(plan(12, 20).row_bytes(), Some(50));
        assert!(plan(3, 31).row_bytes() >= Some(31 + 3));
    }
}
