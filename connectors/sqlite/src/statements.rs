//! Prepared statements of one session, how values are bound to them and rows read from them.

use std::collections::HashMap;

use rusqlite::limits::Limit;
use rusqlite::types::{Null, ValueRef};
use rusqlite::{Connection, Row};
use spillgate_connector::exact::{self, CellError, Raw};
use spillgate_connector::{Blame, DatabaseError, Failure, ReadLimits, Shape, Statement, Written};
use spillgate_model::limits::STATEMENTS_PER_SESSION;
use spillgate_model::rows::RowEnd;
use spillgate_model::{Rows, RowsBuilder, Type, Value};

use crate::control::Control;
use crate::failure::{of_preparing, of_statement};

/// The largest value or row that a statement may make or read on its way, where its result may not be larger.
const VALUE_BYTES: usize = 16 << 20;

/// At most [`STATEMENTS_PER_SESSION`]; the one unused for longest makes room.
pub(crate) struct Statements<'c> {
    connection: &'c Connection,
    control: &'c Control,
    kept: HashMap<u64, Kept<'c>>,
    uses: u64,
}

struct Kept<'c> {
    prepared: rusqlite::Statement<'c>,
    /// Of the last result: tables and values may change under a statement.
    found: Vec<(String, Type)>,
    shape: Option<Shape>,
    used: u64,
}

impl<'c> Statements<'c> {
    pub(crate) fn new(connection: &'c Connection, control: &'c Control) -> Self {
        Statements { connection, control, kept: HashMap::new(), uses: 0 }
    }

    pub(crate) fn read(&mut self, statement: &Statement, parameters: &[Value], limits: ReadLimits) -> Result<Rows, DatabaseError> {
        let control = self.control;
        // What the statement makes on its way is bounded too: SQLite would fill the memory first and be refused then.
        let most = i32::try_from(limits.max_bytes.max(VALUE_BYTES)).unwrap_or(i32::MAX);
        self.connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, most).map_err(|error| of_statement(&error))?;
        let kept = self.prepared(statement)?;
        bind(&mut kept.prepared, parameters)?;
        kept.run(statement, limits, control).map_err(|error| self.of_changed_tables(statement, error))
    }

    /// SQLite makes a kept statement ready anew when tables have changed, and a failure of that looks like one of its run. Making it
    /// ready once more tells them apart.
    fn of_changed_tables(&self, statement: &Statement, error: DatabaseError) -> DatabaseError {
        if error.failure != Failure::Refused || error.blame != Blame::Statement {
            return error;
        }
        self.connection.prepare(&statement.text).err().map_or(error, |again| of_preparing(&again))
    }

    pub(crate) fn write(&mut self, statement: &Statement, parameters: &[Value], limits: ReadLimits) -> Result<Written, DatabaseError> {
        let before = self.connection.total_changes();
        let rows = self.read(statement, parameters, limits)?;
        // `changes` stands at the last statement that changed rows; whether this one did, the total says.
        let changed = self.connection.total_changes() != before;
        Ok(Written { affected: if changed { self.connection.changes() } else { 0 }, rows })
    }

    fn prepared(&mut self, statement: &Statement) -> Result<&mut Kept<'c>, DatabaseError> {
        self.uses += 1;
        if !self.kept.contains_key(&statement.id) {
            if self.kept.len() >= STATEMENTS_PER_SESSION {
                let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(id, _)| *id);
                oldest.and_then(|id| self.kept.remove(&id));
            }
            let prepared = self.connection.prepare(&statement.text).map_err(|error| of_preparing(&error))?;
            self.kept.insert(statement.id, Kept { prepared, found: Vec::new(), shape: None, used: 0 });
        }
        let uses = self.uses;
        let kept = self.kept.get_mut(&statement.id).ok_or_else(|| refused("the statement was not kept"))?;
        kept.used = uses;
        Ok(kept)
    }
}

impl Kept<'_> {
    fn run(&mut self, statement: &Statement, limits: ReadLimits, control: &Control) -> Result<Rows, DatabaseError> {
        let mut cursor = self.prepared.raw_query();
        let first = cursor.next().map_err(|error| of_statement(&error))?;
        let Some(row) = first else {
            drop(cursor);
            let Kept { prepared, found, shape, .. } = self;
            let shape = current(prepared, None, found, shape, statement)?;
            return Ok(RowsBuilder::new(shape.columns.clone(), limits.max_rows, limits.max_bytes).finish());
        };
        let shape = current(row.as_ref(), Some(row), &mut self.found, &mut self.shape, statement)?;
        let mut rows = RowsBuilder::new(shape.columns.clone(), limits.max_rows, limits.max_bytes);
        let mut next = Some(row);
        while let Some(row) = next {
            for (index, declared) in shape.declared.iter().enumerate() {
                cell(&mut rows, row, index, *declared).map_err(|error| {
                    let column = &shape.columns[index];
                    error.at(&column.name, declared.unwrap_or(Type::Text))
                })?;
            }
            if rows.end_row() == RowEnd::Full {
                break;
            }
            if control.stops() {
                return Err(DatabaseError::new(
                    Failure::Ended,
                    "the statement was ended: its time was over, or its caller had gone",
                    "stopped",
                ));
            }
            next = cursor.next().map_err(|error| of_statement(&error))?;
        }
        Ok(rows.finish())
    }
}

/// The shape of this result; the kept one where nothing changed, so that a repeated statement allocates nothing here.
fn current<'s>(
    prepared: &rusqlite::Statement<'_>,
    row: Option<&Row<'_>>,
    found: &mut Vec<(String, Type)>,
    shape: &'s mut Option<Shape>,
    statement: &Statement,
) -> Result<&'s Shape, DatabaseError> {
    let width = prepared.column_count();
    let name = |index| prepared.column_name(index).map_err(|error| of_statement(&error));
    let kind = |index| row.and_then(|row| storage(row, index).ok()?.kind()).unwrap_or(Type::Text);
    let mut same = shape.is_some() && found.len() == width;
    for (index, (known, kept)) in found.iter().enumerate().take(width) {
        same = same && known == name(index)? && (row.is_none() || *kept == kind(index));
    }
    if !same {
        found.clear();
        for index in 0..width {
            found.push((name(index)?.to_owned(), kind(index)));
        }
        *shape = None;
    }
    let shape = match shape {
        Some(shape) => shape,
        None => shape.insert(Shape::new(&statement.columns, found.iter().map(|(name, kind)| (name.as_str(), *kind)))?),
    };
    Ok(shape)
}

/// A value as its storage class says. Text that is no UTF-8 has no exact form as text.
fn storage<'r>(row: &'r Row<'_>, index: usize) -> Result<Raw<'r>, CellError> {
    Ok(match row.get_ref(index).map_err(|_| CellError::Inexact)? {
        ValueRef::Null => Raw::Null,
        ValueRef::Integer(value) => Raw::Integer(value),
        ValueRef::Real(value) => Raw::Number(value),
        ValueRef::Text(bytes) => Raw::Text(std::str::from_utf8(bytes).map_err(|_| CellError::Inexact)?),
        ValueRef::Blob(bytes) => Raw::Binary(bytes),
    })
}

fn cell(rows: &mut RowsBuilder, row: &Row<'_>, index: usize, declared: Option<Type>) -> Result<(), CellError> {
    let raw = storage(row, index)?;
    match declared {
        None => Ok(exact::push(rows, raw)?),
        Some(kind) => exact::push_as(rows, kind, raw),
    }
}

fn bind(prepared: &mut rusqlite::Statement<'_>, parameters: &[Value]) -> Result<(), DatabaseError> {
    if prepared.parameter_count() != parameters.len() {
        return Err(refused("the statement has another number of markers than it was given values"));
    }
    for (index, value) in (1..).zip(parameters) {
        match value {
            Value::Null => prepared.raw_bind_parameter(index, Null),
            Value::Integer(value) => prepared.raw_bind_parameter(index, value),
            Value::Number(value) if value.is_nan() => return Err(refused("this database cannot hold NaN")),
            Value::Number(value) => prepared.raw_bind_parameter(index, value),
            Value::Boolean(value) => prepared.raw_bind_parameter(index, value),
            Value::Decimal(text) | Value::Text(text) | Value::Date(text) | Value::Time(text) | Value::Timestamp(text) => {
                prepared.raw_bind_parameter(index, &**text)
            }
            Value::Binary(bytes) => prepared.raw_bind_parameter(index, &**bytes),
            Value::List(_) => return Err(refused("a list is bound item by item")),
        }
        .map_err(|error| of_statement(&error))?;
    }
    Ok(())
}

fn refused(detail: &'static str) -> DatabaseError {
    DatabaseError::new(Failure::Refused, detail, detail)
}
