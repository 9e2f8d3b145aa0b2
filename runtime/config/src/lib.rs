//! Configuration: from files as written to a plan that is proven, all faults at once.
//!
//! Invariants
//! 1. A [`Plan`] comes only out of [`load`] or [`load_from`]; whoever holds one checks nothing again.
//! 2. The checker is pure over [`Source`]: it spawns nothing, opens no database, and gives the same answer twice.
//! 3. Every key stands in one table, from which decoding, faults, schemas and the reference are made.
//! 4. No fault, note, schema or explanation shows a secret.
//!
//! It refuses: defaults without limits, keys it does not know, keys of later versions, values that would have to be guessed.

mod check;
mod explain;
mod fault;
mod keys;
mod overrides;
mod place;
pub mod plan;
mod raw;
mod reference;
mod schema;
pub mod source;
mod sql;
pub mod typed;
mod walk;
mod written;

use std::path::Path;

pub use explain::{ExplainError, Explained, LimitLine, explain, explain_for};
pub use fault::Fault;
pub use overrides::{Override, Overrides, conflicts, in_force};
pub use plan::Plan;
pub use reference::{reference_flow, reference_server};
pub use schema::{schema_flow, schema_server};
pub use source::Source;

use plan::Origin;

/// Reads the server file, its includes and every flow, and proves them. All faults at once, in file order.
pub fn load(server_file: &Path) -> Result<Plan, Vec<Fault>> {
    load_from(&source::Disk, server_file)
}

/// The same over any source of files and environment.
pub fn load_from(source: &dyn Source, server_file: &Path) -> Result<Plan, Vec<Fault>> {
    check::check(source, server_file)
}

/// A fault that somebody else found in what stands at `origin` (a connector in its connection string). `server_file` is
/// named where the origin is a default.
pub fn fault_at(origin: &Origin, server_file: &Path, message: &str) -> Fault {
    let (file, line) = match origin {
        Origin::Default | Origin::Override => (server_file.to_path_buf(), 1),
        Origin::File { path, line } => (path.to_path_buf(), *line),
    };
    Fault { file, line, column: 1, message: message.into() }
}
