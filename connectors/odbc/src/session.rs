//! A session: one connection on one driver thread.

use std::time::{Duration, Instant};

use spillgate_connector::{DatabaseError, Ended, Failure, ReadLimits, Session, Statement, Written};
use spillgate_model::{Rows, Value, Work};

use crate::driver::Transaction;
use crate::link::Link;
use crate::workers::{Finish, Lease};

/// How long an end waits for the driver to come back: a frozen link must not hold its caller.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// One connection and its thread.
pub(crate) struct OdbcSession {
    lease: Lease,
    usable: bool,
    statement_timeout: Duration,
}

impl OdbcSession {
    pub(crate) fn new(lease: Lease, statement_timeout: Duration) -> OdbcSession {
        OdbcSession { lease, usable: true, statement_timeout }
    }
    async fn call<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Link) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        if !self.usable {
            return Err(lost());
        }
        let result = self.lease.call(move |link| link.as_mut().map_or_else(|| Err(lost()), work)).await;
        if result.as_ref().is_err_and(|error| Link::is_ended_by(&error.failure)) || self.last().0 == Finish::Unproven {
            self.usable = false;
        }
        result
    }
    fn last(&self) -> (Finish, Option<Instant>) {
        self.lease.state().map_or_else(Default::default, |state| state.last())
    }
    /// What is left of the time after which the database itself must have ended the statement. Past that time it did not, or the
    /// driver missed it: then as long again.
    fn rest(&self, since: Option<Instant>) -> Duration {
        let left = since.and_then(|since| self.statement_timeout.checked_sub(since.elapsed()));
        left.filter(|left| !left.is_zero()).unwrap_or(self.statement_timeout)
    }
    async fn end_within_patience(self) -> Ended {
        let Some(state) = self.lease.state().cloned() else { return Ended::Closed };
        if state.is_busy() {
            self.lease.cancel();
            if tokio::time::timeout(END_PATIENCE, state.idle()).await.is_err() {
                return Ended::Unconfirmed(self.rest(self.last().1));
            }
            // What a cancel leaves behind on a connection is distrusted: it is closed.
        } else if self.usable {
            let reset = self.lease.call(|link| Ok(link.as_mut().is_some_and(Link::reset)));
            if matches!(tokio::time::timeout(END_PATIENCE, reset).await, Ok(Ok(true))) {
                return Ended::Clean(Box::new(self));
            }
        }
        self.close().await
    }
    /// Closes the connection. `Closed` only where nothing of it can run on.
    async fn close(self) -> Ended {
        let (finish, since) = self.last();
        let rest = self.rest(since);
        let close = self.lease.call(|link| Ok(link.take().is_none_or(|link| link.close().is_ok())));
        let closed = matches!(tokio::time::timeout(END_PATIENCE, close).await, Ok(Ok(true)));
        if finish == Finish::Answered && closed { Ended::Closed } else { Ended::Unconfirmed(rest) }
    }
}

fn lost() -> DatabaseError {
    let detail = "the connection to the database was lost";
    DatabaseError::new(Failure::LinkLost, detail, detail)
}

impl Session for OdbcSession {
    fn read<'a>(
        &'a mut self,
        statement: &'a Statement,
        parameters: &'a [Value],
        limits: ReadLimits,
    ) -> Work<'a, Result<Rows, DatabaseError>> {
        let (statement, parameters) = (statement.clone(), parameters.to_vec());
        Box::pin(self.call(move |link| link.read(&statement, &parameters, limits)))
    }
    fn write<'a>(
        &'a mut self,
        statement: &'a Statement,
        parameters: &'a [Value],
        limits: ReadLimits,
    ) -> Work<'a, Result<Written, DatabaseError>> {
        let (statement, parameters) = (statement.clone(), parameters.to_vec());
        Box::pin(self.call(move |link| link.write(&statement, &parameters, limits)))
    }
    fn begin(&mut self) -> Work<'_, Result<(), DatabaseError>> {
        Box::pin(self.call(Link::begin))
    }
    fn commit(&mut self) -> Work<'_, Result<(), DatabaseError>> {
        Box::pin(self.call(|link| link.finish(Transaction::Commit)))
    }
    fn rollback(&mut self) -> Work<'_, Result<(), DatabaseError>> {
        Box::pin(self.call(|link| link.finish(Transaction::Rollback)))
    }
    fn usable(&self) -> bool {
        self.usable
    }
    fn end(self: Box<Self>) -> Work<'static, Ended> {
        Box::pin((*self).end_within_patience())
    }
}
