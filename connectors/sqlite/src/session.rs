//! The asynchronous side of a session: one message to its thread, one back.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use rusqlite::InterruptHandle;
use spillgate_connector::{Access, DatabaseError, Ended, Failure, ReadLimits, Session, Statement, Written};
use spillgate_model::{Rows, Value, Work};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::SqliteOptions;
use crate::control::Control;
use crate::failure;
use crate::worker::{Job, Opened, Reply, Worker};

/// Between two interrupts of a statement that may only be about to start.
const INTERRUPT_AGAIN: Duration = Duration::from_millis(2);
/// A statement that ignores interrupts this long is left to its thread.
const END_LIMIT: Duration = Duration::from_secs(5);

pub(crate) struct SqliteSession {
    jobs: SyncSender<Job>,
    replies: mpsc::Receiver<Reply>,
    control: Arc<Control>,
    interrupt: InterruptHandle,
    statement_timeout: Duration,
    /// A job was sent and its reply not yet taken.
    pending: bool,
    broken: bool,
}

impl SqliteSession {
    pub(crate) async fn open(options: &SqliteOptions, access: Access) -> Result<Self, DatabaseError> {
        let (jobs, inbox) = sync_channel(1);
        let (outbox, replies) = mpsc::channel(1);
        let (opened, opening) = oneshot::channel();
        let worker = Worker { options: options.clone(), access, inbox, outbox };
        let unreachable = |internal: String| DatabaseError::new(Failure::Unreachable, "no thread for a session of the database", internal);
        std::thread::Builder::new()
            .name("sqlite".into())
            .spawn(move || worker.run(opened))
            .map_err(|error| unreachable(error.to_string()))?;
        let Opened { control, interrupt } = opening.await.map_err(|_| unreachable("the thread ended".into()))??;
        let statement_timeout = options.statement_timeout;
        Ok(SqliteSession { jobs, replies, control, interrupt, statement_timeout, pending: false, broken: false })
    }

    async fn ask(&mut self, job: Job) -> Result<Reply, DatabaseError> {
        let gone = || DatabaseError::new(Failure::LinkLost, "the session of the database has ended", "the session's thread has ended");
        if self.pending || self.broken {
            return Err(DatabaseError::new(Failure::LinkLost, "the session is in need of its end", "called before end"));
        }
        if self.jobs.try_send(job).is_err() {
            self.broken = true;
            return Err(gone());
        }
        self.pending = true;
        let reply = self.replies.recv().await;
        self.pending = false;
        self.broken = reply.is_none();
        reply.ok_or_else(gone)
    }

    async fn done(&mut self, job: Job) -> Result<(), DatabaseError> {
        match self.ask(job).await? {
            Reply::Done(result) => self.noting(result),
            Reply::Read(_) | Reply::Written(_) => Err(out_of_step()),
        }
    }

    fn noting<T>(&mut self, result: Result<T, DatabaseError>) -> Result<T, DatabaseError> {
        self.broken |= result.as_ref().is_err_and(failure::breaks);
        result
    }

    /// Interrupts what runs until the thread has answered for it. False when it does not.
    async fn stop(&mut self) -> bool {
        let stopping = async {
            self.control.end();
            loop {
                self.interrupt.interrupt();
                // An interrupt before the statement has started is lost: hence again and again.
                if let Ok(reply) = timeout(INTERRUPT_AGAIN, self.replies.recv()).await {
                    self.broken |= reply.is_none();
                    return;
                }
            }
        };
        let stopped = timeout(END_LIMIT, stopping).await.is_ok();
        self.pending = !stopped;
        stopped
    }
}

fn out_of_step() -> DatabaseError {
    DatabaseError::new(Failure::LinkLost, "the session is out of step", "a reply of another kind")
}

impl Session for SqliteSession {
    fn read<'a>(
        &'a mut self,
        statement: &'a Statement,
        parameters: &'a [Value],
        limits: ReadLimits,
    ) -> Work<'a, Result<Rows, DatabaseError>> {
        Box::pin(async move {
            match self.ask(Job::Read(statement.clone(), parameters.into(), limits)).await? {
                Reply::Read(result) => self.noting(result),
                Reply::Written(_) | Reply::Done(_) => Err(out_of_step()),
            }
        })
    }
    fn write<'a>(
        &'a mut self,
        statement: &'a Statement,
        parameters: &'a [Value],
        limits: ReadLimits,
    ) -> Work<'a, Result<Written, DatabaseError>> {
        Box::pin(async move {
            match self.ask(Job::Write(statement.clone(), parameters.into(), limits)).await? {
                Reply::Written(result) => self.noting(result),
                Reply::Read(_) | Reply::Done(_) => Err(out_of_step()),
            }
        })
    }
    fn begin(&mut self) -> Work<'_, Result<(), DatabaseError>> {
        Box::pin(self.done(Job::Begin))
    }
    fn commit(&mut self) -> Work<'_, Result<(), DatabaseError>> {
        Box::pin(self.done(Job::Commit))
    }
    fn rollback(&mut self) -> Work<'_, Result<(), DatabaseError>> {
        Box::pin(self.done(Job::Rollback))
    }
    fn usable(&self) -> bool {
        !self.pending && !self.broken
    }
    fn end(mut self: Box<Self>) -> Work<'static, Ended> {
        Box::pin(async move {
            if self.pending && !self.stop().await {
                // The thread itself rolls back when the statement ends at last, and closes: nobody asks for more.
                return Ended::Unconfirmed(self.statement_timeout);
            }
            self.control.clear();
            if !self.broken && self.done(Job::Rollback).await.is_ok() {
                return Ended::Clean(self);
            }
            Ended::Closed
        })
    }
}

impl Drop for SqliteSession {
    fn drop(&mut self) {
        // Closing the channel ends the thread; a statement that still runs is not worth waiting for.
        if self.pending {
            self.control.end();
            self.interrupt.interrupt();
        }
    }
}
