//! Reads: one statement, one seat, bounded rows.

use std::sync::Arc;

use spillgate_config::plan::{SqlStep, Step};
use spillgate_connector::{Access, DatabaseError, ReadLimits};
use spillgate_model::Rows;
use spillgate_telemetry::happened;

use super::retry::{Attempt, Target, Tries};
use super::{Context, Done, Lookup, PreparedSql, PreparedStep, Writing};
use crate::Outcome;
use crate::page::{self, Binding, Page};
use crate::statements::Bound;
use crate::verdict::{Failed, Fallible, before_commit};

/// A flow that is one plain read.
pub(crate) async fn lookup(context: &Context<'_>, lookup: &Lookup) -> Fallible<Outcome> {
    let [PreparedStep::Sql(prepared)] = context.prepared().steps.as_slice() else {
        return Err(Failed::refused(spillgate_model::Refusal::new(spillgate_model::Code::Internal, "The flow was not made ready to run.")));
    };
    let bound = prepared.first.bind(&context.call.flowfile.input, &[], &|which| context.system(which));
    let rows = once(context, Attempt::First, lookup.database, &bound, lookup.limits).await?;
    if rows.is_empty()
        && let Some(on_empty) = context.flow().steps[0].on_empty
    {
        return Err(super::empty(on_empty));
    }
    Ok(Outcome::Rows { rows: Arc::new(rows), next: None, affected: None, stale: None })
}

/// A read step, paged or not, with its tries.
pub(super) async fn read(
    context: &Context<'_>,
    writing: &mut Writing,
    step: &Step,
    sql: &SqlStep,
    prepared: &PreparedSql,
) -> Fallible<Done> {
    let page = page_of(context, prepared)?;
    let after = page.as_ref().and_then(|page| page.after.as_deref());
    let text = match (after, &prepared.later) {
        (Some(_), Some(later)) => later,
        _ => &prepared.first,
    };
    let bound = text.bind(&context.call.flowfile.input, after.unwrap_or_default(), &|which| context.system(which));
    let limits = limits(prepared, page.as_ref());
    if let Some(transaction) = writing.on(sql.database).await? {
        let rows = transaction.read(&bound, limits).await.map_err(|error| failed(context, sql.database, error))?;
        return finished(context, page.as_ref(), rows);
    }
    let mut tries = Tries::of(context, writing, step, Target::database(context, sql.database));
    loop {
        match once(context, tries.attempt(), sql.database, &bound, limits).await {
            Ok(rows) => return finished(context, page.as_ref(), rows),
            Err(failed) => tries.again(failed).await?,
        }
    }
}

/// `spillgate test`: the rows of the test in place of the database's.
pub(super) fn stubbed(context: &Context<'_>, prepared: &PreparedSql, rows: &Rows) -> Fallible<Done> {
    let page = page_of(context, prepared)?;
    let mut rows = rows.clone();
    let most = limits(prepared, page.as_ref()).max_rows;
    if rows.len() > most {
        rows.keep(most);
        rows.set_truncated(true);
    }
    finished(context, page.as_ref(), rows)
}

fn page_of(context: &Context<'_>, prepared: &PreparedSql) -> Fallible<Option<Page>> {
    match &context.flow().page {
        Some(plan) if prepared.paged => match page::read(&context.call.page, plan, &binding(context)) {
            Ok(page) => Ok(Some(page)),
            Err(refusal) => Err(Failed::refused(*refusal)),
        },
        _ => Ok(None),
    }
}

fn limits(prepared: &PreparedSql, page: Option<&Page>) -> ReadLimits {
    let max_rows = page.map_or(prepared.limits.max_rows, |page| page.size.min(prepared.limits.max_rows));
    ReadLimits { max_rows, ..prepared.limits }
}

fn binding<'a>(context: &Context<'a>) -> Binding<'a> {
    Binding {
        key: &context.inner.cursor_key,
        flow_version: context.flow().version,
        tenant: &context.call.flowfile.tenant,
        inputs: &context.call.flowfile.input,
    }
}

/// A page that was cut has a cursor to go on with, so nothing of it is missing.
fn finished(context: &Context<'_>, page: Option<&Page>, mut rows: Rows) -> Fallible<Done> {
    let next = match (&context.flow().page, page) {
        (Some(plan), Some(_)) if rows.truncated() => {
            let next = page::next(&rows, plan, &binding(context)).map_err(|refusal| Failed::refused(*refusal))?;
            rows.set_truncated(false);
            Some(next)
        }
        _ => None,
    };
    Ok(Done { next, ..Done::of_rows(rows) })
}

/// One try. A link that died while its session was idle is not the caller's concern: a fresh one is opened, once.
pub(super) async fn once(
    context: &Context<'_>,
    attempt: Attempt,
    database: usize,
    bound: &Bound<'_>,
    limits: ReadLimits,
) -> Fallible<Rows> {
    let (seats, purpose) = (&context.call.live.databases[database].seats, context.purpose(database, attempt));
    let mut passage = context.pass(database)?;
    let mut seat = passage.seat(seats.acquire(Access::ReadOnly, purpose, context.notes).await)?;
    let result = match seat.read(&bound.statement, &bound.parameters, limits).await {
        Err(error) if seat.was_lost_in_keeping(&error) => {
            let mut seat = passage.seat(Box::pin(seat.reopened(context.notes)).await)?;
            seat.read(&bound.statement, &bound.parameters, limits).await
        }
        result => result,
    };
    passage.answered(&result);
    result.map_err(|error| failed(context, database, error))
}

/// A question of our own.
pub(crate) async fn ask(context: &Context<'_>, database: usize, bound: &Bound<'_>, limits: ReadLimits) -> Fallible<Rows> {
    once(context, Attempt::First, database, bound, limits).await
}

/// Tells the log, and judges.
pub(super) fn failed(context: &Context<'_>, database: usize, error: DatabaseError) -> Box<Failed> {
    let metrics = &context.call.live.databases[database].seats.metrics;
    let (flow, request) = (&context.flow().name, &context.call.flowfile.id);
    happened::statement_failed(metrics, flow, request, error.sqlstate.as_deref(), &error.internal);
    before_commit(error)
}
