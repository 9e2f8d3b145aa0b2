//! Durable work: what a `queue` step cuts a flow into, and what runs the second half from disk.
//!
//! Invariants
//! 1. A caller is told of a job only after its item is durable; whatever becomes of the caller then, the item stays.
//! 2. Room is there before an item is made; what an item needs at its end (emitted items too) is there before it ends.
//! 3. An attempt ends its item, hands it back, or loses its lease: nothing it does after that has an effect.
//! 4. No worker waits for the target of one lane while another lane could be served.
//!
//! It refuses: deciding what a key means, and what became of an interrupted write (`once` does).

mod append;
mod attempt;
mod claim;
mod codec;
mod content;
mod dispatch;
mod emit;
mod ending;
mod fit;
mod jobs;
mod keeping;
mod room;
mod schedule;
mod state;
mod ticks;
mod turns;
mod unserved;

use bytes::Bytes;
use spillgate_model::{Code, Flowfile, Refusal};
use spillgate_queue::{Job, JobId, JobState, LaneName, Room, Store};
use spillgate_telemetry::happened::{self, FailedCall};
use tokio::time::{Instant, sleep_until};

pub(crate) use append::{content_of, run as append};
pub(crate) use claim::Claim;
pub(crate) use content::{Begins, Content, Origin};
pub(crate) use emit::{Emission, handed_on};
pub(crate) use fit::call_of;
pub(crate) use room::{refusal as full_refusal, store_refusal};
pub(crate) use state::Durability;
pub use state::HeldLane;
pub use turns::HeldBy;
pub use unserved::Unserved;

use crate::reload::Inner;
use crate::{Call, Live};

/// How the store behind durable flows is.
#[derive(Clone, Debug)]
pub enum Durable {
    /// There is none, and no plan so far needs one.
    Absent,
    /// It is being opened.
    Recovering,
    /// It would not open; what was said.
    Failed(String),
    /// It serves; see [`Store::health`].
    Serving(Store),
}

/// What a caller sees of its job.
#[derive(Clone, Debug)]
pub struct JobView {
    /// Which.
    pub id: JobId,
    /// Where it stands.
    pub state: JobState,
    /// JSON: the result of `succeeded`, a problem object of other ends. `None`: there is none, or see `outcome_gone`.
    pub outcome: Option<Bytes>,
    /// There was one, and it is no longer kept.
    pub outcome_gone: bool,
    /// There was one, and it was too large to be kept at all.
    pub too_large: bool,
    /// It was dead and is done anew as this job.
    pub replayed_as: Option<JobId>,
}

/// Tells the log of work that failed and has no caller who hears of it.
fn call_failed(inner: &Inner, call: &Call, code: &str, internal: &str) {
    let (flow, Flowfile { tenant, id, .. }) = (&call.live.plan.flows[call.flow].name, &call.flowfile);
    happened::call_failed(&inner.telemetry, &FailedCall { tenant, flow, request_id: id, code, internal });
}

/// Room for one item of a flow that queues: see [`crate::Engine::reserve`].
pub(crate) fn reserve(store: &Store, live: &Live, tenant: usize, flow: usize, bytes: u64) -> Result<Option<Room>, Refusal> {
    let Some(cut) = &live.plan.flows[flow].queue else { return Ok(None) };
    let tenant = &live.tenants[tenant].plan;
    room::before_body(store, &live.plan.queues[cut.queue], &tenant.name, &tenant.queued, bytes)
}

/// Room for one more item of a lane, under the limits in force.
pub(crate) fn lane_room(store: &Store, live: &Live, lane: &LaneName, bytes: u64) -> Result<Room, Refusal> {
    let queue = live.plan.queues.iter().find(|queue| queue.name == lane.queue);
    let tenant = live.tenants.iter().find(|tenant| tenant.plan.name == lane.tenant);
    let (Some(queue), Some(tenant)) = (queue, tenant) else {
        return Err(Refusal::new(Code::UnknownJob, "The plan that runs has no such lane."));
    };
    let refused = |full| room::refusal(&full);
    room::without_shedding(store, queue, &tenant.plan.name, &tenant.plan.queued, bytes).map_err(refused)
}

/// A job of a tenant.
pub(crate) async fn job(store: &Store, live: &Live, tenant: usize, id: &str) -> Result<JobView, Refusal> {
    jobs::of_tenant(store, &live.tenants[tenant].plan.name, id).await.map_err(|refusal| *refusal)
}

/// How a job of a tenant stands.
pub(crate) fn job_state(store: &Store, live: &Live, tenant: usize, id: &str) -> Result<Job, Refusal> {
    jobs::state(store, &live.tenants[tenant].plan.name, id).map_err(|refusal| *refusal)
}

/// Cancels a job of a tenant.
pub(crate) async fn cancel_job(store: &Store, live: &Live, tenant: usize, id: &str) -> Result<JobView, Refusal> {
    jobs::cancel(store, &live.tenants[tenant].plan.name, id).await.map_err(|refusal| *refusal)
}

/// That moment, or never.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
