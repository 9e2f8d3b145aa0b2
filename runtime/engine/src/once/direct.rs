//! Direct calls that run once: the key is claimed by an item of the engine's own lane, and the item's end is what repeats get.
//!
//! `claimed -> succeeded | failed | unknown`; or cut off, and then [`settling`] goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use spillgate_model::refusal::DEFAULT_RETRY_AFTER;
use spillgate_model::{Code, Refusal};
use spillgate_queue::{Appended, Appending, Emit, Full, JobId, LaneName, Need, NewItem, QueueLimits, Room, Store};
use tokio::time::{Instant, timeout, timeout_at};

use super::ending::{self, Ending, RESULT_BYTES, kept_body};
use super::evidence::{self, Found};
use super::{DIRECT, Once, repeat, settling};
use crate::durable::{self, Begins, Claim, Origin};
use crate::reload::Inner;
use crate::run::{self, Notes};
use crate::steps::{Context, Left};
use crate::{Call, Outcome};

/// How long a call whose end is not known waits for a first look.
const FIRST_LOOK: Duration = Duration::from_millis(500);
/// How long past its deadline a call waits for its end to be kept.
const END_PATIENCE: Duration = Duration::from_millis(500);
/// How long a call may outlast its deadline with all that: its rollback awaited, a look, its end written.
const PATIENCE: Duration = Duration::from_secs(3);
/// Most bytes of a claim: the typed input and what it is found again by.
const ITEM_BYTES: u64 = 1 << 20;
/// A lease outlasts its call's deadline by this.
const LEASE_SLACK: Duration = Duration::from_secs(60);

const _: () = assert!(run::ROLL_BACK_PATIENCE.as_millis() + FIRST_LOOK.as_millis() + END_PATIENCE.as_millis() < PATIENCE.as_millis());

/// What became of a claim.
enum Claimed {
    /// This call had it.
    Ran { outcome: Outcome, waited: Duration },
    /// Another call has it.
    First(JobId),
}

/// Whether a claimed call runs is decided once, by whoever comes first.
#[derive(Default)]
struct Decision(AtomicU8);

const UNDECIDED: u8 = 0;
const RUNS: u8 = 1;
const GIVEN_UP: u8 = 2;

impl Decision {
    fn take(&self, decision: u8) -> bool {
        self.0.compare_exchange(UNDECIDED, decision, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Runs a write under its keys, or waits for the call that does.
pub(crate) async fn run(inner: &Arc<Inner>, call: Call, notes: &Notes) -> Outcome {
    let once = match super::of_call(&call) {
        Ok(once) => once,
        Err(refusal) => return Outcome::Refused(refusal),
    };
    if once.is_empty() || call.stubs.is_some() {
        return run::write(inner, call, notes).await;
    }
    // Without the store nothing could be promised: never run unprotected.
    let store = match inner.durability.store() {
        Ok(store) => store.clone(),
        Err(refusal) => return Outcome::Refused(refusal.into()),
    };
    let (call, once) = (Arc::new(call), Arc::new(once));
    under_keys(inner, &store, &call, &once, notes).await.unwrap_or_else(Outcome::Refused)
}

async fn under_keys(inner: &Arc<Inner>, store: &Store, call: &Arc<Call>, once: &Arc<Once>, notes: &Notes) -> Result<Outcome, Box<Refusal>> {
    loop {
        let first = match once.known(store) {
            Some((job, true)) => job,
            Some((job, false)) => return Err(super::key_reused(job)),
            None => match claim(inner, store, call, once).await? {
                Claimed::Ran { outcome, waited } => {
                    notes.add_wait(waited);
                    return Ok(outcome);
                }
                Claimed::First(job) => job,
            },
        };
        if let Some(outcome) = repeat::answer(inner, store, call, once, first).await? {
            return Ok(outcome);
        }
        // It is proven that the first call did nothing: the key is free, for this call as for any other.
        if Instant::now() >= Instant::from_std(call.flowfile.deadline) {
            return Err(repeat::still_running(first));
        }
    }
}

/// Claims the keys and runs, in a task of its own: a hang-up stops nothing of it.
async fn claim(inner: &Arc<Inner>, store: &Store, call: &Arc<Call>, once: &Arc<Once>) -> Result<Claimed, Box<Refusal>> {
    let deadline = Instant::from_std(call.flowfile.deadline);
    let decision = Arc::new(Decision::default());
    let mut task = {
        let (inner, store, call, once, decision) = (inner.clone(), store.clone(), call.clone(), once.clone(), decision.clone());
        let writes = inner.writes.clone();
        writes.spawn(async move { Box::pin(claim_and_run(&inner, &store, call, &once, &decision)).await })
    };
    let ended = match timeout_at(deadline, &mut task).await {
        Ok(ended) => ended,
        // The claim is still being written: it will end as not done.
        Err(_) if decision.take(GIVEN_UP) => return Err(too_late()),
        Err(_) => match timeout(PATIENCE, task).await {
            Ok(ended) => ended,
            Err(_) => return Err(Refusal::new(Code::OutcomeUnknown, "The end of the call is not known yet.").into()),
        },
    };
    ended.unwrap_or_else(|error| {
        let refusal = Refusal::new(Code::OutcomeUnknown, "The flow ended in a fault; whether its write happened is found out.");
        Err(refusal.internal(error.to_string()).into())
    })
}

async fn claim_and_run(
    inner: &Arc<Inner>,
    store: &Store,
    call: Arc<Call>,
    once: &Once,
    decision: &Decision,
) -> Result<Claimed, Box<Refusal>> {
    let claim = match append(store, &call, once).await? {
        Ok(claim) => claim,
        Err(first) => return Ok(Claimed::First(first)),
    };
    let notes = Notes::default();
    let context = Context::new(inner, &call, &notes).claimed(Some(&claim));
    let lease = context.deadline.saturating_duration_since(Instant::now()) + PATIENCE + LEASE_SLACK;
    let refused = match store.renew(claim.lease(), lease) {
        Err(error) => Some(durable::store_refusal(&error)),
        Ok(()) if decision.take(RUNS) => None,
        Ok(()) => Some(too_late()),
    };
    if let Some(refusal) = refused {
        ending::end(inner, &call, claim, Ending::NotDone((*refusal).clone()), Vec::new()).await;
        return Err(refusal);
    }
    let ended = Box::pin(run::to_its_end(&context)).await;
    let waited = notes.waited();
    let outcome = match ended.left {
        Left::Unknown(promised) => cut_off(inner, &call, claim, ended.outcome, promised).await,
        left => {
            let ending = Ending::of(&ended.outcome, &left);
            let hands_on = !ended.emits.is_empty();
            let kept = end(inner, &call, claim, ending, ended.emits).await;
            if hands_on && !kept { Outcome::Refused(not_handed_on()) } else { ended.outcome }
        }
    };
    Ok(Claimed::Ran { outcome, waited })
}

fn too_late() -> Box<Refusal> {
    let refusal = Refusal::new(Code::DeadlineExceeded, "The key could not be claimed before the deadline; nothing was written.");
    refusal.retry_after(DEFAULT_RETRY_AFTER).into()
}

/// A durable claim, or the job that has the key.
async fn append(store: &Store, call: &Call, once: &Once) -> Result<Result<Claim, JobId>, Box<Refusal>> {
    let fault = |why: &str| Refusal::new(Code::Internal, "The call could not be claimed; nothing was written.").internal(why);
    let content = durable::content_of(call, Begins::AtStart, Origin::Caller, Vec::new());
    let key = content.record_key();
    let content = content.encode().map_err(|error| fault(&error.to_string()))?;
    let room = room(store, call, content.len() as u64).map_err(|full| durable::full_refusal(&full))?;
    let item = NewItem { content: content.into(), keys: once.keys.clone(), unique: once.unique, claimed: true, ..NewItem::default() };
    let appended = store.append(Appending { room, items: vec![item] }).await.map_err(|error| durable::store_refusal(&error))?;
    match appended.into_iter().next() {
        Some(Appended::New { lease: Some(lease), .. }) => Ok(Ok(Claim::new(store.clone(), lease, key, true))),
        Some(Appended::Repeat { job }) => Ok(Err(job)),
        Some(Appended::KeyReused { job }) => Err(super::key_reused(job)),
        Some(Appended::UniqueTaken { job, tenant }) => Err(super::unique_taken(job, &tenant, &call.flowfile.tenant)),
        Some(Appended::New { lease: None, .. }) | None => Err(fault("a claimed item came without a lease").into()),
    }
}

/// Room in the engine's own lane of this tenant, under the tenant's limits.
fn room(store: &Store, call: &Call, bytes: u64) -> Result<Room, Full> {
    let tenant = &call.live.tenants[call.tenant].plan;
    let limits = QueueLimits {
        queue_items: u64::MAX,
        queue_bytes: u64::MAX,
        tenant_items: tenant.queued.items.value,
        tenant_bytes: tenant.queued.bytes.value,
        tenant_disk: tenant.queued.disk.value,
        shared: false,
        item_bytes: ITEM_BYTES,
        outcome_bytes: RESULT_BYTES as u64,
    };
    let lane = LaneName { queue: DIRECT.into(), tenant: tenant.name.clone() };
    store.reserve(&lane, Need { items: 1, bytes, shed_oldest: false }, &limits)
}

/// Keeps the end. The caller waits for that, but not for long: the outcome is true whether it is kept or not. True: it is kept.
async fn end(inner: &Arc<Inner>, call: &Arc<Call>, claim: Claim, ending: Ending, emits: Vec<Emit>) -> bool {
    let until = Instant::from_std(call.flowfile.deadline).max(Instant::now() + END_PATIENCE);
    let task = {
        let (inner, call) = (inner.clone(), call.clone());
        let writes = inner.writes.clone();
        writes.spawn(async move { ending::end(&inner, &call, claim, ending, emits).await })
    };
    matches!(timeout_at(until, task).await, Ok(Ok(true)))
}

fn not_handed_on() -> Box<Refusal> {
    let detail = "The flow did its work, and whether what it hands on was kept is not known.";
    Refusal::new(Code::OutcomeUnknown, detail).into()
}

/// The end of the write is not known: one look before the caller is answered, the others behind its back.
async fn cut_off(inner: &Arc<Inner>, call: &Arc<Call>, claim: Claim, outcome: Outcome, promised: Option<Outcome>) -> Outcome {
    let body = promised.as_ref().and_then(kept_body);
    let notes = Notes::default();
    let context = Context::new(inner, call, &notes).claimed(Some(&claim));
    let looked = timeout(FIRST_LOOK, evidence::look_into(&context)).await;
    let (found, answer) = match looked {
        Ok(Found::Done(found)) => {
            let answer = promised.or_else(|| found.clone().map(Outcome::Kept)).unwrap_or(outcome);
            (Found::Done(found), answer)
        }
        Ok(Found::NotDone) => (Found::NotDone, Outcome::Refused(settling::not_done().into())),
        // The call's own words say more than that nothing tells.
        Ok(Found::Unknown(refusal)) => match &outcome {
            Outcome::Refused(own) => (Found::Unknown(own.clone()), with_job(outcome, claim.job())),
            _ => (Found::Unknown(refusal), outcome),
        },
        Ok(Found::Later(_)) | Err(_) => {
            let answer = with_job(outcome, claim.job());
            // Not among the writes that a stopping server waits for: after the next start it is looked into again.
            let (inner, call) = (inner.clone(), call.without_permit());
            drop(tokio::spawn(async move { settling::settle(&inner, &call, claim, body).await }));
            return answer;
        }
    };
    let until = Instant::now() + END_PATIENCE;
    let task = {
        let (inner, call) = (inner.clone(), call.clone());
        let writes = inner.writes.clone();
        writes.spawn(async move { settling::end(&inner, &call, claim, found, body).await })
    };
    let _goes_on_by_itself = timeout_at(until, task).await;
    answer
}

/// The caller learns where the end will be found.
fn with_job(outcome: Outcome, job: JobId) -> Outcome {
    let Outcome::Refused(mut refusal) = outcome else { return outcome };
    refusal.detail.push_str(&format!(" What becomes of it is found as job {job}."));
    Outcome::Refused(refusal)
}
