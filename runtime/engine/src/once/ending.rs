//! How a claim ends in the store.

use std::time::Duration;

use bytes::Bytes;
use spillgate_config::plan::Flow;
use spillgate_model::{Refusal, problem};
use spillgate_queue::{Emit, End, JobState, StoreError};
use spillgate_telemetry::happened;

use crate::durable::Claim;
use crate::reload::Inner;
use crate::steps::Left;
use crate::{Call, Outcome, reply};

/// Most bytes that are kept of the result of a direct call; a larger one is told to the first caller only.
pub(super) const RESULT_BYTES: usize = 256 * 1024;

/// How a claim ends.
#[derive(Debug)]
pub(super) enum Ending {
    /// With the reply's body, where it is kept.
    Succeeded(Option<Bytes>),
    /// It is proven that nothing was changed: the keys are free again.
    NotDone(Refusal),
    /// It failed when a part could not be taken back any more: the keys stay taken.
    Part(Refusal),
    /// Nobody knows.
    Unknown(Refusal),
}

impl Ending {
    /// Of a run that was seen to its end.
    pub(super) fn of(outcome: &Outcome, left: &Left) -> Ending {
        match (outcome, left) {
            (Outcome::Refused(refusal), Left::Unknown(_)) => Ending::Unknown((**refusal).clone()),
            (Outcome::Refused(refusal), Left::Part) => Ending::Part((**refusal).clone()),
            (Outcome::Refused(refusal), _) => Ending::NotDone((**refusal).clone()),
            (outcome, _) => Ending::Succeeded(kept_body(outcome)),
        }
    }
    pub(super) fn state(&self) -> JobState {
        match self {
            Ending::Succeeded(_) => JobState::Succeeded,
            Ending::NotDone(_) | Ending::Part(_) => JobState::Failed,
            Ending::Unknown(_) => JobState::Unknown,
        }
    }
}

/// A reply's body, where it is small enough to be kept. What is much larger is not even written.
pub(super) fn kept_body(outcome: &Outcome) -> Option<Bytes> {
    if matches!(outcome, Outcome::Rows { rows, .. } if rows.held_bytes() > RESULT_BYTES) {
        return None;
    }
    reply::body(outcome).filter(|body| body.len() <= RESULT_BYTES).map(Bytes::from)
}

/// Ends a claim, and hands on what it makes. True: it is durable.
pub(super) async fn end(inner: &Inner, call: &Call, claim: Claim, ending: Ending, emits: Vec<Emit>) -> bool {
    let (flow, job, state) = (&call.live.plan.flows[call.flow], claim.job().to_string(), ending.state());
    let end = End { emits, ..end_of(&ending, keep(flow), &call.flowfile.id) };
    let store = claim.store.clone();
    match store.finish(claim.into_lease(), end).await {
        Ok(()) => return true,
        // Somebody else looks into it.
        Err(StoreError::LeaseLost) => happened::lease_lost(&inner.telemetry, super::DIRECT, &call.flowfile.tenant, &flow.name, &job),
        // The claim stays as it is, and is looked into after the next start.
        Err(error) => happened::end_not_kept(&job, state.name(), &error.to_string()),
    }
    false
}

/// What is written of an end. `request`: the id of the request it came with.
pub(super) fn end_of(ending: &Ending, keep: Duration, request: &str) -> End {
    let outcome = match ending {
        Ending::Succeeded(body) => body.clone(),
        Ending::NotDone(refusal) | Ending::Part(refusal) | Ending::Unknown(refusal) => {
            Some(problem::body(refusal, refusal.retry_after_ms(), request).into())
        }
    };
    let frees_keys = matches!(ending, Ending::NotDone(_));
    End { state: ending.state(), outcome, keep, frees_keys, emits: Vec::new(), note: None }
}

/// For how long an end is kept: as long as anything is refused or answered because of it.
pub(crate) fn keep(flow: &Flow) -> Duration {
    let key = flow.idempotency.as_ref().map(|plan| plan.keep.max(plan.derive_within.unwrap_or_default()));
    let unique = flow.unique.as_ref().map(|plan| plan.within);
    key.max(unique).unwrap_or_default()
}
