//! `/api/jobs/{id}`: what a caller sees of its durable work, and what it can do to it.
//!
//! Invariants
//! 1. A job is visible to its tenant only; to everybody else it does not exist.
//! 2. A look at a job never stands behind work: it has a rate and places of its own, which are capped, and needs memory only for the
//!    result there is, while that is sent.
//! 3. Waiting holds nothing but the connection and one of those places; some of them are never waited in, so that work can be cancelled.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Method;
use http::request::Parts;
use hyper::body::Incoming;
use spillgate_admission::PayloadMemory;
use spillgate_engine::{Durable, JobView, LiveTenant};
use spillgate_model::{Code, Refusal};
use spillgate_queue::{JobId, JobState};
use tokio::time::{Instant, timeout_at};

use crate::head::Head;
use crate::prefer::LONGEST_WAIT;
use crate::respond::Denied;
use crate::stack::Ended;
use crate::trail::Trail;
use crate::view::View;
use crate::{Inner, payload};

/// Where jobs stand.
pub(crate) const PATH: &str = "/api/jobs/";
const METHODS: &str = "GET, HEAD, DELETE";
/// What a reply has beside the result.
const FRAME_BYTES: u64 = 1_024;

/// What was asked of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Look,
    Cancel,
}

/// The path of a job.
pub(crate) fn href(id: JobId) -> String {
    format!("{PATH}{id}")
}

/// Answers a request for the job `id`.
pub(crate) async fn answer(
    gateway: &Inner,
    trail: &mut Trail<'_>,
    (view, tenant): (&View, usize),
    (parts, head, body): (&Parts, &Head<'_>, &Incoming),
    id: &str,
) -> Result<Ended, Denied> {
    trail.job();
    let asked = match parts.method {
        Method::GET | Method::HEAD => Asked::Look,
        Method::DELETE => Asked::Cancel,
        _ => {
            let refusal = Refusal::new(Code::MethodNotAllowed, format!("A job is asked for with {METHODS}."));
            return Err(Denied { allow: Some(METHODS.to_owned()), ..refusal.into() });
        }
    };
    if payload::is_there(body) {
        return Err(Refusal::new(Code::Malformed, "A job is named in the path; send no body.").into());
    }
    let caller = &view.live.tenants[tenant];
    let now = trail.started.saturating_duration_since(gateway.started);
    let waits = asked == Asked::Look && head.wait.is_some_and(|wait| !wait.is_zero());
    let _place = caller.gate.enter_control(&caller.limits, now, waits)?;
    if asked == Asked::Cancel {
        let job = gateway.engine.cancel_job(&view.live, tenant, id).await?;
        return Ok(Ended::Job { asked, job, memory: None, waited: None });
    }
    let wait = head.wait.map(|wait| wait.min(LONGEST_WAIT).min(head.deadline.unwrap_or(Duration::MAX)));
    let (mut job, mut memory) = look(gateway, view, tenant, id).await?;
    if let Some(wait) = wait.filter(|_| !job.state.is_end()) {
        ended(gateway, &job, (trail.started + wait).into()).await;
        (job, memory) = look(gateway, view, tenant, id).await?;
    }
    Ok(Ended::Job { asked, job, memory, waited: wait })
}

/// The job as it stands. Only one that has ended may have a result, which needs memory before it is read.
async fn look(gateway: &Inner, view: &View, tenant: usize, id: &str) -> Result<(JobView, Option<PayloadMemory>), Refusal> {
    let caller = &view.live.tenants[tenant];
    let known = gateway.engine.job_state(&view.live, tenant, id)?;
    let memory = if known.state.is_end() { Some(memory(gateway, view, caller, known.outcome_bytes)?) } else { None };
    let job = gateway.engine.job(&view.live, tenant, id).await?;
    // It ended between the two looks.
    let memory = match memory {
        None if job.state.is_end() => {
            let bytes = job.outcome.as_ref().map_or(0, |outcome| outcome.len() as u64);
            Some(self::memory(gateway, view, caller, bytes)?)
        }
        memory => memory,
    };
    Ok((job, memory))
}

/// Memory for a result of so many bytes.
fn memory(gateway: &Inner, view: &View, caller: &LiveTenant, result: u64) -> Result<PayloadMemory, Refusal> {
    let server_limit = view.live.plan.server.memory.value;
    let bytes = (result + FRAME_BYTES).min(caller.limits.memory).min(server_limit);
    caller.gate.reserve_memory(&caller.limits, bytes, gateway.engine.memory(), server_limit)
}

/// Waits for the job's end, until `deadline`, or until the server stops, which need not wait for those who only wait. What came
/// first is seen by asking again.
async fn ended(gateway: &Inner, job: &JobView, deadline: Instant) {
    let Durable::Serving(store) = gateway.engine.store() else { return };
    let stopping = gateway.stopping.notified();
    // Asked for after the notice was, so that none is missed.
    if gateway.draining.load(Ordering::SeqCst) {
        return;
    }
    tokio::select! {
        _or_too_late = timeout_at(deadline, store.ended(job.id)) => {}
        () = stopping => {}
    }
}

/// What a job came to, in the words of a refusal, where its end left no problem of its own.
pub(crate) fn refusal(state: JobState) -> Option<Refusal> {
    let (code, detail) = match state {
        // Not the caller's loss: it asked for it.
        JobState::Queued | JobState::Running | JobState::Succeeded | JobState::Cancelled => return None,
        JobState::Failed | JobState::Dead => (Code::Internal, "The work failed; what it failed with is not kept."),
        JobState::Expired => (Code::Expired, "The item expired before it was done; nothing was executed."),
        JobState::Shed => (Code::QueueFull, "The item was given up for newer ones, for the queue was full; nothing was executed."),
        JobState::Purged => (Code::Stopped, "An operator purged the queue; nothing was executed."),
        JobState::Unknown => (Code::OutcomeUnknown, "It is not known whether the write happened."),
    };
    Some(Refusal::new(code, detail))
}
