//! The statements one session has prepared, bounded.

use std::collections::HashMap;

use spillgate_connector::{DatabaseError, Failure, Shape, Statement};
use spillgate_model::limits::STATEMENTS_PER_SESSION;
use tokio_postgres::Row;

use crate::decode::{Bytes, Decoder};
use spillgate_connector::exact::CellError;
use spillgate_model::RowsBuilder;

/// A statement the server has parsed, and how its columns are read.
pub(crate) struct Prepared {
    pub(crate) handle: tokio_postgres::Statement,
    pub(crate) shape: Shape,
    decoders: Box<[Decoder]>,
    used: u64,
}

impl Prepared {
    pub(crate) fn new(statement: &Statement, handle: tokio_postgres::Statement) -> Result<Self, DatabaseError> {
        let decoders: Box<[Decoder]> = handle
            .columns()
            .iter()
            .map(|column| Decoder::of(column.type_()).ok_or_else(|| no_exact_form(column)))
            .collect::<Result<_, _>>()?;
        let found = handle.columns().iter().zip(&decoders).map(|(column, decoder)| (column.name(), decoder.kind()));
        let shape = Shape::new(&statement.columns, found)?;
        Ok(Prepared { shape, decoders, handle, used: 0 })
    }

    /// Pushes the cells of one row.
    pub(crate) fn push(&self, row: &Row, rows: &mut RowsBuilder) -> Result<(), DatabaseError> {
        for (index, (decoder, declared)) in self.decoders.iter().zip(&self.shape.declared).enumerate() {
            let bytes = row.try_get::<_, Bytes<'_>>(index).map_or(Err(CellError::Inexact), |bytes| Ok(bytes.0));
            bytes.and_then(|bytes| decoder.push(rows, bytes, *declared)).map_err(|error| {
                let column = &self.shape.columns[index];
                error.at(&column.name, column.kind)
            })?;
        }
        Ok(())
    }
}

fn no_exact_form(column: &tokio_postgres::Column) -> DatabaseError {
    let name = column.name();
    let detail =
        format!("column {name} has a type ({}) without an exact form here; cast it to text in the statement", column.type_().name());
    DatabaseError::new(Failure::ValueInexact { column: name.into() }, detail.clone(), detail)
}

/// At most [`STATEMENTS_PER_SESSION`]; the one unused for longest makes room (dropping it closes it on the server).
#[derive(Default)]
pub(crate) struct Statements {
    kept: HashMap<u64, Prepared>,
    uses: u64,
}

impl Statements {
    pub(crate) fn get(&mut self, id: u64) -> Option<&Prepared> {
        self.uses += 1;
        let prepared = self.kept.get_mut(&id)?;
        prepared.used = self.uses;
        Some(prepared)
    }
    pub(crate) fn keep(&mut self, id: u64, prepared: Prepared) {
        if self.kept.len() >= STATEMENTS_PER_SESSION {
            let oldest = self.kept.iter().min_by_key(|(_, prepared)| prepared.used).map(|(id, _)| *id);
            oldest.and_then(|id| self.kept.remove(&id));
        }
        self.kept.insert(id, Prepared { used: self.uses, ..prepared });
    }
    pub(crate) fn forget(&mut self, id: u64) {
        self.kept.remove(&id);
    }
}
