//! Runs the steps of a flow, in order, forward only.
//!
//! Invariants
//! 1. A flow's value is that of the last step that ran; `route` steps have none.
//! 2. Results are turned into trees only where an expression reads them.
//! 3. Write steps that follow one another on a database run in one transaction, committed when the flow moves to another
//!    database or ends, before its reply. Reads on that database meanwhile run in it. Where a flow writes to
//!    two databases, each commits in order.

mod expressions;
mod http;
mod json;
mod prepare;
mod retry;
mod sql;
mod write;

use std::sync::{Arc, OnceLock};

use spillgate_admission::Reservation;
use spillgate_config::plan::{Action, Flow, OnEmpty, OnError, SqlStep, Step, System};
use spillgate_model::json::datum_bytes;
use spillgate_model::{Code, Datum, Refusal, Rows, Value, limits};
use tokio::time::Instant;

use crate::durable::Claim;
use crate::reload::Inner;
use crate::run::Notes;
use crate::seats::Purpose;
use crate::verdict::{Failed, Fallible};
use crate::{Call, Outcome};
pub(crate) use http::Client as HttpClient;
pub(crate) use prepare::{Lookup, PreparedFlow, PreparedRecord, PreparedSql, PreparedStep, PreparedVerify};
pub(crate) use sql::{lookup, once as read_once};
pub(crate) use write::{Left, Writing, begin};

/// What every part of a running call may look at.
pub(crate) struct Context<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) call: &'a Call,
    pub(crate) notes: &'a Notes,
    pub(crate) deadline: Instant,
    /// Of a run that has an item in the store.
    pub(crate) claim: Option<&'a Claim>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(inner: &'a Inner, call: &'a Call, notes: &'a Notes) -> Self {
        Context { inner, call, notes, deadline: Instant::from_std(call.flowfile.deadline), claim: None }
    }
    /// The run works on this item.
    pub(crate) fn claimed(self, claim: Option<&'a Claim>) -> Self {
        Context { claim, ..self }
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
    /// Before anything is sent that cannot be taken back: the store knows of it first.
    async fn about_to_write(&self) -> Fallible<()> {
        match self.claim {
            Some(claim) => claim.start().await,
            None => Ok(()),
        }
    }
    fn purpose(&self) -> Purpose<'a> {
        Purpose { tenant: &self.call.flowfile.tenant, flow: &self.flow().name, deadline: self.deadline }
    }
}

/// What a step left behind.
#[derive(Default)]
struct Done {
    ran: bool,
    rows: Option<Arc<Rows>>,
    next: Option<String>,
    affected: Option<u64>,
    value: Option<Datum>,
    error: Option<Code>,
    /// `rows` as a tree, made when an expression first reads it, and the memory that it takes.
    tree: OnceLock<(Datum, Reservation)>,
    /// The memory that `value` takes beyond what its step may read.
    _grown: Option<Reservation>,
}

impl Done {
    fn of_rows(rows: Rows) -> Self {
        Done { rows: Some(Arc::new(rows)), ..Done::default() }
    }
    fn of_value(value: Datum) -> Self {
        Done { value: Some(value), ..Done::default() }
    }
    /// Made before by [`Context::grow`]; empty where there are no rows.
    fn rows_tree(&self) -> Datum {
        self.tree.get().map_or_else(|| Datum::List(Arc::from([])), |(tree, _)| tree.clone())
    }
    /// `steps.NAME.value`: of a read its rows, of a write how many rows it changed.
    fn value_tree(&self) -> Datum {
        match (&self.value, self.affected) {
            (Some(value), _) => value.clone(),
            (None, Some(affected)) => {
                let affected = i64::try_from(affected).unwrap_or(i64::MAX);
                Datum::Map(Arc::new([(Arc::from("affected"), Datum::Integer(affected))].into()))
            }
            (None, None) => self.rows_tree(),
        }
    }
    /// The code of what went wrong.
    fn error_tree(&self) -> Datum {
        self.error.map_or(Datum::Null, |code| Datum::Text(Arc::from(code.name())))
    }
}

/// Runs all steps and commits what was written.
pub(crate) async fn run(context: &Context<'_>, writing: &mut Writing) -> Fallible<Outcome> {
    let flow = context.flow();
    let mut done: Vec<Done> = flow.steps.iter().map(|_| Done::default()).collect();
    let (mut last, mut index) = (None, 0);
    while let Some(step) = flow.steps.get(index) {
        if let Some(when) = &step.when
            && !context.holds(when, step, &done).await?
        {
            index += 1;
            continue;
        }
        match one_step(context, writing, index, &done).await {
            Ok(result) => done[index] = result,
            Err(failed) => done[index] = instead(step, *failed, writing).await?,
        }
        done[index].ran = true;
        if !matches!(step.action, Action::Route) {
            last = Some(index);
        }
        index = context.next_step(step, index, &done).await?;
    }
    let outcome = last.map_or(Outcome::Value { value: Datum::Null, stale: None }, |last| outcome_of(done.swap_remove(last)));
    writing.commit_for(outcome).await
}

fn outcome_of(done: Done) -> Outcome {
    match (done.value, done.rows) {
        (Some(value), _) => Outcome::Value { value, stale: None },
        (None, Some(rows)) => Outcome::Rows { rows, next: done.next, affected: done.affected, stale: None },
        (None, None) => Outcome::Value { value: Datum::Null, stale: None },
    }
}

async fn one_step(context: &Context<'_>, writing: &mut Writing, index: usize, done: &[Done]) -> Fallible<Done> {
    let step = &context.flow().steps[index];
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
            let (value, grown) = http::call(context, step, plan, prepared, body).await?;
            Ok(Done { _grown: Some(grown), ..Done::of_value(value) })
        }
        (Action::Map(expression), _) => Ok(Done::of_value(fitting(context, step, context.evaluate(expression, step, done).await?)?)),
        (Action::Queue | Action::Emit(_) | Action::Route, _) => Ok(Done::default()),
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
