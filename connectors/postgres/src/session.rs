//! One connection: statements, transactions, and how it is brought to rest.
//!
//! States: idle -> busy (a call is polled) -> idle (it returned) | abandoned (it was dropped). Abandoned and lost sessions only
//! know [`Session::end`].

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use spillgate_connector::{Access, DatabaseError, Ended, Failure, ReadLimits, Scrub, Session, Statement, Written};
use spillgate_model::{Rows, Value, Work};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Error};

use crate::Postgres;
use crate::bind::Bound;
use crate::cancel::Cancel;
use crate::failure;
use crate::fetch::Fetching;
use crate::gauge::{Gauge, Gauged, Gauging};
use crate::link::{Link, Peer};
use crate::prepared::{Prepared, Statements};

/// How long a statement is given to end by itself before it is cancelled.
pub(crate) const GRACE: Duration = Duration::from_millis(2);
/// Cancel requests are repeated after this time, doubled each time: the first may have come before the statement did.
const CANCEL_AGAIN: Duration = Duration::from_millis(25);
/// After this time a connection that does not come to rest is given up.
const REST_LIMIT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transaction {
    None,
    /// Begun, and nothing has run in it.
    Fresh,
    Used,
    /// A statement in it failed: the server only lets it be rolled back.
    Failed,
}

pub(crate) struct PostgresSession {
    client: Client,
    cancel: Cancel,
    statements: Statements,
    transaction: Transaction,
    statement_timeout: Duration,
    scrub: Scrub,
    gauge: Arc<Gauge>,
    /// A call is on its way; still true after it was dropped.
    busy: bool,
    /// A statement is being prepared; still true after that was dropped: the server then holds one that nobody knows.
    preparing: bool,
    /// The link broke, or what came over it could not be followed.
    broken: bool,
    /// It broke while a statement was on its way, and the server did not say that it is over.
    lost_at_work: bool,
    /// Carries the bytes; ends by itself when the client is dropped, but for a link that hangs.
    carrier: AbortHandle,
}

impl PostgresSession {
    pub(crate) async fn open(database: &Postgres, access: Access) -> Result<Self, DatabaseError> {
        let mut last = None;
        for (place, name) in &database.settings.places {
            match place.peers().await {
                Err(error) => last = Some(failure::of_link(&error, &database.scrub)),
                Ok(peers) => {
                    for peer in peers {
                        match Self::open_at(database, access, peer, name).await {
                            Ok(session) => return Ok(session),
                            Err(error) => last = Some(error),
                        }
                    }
                }
            }
        }
        let nowhere = || DatabaseError::new(Failure::Unreachable, "the database cannot be reached", "the name has no address");
        Err(last.unwrap_or_else(nowhere))
    }

    async fn open_at(database: &Postgres, access: Access, peer: Peer, name: &str) -> Result<Self, DatabaseError> {
        let scrub = &database.scrub;
        let link = peer.connect(database.settings.connect_timeout).await.map_err(|error| failure::of_link(&error, scrub))?;
        let mut tls = database.settings.tls.clone();
        let Ok(connector) = MakeTlsConnect::<Gauged<Link>>::make_tls_connect(&mut tls, name);
        let mut config = database.settings.config(access).clone();
        if matches!(peer, Peer::Unix(_)) {
            // A socket in the file system is private as it is; Postgres knows no TLS there.
            config.ssl_mode(SslMode::Disable);
        }
        let gauge = Gauge::new();
        let link = Gauged::new(link, config.get_ssl_mode() != SslMode::Disable, &gauge);
        let connected = Box::pin(config.connect_raw(link, Gauging(connector, gauge.clone()))).await;
        let (client, connection) = connected.map_err(|error| failure::of_connect(&error, scrub))?;
        // Ends when the client is dropped or the link breaks; every open call hears of that.
        let carrier = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to Postgres ended");
            }
        });
        for statement in &database.on_connect {
            client.batch_execute(statement).await.map_err(|error| {
                let cause = failure::of_statement(&error, true, scrub);
                DatabaseError {
                    failure: Failure::Unreachable,
                    detail: format!("a statement of on_connect failed: {}", cause.detail),
                    ..cause
                }
            })?;
        }
        let cancel = Cancel { token: client.cancel_token(), peer, tls, name: name.into() };
        Ok(PostgresSession {
            client,
            cancel,
            statements: Statements::default(),
            transaction: Transaction::None,
            statement_timeout: database.statement_timeout,
            scrub: scrub.clone(),
            gauge,
            busy: false,
            preparing: false,
            broken: false,
            lost_at_work: false,
            carrier: carrier.abort_handle(),
        })
    }

    /// Starts a call, unless the session is in need of its end.
    fn start(&mut self) -> Result<(), DatabaseError> {
        if self.busy || self.broken {
            return Err(DatabaseError::new(Failure::LinkLost, "the session is in need of its end", "called before end"));
        }
        if self.client.is_closed() {
            let detail = "the connection to the database had been lost before";
            return Err(DatabaseError::new(Failure::Unreachable, detail, detail));
        }
        self.busy = true;
        Ok(())
    }

    /// Ends a call, whatever came of it.
    fn ended<T>(&mut self, result: Result<T, DatabaseError>) -> Result<T, DatabaseError> {
        self.busy = false;
        self.broken |= self.gauge.passed();
        if let Err(error) = &result {
            self.broken |= error.failure == Failure::LinkLost;
            self.lost_at_work |= error.failure == Failure::LinkLost && error.sqlstate.is_none();
            if self.transaction != Transaction::None {
                self.transaction = Transaction::Failed;
            }
        } else if self.transaction == Transaction::Fresh {
            self.transaction = Transaction::Used;
        }
        result
    }

    async fn run(&mut self, statement: &Statement, parameters: &[Value], limits: ReadLimits) -> Result<Written, DatabaseError> {
        self.start()?;
        let result = self.run_prepared(statement, parameters, limits).await;
        self.ended(result)
    }

    async fn run_prepared(&mut self, statement: &Statement, parameters: &[Value], limits: ReadLimits) -> Result<Written, DatabaseError> {
        self.gauge.allow(limits.max_bytes);
        let mut may_prepare_again = true;
        loop {
            let fresh = self.prepare(statement).await?;
            let Some(prepared) = self.statements.get(statement.id) else { continue };
            let started = self.client.query_raw(&prepared.handle, parameters.iter().map(Bound)).await;
            match started {
                Ok(stream) => {
                    let in_transaction = self.transaction != Transaction::None;
                    let fetching = Fetching { prepared, cancel: &self.cancel, gauge: &self.gauge, in_transaction, scrub: &self.scrub };
                    return fetching.run(stream, limits).await;
                }
                // The answer to the bind is an error: nothing ran.
                Err(error) if failure::is_stale(&error) && !fresh && may_prepare_again => {
                    may_prepare_again = false;
                    self.statements.forget(statement.id);
                    self.begin_again(&error).await?;
                }
                Err(error) => return Err(failure::of_statement(&error, true, &self.scrub)),
            }
        }
    }

    /// A failed bind fails the transaction it stands in. Where nothing ran in it yet, another takes its place.
    async fn begin_again(&mut self, error: &Error) -> Result<(), DatabaseError> {
        match self.transaction {
            Transaction::None => Ok(()),
            Transaction::Fresh => self.plain("ROLLBACK; BEGIN").await,
            Transaction::Used | Transaction::Failed => {
                let cause = failure::of_statement(error, true, &self.scrub);
                Err(DatabaseError { failure: Failure::Passing, detail: "a table was changed while the transaction ran".into(), ..cause })
            }
        }
    }

    /// Whether the statement had to be prepared.
    async fn prepare(&mut self, statement: &Statement) -> Result<bool, DatabaseError> {
        if self.statements.get(statement.id).is_some() {
            return Ok(false);
        }
        self.preparing = true;
        let mut prepared = self.client.prepare(&statement.text).await;
        if prepared.as_ref().is_err_and(failure::is_stale) && self.transaction == Transaction::None {
            // Behind a pooler the name may be taken by another process; the next one will not be.
            prepared = self.client.prepare(&statement.text).await;
        }
        self.preparing = false;
        let handle = prepared.map_err(|error| failure::of_statement(&error, true, &self.scrub))?;
        self.statements.keep(statement.id, Prepared::new(statement, handle)?);
        Ok(true)
    }

    async fn plain(&self, text: &str) -> Result<(), DatabaseError> {
        self.client.batch_execute(text).await.map_err(|error| failure::of_statement(&error, true, &self.scrub))
    }

    async fn begin(&mut self) -> Result<(), DatabaseError> {
        self.start()?;
        let result = self.plain("BEGIN").await;
        let begun = self.ended(result);
        if begun.is_ok() {
            self.transaction = Transaction::Fresh;
        }
        begun
    }

    async fn finish(&mut self, text: &'static str) -> Result<(), DatabaseError> {
        self.start()?;
        // The server answers the commit of a failed transaction with a rollback and no error.
        let refused = text == "COMMIT" && self.transaction == Transaction::Failed;
        let result = self.plain(if refused { "ROLLBACK" } else { text }).await;
        self.ended(result)?;
        self.transaction = Transaction::None;
        if refused {
            let detail = "the transaction had failed before and was rolled back";
            return Err(DatabaseError::new(Failure::Refused, detail, detail).sqlstate("25P02"));
        }
        Ok(())
    }

    /// Brings an abandoned connection to rest: nothing runs on it, and no transaction is open.
    async fn rest(&self) -> Rest {
        let mut resting = pin!(self.client.batch_execute("ROLLBACK"));
        let mut patience = GRACE;
        loop {
            match timeout(patience, &mut resting).await {
                Ok(Ok(())) => return Rest::Idle,
                // A cancel met the rollback itself. It was delivered before, so the next one stands alone.
                Ok(Err(error)) if error.code().is_some() => {
                    let again = timeout(REST_LIMIT, self.client.batch_execute("ROLLBACK")).await;
                    return if matches!(again, Ok(Ok(()))) { Rest::Idle } else { Rest::Ended };
                }
                Ok(Err(_)) => return Rest::Lost,
                Err(_) if patience > REST_LIMIT => return Rest::Lost,
                Err(_) => {
                    if !self.cancel.deliver().await {
                        return Rest::Lost;
                    }
                    patience = if patience == GRACE { CANCEL_AGAIN } else { patience * 2 };
                }
            }
        }
    }
}

enum Rest {
    Idle,
    /// The statement is over, the connection is of no more use.
    Ended,
    /// Nobody knows.
    Lost,
}

impl Session for PostgresSession {
    fn read<'a>(
        &'a mut self,
        statement: &'a Statement,
        parameters: &'a [Value],
        limits: ReadLimits,
    ) -> Work<'a, Result<Rows, DatabaseError>> {
        Box::pin(async move { Ok(self.run(statement, parameters, limits).await?.rows) })
    }
    fn write<'a>(
        &'a mut self,
        statement: &'a Statement,
        parameters: &'a [Value],
        limits: ReadLimits,
    ) -> Work<'a, Result<Written, DatabaseError>> {
        Box::pin(self.run(statement, parameters, limits))
    }
    fn begin(&mut self) -> Work<'_, Result<(), DatabaseError>> {
        Box::pin(self.begin())
    }
    fn commit(&mut self) -> Work<'_, Result<(), DatabaseError>> {
        Box::pin(self.finish("COMMIT"))
    }
    fn rollback(&mut self) -> Work<'_, Result<(), DatabaseError>> {
        Box::pin(self.finish("ROLLBACK"))
    }
    fn usable(&self) -> bool {
        !self.busy && !self.broken && !self.client.is_closed()
    }
    fn end(mut self: Box<Self>) -> Work<'static, Ended> {
        Box::pin(async move {
            let at_work = std::mem::take(&mut self.busy) || self.lost_at_work;
            if self.usable() && !at_work && self.transaction == Transaction::None {
                return Ended::Clean(self);
            }
            let rest = if self.usable() { timeout(REST_LIMIT, self.rest()).await.unwrap_or(Rest::Lost) } else { Rest::Lost };
            match rest {
                // A statement whose preparation was given up may stay on the server under a name nobody knows.
                Rest::Idle if self.preparing => Ended::Closed,
                Rest::Idle => {
                    self.transaction = Transaction::None;
                    Ended::Clean(self)
                }
                Rest::Ended => Ended::Closed,
                Rest::Lost => {
                    self.carrier.abort();
                    // Where nothing was at work, the server rolls back with the connection.
                    if !at_work || self.cancel.deliver().await { Ended::Closed } else { Ended::Unconfirmed(self.statement_timeout) }
                }
            }
        })
    }
}

impl Drop for PostgresSession {
    /// Dropped in the middle of a call, without its end: the statement is still not left to run.
    fn drop(&mut self) {
        if self.busy
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (cancel, carrier) = (self.cancel.clone(), self.carrier.clone());
            runtime.spawn(async move {
                cancel.deliver().await;
                carrier.abort();
            });
        }
    }
}
