//! Writes: a transaction on a seat of its own, and what is known about its end.
//!
//! `none -> open -> (committing -> none) | (rolled back -> none)`; a deadline in `committing` leaves the outcome unknown.

use std::time::Duration;

use spillgate_admission::Reservation;
use spillgate_config::plan::{Action, SqlStep, Step};
use spillgate_connector::{Access, DatabaseError, Failure, ReadLimits, Written};
use spillgate_model::{Code, Refusal, Rows, Value};
use spillgate_queue::Emit;

use super::retry::{Attempt, Target, Tries};
use super::{Context, PreparedSql, sql};
use crate::breaker::Passage;
use crate::run::Doing;
use crate::seats::Seat;
use crate::statements::Bound;
use crate::verdict::{Failed, Fallible, at_commit, before_commit, too_late};
use crate::{Outcome, once};

/// What a flow has written so far.
#[derive(Default)]
pub(crate) struct Writing {
    open: Option<Transaction>,
    /// The commit was sent and has not answered.
    committing: bool,
    /// An earlier transaction of this flow was committed.
    committed: bool,
    /// A request that cannot be taken back was sent to a service.
    outside: bool,
    /// A test of the flow: everything runs, nothing is kept.
    rehearsal: bool,
    /// What the flow comes to if its last commit is done.
    promised: Option<Outcome>,
    /// The record says that the work was done before: by which job.
    done_by: Option<Box<str>>,
    /// What is handed on if all goes well, and the memory that it takes.
    emits: Vec<(Emit, Reservation)>,
    /// The high-water mark of the flow's schedule then.
    mark: Option<Value>,
}

/// What is left of a run in databases and services.
#[derive(Debug)]
pub(crate) enum Left {
    /// Everything: it succeeded, or was found done before.
    All,
    /// Nothing, and that is proven: it may run again.
    Nothing,
    /// A part that cannot be taken back.
    Part,
    /// Nobody knows. What it came to if its commit was done.
    Unknown(Option<Outcome>),
}

/// An open transaction.
pub(crate) struct Transaction {
    database: usize,
    seat: Seat,
    passage: Passage<'static>,
    writes: u32,
}

impl Transaction {
    /// Reads inside the transaction: it sees what was written.
    pub(super) async fn read(&mut self, bound: &Bound<'_>, limits: ReadLimits) -> Result<Rows, DatabaseError> {
        let result = self.seat.read(&bound.statement, &bound.parameters, limits).await;
        if let Err(error) = &result {
            self.passage.failed(error);
        }
        result
    }
}

impl Writing {
    /// `rehearsal`: transactions are rolled back where they would be committed.
    pub(crate) fn new(rehearsal: bool) -> Self {
        Writing { rehearsal, ..Writing::default() }
    }

    /// The open transaction if it is on this database; one on another database is committed first.
    pub(super) async fn on(&mut self, database: usize) -> Fallible<Option<&mut Transaction>> {
        if self.open.as_ref().is_some_and(|open| open.database != database) {
            self.commit().await?;
        }
        Ok(self.open.as_mut())
    }

    /// One write step, with its tries: only the first write of a transaction may be tried again.
    pub(super) async fn write(&mut self, context: &Context<'_>, step: &Step, sql: &SqlStep, prepared: &PreparedSql) -> Fallible<Written> {
        let bound = prepared.first.bind(&context.call.flowfile.input, &[], &|which| context.system(which));
        let mut tries = Tries::of(context, self, step, Target::database(context, sql.database));
        loop {
            let failed = match self.write_once(context, tries.attempt(), sql, &bound, prepared.limits).await {
                Ok(written) => return Ok(written),
                Err(failed) => failed,
            };
            let alone = self.open.as_ref().is_none_or(|open| open.writes <= 1);
            if !alone || !failed.again {
                return Err(failed);
            }
            self.roll_back().await;
            tries.again(failed).await?;
        }
    }

    async fn write_once(
        &mut self,
        context: &Context<'_>,
        attempt: Attempt,
        sql: &SqlStep,
        bound: &Bound<'_>,
        limits: ReadLimits,
    ) -> Fallible<Written> {
        if self.on(sql.database).await?.is_none() {
            let (seat, passage) = begun(context, attempt, sql.database).await?;
            self.open = Some(Transaction { database: sql.database, seat, passage: passage.seated(), writes: 0 });
            context.about_to_write().await?;
            self.record(context).await?;
        }
        let Some(open) = &mut self.open else {
            return Err(Failed::refused(Refusal::new(Code::Internal, "The transaction is gone.")));
        };
        open.writes += 1;
        let result = open.seat.write(&bound.statement, &bound.parameters, limits).await;
        let written = result.map_err(|error| {
            open.passage.failed(&error);
            sql::failed(context, sql.database, error)
        })?;
        match sql.max_affected {
            Some(most) if written.affected > most => {
                let detail = format!(
                    "The statement would have changed {} rows, more than its max_affected of {most}; it was rolled back.",
                    written.affected
                );
                Err(Failed::refused(Refusal::new(Code::DatabaseError, detail).policy("max_affected", most, written.affected)))
            }
            _ => Ok(written),
        }
    }

    /// The row of the flow's record goes first: whoever does the same work at the same time waits for this transaction, and
    /// where the work was done before nothing is written.
    async fn record(&mut self, context: &Context<'_>) -> Fallible<()> {
        let (Some(record), Some(_claimed), Some(open)) = (&context.prepared().record, context.claim, &mut self.open) else {
            return Ok(());
        };
        let bound = record.insert.bind(&context.call.flowfile.input, &[], &|which| context.system(which));
        let Err(error) = open.seat.write(&bound.statement, &bound.parameters, once::RECORD_LIMITS).await else { return Ok(()) };
        open.passage.failed(&error);
        let refused = error.failure == Failure::Refused;
        let failed = sql::failed(context, record.database, error);
        if refused {
            self.roll_back().await;
            // A duplicate key, if the row is there; else the record's table refuses for another reason.
            self.done_by = once::recorded_by(context, record).await?;
        }
        Err(failed)
    }

    /// Commits what is open.
    pub(super) async fn commit(&mut self) -> Fallible<()> {
        if self.rehearsal {
            self.roll_back().await;
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        self.committing = true;
        let result = open.seat.commit().await;
        open.passage.answered(&result);
        self.committing = false;
        self.open = None;
        result.map_err(at_commit)?;
        self.committed = true;
        Ok(())
    }

    /// The last commit: with it the flow comes to this.
    pub(super) async fn commit_for(&mut self, outcome: Outcome) -> Fallible<Outcome> {
        if self.open.is_none() {
            return Ok(outcome);
        }
        // Kept here: if the answer is lost, what the database says later may make it true.
        let outcome = self.promised.insert(outcome).clone();
        self.commit().await?;
        Ok(outcome)
    }

    /// A request that cannot be taken back was sent to a service.
    pub(super) fn sent_outside(&mut self) {
        self.outside = true;
    }

    /// Whether a failed step may be passed over: what it wrote itself is rolled back, and nothing written before may be lost.
    pub(super) async fn may_go_on(&mut self, failed: &Action) -> bool {
        if self.done_by.is_some() {
            return false;
        }
        let Some(writes) = self.open.as_ref().map(|open| open.writes) else { return true };
        match failed {
            Action::Map(_) | Action::Http(_) | Action::Queue | Action::Emit(_) | Action::Route => true,
            Action::Sql(sql) if sql.write && writes <= 1 => {
                self.roll_back().await;
                true
            }
            // A failed statement may have spoiled the transaction that it shared with an earlier write.
            Action::Sql(_) => false,
        }
    }

    async fn roll_back(&mut self) -> bool {
        match self.open.take() {
            None => true,
            Some(mut open) => open.seat.roll_back().await,
        }
    }

    /// Items for another queue, in room that was taken for them.
    pub(super) fn hand_on(&mut self, emit: Emit, memory: Reservation) {
        self.emits.push((emit, memory));
    }
    /// Where the high-water mark of the flow's schedule is moved to.
    pub(super) fn move_mark(&mut self, mark: Option<Value>) {
        self.mark = mark;
    }
    /// What becomes true with the end of the run.
    pub(crate) fn onward(&mut self) -> (Vec<Emit>, Option<Value>) {
        (self.emits.drain(..).map(|(emit, _)| emit).collect(), self.mark.take())
    }
    /// A part was done that cannot be taken back: the flow must go on rather than be run again.
    pub(super) fn must_go_on(&self) -> bool {
        self.committed || self.outside
    }

    /// The flow did not fail: the record says that its work was done before.
    pub(crate) fn found_done(&mut self) -> Option<Outcome> {
        self.done_by.take().map(|job| once::done_before(&job))
    }

    /// What is left of a run that failed with `code`.
    pub(crate) fn left(&mut self, code: Code) -> Left {
        match code {
            Code::OutcomeUnknown => Left::Unknown(self.promised.take()),
            // A panic while the commit was on its way.
            _ if self.committing => Left::Unknown(self.promised.take()),
            _ if self.committed || self.outside => Left::Part,
            _ => Left::Nothing,
        }
    }

    /// The flow failed: rolls back and says what is left of it.
    pub(crate) async fn failed(&mut self, mut failed: Box<Failed>, patience: Duration) -> Box<Failed> {
        // Without an answer in time the seat ends the transaction when it is dropped; it was never asked to commit.
        let _told = tokio::time::timeout(patience, self.roll_back()).await;
        if self.committed && failed.refusal.code != Code::OutcomeUnknown {
            failed.refusal.detail.push_str(" What this flow wrote before to another database was committed.");
        }
        if self.committed || self.outside {
            // The same call again would do that part twice.
            failed.refusal = failed.refusal.part_done();
        }
        failed
    }

    /// The deadline passed.
    pub(crate) async fn late(&mut self, doing: Doing, patience: Duration) -> Box<Failed> {
        let unknown = |detail: &str| Failed::refused(Refusal::new(Code::OutcomeUnknown, detail));
        if self.committing {
            // Its end goes on by itself; nothing it could say would tell whether the commit was done.
            self.open = None;
            return unknown("The deadline passed after the commit was sent and before it was answered.");
        }
        let ended = match self.open.take() {
            None => true,
            Some(open) => open.seat.end(patience).await,
        };
        if self.committed {
            return unknown("The deadline passed when a part of the flow was committed already.");
        }
        if self.outside {
            return unknown(
                "The deadline passed when a request had been sent to a service; what was written to the database was not committed.",
            );
        }
        if !ended {
            return unknown("The deadline passed, and the database has not confirmed the rollback.");
        }
        too_late(doing, "The flow did not end before its deadline; what it wrote was rolled back.")
    }
}

/// A seat with a transaction open, for a question of our own.
pub(crate) async fn begin(context: &Context<'_>, database: usize) -> Fallible<Seat> {
    // What it says is asked for its own sake: it proves nothing of the flow's statements.
    begun(context, Attempt::First, database).await.map(|(seat, _)| seat)
}

/// A seat with a transaction open. A link that died while its session was idle is replaced once: nothing ran yet.
async fn begun<'a>(context: &Context<'a>, attempt: Attempt, database: usize) -> Fallible<(Seat, Passage<'a>)> {
    let (seats, purpose) = (&context.call.live.databases[database].seats, context.purpose(database, attempt));
    let mut passage = context.pass(database)?;
    let mut seat = passage.seat(seats.acquire(Access::ReadWrite, purpose, context.notes).await)?;
    context.notes.set(Doing::Beginning);
    let result = match seat.begin().await {
        Err(error) if seat.was_lost_in_keeping(&error) => {
            seat = passage.seat(seat.reopened(context.notes).await)?;
            context.notes.set(Doing::Beginning);
            seat.begin().await
        }
        result => result,
    };
    context.notes.set(Doing::Working);
    match result {
        Ok(()) => Ok((seat, passage)),
        Err(error) => {
            passage.failed(&error);
            Err(before_commit(error))
        }
    }
}
