//! SQLite, embedded: bundled library, one thread a session, WAL.
//!
//! Invariants
//! 1. A session's thread alone touches its connection; a call costs one message to the thread and one back.
//! 2. A read session opens the file read-only and sets `query_only`; a write session writes in `BEGIN IMMEDIATE`
//!    transactions only, so that waiting for the lock is bounded by the statement timeout and never fails half-way.
//! 3. The storage class of a value decides its type; what only looks like a date, boolean or decimal stays what it is unless
//!    the flow declares the column.
//! 4. An abandoned statement is interrupted, and its transaction rolled back, before the session is handed on.
//!
//! It refuses: `:memory:` (each session would see a database of its own), creating files (a wrong path is a fault, not an
//! empty database), and NaN as a parameter (SQLite would store NULL).

mod control;
mod failure;
mod session;
mod statements;
mod worker;

use std::path::PathBuf;
use std::time::Duration;

use spillgate_connector::{Access, Database, DatabaseError, Session};
use spillgate_model::Work;

/// How to reach a file.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// The database file; it must exist when a session is opened.
    pub path: PathBuf,
    /// Statements run on every new session.
    pub on_connect: Vec<String>,
    /// The longest a statement may run, waiting for a lock included.
    pub statement_timeout: Duration,
}

/// Settings no session could be opened with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The path names no file.
    #[error("expected the path of a database file; :memory: and empty paths give every session a database of its own")]
    NoFile,
    /// A limit of nothing.
    #[error("statement_timeout must be more than zero")]
    NoTime,
}

/// A database file. Opens nothing until [`Database::connect`].
#[derive(Debug)]
pub struct Sqlite {
    options: SqliteOptions,
}

impl Sqlite {
    /// Checks the settings; touches no file.
    pub fn new(options: SqliteOptions) -> Result<Self, SettingsError> {
        let path = options.path.as_os_str();
        if path.is_empty() || path == ":memory:" {
            return Err(SettingsError::NoFile);
        }
        if options.statement_timeout.is_zero() {
            return Err(SettingsError::NoTime);
        }
        Ok(Sqlite { options })
    }
}

impl Database for Sqlite {
    fn read_only_guard(&self) -> &'static str {
        "the session: the file is opened read-only and `PRAGMA query_only` is set"
    }
    fn connect(&self, access: Access) -> Work<'_, Result<Box<dyn Session>, DatabaseError>> {
        Box::pin(async move { Ok(Box::new(session::SqliteSession::open(&self.options, access).await?) as Box<dyn Session>) })
    }
}
