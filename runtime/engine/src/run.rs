//! The life of a call inside the engine: cache, deadline, and who may end it.
//!
//! A read runs inside its caller's future: dropped with it, its statement is ended. A write runs in a task of its own, which
//! only its deadline ends.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use spillgate_config::plan::{CachePlan, Effect};
use spillgate_model::{Code, Refusal, Value};
use spillgate_queue::Emit;
use tokio::time::{Instant, timeout_at};

use crate::cache::{self, Claim};
use crate::reload::Inner;
use crate::steps::{self, Context, Left, Writing};
use crate::verdict::{Cause, Failed, Fallible, too_late};
use crate::{Call, Outcome, durable, once};

/// How long a deadline may be passed to learn whether a write was rolled back.
pub(crate) const ROLL_BACK_PATIENCE: Duration = Duration::from_secs(1);

const WAITING: u8 = Doing::Waiting as u8;
const CONNECTING: u8 = Doing::Connecting as u8;
const OPENING: u8 = Doing::Opening as u8;
const BEGINNING: u8 = Doing::Beginning as u8;

/// What a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Working,
    /// In line for a seat.
    Waiting,
    /// A session is being opened for it, of a database that answered when it was last asked.
    Opening,
    /// The same of one that did not, or has not answered for a while now.
    Connecting,
    /// Its transaction is being begun: in some databases that waits for the writes of others.
    Beginning,
}

/// What a call tells about itself while it runs.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// What it does now; kept where the deadline ended it.
    doing: AtomicU8,
    waited_microseconds: AtomicU64,
}

impl Notes {
    pub(crate) fn set(&self, doing: Doing) {
        self.doing.store(doing as u8, Ordering::Relaxed);
    }
    pub(crate) fn doing(&self) -> Doing {
        match self.doing.load(Ordering::Relaxed) {
            WAITING => Doing::Waiting,
            OPENING => Doing::Opening,
            CONNECTING => Doing::Connecting,
            BEGINNING => Doing::Beginning,
            _ => Doing::Working,
        }
    }
    pub(crate) fn add_wait(&self, wait: Duration) {
        let microseconds = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        self.waited_microseconds.fetch_add(microseconds, Ordering::Relaxed);
    }
    /// Time spent waiting for seats.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_micros(self.waited_microseconds.load(Ordering::Relaxed))
    }
}

/// Runs a call to its end or its deadline.
pub(crate) async fn run(inner: &Arc<Inner>, call: Call, notes: &Notes) -> Outcome {
    let flow = &call.live.plan.flows[call.flow];
    if flow.queue.is_some() && call.stubs.is_none() {
        return Box::pin(durable::append(inner, call, notes)).await;
    }
    match (flow.effect, &flow.cache) {
        // A key that is sent to a flow that takes none is refused there, rather than passed over.
        (Effect::Write, _) if flow.idempotency.is_some() || flow.unique.is_some() || call.key.is_some() => {
            Box::pin(once::run(inner, call, notes)).await
        }
        (Effect::Write, _) => Box::pin(write(inner, call, notes)).await,
        // What it hands on must reach its queue, whoever still listens.
        _ if call.live.flows[call.flow].emits => Box::pin(write(inner, call, notes)).await,
        (Effect::Read, Some(cache)) if call.stubs.is_none() => Box::pin(cached(inner, &call, notes, cache)).await,
        (Effect::Read, _) => read(inner, &call, notes).await,
    }
}

/// A fault of ours costs this call alone: its seat went back while the panic passed by.
fn panicked<T>(panic: &(dyn Any + Send)) -> Fallible<T> {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let refusal = Refusal::new(Code::Internal, "The flow ended in a fault of this server.");
    Err(Failed::refused(refusal.internal(text.unwrap_or("a panic without a text"))))
}

async fn read(inner: &Inner, call: &Call, notes: &Notes) -> Outcome {
    let context = Context::new(inner, call, notes);
    let deadline = context.deadline;
    let ended = match &context.prepared().lookup {
        Some(lookup) if call.stubs.is_none() => timeout_at(deadline, caught(steps::lookup(&context, lookup))).await,
        _ => timeout_at(deadline, Box::pin(caught(steps::run(&context, &mut Writing::default())))).await,
    };
    outcome(ended.unwrap_or_else(|_| Err(late(notes))))
}

/// Runs the part of a call that changes nothing, under its deadline.
pub(crate) async fn in_time<T>(context: &Context<'_>, work: impl Future<Output = Fallible<T>>) -> Fallible<T> {
    timeout_at(context.deadline, caught(work)).await.unwrap_or_else(|_| Err(late(context.notes)))
}

async fn caught<T>(work: impl Future<Output = Fallible<T>>) -> Fallible<T> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| panicked(&*panic))
}

fn outcome(ended: Fallible<Outcome>) -> Outcome {
    ended.unwrap_or_else(|failed| Outcome::Refused(Box::new(failed.refusal)))
}

fn late(notes: &Notes) -> Box<Failed> {
    too_late(notes.doing(), "The flow did not end before its deadline; its statement was cancelled.")
}

async fn cached(inner: &Inner, call: &Call, notes: &Notes, plan: &CachePlan) -> Outcome {
    let key = cache::key(call, plan.shared);
    let deadline = Instant::from_std(call.flowfile.deadline);
    let outcome = loop {
        match inner.cache.claim(&key, &call.flowfile.tenant, plan.fresh) {
            Claim::Hit(outcome) => return outcome,
            Claim::Fill(filler) => {
                let outcome = read(inner, call, notes).await;
                filler.fill(&outcome, plan.fresh, plan.stale_if_error, call.live.plan.server.cache);
                break outcome;
            }
            Claim::Wait(mut filling) => match timeout_at(deadline, filling.wait_for(Option::is_some)).await {
                Ok(Ok(filled)) => match &*filled {
                    Some(outcome) => break outcome.clone(),
                    None => continue,
                },
                // The filler left: one of those that wait takes over.
                Ok(Err(_)) => continue,
                Err(_) => break Outcome::Refused(Box::new(late(notes).refusal)),
            },
        }
    };
    match &outcome {
        Outcome::Refused(refusal) if may_be_stale(refusal.code) => inner.cache.stale(&key).unwrap_or(outcome),
        _ => outcome,
    }
}

/// Failures behind which an older reply is better than none: of databases and services, not of the input.
fn may_be_stale(code: Code) -> bool {
    matches!(
        code,
        Code::DatabaseUnreachable
            | Code::DatabaseError
            | Code::BreakerOpen
            | Code::Overloaded
            | Code::WaitTooLong
            | Code::DeadlineExceeded
            | Code::UpstreamError
    )
}

/// Runs a write in a task of its own.
pub(crate) async fn write(inner: &Arc<Inner>, call: Call, notes: &Notes) -> Outcome {
    let (task_inner, flow) = (inner.clone(), call.live.plan.flows[call.flow].name.clone());
    let task = inner.writes.spawn(async move {
        let notes = Notes::default();
        let Ended { outcome, emits, .. } = Box::pin(to_its_end(&Context::new(&task_inner, &call, &notes))).await;
        let outcome = if emits.is_empty() { outcome } else { durable::handed_on(&task_inner, outcome, emits).await };
        // With it the permit: the call is over.
        drop(call);
        (outcome, notes.waited())
    });
    match task.await {
        Ok((outcome, waited)) => {
            notes.add_wait(waited);
            outcome
        }
        Err(error) => {
            let refusal = Refusal::new(Code::Internal, "The flow ended in a fault; whether its write happened is not known.");
            Outcome::Refused(Box::new(refusal.internal(format!("flow {flow}: {error}"))))
        }
    }
}

/// How a run that may write ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    pub(crate) left: Left,
    /// What it hands on, if it succeeded.
    pub(crate) emits: Vec<Emit>,
    /// What the high-water mark of its schedule is then.
    pub(crate) mark: Option<Value>,
    /// The record said that its work was done before: nothing behind the write ran.
    pub(crate) done_before: bool,
    /// Of a refusal: what made it.
    pub(crate) cause: Cause,
}

/// Runs steps to their end or the deadline, and says what is left of them.
pub(crate) async fn to_its_end(context: &Context<'_>) -> Ended {
    unless_stopped(context, std::future::pending()).await
}

/// The same, ended as by its deadline when `stopped` comes before.
pub(crate) async fn unless_stopped(context: &Context<'_>, stopped: impl Future<Output = ()>) -> Ended {
    let mut writing = Writing::new(context.call.stubs.is_some());
    let ended = tokio::select! {
        biased;
        ended = timeout_at(context.deadline, caught(steps::run(context, &mut writing))) => ended.ok(),
        () = stopped => None,
    };
    let nothing_more = |outcome, left, done_before| Ended { outcome, left, emits: Vec::new(), mark: None, done_before, cause: Cause::Said };
    let failed = match ended {
        Some(Ok(outcome)) => {
            let (emits, mark) = writing.onward();
            return Ended { emits, mark, ..nothing_more(outcome, Left::All, false) };
        }
        Some(Err(failed)) => match writing.found_done() {
            Some(outcome) => return nothing_more(outcome, Left::All, true),
            None => writing.failed(failed, ROLL_BACK_PATIENCE).await,
        },
        None => writing.late(context.notes.doing(), ROLL_BACK_PATIENCE).await,
    };
    let (left, cause) = (writing.left(failed.refusal.code), failed.cause);
    Ended { cause, ..nothing_more(outcome(Err(failed)), left, false) }
}
