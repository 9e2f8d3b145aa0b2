//! Databases behind an ODBC driver: Db2 for i, Db2 LUW, and any other.
//!
//! The driver manager is built in; the driver is loaded by the path or name in the connection string. Sessions run on a fixed
//! set of threads, since a driver blocks.
//!
//! Invariants
//! 1. No value is believed before the driver's length indicators have been understood ([`Failure::Unfit`] otherwise).
//! 2. At most [`OdbcOptions::threads`] threads exist for a database, whatever its driver does.
//! 3. A cancelled connection is closed, never used again. Its end is told as proven only where the database itself said so.
//!
//! It refuses: the driver manager's pooling, scrollable cursors, statements or values put together as text.
//!
//! [`Failure::Unfit`]: spillgate_connector::Failure::Unfit

mod columns;
mod digits;
mod driver;
mod errors;
mod link;
mod parameters;
mod prepared;
mod self_test;
mod session;
mod workers;

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use spillgate_connector::{Access, Database, DatabaseError, Scrub, Session};
use spillgate_model::{Secret, Work};

use crate::driver::{Connection, Layout};
use crate::link::{Link, Settings};
use crate::session::OdbcSession;
use crate::workers::Workers;

/// How long a driver may take to connect; the caller's patience is usually shorter.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Sets what drivers read from the environment of the process only, unless it is set already: IBM's shall not make lost links anew by
/// itself, over and over, while a caller waits. Call it first thing in `main`: once there is a second thread it does nothing.
pub fn prepare_process() {
    driver::prepare();
}

/// A database behind an ODBC driver, as the server file describes it.
#[derive(Clone, Debug)]
pub struct OdbcOptions {
    /// Connection string: `Driver=…;…`. Never shown.
    pub connection: Secret,
    /// Statements run on every new connection.
    pub on_connect: Vec<Box<str>>,
    /// What the driver is asked to end a statement after; and how long one whose end nobody confirmed may still be at work.
    pub statement_timeout: Duration,
    /// Threads, and so connections, at most: the size of the pool.
    pub threads: usize,
}

/// A database behind an ODBC driver.
pub struct Odbc {
    connection: Secret,
    settings: Arc<Settings>,
    workers: Arc<Workers>,
    /// Found out by the first connection.
    layout: Arc<Mutex<Option<Layout>>>,
    guard: Guard,
}

impl Odbc {
    /// Touches nothing.
    pub fn new(options: OdbcOptions) -> Odbc {
        let scrub = Scrub::of_connection(options.connection.expose());
        Odbc {
            guard: Guard::of(options.connection.expose()),
            connection: options.connection,
            settings: Arc::new(Settings { on_connect: options.on_connect, statement_timeout: options.statement_timeout, scrub }),
            workers: Workers::new(options.threads),
            layout: Arc::default(),
        }
    }
    /// Threads that are inside a driver call nobody waits for any more: lost capacity until the driver comes back.
    pub fn lost_threads(&self) -> usize {
        self.workers.lost()
    }
}

impl Database for Odbc {
    fn read_only_guard(&self) -> &'static str {
        match self.guard {
            Guard::IbmIAccess => "the IBM i Access driver: read sessions connect with CONNTYPE=2 (SELECT only)",
            Guard::Nothing => "nothing but the grants of the database user: this ODBC driver does not enforce its read-only mode",
        }
    }
    fn connect(&self, access: Access) -> Work<'_, Result<Box<dyn Session>, DatabaseError>> {
        Box::pin(async move {
            let lease = self.workers.lease().await?;
            let Some(state) = lease.state() else { return Err(unthreaded()) };
            let (settings, layout, cancel) = (self.settings.clone(), self.layout.clone(), state.cancel.clone());
            let connection = Secret::new(self.guard.connection_string(self.connection.expose(), access));
            lease
                .call(move |link| {
                    let layout = |connection: &Rc<Connection>| known_layout(&layout, connection, &settings.scrub);
                    *link = Some(Link::open(connection.expose(), access, CONNECT_LIMIT, settings.clone(), cancel, layout)?);
                    Ok(())
                })
                .await?;
            Ok(Box::new(OdbcSession::new(lease, self.settings.statement_timeout)) as Box<dyn Session>)
        })
    }
}

fn unthreaded() -> DatabaseError {
    let detail = "the server has no thread for the database";
    DatabaseError::new(spillgate_connector::Failure::Unreachable, detail, detail)
}

/// The layout every connection of this database has, found out once.
fn known_layout(known: &Mutex<Option<Layout>>, connection: &Rc<Connection>, scrub: &Scrub) -> Result<Layout, DatabaseError> {
    let lock = || known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(layout) = *lock() {
        return Ok(layout);
    }
    let layout = self_test::find_layout(connection, scrub)?;
    *lock() = Some(layout);
    Ok(layout)
}

/// What keeps a read-only session from writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    /// The driver itself, told by `CONNTYPE=2`.
    IbmIAccess,
    Nothing,
}

impl Guard {
    fn of(connection: &str) -> Guard {
        let connection = connection.to_ascii_lowercase();
        let known = ["ibm i access", "iseries access", "libcwbodbc"].iter().any(|name| connection.contains(name));
        if known { Guard::IbmIAccess } else { Guard::Nothing }
    }
    /// The connection string for this access. What it says itself about CONNTYPE holds for write sessions only: a driver
    /// takes the first of two, and a read session must not become more than the guard claims.
    fn connection_string(self, written: &str, access: Access) -> Cow<'_, str> {
        match (self, access) {
            (Guard::IbmIAccess, Access::ReadOnly) => {
                let kept: Vec<&str> = parts(written).filter(|part| !names(part, "CONNTYPE")).collect();
                Cow::Owned(format!("{};CONNTYPE=2;", kept.join(";")))
            }
            _ => Cow::Borrowed(written),
        }
    }
}

fn names(part: &str, key: &str) -> bool {
    part.split('=').next().is_some_and(|name| name.trim().eq_ignore_ascii_case(key))
}

/// `KEY=value` pairs; a `;` within braces belongs to the value.
fn parts(connection: &str) -> impl Iterator<Item = &str> {
    let mut within = false;
    let split = connection.split(move |letter| {
        within = match letter {
            '{' => true,
            '}' => false,
            _ => within,
        };
        letter == ';' && !within
    });
    split.filter(|part| !part.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c4_read_sessions_of_ibm_i_access_cannot_write() {
        let written = "Driver={IBM i Access ODBC Driver};System=as400;UID=u;PWD=p";
        let guard = Guard::of(written);
        assert_eq!(guard, Guard::IbmIAccess);
        assert!(guard.connection_string(written, Access::ReadOnly).ends_with("PWD=p;CONNTYPE=2;"));
        assert_eq!(guard.connection_string(written, Access::ReadWrite), written);
        let contrary = "conntype = 0;Driver={IBM i Access ODBC Driver};PWD={a;CONNTYPE=0;b};ConnType=0;";
        assert_eq!(
            guard.connection_string(contrary, Access::ReadOnly),
            "Driver={IBM i Access ODBC Driver};PWD={a;CONNTYPE=0;b};CONNTYPE=2;"
        );
        assert_eq!(Guard::of("Driver=libdb2.so;DATABASE=X"), Guard::Nothing);
    }
}
