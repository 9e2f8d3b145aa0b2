//! What a database says about a write whose end was never told: by the flow's record, by its `verify`, or not at all.
//!
//! A row that is there proves that the write was done. That none is there proves something only when the write cannot come any more:
//! * with a record, its row is inserted once more and taken back. That waits for whoever holds the same key, in every database;
//! * with `verify` on a writable SQLite file, it is asked inside a write transaction: no other is open then;
//! * with `verify` elsewhere, it is asked again after the database's statement limit: by then it has ended what was left running.

use std::time::Duration;

use bytes::Bytes;
use spillgate_config::plan::Driver;
use spillgate_connector::{Failure, ReadLimits};
use spillgate_model::{Cell, Code, Refusal, Rows};
use tokio::time::{Instant, timeout};

use super::done_before_body;
use crate::steps::{Context, PreparedRecord, PreparedVerify, ask, begin};
use crate::verdict::{Failed, Fallible, before_commit};

/// How long one question to the database may take, its seat included.
const QUESTION: Duration = Duration::from_secs(10);
/// Longest time between the two looks of a `verify`.
const LONGEST_GRACE: Duration = Duration::from_secs(30);
/// Longest time one look takes.
pub(super) const LONGEST_LOOK: Duration = Duration::from_secs(60);
const _: () = assert!(3 * QUESTION.as_secs() <= LONGEST_LOOK.as_secs());
const _: () = assert!(2 * QUESTION.as_secs() + LONGEST_GRACE.as_secs() <= LONGEST_LOOK.as_secs());
/// What the record's own statements may return.
pub(crate) const RECORD_LIMITS: ReadLimits = ReadLimits { max_rows: 1, max_bytes: 64 * 1024 };

/// What became of a write that an attempt started and never told the end of.
#[derive(Debug)]
pub(crate) enum Found {
    /// It was done. The job's result, where it can be told.
    Done(Option<Bytes>),
    /// It is proven that it was not: it may run again.
    NotDone,
    /// Nobody can tell.
    Unknown(Box<Refusal>),
    /// It cannot be found out now, such as while the database is down: asked again later.
    Later(Box<Refusal>),
}

/// Finds out, by the flow's record or `verify`; without either it is unknown. The context has a claim, whose lease must outlast
/// this: up to [`LONGEST_LOOK`]. The context's own deadline does not count.
pub(crate) async fn look_into(context: &Context<'_>) -> Found {
    let prepared = context.prepared();
    let found = if let Some(record) = &prepared.record {
        by_record(context, record).await
    } else if let Some(verify) = &prepared.verify {
        by_verify(context, verify).await
    } else {
        return unknown("The attempt was cut off after its write was sent, and the flow has nothing that tells whether it was done.");
    };
    match found {
        // The items were to become true with an end that was never written.
        Found::Done(_) if prepared.emits => unknown("The attempt was cut off: its write was done, and what it hands on was not."),
        found => found,
    }
}

fn unknown(detail: &str) -> Found {
    Found::Unknown(Refusal::new(Code::OutcomeUnknown, detail).into())
}

/// The job that a row of the record names.
pub(crate) async fn recorded_by(context: &Context<'_>, record: &PreparedRecord) -> Fallible<Option<Box<str>>> {
    let bound = record.find.bind(&context.call.flowfile.input, &[], &|which| context.system(which));
    let rows = ask(context, record.database, &bound, RECORD_LIMITS).await?;
    Ok((!rows.is_empty()).then(|| first_text(&rows)))
}

fn first_text(rows: &Rows) -> Box<str> {
    match rows.row(0).first() {
        Some(cell @ Cell::Slice { .. }) => rows.text(*cell).into(),
        _ => "".into(),
    }
}

async fn by_record(context: &Context<'_>, record: &PreparedRecord) -> Found {
    match asked(recorded_by(&question(context), record)).await {
        Ok(Some(job)) => return Found::Done(Some(done_before_body(&job))),
        Ok(None) => {}
        Err(failed) => return later(*failed),
    }
    match asked(may_be_recorded(&question(context), record)).await {
        Ok(Recordable::Yes) => Found::NotDone,
        // It came while we looked, or the table refuses for a reason of its own.
        Ok(Recordable::Refused(refusal)) => match asked(recorded_by(&question(context), record)).await {
            Ok(Some(job)) => Found::Done(Some(done_before_body(&job))),
            Ok(None) => not_told(&refusal),
            Err(failed) => later(*failed),
        },
        Err(failed) => later(*failed),
    }
}

/// Whether the row can be inserted.
enum Recordable {
    Yes,
    Refused(Box<Refusal>),
}

async fn may_be_recorded(context: &Context<'_>, record: &PreparedRecord) -> Fallible<Recordable> {
    let bound = record.insert.bind(&context.call.flowfile.input, &[], &|which| context.system(which));
    let mut seat = begin(context, record.database).await?;
    let inserted = seat.write(&bound.statement, &bound.parameters, RECORD_LIMITS).await;
    // It was never asked to commit: whether the rollback is confirmed or not, nothing of it stays.
    seat.roll_back().await;
    match inserted {
        Ok(_) => Ok(Recordable::Yes),
        Err(error) if error.failure == Failure::Refused => Ok(Recordable::Refused(Box::new(before_commit(error).refusal))),
        Err(error) => Err(before_commit(error)),
    }
}

async fn by_verify(context: &Context<'_>, verify: &PreparedVerify) -> Found {
    let database = &context.call.live.plan.databases[verify.database];
    let alone = database.driver == Driver::Sqlite && database.writable;
    let mut grace = (!alone).then(|| database.statement_timeout.min(LONGEST_GRACE));
    loop {
        match asked(is_there(&question(context), verify, alone)).await {
            Ok(true) => return Found::Done(context.claim.map(|claim| done_before_body(&claim.job().to_string()))),
            Ok(false) => {}
            Err(failed) => return later(*failed),
        }
        match grace.take() {
            Some(grace) => tokio::time::sleep(grace).await,
            None => return Found::NotDone,
        }
    }
}

/// Whether `verify` gives a row. `alone`: inside a write transaction, so that no other is open.
async fn is_there(context: &Context<'_>, verify: &PreparedVerify, alone: bool) -> Fallible<bool> {
    let bound = verify.text.bind(&context.call.flowfile.input, &[], &|which| context.system(which));
    if !alone {
        return Ok(!ask(context, verify.database, &bound, verify.limits).await?.is_empty());
    }
    let mut seat = begin(context, verify.database).await?;
    let rows = seat.read(&bound.statement, &bound.parameters, verify.limits).await;
    seat.roll_back().await;
    Ok(!rows.map_err(before_commit)?.is_empty())
}

/// The same with a deadline of its own: the call's may be long over.
fn question<'a>(context: &Context<'a>) -> Context<'a> {
    Context { deadline: Instant::now() + QUESTION, ..*context }
}

async fn asked<T>(asking: impl Future<Output = Fallible<T>>) -> Fallible<T> {
    timeout(QUESTION, asking).await.unwrap_or_else(|_| {
        let refusal = Refusal::new(Code::DeadlineExceeded, "The database did not say in time whether the write was done.");
        Err(Failed::refused(refusal))
    })
}

fn later(failed: Failed) -> Found {
    if failed.is_refused() { not_told(&failed.refusal) } else { Found::Later(Box::new(failed.refusal)) }
}

/// The database refuses the question itself, such as where its table is gone: that is no evidence.
fn not_told(refusal: &Refusal) -> Found {
    let detail = format!(
        "The attempt was cut off after its write was sent, and the database does not tell whether it was done: {}.",
        refusal.detail
    );
    let mut unknown = Refusal::new(Code::OutcomeUnknown, detail);
    unknown.internal.clone_from(&refusal.internal);
    Found::Unknown(unknown.into())
}
