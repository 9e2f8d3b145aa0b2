//! A statement as a file gave it, ready for a driver.

use std::sync::Arc;

use spillgate_model::Type;

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
