//! What expressions see and make: the tree form of inputs, rows and results.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::rows::{Cell, Rows};
use crate::value::{Type, Value};

/// A tree of values. Decimals, dates, times and timestamps are text with their exact digits; maps keep their keys sorted
/// so that a reply never changes between two calls.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Datum {
    Null,
    Boolean(bool),
    Integer(i64),
    Number(f64),
    Text(Arc<str>),
    Binary(Arc<[u8]>),
    List(Arc<[Datum]>),
    Map(Arc<BTreeMap<Arc<str>, Datum>>),
}

impl From<&Value> for Datum {
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => Datum::Null,
            Value::Integer(value) => Datum::Integer(*value),
            Value::Number(value) => Datum::Number(*value),
            Value::Boolean(value) => Datum::Boolean(*value),
            Value::Decimal(text) | Value::Text(text) | Value::Date(text) | Value::Time(text) | Value::Timestamp(text) => {
                Datum::Text(Arc::from(&**text))
            }
            Value::Binary(bytes) => Datum::Binary(Arc::from(&**bytes)),
            Value::List(items) => Datum::List(items.iter().map(Datum::from).collect()),
        }
    }
}

impl Datum {
    /// The rows of a step as a list of maps. Costs an allocation a cell: only where an expression reads rows.
    pub fn from_rows(rows: &Rows) -> Datum {
        let names: Vec<Arc<str>> = rows.columns().iter().map(|column| Arc::from(&*column.name)).collect();
        let one = |row: &[Cell]| {
            let cells = row.iter().zip(&names).map(|(cell, name)| (name.clone(), Datum::from_cell(rows, *cell)));
            Datum::Map(Arc::new(cells.collect()))
        };
        Datum::List(rows.iter().map(one).collect())
    }
    /// One cell of `rows`.
    pub fn from_cell(rows: &Rows, cell: Cell) -> Datum {
        match cell {
            Cell::Null => Datum::Null,
            Cell::Boolean(value) => Datum::Boolean(value),
            Cell::Integer(value) => Datum::Integer(value),
            Cell::Number(value) => Datum::Number(value),
            Cell::Slice { kind: Type::Binary, .. } => Datum::Binary(Arc::from(rows.slice(cell))),
            Cell::Slice { .. } => Datum::Text(Arc::from(rows.text(cell))),
        }
    }
}
