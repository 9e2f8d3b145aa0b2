//! From a flow's text with named markers to a statement with the driver's own.
//!
//! Invariants
//! 1. A text without list inputs is rendered once, when the plan is built; binding it costs nothing where its markers are
//!    the inputs in order.
//! 2. A list is padded to the next power of two by repeating its last item, so that few texts exist; at most
//!    [`KEPT`] of a step are kept.
//! 3. A statement's id depends on its text and declared columns alone: after a reload sessions still know it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};
use spillgate_config::plan::{Driver, Input, Piece, SqlText, System};
use spillgate_connector::{DeclaredColumn, Statement};
use spillgate_model::Value;

/// Renderings of one text kept for different list lengths.
const KEPT: usize = 64;

/// A text ready to be bound.
#[derive(Debug)]
pub(crate) struct Prepared {
    pieces: Arc<[Piece]>,
    driver: Driver,
    columns: Arc<[DeclaredColumn]>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// No list among its markers. `in_order`: they are the inputs, each once, as declared.
    Fixed { statement: Statement, in_order: bool },
    /// Rendered for the lengths of the lists.
    Lists { kept: Mutex<HashMap<Box<[usize]>, Statement>> },
}

/// A statement with its values.
pub(crate) struct Bound<'a> {
    pub(crate) statement: Cow<'a, Statement>,
    pub(crate) parameters: Cow<'a, [Value]>,
}

impl Prepared {
    pub(crate) fn new(text: &SqlText, inputs: &[Input], driver: Driver, columns: Arc<[DeclaredColumn]>) -> Self {
        let pieces = text.pieces.clone();
        let of_list = |piece: &Piece| matches!(piece, Piece::Input(index) if inputs.get(*index).is_some_and(|input| input.list));
        let kind = if pieces.iter().any(of_list) {
            Kind::Lists { kept: Mutex::default() }
        } else {
            let markers = pieces.iter().filter(|piece| !matches!(piece, Piece::Text(_)));
            let in_order =
                markers.clone().enumerate().all(|(position, piece)| *piece == Piece::Input(position)) && markers.count() == inputs.len();
            Kind::Fixed { statement: statement(render(&pieces, driver, &mut std::iter::empty()), columns.clone()), in_order }
        };
        Prepared { pieces, driver, columns, kind }
    }

    /// The statement for these inputs, for a later page the cursor's values, and values that are neither.
    pub(crate) fn bind<'a>(&'a self, inputs: &'a [Value], cursor: &[Value], system: &dyn Fn(System) -> Value) -> Bound<'a> {
        match &self.kind {
            Kind::Fixed { statement, in_order: true } => Bound { statement: Cow::Borrowed(statement), parameters: Cow::Borrowed(inputs) },
            Kind::Fixed { statement, .. } => {
                let (parameters, _) = self.values(inputs, cursor, system);
                Bound { statement: Cow::Borrowed(statement), parameters: Cow::Owned(parameters) }
            }
            Kind::Lists { kept } => {
                let (parameters, lengths) = self.values(inputs, cursor, system);
                Bound { statement: Cow::Owned(self.of_lengths(kept, lengths)), parameters: Cow::Owned(parameters) }
            }
        }
    }

    /// Values in the order of the markers, and how many each list became.
    fn values(&self, inputs: &[Value], cursor: &[Value], system: &dyn Fn(System) -> Value) -> (Vec<Value>, Vec<usize>) {
        let (mut values, mut lengths) = (Vec::with_capacity(self.pieces.len()), Vec::new());
        for piece in self.pieces.iter() {
            let value = match piece {
                Piece::Text(_) => continue,
                Piece::Input(index) => inputs.get(*index),
                Piece::Cursor(index) => cursor.get(*index),
                Piece::System(which) => {
                    values.push(system(*which));
                    lengths.push(1);
                    continue;
                }
            };
            match value {
                Some(Value::List(items)) if !items.is_empty() => {
                    let padded = items.len().next_power_of_two();
                    values.extend(items.iter().cloned());
                    values.extend(items.last().into_iter().cycle().take(padded - items.len()).cloned());
                    lengths.push(padded);
                }
                Some(Value::List(_)) | None => {
                    values.push(Value::Null);
                    lengths.push(1);
                }
                Some(value) => {
                    values.push(value.clone());
                    lengths.push(1);
                }
            }
        }
        (values, lengths)
    }

    fn of_lengths(&self, kept: &Mutex<HashMap<Box<[usize]>, Statement>>, lengths: Vec<usize>) -> Statement {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(statement) = kept.get(lengths.as_slice()) {
            return statement.clone();
        }
        if kept.len() >= KEPT
            && let Some(any) = kept.keys().next().cloned()
        {
            kept.remove(&any);
        }
        let made = statement(render(&self.pieces, self.driver, &mut lengths.iter().copied()), self.columns.clone());
        kept.insert(lengths.into(), made.clone());
        made
    }
}

/// Writes the text, each marker as often as `lengths` says (once where it has ended).
fn render(pieces: &[Piece], driver: Driver, lengths: &mut dyn Iterator<Item = usize>) -> String {
    let (mut text, mut number) = (String::new(), 0usize);
    for piece in pieces {
        if let Piece::Text(written) = piece {
            text.push_str(written);
            continue;
        }
        for position in 0..lengths.next().unwrap_or(1) {
            number += 1;
            text.push_str(if position > 0 { ", " } else { "" });
            match driver {
                // Writing to a string cannot fail.
                Driver::Postgres => drop(write!(text, "${number}")),
                Driver::Odbc | Driver::Sqlite => text.push('?'),
            }
        }
    }
    text
}

fn statement(text: String, columns: Arc<[DeclaredColumn]>) -> Statement {
    let mut hash = Sha256::new();
    hash.update(text.as_bytes());
    for column in columns.iter() {
        hash.update([0]);
        hash.update(column.name.as_bytes());
        hash.update([0]);
        hash.update(column.kind.name());
    }
    let digest = hash.finalize();
    let id = digest.iter().take(8).fold(0u64, |id, byte| id << 8 | u64::from(*byte));
    Statement { id, text: text.into(), columns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillgate_model::Type;

    fn input(name: &str, list: bool) -> Input {
        Input { list, ..Input::new(name, Type::Integer) }
    }

    fn nothing(_: System) -> Value {
        Value::Null
    }

    fn text(pieces: &[Piece]) -> SqlText {
        SqlText { pieces: pieces.into() }
    }

    #[test]
    fn inputs_in_order_are_bound_without_a_copy() {
        let pieces = [Piece::Text("A = ".into()), Piece::Input(0), Piece::Text(" AND B = ".into()), Piece::Input(1)];
        let inputs = [input("a", false), input("b", false)];
        let values = [Value::Integer(1), Value::Integer(2)];
        let postgres = Prepared::new(&text(&pieces), &inputs, Driver::Postgres, Arc::from([]));
        let bound = postgres.bind(&values, &[], &nothing);
        assert_eq!(&*bound.statement.text, "A = $1 AND B = $2");
        assert!(matches!((&bound.statement, &bound.parameters), (Cow::Borrowed(_), Cow::Borrowed(_))));
        let odbc = Prepared::new(&text(&pieces[2..]), &inputs, Driver::Odbc, Arc::from([]));
        let bound = odbc.bind(&values, &[], &nothing);
        assert_eq!((&*bound.statement.text, &*bound.parameters), (" AND B = ?", [Value::Integer(2)].as_slice()));
    }

    #[test]
    fn lists_become_few_statements() {
        let pieces = [Piece::Text("X IN (".into()), Piece::Input(0), Piece::Text(") AND Y > ".into()), Piece::Cursor(0)];
        let prepared = Prepared::new(&text(&pieces), &[input("xs", true)], Driver::Postgres, Arc::from([]));
        let list = |count: i64| [Value::List((0..count).map(Value::Integer).collect())];
        let cursor = [Value::Integer(9)];
        let three = list(3);
        let bound = prepared.bind(&three, &cursor, &nothing);
        assert_eq!(&*bound.statement.text, "X IN ($1, $2, $3, $4) AND Y > $5");
        let integers = [0, 1, 2, 2, 9].map(Value::Integer);
        assert_eq!(&*bound.parameters, integers.as_slice());
        let ids: std::collections::BTreeSet<u64> =
            (1..=1_000).map(|count| prepared.bind(&list(count), &cursor, &nothing).statement.id).collect();
        assert_eq!(ids.len(), 11);
        let null = [Value::Null];
        assert_eq!(&*prepared.bind(&null, &cursor, &nothing).statement.text, "X IN ($1) AND Y > $2");
    }
}
