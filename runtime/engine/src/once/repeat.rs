//! What a call gets whose key is known: the first call's end, waited for to its own deadline.

use bytes::Bytes;
use spillgate_model::{Code, Refusal};
use spillgate_queue::{Job, JobId, JobState, Store, StoreError};
use tokio::time::{Instant, timeout_at};

use super::Once;
use crate::durable;
use crate::reload::Inner;
use crate::{Call, Outcome};

/// The first call's outcome. `None`: it is proven that it did nothing, and the key is free again.
pub(super) async fn answer(inner: &Inner, store: &Store, call: &Call, once: &Once, first: JobId) -> Result<Option<Outcome>, Box<Refusal>> {
    let place = inner.repeats.enter(first)?;
    let ended = timeout_at(Instant::from_std(call.flowfile.deadline), store.ended(first)).await;
    drop(place);
    let job = match ended {
        Err(_) => return Err(still_running(first)),
        // Its state was dropped while its key was looked up.
        Ok(Err(StoreError::NotFound)) => return gone_or_free(store, once, first),
        Ok(Err(error)) => return Err(durable::store_refusal(&error)),
        Ok(Ok(job)) => job,
    };
    match job.state {
        JobState::Succeeded => match outcome_of(store, first).await? {
            Some(body) => Ok(Some(Outcome::Kept(body))),
            None => Err(result_gone(first)),
        },
        JobState::Unknown => {
            let detail = format!("The first call with this key was cut off, and it is not known whether it wrote: see job {first}.");
            Err(Refusal::new(Code::OutcomeUnknown, detail).into())
        }
        _ if once.known(store) == Some((first, true)) => Err(failed(store, &job).await?),
        _ => Ok(None),
    }
}

/// A repeat whose first call has not ended.
pub(super) fn still_running(first: JobId) -> Box<Refusal> {
    Refusal::new(Code::ConflictRunning, format!("The first call with this key has not ended: see job {first}.")).into()
}

fn gone_or_free(store: &Store, once: &Once, first: JobId) -> Result<Option<Outcome>, Box<Refusal>> {
    match once.known(store) {
        Some((job, _)) if job == first => Err(result_gone(first)),
        _ => Ok(None),
    }
}

fn result_gone(first: JobId) -> Box<Refusal> {
    Refusal::new(Code::ResultGone, format!("The first call with this key succeeded as job {first}; its result is no longer kept.")).into()
}

async fn outcome_of(store: &Store, job: JobId) -> Result<Option<Bytes>, Box<Refusal>> {
    store.outcome(job).await.map_err(|error| durable::store_refusal(&error))
}

/// The first call failed when a part of it could not be taken back: its key stays, and its repeats fail alike.
async fn failed(store: &Store, job: &Job) -> Result<Box<Refusal>, Box<Refusal>> {
    let told = outcome_of(store, job.id).await?.and_then(|body| read(&body));
    let (code, detail) = told.unwrap_or_else(|| {
        (Code::DatabaseError, format!("The first call with this key ended as {}: see job {}.", job.state.name(), job.id))
    });
    Ok(Refusal::new(code, detail).part_done().into())
}

/// Code and detail of a problem object.
fn read(problem: &[u8]) -> Option<(Code, String)> {
    let problem: serde_json::Value = serde_json::from_slice(problem).ok()?;
    let name = problem.get("code")?.as_str()?;
    let code = Code::ALL.iter().copied().find(|code| code.name() == name)?;
    Some((code, problem.get("detail")?.as_str()?.to_owned()))
}
