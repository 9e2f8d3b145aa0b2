//! One seat: a session in the hands of a call.

use std::sync::Arc;
use std::time::Duration;

use spillgate_admission::seats::{Asking, Class, Held, Share};
use spillgate_connector::{Access, DatabaseError, Failure, ReadLimits, Session, Statement, Written};
use spillgate_model::{Rows, Value};
use spillgate_telemetry::{StatementOutcome, happened};
use tokio::time::{Instant, timeout};

use super::{FlowSeats, Seats, ending};
use crate::run::{Doing, Notes};
use crate::verdict::{Fallible, before_commit};

/// A try to connect that was given up is a failure of the database only if it had this long.
pub(crate) const CONNECT_PATIENCE: Duration = Duration::from_secs(1);

/// For whom a seat is wanted.
#[derive(Clone, Copy)]
pub(crate) struct Purpose<'a> {
    pub(crate) tenant: &'a Arc<str>,
    /// What that tenant has of this database.
    pub(crate) share: Share,
    /// Lower than the tenant's where nobody waits, or where it is not the first try.
    pub(crate) class: Class,
    pub(crate) flow: &'a Arc<FlowSeats>,
    pub(crate) deadline: Instant,
}

impl<'a> Purpose<'a> {
    /// The question to the fair order, on its clock.
    pub(super) fn asking(&self, at: impl FnOnce(Instant) -> Duration) -> Asking<'a> {
        let Purpose { tenant, share, class, flow, deadline } = *self;
        Asking { tenant, share, class, estimate: flow.estimate(), times: Some(&flow.times), deadline: at(deadline) }
    }
}

/// The right to a session. Dropping it gives the session back; with something open on it, the session is ended first.
pub(crate) struct Seat {
    seats: Arc<Seats>,
    /// Its place in the fair order, until it is given back.
    held: Option<Held>,
    access: Access,
    flow: Arc<FlowSeats>,
    deadline: Instant,
    session: Option<Box<dyn Session>>,
    /// It was used before: its link may have died while it was idle.
    reused: bool,
    /// A try to connect runs since then.
    connecting: Option<Instant>,
    /// A statement was sent and has not returned, or a transaction is open.
    unsettled: bool,
    in_transaction: bool,
    started: Option<Instant>,
    /// How long what was sent took so far; `None` before the first one was answered, and after one that was not.
    took: Option<Duration>,
}

impl Seat {
    /// Without a session it is still to be connected.
    pub(super) fn new(
        seats: &Arc<Seats>,
        held: Held,
        access: Access,
        flow: &Arc<FlowSeats>,
        deadline: Instant,
        session: Option<Box<dyn Session>>,
    ) -> Seat {
        let reused = session.is_some();
        Seat {
            seats: seats.clone(),
            held: Some(held),
            access,
            flow: flow.clone(),
            deadline,
            connecting: (!reused).then(Instant::now),
            session,
            reused,
            unsettled: false,
            in_transaction: false,
            started: None,
            took: None,
        }
    }
    pub(super) fn is_open(&self) -> bool {
        self.session.is_some()
    }
    /// Whether this failure says that the session was lost while it was kept: it had worked before, and was not started anew.
    pub(crate) fn was_lost_in_keeping(&self, error: &DatabaseError) -> bool {
        self.reused && matches!(error.failure, Failure::LinkLost | Failure::Unreachable)
    }

    /// The same seat with another session, where its own was lost in keeping: it need not stand in line again.
    pub(crate) async fn reopened(mut self, notes: &Notes) -> Fallible<Seat> {
        drop(self.session.take());
        (self.reused, self.started, self.took) = (false, None, None);
        self.seats.reopen(self.held.as_ref())?;
        self.connect(notes).await
    }

    /// Opens the session.
    pub(super) async fn connect(mut self, notes: &Notes) -> Fallible<Seat> {
        let began = Instant::now();
        self.connecting = Some(began);
        let result = opened(&self.seats, self.access, notes).await;
        notes.set(Doing::Working);
        match result {
            Ok(session) => {
                self.session = Some(session);
                self.connecting = None;
                self.seats.metrics.connects.increment();
                let mut was_down = false;
                self.seats.change(|state, now| {
                    was_down = state.reachable == Some(false);
                    state.connected();
                    if let Some(held) = &self.held {
                        state.fair.connected(held, state.at(now));
                    }
                });
                if was_down {
                    self.seats.answered.notify_waiters();
                }
                Ok(self)
            }
            Err(error) => {
                self.connecting = None;
                if error.failure == Failure::Unfit {
                    happened::database_unfit(&self.seats.metrics, &error.internal);
                } else {
                    happened::database_unreachable(&self.seats.metrics, &error.internal);
                }
                let unfit = error.failure == Failure::Unfit;
                let mut failed = before_commit(error);
                let mut wait = None;
                self.seats.change(|state, now| {
                    state.unfit = unfit;
                    wait = Some(state.not_connected(began, failed.refusal.detail.clone(), now));
                });
                if failed.refusal.retryable {
                    failed.refusal.retry_after = wait;
                }
                Err(failed)
            }
        }
    }

    /// Runs a statement that returns rows.
    pub(crate) async fn read(&mut self, statement: &Statement, parameters: &[Value], limits: ReadLimits) -> Result<Rows, DatabaseError> {
        let started = self.start();
        let Some(session) = &mut self.session else { return Err(no_session()) };
        let result = session.read(statement, parameters, limits).await;
        self.finish(started, &result);
        result
    }
    /// Runs a statement that changes rows, inside the open transaction.
    pub(crate) async fn write(
        &mut self,
        statement: &Statement,
        parameters: &[Value],
        limits: ReadLimits,
    ) -> Result<Written, DatabaseError> {
        let started = self.start();
        let Some(session) = &mut self.session else { return Err(no_session()) };
        let result = session.write(statement, parameters, limits).await;
        self.finish(started, &result);
        result
    }
    /// Opens a transaction; until it ends, dropping the seat ends it.
    pub(crate) async fn begin(&mut self) -> Result<(), DatabaseError> {
        self.start();
        let Some(session) = &mut self.session else { return Err(no_session()) };
        let result = session.begin().await;
        self.in_transaction = result.is_ok();
        self.unsettled = self.in_transaction;
        // In some databases that waited for the writes of others: the seat was held meanwhile.
        self.answered(Instant::now(), &result);
        result
    }
    /// Commits.
    pub(crate) async fn commit(&mut self) -> Result<(), DatabaseError> {
        let Some(session) = &mut self.session else { return Err(no_session()) };
        let result = session.commit().await;
        self.answered(Instant::now(), &result);
        // After a commit that failed nobody knows whether the session is still inside the transaction: it is ended.
        self.settle(result.is_ok());
        result
    }
    /// Rolls back; true where the database said so.
    pub(crate) async fn roll_back(&mut self) -> bool {
        let Some(session) = &mut self.session else { return true };
        let rolled_back = session.rollback().await.is_ok();
        self.settle(rolled_back);
        rolled_back
    }
    /// Ends whatever is open, without waiting longer than `patience`; true where the database has confirmed it.
    pub(crate) async fn end(mut self, patience: Duration) -> bool {
        let Some(session) = self.session.take() else { return true };
        self.cut_short();
        let ending = ending::start(&self.seats, self.access, self.held.take(), session);
        self.unsettled = false;
        drop(self);
        matches!(tokio::time::timeout(patience, ending).await, Ok(Ok(true)))
    }

    fn settle(&mut self, settled: bool) {
        self.in_transaction = !settled;
        self.unsettled = !settled;
    }
    fn start(&mut self) -> Instant {
        let now = Instant::now();
        self.unsettled = true;
        self.started.get_or_insert(now);
        now
    }
    fn finish<T>(&mut self, started: Instant, result: &Result<T, DatabaseError>) {
        self.unsettled = self.in_transaction;
        let now = Instant::now();
        self.answered(now, result);
        let outcome = match result {
            Ok(_) => StatementOutcome::Completed,
            Err(error) => outcome_of(&error.failure),
        };
        self.seats.metrics.statement(outcome, now - started);
        if let Err(error) = result
            && error.failure == Failure::LinkLost
        {
            happened::seat_lost(&self.seats.metrics, &error.internal);
        }
    }
    /// How long all that was sent took so far, if the last of it was answered.
    fn answered<T>(&mut self, now: Instant, result: &Result<T, DatabaseError>) {
        let is_answered = !matches!(result, Err(error) if matches!(error.failure, Failure::LinkLost | Failure::Unreachable));
        self.took = self.started.filter(|_| is_answered).map(|first| now - first);
    }
    fn cut_short(&self) {
        let now = Instant::now();
        let after = self.started.map_or(Duration::ZERO, |started| now - started);
        self.flow.cut_short(after, now);
        let why = if now >= self.deadline { "deadline" } else { "hang-up" };
        self.seats.metrics.statement(StatementOutcome::Cancelled, after);
        happened::statement_cancelled(&self.seats.metrics, &self.flow.flow, why, after);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        match self.session.take() {
            Some(session) if self.unsettled => {
                self.cut_short();
                // Goes on without us; it frees the seat when it is done.
                drop(ending::start(&self.seats, self.access, self.held.take(), session));
            }
            Some(session) => {
                let kept = session.usable().then_some(session);
                self.seats.give_back(self.access, self.held.take(), kept, self.took.map(|took| (took, &*self.flow)));
            }
            None => {
                if let Some(began) = self.connecting.take() {
                    let given_up = began.elapsed() >= CONNECT_PATIENCE;
                    let held = self.held.take();
                    self.seats.change(|state, now| {
                        if given_up {
                            let _wait = state.not_connected(began, "The database did not answer in time.".into(), now);
                        } else {
                            state.connecting = state.connecting.saturating_sub(1);
                        }
                        state.in_use = state.in_use.saturating_sub(1);
                        state.end(held, None, now);
                    });
                } else {
                    self.seats.give_back(self.access, self.held.take(), None, None);
                }
            }
        }
    }
}

/// A session, with a note of whether the database is known to answer: a deadline that is too short to open one says nothing of it.
async fn opened(seats: &Seats, access: Access, notes: &Notes) -> Result<Box<dyn Session>, DatabaseError> {
    let answers = seats.lock().reachable == Some(true);
    notes.set(if answers { Doing::Opening } else { Doing::Connecting });
    let mut opening = seats.database.connect(access);
    if let Ok(result) = timeout(CONNECT_PATIENCE, &mut opening).await {
        return result;
    }
    notes.set(Doing::Connecting);
    opening.await
}

fn no_session() -> DatabaseError {
    DatabaseError::new(Failure::LinkLost, "The session is gone.", "a seat was used after its session was taken")
}

fn outcome_of(failure: &Failure) -> StatementOutcome {
    match failure {
        Failure::Unreachable | Failure::LinkLost => StatementOutcome::LinkLost,
        Failure::Refused => StatementOutcome::Refused,
        Failure::Passing => StatementOutcome::Passing,
        Failure::Ended => StatementOutcome::Ended,
        Failure::ValueInexact { .. } | Failure::ResultTooLarge { .. } => StatementOutcome::UnusableValue,
        Failure::NoTransactions | Failure::Unfit => StatementOutcome::Unfit,
    }
}
