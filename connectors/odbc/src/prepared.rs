//! One prepared statement with its buffers, and how its result is read.
//!
//! Rows come in rowsets, into buffers of the size the driver describes. A value is never shortened: where one does not fit, the
//! statement is run once more with room for all that its result may hold, and so from then on. What does not fit even
//! there is larger than the result may be.

use std::sync::Arc;

use spillgate_connector::exact::{self, CellError, Raw};
use spillgate_connector::{DatabaseError, DeclaredColumn, Failure, ReadLimits, Shape, Statement};
use spillgate_model::rows::{RowEnd, ValueTooLarge};
use spillgate_model::{Rows, RowsBuilder};

use crate::columns::{Form, Plan, Room};
use crate::digits;
use crate::driver::{self, Diagnostics, Field, Layout, Outcome, Rowset};
use crate::parameters::MarkerTypes;

/// Rows of one fetch, at most.
const ROWSET_ROWS: usize = 500;
/// Bytes of one rowset, at most, if it has more than one row.
const ROWSET_BYTES: usize = 256 << 10;

/// A prepared statement of a session.
pub(crate) struct Prepared {
    pub(crate) id: u64,
    pub(crate) statement: driver::Statement,
    pub(crate) markers: MarkerTypes,
    /// When it was last used, by the session's count.
    pub(crate) used: u64,
    /// Bytes of its buffers when it was kept.
    pub(crate) kept_bytes: usize,
    result: Option<ResultPlan>,
    /// A value once was longer than the driver had said.
    roomy: bool,
}

/// What is known of the result's columns since the first execution.
struct ResultPlan {
    declared: Arc<[DeclaredColumn]>,
    shape: Shape,
    plans: Vec<Plan>,
}

/// What a statement gave.
pub(crate) struct Fetched {
    pub(crate) rows: Rows,
    pub(crate) affected: Option<u64>,
}

/// Why reading stopped.
pub(crate) enum Stopped {
    Driver(Diagnostics),
    /// A value of this column did not fit its buffer; from now on this statement has more room.
    NeedsRoom {
        column: Box<str>,
    },
    /// A value cannot be given; the connection is fine.
    Value(DatabaseError),
}

impl From<Diagnostics> for Stopped {
    fn from(diagnostics: Diagnostics) -> Self {
        Stopped::Driver(diagnostics)
    }
}

impl Prepared {
    pub(crate) fn new(id: u64, statement: driver::Statement) -> Prepared {
        Prepared { id, statement, markers: Vec::new(), used: 0, kept_bytes: 0, result: None, roomy: false }
    }
    /// Bytes of its buffers.
    pub(crate) fn held_bytes(&self) -> usize {
        self.statement.held_bytes()
    }
    pub(crate) fn close_cursor(&self) -> Result<(), Diagnostics> {
        self.statement.close_cursor()
    }
    pub(crate) fn leave(&self, cancel: &driver::CancelPoint) {
        self.statement.leave(cancel);
    }

    /// Reads the result of an execution within the limits.
    pub(crate) fn fetch(&mut self, asked: &Statement, limits: ReadLimits, layout: Layout, outcome: Outcome) -> Result<Fetched, Stopped> {
        let columns = self.statement.column_count()?;
        if columns == 0 {
            let affected = if outcome == Outcome::NoData { Some(0) } else { self.statement.row_count()? };
            return Ok(Fetched { rows: Rows::default(), affected });
        }
        self.learn(asked, columns)?;
        let Some(result) = &self.result else { return Err(Diagnostics::own("HY000", "no result").into()) };
        let mut rows = RowsBuilder::new(result.shape.columns.clone(), limits.max_rows, limits.max_bytes);
        let room = if self.roomy { Room::ForResultOf { max_bytes: limits.max_bytes } } else { Room::AsDescribed };
        let wanted = limits.max_rows.saturating_add(1);
        let row_bytes: usize = result.plans.iter().map(|plan| plan.row_bytes(room)).sum();
        let rowset_rows = wanted.min(ROWSET_ROWS).min((ROWSET_BYTES / row_bytes.max(1)).max(1));
        if self.statement.rowset().is_none_or(|rowset| rowset.rows() < rowset_rows) {
            let columns = result.plans.iter().map(|plan| plan.column(room, rowset_rows)).collect();
            self.statement.bind_rowset(Rowset::new(columns, rowset_rows))?;
        }
        let mut read = read_rowsets(&mut self.statement, result, layout, rowset_rows, wanted, &mut rows);
        if let Err(Stopped::NeedsRoom { column }) = &read
            && self.roomy
        {
            let column = column.clone();
            read = Err(Stopped::Value(ValueTooLarge { column, max_bytes: limits.max_bytes }.into()));
        }
        if self.roomy || read.is_err() {
            // Room for so much is not kept.
            self.statement.unbind_rowset()?;
        }
        self.roomy |= matches!(read, Err(Stopped::NeedsRoom { .. }));
        read?;
        Ok(Fetched { rows: rows.finish(), affected: None })
    }

    /// Describes the result's columns, once: they are the same at every execution unless their number or the declarations change.
    fn learn(&mut self, asked: &Statement, columns: usize) -> Result<(), Stopped> {
        if let Some(result) = &self.result {
            let same = Arc::ptr_eq(&result.declared, &asked.columns) || result.declared == asked.columns;
            if same && result.plans.len() == columns {
                return Ok(());
            }
        }
        let columns = self.statement.columns()?;
        let plans: Vec<Plan> = columns.iter().map(Plan::of).collect();
        let found = columns.iter().zip(&plans).map(|(column, plan)| (&*column.name, plan.form.kind()));
        let shape = Shape::new(&asked.columns, found).map_err(Stopped::Value)?;
        self.statement.unbind_rowset()?;
        self.result = Some(ResultPlan { declared: asked.columns.clone(), shape, plans });
        Ok(())
    }
}

fn read_rowsets(
    statement: &mut driver::Statement,
    result: &ResultPlan,
    layout: Layout,
    rowset_rows: usize,
    wanted: usize,
    rows: &mut RowsBuilder,
) -> Result<(), Stopped> {
    let mut scratch = String::new();
    loop {
        let asked = rowset_rows.min(wanted - rows.len());
        let came = statement.fetch(asked)?;
        let Some(rowset) = statement.rowset() else { return Ok(()) };
        for row in 0..came {
            if rowset.failed(row) {
                return Err(not_given(statement, result));
            }
            for (index, (plan, column)) in result.plans.iter().zip(&rowset.columns).enumerate() {
                match column.field(row, layout) {
                    Field::Cut => return Err(Stopped::NeedsRoom { column: result.shape.columns[index].name.clone() }),
                    Field::Null => rows.null(),
                    Field::Bytes(bytes) => push(rows, result, index, plan.form, bytes, &mut scratch)?,
                }
            }
            if rows.end_row() == RowEnd::Full {
                return Ok(());
            }
        }
        // A short rowset is the last one.
        if came < asked {
            return Ok(());
        }
    }
}

/// A row the driver does not give: a value out of range, or not convertible.
fn not_given(statement: &driver::Statement, result: &ResultPlan) -> Stopped {
    let (column, diagnostics) = statement.failed_column();
    match column.and_then(|number| result.shape.columns.get(number.checked_sub(1)?)) {
        Some(column) => Stopped::Value(CellError::Inexact.at(&column.name, column.kind)),
        None => {
            let internal: Vec<&str> = diagnostics.records.iter().map(|record| record.state.as_str()).collect();
            let detail = "the driver cannot give a value of this result exactly";
            Stopped::Value(DatabaseError::new(Failure::ValueInexact { column: "".into() }, detail, internal.join(" ")))
        }
    }
}

fn push(rows: &mut RowsBuilder, result: &ResultPlan, index: usize, form: Form, bytes: &[u8], scratch: &mut String) -> Result<(), Stopped> {
    let pushed = match raw(form, bytes, scratch) {
        Some(raw) => match result.shape.declared[index] {
            Some(kind) => exact::push_as(rows, kind, raw),
            None => exact::push(rows, raw).map_err(CellError::from),
        },
        None => Err(CellError::Inexact),
    };
    pushed.map_err(|error| {
        let column = &result.shape.columns[index];
        Stopped::Value(error.at(&column.name, column.kind))
    })
}

/// The value a driver wrote; `None` where its bytes are no value of its form.
fn raw<'a>(form: Form, bytes: &'a [u8], scratch: &'a mut String) -> Option<Raw<'a>> {
    let ascii = || std::str::from_utf8(bytes).ok();
    Some(match form {
        Form::Integer => Raw::Integer(i64::from_ne_bytes(bytes.try_into().ok()?)),
        Form::Double => Raw::Number(f64::from_ne_bytes(bytes.try_into().ok()?)),
        Form::Bit => Raw::Boolean(*bytes.first()? != 0),
        Form::Bytes => Raw::Binary(bytes),
        Form::Decimal => {
            digits::decimal(ascii()?, scratch)?;
            Raw::Decimal(scratch)
        }
        Form::Date => Raw::Date(digits::date(ascii()?)?),
        Form::Time => {
            digits::time(ascii()?, scratch)?;
            Raw::Time(scratch)
        }
        Form::Timestamp => {
            digits::timestamp(ascii()?, scratch)?;
            Raw::Timestamp(scratch)
        }
        Form::Text { padded } => {
            utf16(bytes, scratch)?;
            Raw::Text(if padded { scratch.trim_end_matches(' ') } else { scratch })
        }
    })
}

/// Decodes UTF-16 in the order of this machine; half a pair is no text.
fn utf16(bytes: &[u8], out: &mut String) -> Option<()> {
    out.clear();
    let units = || bytes.chunks_exact(2).map(|pair| u16::from_ne_bytes([pair[0], pair[1]]));
    if units().all(|unit| unit < 0x80) {
        // All of it is ASCII: one byte a unit.
        out.extend(units().map(|unit| char::from(unit.to_le_bytes()[0])));
        return Some(());
    }
    for letter in char::decode_utf16(units()) {
        out.push(letter.ok()?);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_decoded_whole_or_refused() {
        let mut out = String::new();
        for text in ["", "plain", "ÉÉÉ", "🚚 truck", "before\0after"] {
            let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_ne_bytes).collect();
            assert_eq!(utf16(&bytes, &mut out).map(|()| out.as_str()), Some(text));
        }
        assert_eq!(utf16(&0xD800_u16.to_ne_bytes(), &mut out), None);
    }

    #[test]
    fn blanks_are_trimmed_where_they_are_padding_only() {
        let bytes: Vec<u8> = "AB  ".encode_utf16().flat_map(u16::to_ne_bytes).collect();
        let mut out = String::new();
        assert_eq!(raw(Form::Text { padded: true }, &bytes, &mut out), Some(Raw::Text("AB")));
        assert_eq!(raw(Form::Text { padded: false }, &bytes, &mut out), Some(Raw::Text("AB  ")));
    }
}
