//! A statement as a file gave it, ready for a driver.

use std::sync::Arc;

use spillgate_model::{Column, Type};

use crate::{DatabaseError, Failure};

/// A column whose name and type the flow fixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredColumn {
    /// Name as the database gives it.
    pub name: Box<str>,
    /// The type its values must have; a value that does not fit exactly is [`crate::Failure::ValueInexact`].
    pub kind: Type,
}

/// A statement with the driver's own markers (`$1…` for Postgres, `?` elsewhere). Cheap to clone.
#[derive(Clone, Debug)]
pub struct Statement {
    /// The same for the same text within a process: connectors key their prepared statements by it.
    pub id: u64,
    /// What is sent.
    pub text: Arc<str>,
    /// Columns the flow declares; empty: as the database says.
    pub columns: Arc<[DeclaredColumn]>,
}

/// The columns of a result once the declarations have been laid over what the database says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Names and types as the result shows them.
    pub columns: Arc<[Column]>,
    /// For each column, the type the flow declares, if it does.
    pub declared: Box<[Option<Type>]>,
}

impl Shape {
    /// `found` is what the database says, name and natural type. A declaration meets its column whatever the case of the
    /// letters and gives it its own spelling; one that meets no column is an error, for the flow counts on it.
    pub fn new<'a>(declarations: &[DeclaredColumn], found: impl IntoIterator<Item = (&'a str, Type)>) -> Result<Shape, DatabaseError> {
        let mut columns = Vec::new();
        let mut declared = Vec::new();
        for (name, kind) in found {
            let exact = declarations.iter().find(|column| &*column.name == name);
            match exact.or_else(|| declarations.iter().find(|column| column.name.eq_ignore_ascii_case(name))) {
                Some(declaration) => {
                    columns.push(Column { name: declaration.name.clone(), kind: declaration.kind });
                    declared.push(Some(declaration.kind));
                }
                None => {
                    columns.push(Column { name: name.into(), kind });
                    declared.push(None);
                }
            }
        }
        let missing = declarations.iter().find(|declaration| !columns.iter().any(|column| column.name == declaration.name));
        match missing {
            Some(declaration) => {
                let detail = format!("the result has no column {}, which the flow declares", declaration.name);
                Err(DatabaseError::new(Failure::Refused, detail.clone(), detail))
            }
            None => Ok(Shape { columns: columns.into(), declared: declared.into() }),
        }
    }
}
