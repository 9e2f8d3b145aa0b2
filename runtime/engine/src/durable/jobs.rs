//! What callers see of their jobs, and how they wait for and cancel them.

use std::time::Duration;

use spillgate_model::{Code, Refusal};
use spillgate_queue::{Job, JobId, JobState, Store, StoreError};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::JobView;
use super::room::store_refusal;
use super::schedule::SCHEDULE;

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

/// A tenant's claims of direct calls are jobs of its own. Its scheduled runs are nobody's calls: to callers they do not exist.
fn own(store: &Store, tenant: &str, id: &str) -> Result<JobId, Box<Refusal>> {
    let unknown = || Box::new(Refusal::new(Code::UnknownJob, "There is no such job."));
    let id: JobId = id.parse().map_err(|_| unknown())?;
    store.was_job(id).filter(|lane| *lane.tenant == *tenant && *lane.queue != *SCHEDULE).map(|_| id).ok_or_else(unknown)
}

/// How a job of this tenant stands.
pub(super) fn state(store: &Store, tenant: &str, id: &str) -> Result<Job, Box<Refusal>> {
    known(store, own(store, tenant, id)?)
}

/// A job as it stands.
pub(super) async fn view(store: &Store, id: JobId) -> Result<JobView, Box<Refusal>> {
    seen(store, known(store, id)?).await
}

fn known(store: &Store, id: JobId) -> Result<Job, Box<Refusal>> {
    store.job(id).ok_or_else(|| Box::new(Refusal::new(Code::ResultGone, "The job ended, and nothing of it is kept any more.")))
}

async fn seen(store: &Store, job: Job) -> Result<JobView, Box<Refusal>> {
    let Job { id, state, has_outcome, outcome_gone, replayed_as, .. } = job;
    if !state.is_end() {
        return Ok(JobView { id, state, outcome: None, outcome_gone: false, too_large: false, replayed_as });
    }
    let outcome = match store.outcome(id).await {
        Ok(outcome) => outcome,
        Err(StoreError::Damaged | StoreError::NotFound) => None,
        Err(error) => return Err(store_refusal(&error)),
    };
    // A success always had a result; where there is none and none was dropped, it was too large to be kept.
    let too_large = state == JobState::Succeeded && !has_outcome && !outcome_gone;
    let gone = outcome.is_none() && !too_large && (outcome_gone || state == JobState::Succeeded);
    Ok(JobView { id, state, outcome, outcome_gone: gone, too_large, replayed_as })
}

/// How long a call waits for the end of its job.
pub(super) struct Patience<'a> {
    /// As it was asked for; `None`: not at all.
    pub(super) wait: Option<Duration>,
    /// It never waits past this.
    pub(super) deadline: Instant,
    /// The server stops: nobody takes what is queued any more, so nobody waits for it.
    pub(super) stop: &'a CancellationToken,
}

/// Waits for the end of a job. Without an end in time the job is shown as it stands.
pub(super) async fn wait(store: &Store, id: JobId, patience: &Patience<'_>) -> Result<JobView, Box<Refusal>> {
    let Patience { wait, deadline, stop } = *patience;
    if let Some(wait) = wait {
        let until = Instant::now().checked_add(wait).map_or(deadline, |end| end.min(deadline));
        let ended = stop.run_until_cancelled(timeout_at(until, store.ended(id)));
        if let Some(Ok(Ok(job))) = ended.await {
            return seen(store, job).await;
        }
    }
    view(store, id).await
}
