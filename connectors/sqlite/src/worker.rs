//! The thread of a session: opens the file, runs one job after the other, closes.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use rusqlite::{Connection, InterruptHandle, OpenFlags};
use spillgate_connector::{Access, DatabaseError, Failure, ReadLimits, Statement, Written};
use spillgate_model::{Rows, Value};
use tokio::sync::{mpsc, oneshot};

use crate::SqliteOptions;
use crate::control::Control;
use crate::failure::{of_open, of_statement};
use crate::statements::Statements;

pub(crate) enum Job {
    Read(Statement, Box<[Value]>, ReadLimits),
    Write(Statement, Box<[Value]>, ReadLimits),
    Begin,
    Commit,
    /// Also where no transaction is open: then nothing happens.
    Rollback,
}

pub(crate) enum Reply {
    Read(Result<Rows, DatabaseError>),
    Written(Result<Written, DatabaseError>),
    Done(Result<(), DatabaseError>),
}

/// What the session needs to end a statement from outside.
pub(crate) struct Opened {
    pub(crate) control: Arc<Control>,
    pub(crate) interrupt: InterruptHandle,
}

pub(crate) struct Worker {
    pub(crate) options: SqliteOptions,
    pub(crate) access: Access,
    pub(crate) inbox: Receiver<Job>,
    pub(crate) outbox: mpsc::Sender<Reply>,
}

impl Worker {
    /// Until the session is dropped.
    pub(crate) fn run(self, opened: oneshot::Sender<Result<Opened, DatabaseError>>) {
        let control = Control::new();
        let prepared = self.open(&control).map_err(|error| of_open(&error)).and_then(|connection| {
            self.greet(&connection)?;
            Ok(connection)
        });
        let connection = match prepared {
            Ok(connection) => connection,
            Err(error) => {
                let _caller_may_have_gone = opened.send(Err(error));
                return;
            }
        };
        if opened.send(Ok(Opened { control: control.clone(), interrupt: connection.get_interrupt_handle() })).is_err() {
            return;
        }
        let mut statements = Statements::new(&connection, &control);
        while let Ok(job) = self.inbox.recv() {
            control.start(self.options.statement_timeout);
            let reply = match job {
                Job::Read(statement, parameters, limits) => Reply::Read(statements.read(&statement, &parameters, limits)),
                Job::Write(statement, parameters, limits) => Reply::Written(statements.write(&statement, &parameters, limits)),
                Job::Begin => Reply::Done(plain(&connection, "BEGIN IMMEDIATE")),
                Job::Commit => Reply::Done(plain(&connection, "COMMIT")),
                Job::Rollback if connection.is_autocommit() => Reply::Done(Ok(())),
                Job::Rollback => Reply::Done(plain(&connection, "ROLLBACK")),
            };
            // There is room for one reply, and one job at a time.
            if self.outbox.try_send(reply).is_err() {
                return;
            }
        }
    }

    fn open(&self, control: &Arc<Control>) -> rusqlite::Result<Connection> {
        let mode = match self.access {
            Access::ReadOnly => OpenFlags::SQLITE_OPEN_READ_ONLY,
            Access::ReadWrite => OpenFlags::SQLITE_OPEN_READ_WRITE,
        };
        let mut connection = Connection::open_with_flags(&self.options.path, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        control.start(self.options.statement_timeout);
        control.install(&mut connection)?;
        match self.access {
            Access::ReadOnly => {
                connection.pragma_query_value(None, "schema_version", |_| Ok(()))?; // the file is a database and can be read
                connection.pragma_update(None, "query_only", true)?;
            }
            Access::ReadWrite => {
                connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
                connection.pragma_update(None, "foreign_keys", true)?;
            }
        }
        Ok(connection)
    }

    fn greet(&self, connection: &Connection) -> Result<(), DatabaseError> {
        self.options.on_connect.iter().try_for_each(|statement| {
            let refused = |error: rusqlite::Error| {
                DatabaseError::new(Failure::Unreachable, "a statement of on_connect was refused", error.to_string())
            };
            connection.execute_batch(statement).map_err(refused)
        })
    }
}

fn plain(connection: &Connection, text: &str) -> Result<(), DatabaseError> {
    connection.prepare_cached(text).and_then(|mut statement| statement.execute(())).map(drop).map_err(|error| of_statement(&error))
}
