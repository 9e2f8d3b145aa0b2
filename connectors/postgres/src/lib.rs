//! Postgres over its own protocol: prepared statements kept per session, exact values, cancel that is delivered.
//!
//! Invariants
//! 1. One statement at a time on a connection. A cancel is *delivered* (the server has closed the cancel connection)
//!    before the session's connection is used again, so that it can never hit the next statement.
//! 2. Values go out in the text form that Postgres' own input functions read, or in binary where that is the same value; a
//!    value that the target type would round or shift in silence is refused here.
//! 3. Results come in binary and are decoded without a detour: a number is never made from text, nor text from a double.
//! 4. A prepared statement that the server no longer honours is forgotten and prepared again once, only where nothing ran.
//! 5. A row that is longer than any step allows is refused by its head, before it is held.
//! 6. A session that is not known to be idle and outside of any transaction is closed, not handed on.
//!
//! It refuses: column types it cannot give exactly (the failure says to cast them to text), sending more than one statement
//! in a text.

mod bind;
mod cancel;
mod decode;
mod failure;
mod fetch;
mod gauge;
mod link;
mod numeric;
mod prepared;
mod session;
mod settings;
mod time;
mod tls;

use std::time::Duration;

use spillgate_connector::{Access, Database, DatabaseError, Scrub, Session};
use spillgate_model::{Secret, Work};

pub use settings::SettingsError;

/// How to reach a database.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// A URL (`postgres://…`) or libpq's `key=value` form. `sslmode` is `disable`, `prefer` (the default), `require` or `verify-full`;
    /// `sslrootcert` names a PEM file of roots, and where it is given the server's certificate and name are always proven.
    pub connection: Secret,
    /// Statements run on every new session.
    pub on_connect: Vec<String>,
    /// The longest a statement may run by the server's own clock.
    pub statement_timeout: Duration,
    /// What the server's activity view shows; the connection string's own wins.
    pub application_name: String,
}

/// A database. Opens nothing until [`Database::connect`].
pub struct Postgres {
    settings: settings::Settings,
    on_connect: Vec<String>,
    statement_timeout: Duration,
    scrub: Scrub,
}

impl Postgres {
    /// Checks the settings; touches no network (the file of `sslrootcert` is read).
    pub fn new(options: PostgresOptions) -> Result<Self, SettingsError> {
        Ok(Postgres {
            settings: settings::Settings::new(&options)?,
            on_connect: options.on_connect,
            statement_timeout: options.statement_timeout,
            scrub: Scrub::of_connection(options.connection.expose()),
        })
    }
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Postgres(***)")
    }
}

impl Database for Postgres {
    fn read_only_guard(&self) -> &'static str {
        "the session: `default_transaction_read_only` is on from its start; grants are the stronger guard"
    }
    fn connect(&self, access: Access) -> Work<'_, Result<Box<dyn Session>, DatabaseError>> {
        Box::pin(async move { Ok(Box::new(session::PostgresSession::open(self, access).await?) as Box<dyn Session>) })
    }
}
