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
use spillgate_model::{Code, Refusal};
use tokio::time::{Instant, timeout_at};

use crate::cache::{self, Claim};
use crate::reload::Inner;
use crate::steps::{self, Context, Left, Writing};
use crate::verdict::{Failed, Fallible, too_late};
use crate::{Call, Outcome};

/// How long a deadline may be passed to learn whether a write was rolled back.
const ROLL_BACK_PATIENCE: Duration = Duration::from_secs(1);

const WAITING: u8 = Doing::Waiting as u8;
const CONNECTING: u8 = Doing::Connecting as u8;

/// What a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Working,
    /// In line for a seat.
    Waiting,
    /// A session is being opened for it.
    Connecting,
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
    fn doing(&self) -> Doing {
        match self.doing.load(Ordering::Relaxed) {
            WAITING => Doing::Waiting,
            CONNECTING => Doing::Connecting,
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
    match (flow.effect, &flow.cache) {
        (Effect::Write, _) => Box::pin(write(inner, call, notes)).await,
        (Effect::Read, Some(cache)) if call.stubs.is_none() => Box::pin(cached(inner, &call, notes, cache)).await,
        (Effect::Read, _) => read(inner, &call, notes).await,
    }
}

/// A fault of ours costs this call alone: its seat went back while the panic passed by.
fn panicked(panic: &(dyn Any + Send)) -> Fallible<Outcome> {
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

async fn caught(work: impl Future<Output = Fallible<Outcome>>) -> Fallible<Outcome> {
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
        match inner.cache.claim(&key, plan.fresh) {
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

async fn write(inner: &Arc<Inner>, call: Call, notes: &Notes) -> Outcome {
    let (task_inner, flow) = (inner.clone(), call.live.plan.flows[call.flow].name.clone());
    let task = inner.writes.spawn(async move {
        let notes = Notes::default();
        let Ended { outcome, .. } = Box::pin(to_its_end(&Context::new(&task_inner, &call, &notes))).await;
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
}

/// Runs steps to their end or the deadline, and says what is left of them.
pub(crate) async fn to_its_end(context: &Context<'_>) -> Ended {
    let mut writing = Writing::new(context.call.stubs.is_some());
    let ended = timeout_at(context.deadline, steps::run(context, &mut writing)).await;
    let failed = match ended {
        Ok(Ok(outcome)) => return Ended { outcome, left: Left::All },
        Ok(Err(failed)) => match writing.found_done() {
            Some(outcome) => return Ended { outcome, left: Left::All },
            None => writing.failed(failed, ROLL_BACK_PATIENCE).await,
        },
        Err(_) => writing.late(context.notes.doing(), ROLL_BACK_PATIENCE).await,
    };
    let left = writing.left(failed.refusal.code);
    Ended { outcome: outcome(Err(failed)), left }
}
