//! What callers see of their jobs, and how they wait for and cancel them.

use std::time::Duration;

use spillgate_model::{Code, Refusal};
use spillgate_queue::{Job, JobId, JobState, Store, StoreError};
use tokio::time::{Instant, timeout_at};

use super::JobView;
use super::room::store_refusal;

/// A job of this tenant, by the id as it came. What another tenant has looks like what never was.
pub(super) async fn of_tenant(store: &Store, tenant: &str, id: &str) -> Result<JobView, Box<Refusal>> {
    view(store, own(store, tenant, id)?).await
}

/// Ends a job that waits as `cancelled`. One that runs, or has ended, stays as it is: the view says so.
pub(super) async fn cancel(store: &Store, tenant: &str, id: &str) -> Result<JobView, Box<Refusal>> {
    let id = own(store, tenant, id)?;
    match store.cancel(id).await {
        Ok(()) | Err(StoreError::WrongState(_) | StoreError::NotFound) => view(store, id).await,
        Err(error) => Err(store_refusal(&error)),
    }
}

fn own(store: &Store, tenant: &str, id: &str) -> Result<JobId, Box<Refusal>> {
    let unknown = || Box::new(Refusal::new(Code::UnknownJob, "There is no such job."));
    let id: JobId = id.parse().map_err(|_| unknown())?;
    store.was_job(id).filter(|lane| *lane.tenant == *tenant).map(|_| id).ok_or_else(unknown)
}

/// A job as it stands.
pub(super) async fn view(store: &Store, id: JobId) -> Result<JobView, Box<Refusal>> {
    let job =
        store.job(id).ok_or_else(|| Box::new(Refusal::new(Code::ResultGone, "The job ended, and nothing of it is kept any more.")))?;
    seen(store, job).await
}

async fn seen(store: &Store, job: Job) -> Result<JobView, Box<Refusal>> {
    let Job { id, state, outcome_gone, .. } = job;
    if !state.is_end() {
        return Ok(JobView { id, state, outcome: None, outcome_gone: false });
    }
    let outcome = match store.outcome(id).await {
        Ok(outcome) => outcome,
        Err(StoreError::Damaged | StoreError::NotFound) => None,
        Err(error) => return Err(store_refusal(&error)),
    };
    // A success always had a result; where there is none it was too large to keep, or was pushed out.
    let gone = outcome.is_none() && (outcome_gone || state == JobState::Succeeded);
    Ok(JobView { id, state, outcome, outcome_gone: gone })
}

/// Waits for the end of a job: for `wait`, and never past the deadline. Without an end in time the job is shown as it stands.
pub(super) async fn wait(store: &Store, id: JobId, wait: Option<Duration>, deadline: Instant) -> Result<JobView, Box<Refusal>> {
    if let Some(wait) = wait {
        let until = Instant::now().checked_add(wait).map_or(deadline, |end| end.min(deadline));
        if let Ok(Ok(job)) = timeout_at(until, store.ended(id)).await {
            return seen(store, job).await;
        }
    }
    view(store, id).await
}
