//! One connection as a worker thread holds it: its prepared statements, its transaction, what is known of its driver.
//!
//! Invariants
//! 1. Prepared statements are kept by [`spillgate_connector::Statement::id`], at most [`STATEMENTS_PER_SESSION`] of them and [`BUFFER_BYTES`] of
//!    their buffers; the one longest unused goes first.
//! 2. Every call leaves no cursor open.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use odbc_api::sys::InfoType;
use spillgate_connector::{Access, DatabaseError, Failure, ReadLimits, Scrub, Statement, Written};
use spillgate_model::limits::STATEMENTS_PER_SESSION;
use spillgate_model::{Rows, Value};

use crate::driver::{CancelPoint, Connection, Diagnostics, Layout, Outcome, Transaction};
use crate::errors::{While, ends_connection, failure, proves_end};
use crate::parameters::{self, Booleans};
use crate::prepared::{Fetched, Prepared, Stopped};

/// Memory of all buffers bound to one connection's statements.
const BUFFER_BYTES: usize = 2 << 20;
/// `SQL_TC_NONE`
const NO_TRANSACTIONS: u16 = 0;
/// States in which a database or driver says that it knows a prepared statement no more, before anything ran.
const FORGOTTEN: [&str; 5] = ["26000", "0A000", "07003", "51002", "HY007"];

/// What every link of a database shares.
pub(crate) struct Settings {
    pub(crate) on_connect: Vec<Box<str>>,
    pub(crate) statement_timeout: Duration,
    pub(crate) scrub: Scrub,
}

/// An open connection with its statements.
pub(crate) struct Link {
    /// Dropped before the connection.
    prepared: Vec<Prepared>,
    /// What their buffers hold.
    prepared_bytes: usize,
    connection: Rc<Connection>,
    settings: Arc<Settings>,
    cancel: Arc<CancelPoint>,
    layout: Layout,
    booleans: Booleans,
    transactions: bool,
    in_transaction: bool,
    uses: u64,
    /// The database itself said of the last statement that it ended it, or it was never sent.
    pub(crate) end_proven: bool,
}

impl Link {
    /// Connects and makes the session ready. `layout` finds out or remembers how the driver writes indicators.
    pub(crate) fn open(
        connection_string: &str,
        access: Access,
        limit: Duration,
        settings: Arc<Settings>,
        cancel: Arc<CancelPoint>,
        layout: impl FnOnce(&Rc<Connection>) -> Result<Layout, DatabaseError>,
    ) -> Result<Link, DatabaseError> {
        let failed = |diagnostics| failure(&diagnostics, While::Connecting, &settings.scrub);
        let connection = Connection::open(connection_string, limit, access == Access::ReadOnly).map_err(failed)?;
        let layout = layout(&connection)?;
        let postgres = connection.info_text(InfoType::DbmsName).eq_ignore_ascii_case("PostgreSQL");
        let transactions = connection.info_number(InfoType::TransactionCapable).is_none_or(|capable| capable != NO_TRANSACTIONS);
        for text in &settings.on_connect {
            let run = crate::driver::Statement::new(&connection).and_then(|statement| statement.execute_direct(text).map(drop));
            run.map_err(|diagnostics| {
                let mut error = failure(&diagnostics, While::Running, &settings.scrub);
                error.detail = format!("a statement of `on_connect` failed: {}", error.detail);
                error
            })?;
        }
        Ok(Link {
            prepared: Vec::new(),
            prepared_bytes: 0,
            connection,
            cancel,
            layout,
            booleans: if postgres { Booleans::Bit } else { Booleans::SmallInt },
            transactions,
            in_transaction: false,
            uses: 0,
            end_proven: false,
            settings,
        })
    }

    pub(crate) fn read(&mut self, statement: &Statement, values: &[Value], limits: ReadLimits) -> Result<Rows, DatabaseError> {
        Ok(self.run(statement, values, limits)?.rows)
    }
    pub(crate) fn write(&mut self, statement: &Statement, values: &[Value], limits: ReadLimits) -> Result<Written, DatabaseError> {
        let fetched = self.run(statement, values, limits)?;
        let affected = fetched.affected.unwrap_or(0).max(fetched.rows.len() as u64);
        Ok(Written { affected, rows: fetched.rows })
    }

    fn run(&mut self, statement: &Statement, values: &[Value], limits: ReadLimits) -> Result<Fetched, DatabaseError> {
        let started = Instant::now();
        self.end_proven = false;
        let (mut prepared, mut known) = self.take(statement)?;
        let cancel = self.cancel.clone();
        let result = loop {
            let executed = self.execute(&mut prepared, values, &cancel);
            match executed {
                Err(diagnostics) if known && !self.in_transaction && FORGOTTEN.contains(&diagnostics.state()) => {
                    prepared.leave(&cancel);
                    prepared = self.prepare(statement)?;
                    known = false;
                }
                Err(diagnostics) => break Err(diagnostics),
                Ok(outcome) => break Ok(outcome),
            }
        };
        let fetched = match result.map_err(Stopped::from) {
            Ok(outcome) => match prepared.fetch(statement, limits, self.layout, outcome) {
                // In a transaction nothing is run twice.
                Err(Stopped::NeedsRoom { .. }) if !self.in_transaction => {
                    let _closed = prepared.close_cursor();
                    let again = self.execute(&mut prepared, values, &cancel);
                    again.map_err(Stopped::from).and_then(|outcome| prepared.fetch(statement, limits, self.layout, outcome))
                }
                fetched => fetched,
            },
            Err(stopped) => Err(stopped),
        };
        let closed = prepared.close_cursor();
        prepared.leave(&cancel);
        let fetched = match fetched {
            // What a driver thinks of a statement that failed is not asked: it is prepared anew.
            Err(Stopped::Driver(diagnostics)) => return Err(self.failed(&diagnostics, started)),
            Err(Stopped::NeedsRoom { column }) => {
                let detail = format!("a value of column {column} is longer than the database says; the next call makes room for it");
                Err(DatabaseError::new(Failure::ValueInexact { column }, detail.clone(), detail))
            }
            Err(Stopped::Value(error)) => Err(error),
            Ok(fetched) => Ok(fetched),
        };
        self.keep(prepared);
        closed.map_err(|diagnostics| self.failed(&diagnostics, started))?;
        fetched
    }
    fn execute(&mut self, prepared: &mut Prepared, values: &[Value], cancel: &CancelPoint) -> Result<Outcome, Diagnostics> {
        parameters::bind(&mut prepared.statement, &mut prepared.markers, values, self.booleans)?;
        prepared.statement.execute(cancel)
    }
    /// The failure of a statement that ran.
    fn failed(&mut self, diagnostics: &Diagnostics, started: Instant) -> DatabaseError {
        self.end_proven = proves_end(diagnostics);
        let mut error = failure(diagnostics, While::Running, &self.settings.scrub);
        if error.failure == Failure::Refused && self.connection.is_dead() {
            error.failure = Failure::LinkLost;
        }
        // IBM's driver ends a statement at its limit by dropping the link: that is no lost link, after which a read may be repeated.
        if error.failure == Failure::LinkLost && started.elapsed() >= self.settings.statement_timeout {
            error.failure = Failure::Ended;
            error.detail = "the statement passed the time limit of its database and was ended".into();
        }
        error
    }

    /// The prepared statement of this id, taken out of the cache, and whether it was there.
    fn take(&mut self, statement: &Statement) -> Result<(Prepared, bool), DatabaseError> {
        match self.prepared.iter().position(|prepared| prepared.id == statement.id) {
            Some(index) => Ok((self.remove(index), true)),
            None => Ok((self.prepare(statement)?, false)),
        }
    }
    fn prepare(&self, statement: &Statement) -> Result<Prepared, DatabaseError> {
        let made = crate::driver::Statement::new(&self.connection).and_then(|made| {
            // Both ends end it: the engine's deadline, and the driver as a backstop.
            let _supported_or_not = made.set_query_timeout(seconds(self.settings.statement_timeout));
            made.prepare(&statement.text)?;
            Ok(made)
        });
        made.map(|made| Prepared::new(statement.id, made))
            .map_err(|diagnostics| failure(&diagnostics, While::Running, &self.settings.scrub))
    }
    fn remove(&mut self, index: usize) -> Prepared {
        let prepared = self.prepared.swap_remove(index);
        self.prepared_bytes -= prepared.kept_bytes;
        prepared
    }
    fn keep(&mut self, mut prepared: Prepared) {
        self.uses += 1;
        prepared.used = self.uses;
        prepared.kept_bytes = prepared.held_bytes();
        self.prepared_bytes += prepared.kept_bytes;
        self.prepared.push(prepared);
        while self.prepared.len() > STATEMENTS_PER_SESSION || (self.prepared_bytes > BUFFER_BYTES && self.prepared.len() > 1) {
            let oldest = self.prepared.iter().enumerate().min_by_key(|(_, prepared)| prepared.used);
            let Some((index, _)) = oldest else { return };
            drop(self.remove(index));
        }
    }

    pub(crate) fn begin(&mut self) -> Result<(), DatabaseError> {
        if !self.transactions {
            let words = "the database has no transactions";
            return Err(DatabaseError::new(Failure::NoTransactions, words, words));
        }
        self.connection.set_autocommit(false).map_err(|diagnostics| self.refused(&diagnostics))?;
        self.in_transaction = true;
        Ok(())
    }
    /// Ends the open transaction and goes back to one statement at a time.
    pub(crate) fn finish(&mut self, how: Transaction) -> Result<(), DatabaseError> {
        self.connection.end_transaction(how).map_err(|diagnostics| self.refused(&diagnostics))?;
        self.in_transaction = false;
        self.connection.set_autocommit(true).map_err(|diagnostics| self.refused(&diagnostics))
    }
    fn refused(&self, diagnostics: &Diagnostics) -> DatabaseError {
        failure(diagnostics, While::Running, &self.settings.scrub)
    }
    /// Rolls back what is open. False when the connection is of no more use.
    pub(crate) fn reset(&mut self) -> bool {
        !self.connection.is_dead() && (!self.in_transaction || self.finish(Transaction::Rollback).is_ok())
    }
    /// Closes the connection, an open transaction with it.
    pub(crate) fn close(mut self) -> Result<(), Diagnostics> {
        self.prepared.clear();
        if self.in_transaction {
            self.connection.end_transaction(Transaction::Rollback)?;
        }
        self.connection.close()
    }
    /// Whether this failure leaves nothing to use.
    pub(crate) fn is_ended_by(failure: &Failure) -> bool {
        ends_connection(failure)
    }
}

fn seconds(time: Duration) -> usize {
    usize::try_from(time.as_millis().div_ceil(1_000)).unwrap_or(usize::MAX).max(1)
}
