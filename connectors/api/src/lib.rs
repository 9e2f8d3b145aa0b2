//! The one trait every database stands behind, and the suite that says whether a connector keeps its word.
//!
//! A connector owns: how sessions are opened, how values are bound and read exactly, how a statement is ended.
//! It does not own: pools, waiting lines, deadlines, retries, caching (the engine does).
//!
//! Invariants every connector keeps (the conformance suite cites them)
//! 1. A value is exact or the read fails with [`Failure::ValueInexact`]; nothing is shortened, rounded or guessed.
//! 2. A read holds at most `max_rows + 1` rows and about `max_bytes` in memory, and leaves the session usable at once.
//! 3. A session runs one statement at a time. Dropping the work of a statement leaves the session in need of
//!    [`Session::end`]; nothing else may be called on it before.
//! 4. After [`Session::end`] says `Clean` or `Closed`, the database does not run the statement any more.
//! 5. Values are only ever bound. `Statement::text` comes from files and is sent as it is.
//! 6. Nothing a caller may see (`DatabaseError::detail`) names a host, user, connection string or statement.
//! 7. [`Database::connect`] is the only way to the network: making a [`Database`] touches nothing.

#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
pub mod exact;
mod scrub;
mod statement;

use std::time::Duration;

use spillgate_model::{Rows, Value, Work};

pub use error::{Blame, DatabaseError, Failure};
pub use scrub::Scrub;
pub use statement::{DeclaredColumn, Shape, Statement};

/// What a session may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// The session itself refuses writes where the database can (see [`Database::read_only_guard`]).
    ReadOnly,
    /// Write steps only.
    ReadWrite,
}

/// Limits of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// Most rows in the result; one more is asked for to know whether it is complete.
    pub max_rows: usize,
    /// Most bytes the result holds.
    pub max_bytes: usize,
}

/// What a write did.
#[derive(Clone, Debug)]
pub struct Written {
    /// Rows inserted, changed or deleted.
    pub affected: u64,
    /// Rows of a RETURNING clause (empty without one).
    pub rows: Rows,
}

/// How an abandoned statement ended.
pub enum Ended {
    /// Gone from the database; the session can be used again, outside of any transaction.
    Clean(Box<dyn Session>),
    /// Gone from the database, and the connection closed: an open transaction was rolled back by that.
    Closed,
    /// The link is gone but the database may work on; it must have ended by its own limit after this time. The seat
    /// stays taken until then.
    Unconfirmed(Duration),
}

/// A database as one kind of connector reaches it. Cheap to make; opens nothing until [`Database::connect`].
pub trait Database: Send + Sync + 'static {
    /// One sentence for `check`: what enforces that a read-only session cannot write.
    fn read_only_guard(&self) -> &'static str;
    /// Opens a session, with `on_connect` run and settings in place. Bounded by the caller's patience: dropping it gives up.
    fn connect(&self, access: Access) -> Work<'_, Result<Box<dyn Session>, DatabaseError>>;
}

/// One connection. Not shared; the engine hands it from seat to seat.
pub trait Session: Send + 'static {
    /// Runs a statement that returns rows.
    fn read<'a>(
        &'a mut self,
        statement: &'a Statement,
        parameters: &'a [Value],
        limits: ReadLimits,
    ) -> Work<'a, Result<Rows, DatabaseError>>;
    /// Runs a statement that changes rows, inside the transaction opened by [`Session::begin`].
    fn write<'a>(
        &'a mut self,
        statement: &'a Statement,
        parameters: &'a [Value],
        limits: ReadLimits,
    ) -> Work<'a, Result<Written, DatabaseError>>;
    /// Opens a transaction. [`Failure::NoTransactions`] where the database has no commitment control.
    fn begin(&mut self) -> Work<'_, Result<(), DatabaseError>>;
    /// Commits. An error other than [`Failure::Refused`] leaves the outcome unknown.
    fn commit(&mut self) -> Work<'_, Result<(), DatabaseError>>;
    /// Rolls back.
    fn rollback(&mut self) -> Work<'_, Result<(), DatabaseError>>;
    /// Whether the session may be used again after a call that returned. False after a lost link.
    fn usable(&self) -> bool;
    /// Ends whatever an abandoned (dropped) call left running, any open transaction with it (rolled back), and says
    /// what became of it.
    fn end(self: Box<Self>) -> Work<'static, Ended>;
}
