//! Runs the steps of a flow, in order, forward only.
//!
//! Invariants
//! 1. A flow's value is that of the last step that ran; `route`, `queue` and `emit` steps have none.
//! 2. Results are turned into trees only where an expression reads them.
//! 3. Write steps that follow one another on a database run in one transaction, committed when the flow moves to another
//!    database or ends, before its reply. Reads on that database meanwhile run in it. Where a flow writes to
//!    two databases, each commits in order.

mod emit;
mod expressions;
mod http;
mod json;
mod prepare;
mod progress;
mod retry;
mod sql;
mod write;

use std::sync::Arc;

use spillgate_config::plan::{Action, Flow, OnEmpty, OnError, SchedulePlan, SqlStep, Step, System};
use spillgate_expression::Expression;
use spillgate_model::json::datum_bytes;
use spillgate_model::{Code, Datum, Refusal, Type, Value, limits};
use tokio::time::Instant;

use crate::breaker::Passage;
use crate::durable::Claim;
use crate::reload::Inner;
use crate::run::Notes;
use crate::seats::Purpose;
use crate::verdict::{Failed, Fallible};
use crate::{Call, Outcome};
pub(crate) use http::Client as HttpClient;
pub(crate) use prepare::{Lookup, PreparedFlow, PreparedRecord, PreparedSql, PreparedStep, PreparedVerify};
pub(crate) use progress::{Carried, Progress};
use progress::{Done, has_value};
pub(crate) use retry::jittered;
use retry::{Attempt, Tries};
pub(crate) use sql::{ask, lookup};
pub(crate) use write::{Left, Writing, begin};

/// What every part of a running call may look at.
pub(crate) struct Context<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) call: &'a Call,
    pub(crate) notes: &'a Notes,
    pub(crate) deadline: Instant,
    /// Of a run that has an item in the store.
    pub(crate) claim: Option<&'a Claim>,
    /// Of a run that begins behind the flow's cut: what was carried over it.
    pub(crate) resumed: Option<&'a [Carried]>,
    /// Nobody waits for the run: others go first.
    pub(crate) unattended: bool,
}

impl<'a> Context<'a> {
    pub(crate) fn new(inner: &'a Inner, call: &'a Call, notes: &'a Notes) -> Self {
        Context { inner, call, notes, deadline: Instant::from_std(call.flowfile.deadline), claim: None, resumed: None, unattended: false }
    }
    /// The run works on this item.
    pub(crate) fn claimed(self, claim: Option<&'a Claim>) -> Self {
        Context { claim, ..self }
    }
    /// The run begins behind the flow's cut.
    pub(crate) fn resumed(self, carried: &'a [Carried]) -> Self {
        Context { resumed: Some(carried), ..self }
    }
    /// Nobody waits for the run.
    pub(crate) fn unattended(self) -> Self {
        Context { unattended: true, ..self }
    }
    pub(crate) fn flow(&self) -> &'a Arc<Flow> {
        &self.call.live.plan.flows[self.call.flow]
    }
    pub(crate) fn prepared(&self) -> &'a PreparedFlow {
        &self.call.live.flows[self.call.flow]
    }
    /// A value of a statement that is no input.
    pub(crate) fn system(&self, which: System) -> Value {
        let text = |text: &str| Value::Text(text.into());
        let job = || self.claim.map_or(Value::Null, |claim| text(&claim.job().to_string()));
        match which {
            System::Tenant => text(&self.call.flowfile.tenant),
            System::Flow => text(&self.flow().name),
            System::Key => self.claim.and_then(|claim| claim.key.as_deref()).map_or_else(job, text),
            System::Job => job(),
            System::Watermark => self.claim.map_or(Value::Null, |claim| claim.watermark.clone()),
        }
    }
    /// What an expression gives over what the run knows so far.
    pub(crate) async fn value_of(&self, expression: &Expression, step: &Step, progress: &Progress) -> Fallible<Datum> {
        self.evaluate(expression, step, &progress.done).await
    }
    /// Where a schedule's high-water mark is moved to; `None` leaves it where it is.
    async fn mark(&self, schedule: &SchedulePlan, progress: &Progress) -> Fallible<Option<Value>> {
        let (Some(expression), Some(step)) = (&schedule.watermark, self.flow().steps.last()) else { return Ok(None) };
        Ok(match self.value_of(expression, step, progress).await? {
            Datum::Null => None,
            Datum::Integer(value) => Some(Value::Integer(value)),
            Datum::Number(value) => Some(Value::Number(value)),
            Datum::Text(text) => Some(typed_text(schedule.watermark_type, &text)),
            _ => {
                return Err(Failed::refused(Refusal::new(Code::ExpressionFailed, "The watermark is neither text nor a number.")));
            }
        })
    }
    /// Before anything is sent that cannot be taken back: the store knows of it first.
    async fn about_to_write(&self) -> Fallible<()> {
        match self.claim {
            Some(claim) => claim.start().await,
            None => Ok(()),
        }
    }
    /// The way through the breakers in front of a database.
    pub(crate) fn pass(&self, database: usize) -> Fallible<Passage<'a>> {
        let (flow, live) = (self.flow(), &self.call.live.databases[database]);
        let own = (&live.breakers.own, live.plan().breaker.as_ref());
        let of_flow = self.prepared().breakers[database].as_ref().map(|breaker| (breaker, flow.breaker.as_ref()));
        let patience = flow.deadline.value.min(live.plan().statement_timeout);
        Passage::ask(&self.call.flowfile.tenant, own, of_flow, self.notes, self.deadline, patience)
    }
    /// For whom a seat of a database is wanted. What nobody waits for, and what is tried again, goes behind the tenant's other calls.
    fn purpose(&self, database: usize, attempt: Attempt) -> Purpose<'a> {
        let (live, tenant) = (&self.call.live, &self.call.live.tenants[self.call.tenant]);
        let class = tenant.class();
        Purpose {
            tenant: &self.call.flowfile.tenant,
            share: tenant.share(database, live.databases[database].plan()),
            class: if self.unattended || attempt == Attempt::Again { class.lower() } else { class },
            flow: &self.prepared().seats[database],
            deadline: self.deadline,
        }
    }
}

/// The text of a column, as the value of its type that a database gave.
fn typed_text(kind: Option<Type>, text: &str) -> Value {
    match kind {
        Some(Type::Decimal) => Value::Decimal(text.into()),
        Some(Type::Date) => Value::Date(text.into()),
        Some(Type::Time) => Value::Time(text.into()),
        Some(Type::Timestamp) => Value::Timestamp(text.into()),
        _ => Value::Text(text.into()),
    }
}

/// Runs all steps, those behind the cut where the context was resumed, and commits what was written.
pub(crate) async fn run(context: &Context<'_>, writing: &mut Writing) -> Fallible<Outcome> {
    let flow = context.flow();
    let mut progress = match (context.resumed, &flow.queue) {
        (Some(carried), Some(cut)) => Progress::behind_cut(flow, cut.step, carried),
        _ => Progress::new(flow),
    };
    advance(context, writing, &mut progress, flow.steps.len()).await?;
    if let Some(schedule) = &flow.schedule
        && context.claim.is_some_and(|claim| claim.scheduled)
    {
        writing.move_mark(context.mark(schedule, &progress).await?);
    }
    writing.commit_for(progress.outcome()).await
}

/// Runs the steps before the flow's cut.
pub(crate) async fn run_to_cut(context: &Context<'_>, cut: usize) -> Fallible<Progress> {
    let mut progress = Progress::new(context.flow());
    advance(context, &mut Writing::default(), &mut progress, cut).await?;
    Ok(progress)
}

/// Runs steps until the one at `until` is next.
async fn advance(context: &Context<'_>, writing: &mut Writing, progress: &mut Progress, until: usize) -> Fallible<()> {
    let flow = context.flow();
    while progress.index < until {
        let (index, step) = (progress.index, &flow.steps[progress.index]);
        if let Some(when) = &step.when
            && !context.holds(when, step, &progress.done).await?
        {
            progress.index += 1;
            continue;
        }
        match one_step(context, writing, index, progress).await {
            Ok(result) => progress.done[index] = result,
            Err(failed) => progress.done[index] = instead(step, *failed, writing).await?,
        }
        progress.done[index].ran = true;
        if has_value(step) {
            progress.last = Some(index);
        }
        progress.index = context.next_step(step, index, &progress.done).await?;
    }
    Ok(())
}

async fn one_step(context: &Context<'_>, writing: &mut Writing, index: usize, progress: &Progress) -> Fallible<Done> {
    let (step, done) = (&context.flow().steps[index], progress.done.as_slice());
    match (&step.action, &context.prepared().steps[index]) {
        (Action::Sql(sql), PreparedStep::Sql(prepared)) => sql_step(context, writing, step, sql, prepared).await,
        (Action::Http(plan), PreparedStep::Http(prepared)) => {
            let body = match &plan.body {
                Some(body) => Some(context.evaluate(body, step, done).await?),
                None => None,
            };
            if !prepared.repeatable() {
                context.about_to_write().await?;
                writing.sent_outside();
            }
            let tries = Tries::of(context, writing, step, prepared.target());
            let (value, grown) = http::call(context, tries, plan, prepared, body).await?;
            Ok(Done { _grown: Some(grown), ..Done::of_value(value) })
        }
        (Action::Map(expression), _) => Ok(Done::of_value(fitting(context, step, context.evaluate(expression, step, done).await?)?)),
        (Action::Emit(plan), _) => {
            emit::emit(context, writing, step, plan, progress).await?;
            Ok(Done::default())
        }
        (Action::Queue | Action::Route, _) => Ok(Done::default()),
        _ => Err(Failed::refused(Refusal::new(Code::Internal, "The flow was not made ready to run."))),
    }
}

/// A value that an expression made must fit what was reserved for the call, or a request's size where that is more.
fn fitting(context: &Context<'_>, step: &Step, value: Datum) -> Fallible<Datum> {
    let (limit, bytes) = (context.flow().memory.max(limits::BODY_BYTES), datum_bytes(&value) as u64);
    if bytes <= limit {
        return Ok(value);
    }
    let detail = format!("The value of step {} takes {bytes} bytes; this flow may hold {limit}.", step.name);
    Err(Failed::refused(Refusal::new(Code::ResultTooLarge, detail).policy("flow.memory", limit, bytes)))
}

async fn sql_step(context: &Context<'_>, writing: &mut Writing, step: &Step, sql: &SqlStep, prepared: &PreparedSql) -> Fallible<Done> {
    let stub = context.call.stubs.as_ref().and_then(|stubs| stubs.get(&step.name));
    let done = match (stub, sql.write) {
        (Some(rows), write) => {
            let mut done = sql::stubbed(context, prepared, rows)?;
            done.affected = write.then(|| done.rows.as_ref().map_or(0, |rows| rows.len() as u64));
            done
        }
        (None, true) => {
            let written = writing.write(context, step, sql, prepared).await?;
            Done { affected: Some(written.affected), ..Done::of_rows(written.rows) }
        }
        (None, false) => sql::read(context, writing, step, sql, prepared).await?,
    };
    let nothing = done.rows.as_ref().is_none_or(|rows| rows.is_empty()) && done.affected.unwrap_or(0) == 0;
    match step.on_empty {
        Some(on_empty) if nothing => Err(empty(on_empty)),
        _ => Ok(done),
    }
}

fn empty(on_empty: OnEmpty) -> Box<Failed> {
    let mut refusal = Refusal::new(Code::Empty, "No row matches this input.");
    refusal.status = Some(on_empty.status);
    Failed::refused(refusal)
}

/// Nothing found is an answer; a commit whose end is not known is nothing to pass over.
fn is_failure(code: Code) -> bool {
    !matches!(code, Code::Empty | Code::OutcomeUnknown)
}

/// What stands in for a step that failed.
async fn instead(step: &Step, failed: Failed, writing: &mut Writing) -> Fallible<Done> {
    match &step.on_error {
        Some(OnError::Value(value)) if is_failure(failed.refusal.code) && writing.may_go_on(&step.action).await => {
            Ok(Done { value: Some(value.clone()), error: Some(failed.refusal.code), ..Done::default() })
        }
        // `stale` is served by the cache around the flow.
        _ => Err(Box::new(failed)),
    }
}
