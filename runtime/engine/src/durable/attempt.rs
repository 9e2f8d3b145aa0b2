//! One attempt at an item: it meets the live plan, gets its memory, runs what stands behind the cut, and ends, comes back or waits.
//!
//! Invariants
//! 1. The lease is renewed as long as the attempt works; one that lost it changes nothing any more (case E4).
//! 2. An item that was cut off in a write is looked into before anything else is done with it.
//! 3. What is handed on and the end of the item are one record.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use spillgate_config::plan::{Effect, QueuePlan};
use spillgate_model::{Code, Refusal, problem};
use spillgate_queue::{Emit, End, Hash, JobState, Lease, Leased, Store, StoreError};
use spillgate_telemetry::{AccessRecord, ResolvedBy, TraceContext, happened};
use tokio_util::sync::CancellationToken;

use super::claim::Claim;
use super::content::{Begins, Content, Origin};
use super::ending::{self, Decision};
use super::fit;
use super::keeping::keeping;
use super::schedule::SCHEDULE;
use super::turns::{After, HeldBy};
use crate::once::{self, Found};
use crate::reload::Inner;
use crate::run::{self, Ended, Notes};
use crate::steps::{Context, Left};
use crate::{Call, Outcome, reply};

/// How long the lane waits at least before a database is asked again what became of a write.
const ASKED_AGAIN: Duration = Duration::from_secs(1);
/// How long an item waits that others held up: as long as its try took, so that it has a worker for half of the time at the most.
const SHORTEST_REST: Duration = Duration::from_millis(500);
const LONGEST_REST: Duration = Duration::from_secs(60);
/// How long an item waits whose flow is not in the plan. A plan may be without it for a moment only.
const MISSING_REST: Duration = Duration::from_secs(20);
/// A look into a cut-off write takes its time.
const LOOK_LEASE: Duration = Duration::from_secs(60);

/// What all attempts of a queue share.
pub(super) struct Work<'a> {
    pub(super) inner: &'a Arc<Inner>,
    pub(super) store: &'a Store,
    pub(super) queue: &'a QueuePlan,
    pub(super) tenant: &'a Arc<str>,
    pub(super) cut_off: &'a CancellationToken,
}

/// What a look into a cut-off write came to.
enum Looked {
    Found(Found),
    Lost,
    CutOff,
}

/// How an item ends, beside its state.
#[derive(Default)]
struct Ending {
    outcome: Option<Bytes>,
    frees_keys: bool,
    emits: Vec<Emit>,
    note: Option<(Hash, Bytes)>,
}

/// How long a lane is not served at least, and the item itself not tried.
#[derive(Default)]
struct Rests {
    lane: Duration,
    item: Duration,
}

/// Works on one item, as far as it goes now.
pub(super) async fn attempt(work: &Work<'_>, leased: Leased) -> After {
    let Leased { lease, content, attempt, interrupted, age, .. } = leased;
    let bytes = content.len() as u64;
    let content = match Content::decode(&content) {
        Ok(content) => content,
        Err(error) => return work.misfit(lease, None, Code::Internal, &error.to_string()).await,
    };
    let live = work.inner.live.load_full();
    let call = match fit::call_of(&content, &live) {
        Ok(call) => call,
        Err(misfit) if interrupted => return work.lost_from_sight(lease, &content, &misfit.why).await,
        Err(misfit) if misfit.missing && *work.queue.name != *SCHEDULE => return work.pass(lease).await,
        Err(misfit) => return work.misfit(lease, Some(&content), Code::FlowChanged, &misfit.why).await,
    };
    let tenant = &live.tenants[call.tenant];
    let memory = live.plan.flows[call.flow].memory.saturating_add(2 * bytes + carried_bytes(&content));
    // More than it may ever have, as the limits are now: it waits for others, as for memory that is in use.
    let could_fit = memory <= tenant.limits.memory && memory <= live.plan.server.memory.value;
    if !could_fit && !interrupted {
        return work.pass(lease).await;
    }
    let reserved = tenant.gate.reserve_memory(&tenant.limits, memory, &work.inner.memory, live.plan.server.memory.value);
    let Ok(_memory) = reserved else {
        return work.hold(lease, interrupted, HeldBy::Memory, Rests::default()).await;
    };
    let claim = Claim::new(work.store.clone(), lease, content.record_key(), interrupted);
    if content.origin == Origin::Schedule && live.plan.flows[call.flow].effect == Effect::Read {
        return work.not_made_up_for(claim, &call).await;
    }
    if interrupted {
        return Box::pin(work.find_out(&content, call, claim, attempt)).await;
    }
    if attempt > work.queue.attempts {
        // Each of them broke off without a word: the next would most likely, too.
        let refusal = Refusal::new(Code::Internal, "Every attempt at the item broke off.");
        let outcome = Some(letter(&refusal, &call));
        return work.end(claim.into_lease(), &call, JobState::Dead, Ending { outcome, ..Ending::default() }).await;
    }
    let after = Box::pin(work.run(&content, call, claim, attempt)).await;
    if attempt == 1 && !matches!(after, After::Held { .. }) {
        work.inner.telemetry.durable().waited(&work.queue.name, work.tenant, age);
    }
    after
}

impl Work<'_> {
    /// Runs what is behind the cut, and does what follows from it.
    async fn run(&self, content: &Content, call: Call, claim: Claim, attempt: u32) -> After {
        let (notes, began) = (Notes::default(), Instant::now());
        let kept = {
            let mut context = Context::new(self.inner, &call, &notes).claimed(Some(&claim)).unattended();
            if content.begins == Begins::BehindCut {
                context = context.resumed(&content.carried);
            }
            let running = Box::pin(run::unless_stopped(&context, self.cut_off.cancelled()));
            keeping(self.store, claim.lease(), self.queue.lease, running).await
        };
        let Some(ended) = kept else { return self.lost(&claim, &call) };
        let took = began.elapsed();
        self.record(&call, &ended.outcome, took, notes.waited());
        if let Outcome::Refused(refusal) = &ended.outcome
            && let Some(internal) = &refusal.internal
        {
            super::call_failed(self.inner, &call, refusal.code.name(), internal);
        }
        if ended.done_before && call.live.flows[call.flow].emits {
            return self.not_handed_on(claim, &call).await;
        }
        if self.cut_off.is_cancelled() && matches!((&ended.outcome, &ended.left), (Outcome::Refused(_), Left::Nothing)) {
            // The grace of a stopping server is over: nothing was done, and nothing is counted.
            return self.release(claim.into_lease(), Duration::ZERO, false).await;
        }
        match ending::decide(&ended.outcome, &ended.left, ended.cause, attempt, self.queue.attempts) {
            Decision::End { state, frees_keys } => {
                let Ended { outcome, emits, .. } = ended;
                let emits = if state == JobState::Succeeded { emits } else { Vec::new() };
                let outcome = match (&outcome, state) {
                    (Outcome::Refused(refusal), JobState::Dead) => Some(letter(refusal, &call)),
                    _ => self.kept(&outcome, &call),
                };
                self.end(claim.into_lease(), &call, state, Ending { outcome, frees_keys, emits, note: None }).await
            }
            Decision::Again { ceiling } => self.release(claim.into_lease(), jittered(ceiling), true).await,
            Decision::Hold { by, pause, aside } => {
                let item = if aside { jittered(took.clamp(SHORTEST_REST, LONGEST_REST)) } else { Duration::ZERO };
                self.hold(claim.into_lease(), false, by, Rests { lane: pause, item }).await
            }
            Decision::FindOut => {
                let promised = match ended.left {
                    Left::Unknown(promised) => promised.and_then(|outcome| self.kept(&outcome, &call)),
                    _ => None,
                };
                Box::pin(self.found(call, claim, attempt, promised)).await
            }
        }
    }

    /// An item that was cut off in its write.
    async fn find_out(&self, content: &Content, call: Call, claim: Claim, attempt: u32) -> After {
        match self.look(&call, &claim).await {
            Looked::Found(Found::NotDone) if content.origin == Origin::Schedule => self.not_made_up_for(claim, &call).await,
            Looked::Found(Found::NotDone) => {
                happened::interrupted_resolved(
                    &self.inner.telemetry,
                    &call.live.plan.flows[call.flow].name,
                    &claim.job().to_string(),
                    by(&call),
                    "again",
                );
                self.run(content, call, claim, attempt).await
            }
            looked => self.as_found(call, claim, looked, None).await,
        }
    }

    /// A scheduled run that was cut off: the next tick does it.
    async fn not_made_up_for(&self, claim: Claim, call: &Call) -> After {
        let outcome = Some(told(&Refusal::new(Code::Internal, "The run was cut off, and nothing of it was done."), call));
        self.end(claim.into_lease(), call, JobState::Failed, Ending { outcome, frees_keys: true, ..Ending::default() }).await
    }

    /// A write of this attempt whose end is not known. `promised`: the result if it was done.
    async fn found(&self, call: Call, claim: Claim, attempt: u32, promised: Option<Bytes>) -> After {
        match self.look(&call, &claim).await {
            Looked::Found(Found::NotDone) if attempt < self.queue.attempts => {
                self.release(claim.into_lease(), jittered(ASKED_AGAIN), true).await
            }
            Looked::Found(Found::NotDone) => {
                let refusal = Refusal::new(Code::DatabaseError, "Each attempt was cut off, and the database has nothing of the last one.");
                let outcome = Some(letter(&refusal, &call));
                self.end(claim.into_lease(), &call, JobState::Dead, Ending { outcome, ..Ending::default() }).await
            }
            looked => self.as_found(call, claim, looked, promised).await,
        }
    }

    async fn look(&self, call: &Call, claim: &Claim) -> Looked {
        let notes = Notes::default();
        let context = Context::new(self.inner, call, &notes).claimed(Some(claim)).unattended();
        let looking = keeping(self.store, claim.lease(), self.queue.lease.max(LOOK_LEASE), Box::pin(once::look_into(&context)));
        match self.cut_off.run_until_cancelled(looking).await {
            Some(Some(found)) => Looked::Found(found),
            Some(None) => Looked::Lost,
            None => Looked::CutOff,
        }
    }

    async fn as_found(&self, call: Call, claim: Claim, looked: Looked, promised: Option<Bytes>) -> After {
        let flow = call.live.plan.flows[call.flow].name.clone();
        let job = claim.job().to_string();
        let resolved = |by, end| happened::interrupted_resolved(&self.inner.telemetry, &flow, &job, by, end);
        match looked {
            Looked::Found(Found::Done(_)) if call.live.flows[call.flow].emits => self.not_handed_on(claim, &call).await,
            Looked::Found(Found::Done(outcome)) => {
                resolved(by(&call), JobState::Succeeded.name());
                let outcome = promised.or(outcome);
                self.end(claim.into_lease(), &call, JobState::Succeeded, Ending { outcome, ..Ending::default() }).await
            }
            Looked::Found(Found::Unknown(refusal)) => {
                resolved(ResolvedBy::Nothing, JobState::Unknown.name());
                self.unknown(claim, &call, &refusal).await
            }
            // Dropped without an end, the item comes back as cut off.
            Looked::Found(Found::Later(_) | Found::NotDone) => After::Held { by: HeldBy::Database, pause: ASKED_AGAIN },
            Looked::Lost => self.lost(&claim, &call),
            Looked::CutOff => After::Nothing { ready_in: None },
        }
    }

    /// The write was done, and what stands behind it was not: items that would be handed on can not be made any more.
    async fn not_handed_on(&self, claim: Claim, call: &Call) -> After {
        let detail = "The write was done by an attempt that was cut off; what the flow hands on after it was not.";
        self.unknown(claim, call, &Refusal::new(Code::OutcomeUnknown, detail)).await
    }

    async fn unknown(&self, claim: Claim, call: &Call, refusal: &Refusal) -> After {
        let (tenant, flow) = (&call.flowfile.tenant, &call.live.plan.flows[call.flow].name);
        happened::outcome_unknown(&self.inner.telemetry, tenant, flow, &claim.job().to_string());
        let outcome = Some(told(refusal, call));
        self.end(claim.into_lease(), call, JobState::Unknown, Ending { outcome, ..Ending::default() }).await
    }

    /// What the item needs is not in the plan: it waits until it is, or until it expires. Others of its lane go on.
    async fn pass(&self, lease: Lease) -> After {
        match self.release(lease, jittered(MISSING_REST), false).await {
            After::Served => After::Passed { rest: MISSING_REST },
            other => other,
        }
    }

    /// The item no longer fits what runs, or cannot be read: a dead letter that says why.
    async fn misfit(&self, lease: Lease, content: Option<&Content>, code: Code, why: &str) -> After {
        let (flow, id) = content.map_or(("", ""), |content| (&*content.flow, &*content.id));
        let refusal = Refusal::new(code, format!("The item cannot be run: {why}.")).letter();
        happened::item_dead(&self.inner.telemetry, &self.queue.name, self.tenant, flow, &lease.job().to_string(), "misfit");
        let outcome = Some(problem::body(&refusal, None, id).into());
        self.finish(lease, JobState::Dead, Ending { outcome, ..Ending::default() }, self.queue.result_keep).await
    }

    /// It was cut off in its write, and the flow that could tell what became of it is gone.
    async fn lost_from_sight(&self, lease: Lease, content: &Content, why: &str) -> After {
        let detail = format!("The attempt was cut off after its write was sent, and nothing can tell whether it was done: {why}.");
        let refusal = Refusal::new(Code::OutcomeUnknown, detail);
        happened::outcome_unknown(&self.inner.telemetry, &content.tenant, &content.flow, &lease.job().to_string());
        let outcome = Some(problem::body(&refusal, None, &content.id).into());
        self.finish(lease, JobState::Unknown, Ending { outcome, ..Ending::default() }, self.queue.result_keep).await
    }

    async fn end(&self, lease: Lease, call: &Call, state: JobState, ending: Ending) -> After {
        if state == JobState::Dead {
            let (queue, tenant, flow) = (&self.queue.name, &call.flowfile.tenant, &call.live.plan.flows[call.flow].name);
            happened::item_dead(&self.inner.telemetry, queue, tenant, flow, &lease.job().to_string(), "attempts");
        }
        // As long as its keys are known, so is what became of it.
        let keep = self.queue.result_keep.max(once::keep(&call.live.plan.flows[call.flow]));
        self.finish(lease, state, ending, keep).await
    }

    async fn finish(&self, lease: Lease, state: JobState, ending: Ending, keep: Duration) -> After {
        let Ending { outcome, frees_keys, emits, note } = ending;
        let outcome = outcome.filter(|outcome| outcome.len() as u64 <= self.queue.max_result);
        let end = End { state, outcome, keep, frees_keys, emits, note };
        after(self.store.finish(lease, end).await)
    }

    async fn release(&self, lease: Lease, pause: Duration, counts: bool) -> After {
        after(self.store.release(lease, pause, counts).await)
    }

    /// The item goes back and its lane waits. One that was cut off must stay so: it is dropped without a word.
    async fn hold(&self, lease: Lease, interrupted: bool, by: HeldBy, rests: Rests) -> After {
        if interrupted {
            drop(lease);
            return After::Held { by, pause: rests.lane };
        }
        match self.release(lease, rests.item, false).await {
            After::Served => After::Held { by, pause: rests.lane },
            other => other,
        }
    }

    fn lost(&self, claim: &Claim, call: &Call) -> After {
        let (queue, tenant, flow) = (&self.queue.name, &call.flowfile.tenant, &call.live.plan.flows[call.flow].name);
        happened::lease_lost(&self.inner.telemetry, queue, tenant, flow, &claim.job().to_string());
        After::Served
    }

    /// An attempt is written down as a call is: below the span of the request that brought the item.
    fn record(&self, call: &Call, outcome: &Outcome, duration: Duration, wait: Duration) {
        let refusal = match outcome {
            Outcome::Refused(refusal) => Some(refusal),
            _ => None,
        };
        let (rows, truncated) = match outcome {
            Outcome::Rows { rows, .. } => (rows.len() as u64, rows.truncated()),
            _ => (0, false),
        };
        self.inner.telemetry.access(&AccessRecord {
            request_id: &call.flowfile.id,
            trace: call.trace.and_then(|trace| TraceContext::below(&trace.traceparent())),
            tenant: &call.flowfile.tenant,
            run: call.flowfile.run.as_deref(),
            flow: &call.live.plan.flows[call.flow].name,
            method: "ATTEMPT",
            status: refusal.map_or(200, |refusal| refusal.status()),
            code: refusal.map_or("ok", |refusal| refusal.code.name()),
            duration,
            wait,
            rows,
            bytes: 0,
            truncated,
            stale: false,
            remote: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        });
    }

    /// What is kept of an outcome, where it may be so large. What is much larger is not even written.
    fn kept(&self, outcome: &Outcome, call: &Call) -> Option<Bytes> {
        match outcome {
            Outcome::Refused(refusal) => Some(told(refusal, call)),
            Outcome::Rows { rows, .. } if rows.held_bytes() as u64 / 4 > self.queue.max_result => None,
            outcome => reply::body(outcome).map(Bytes::from),
        }
    }
}

fn after(said: Result<(), StoreError>) -> After {
    match said {
        // A lost lease is told where it is noticed first; the item goes on elsewhere.
        Ok(()) | Err(StoreError::LeaseLost) => After::Served,
        Err(_) => After::Held { by: HeldBy::Store, pause: ASKED_AGAIN },
    }
}

/// The problem object of a refusal.
fn told(refusal: &Refusal, call: &Call) -> Bytes {
    problem::body(refusal, refusal.retry_after_ms(), &call.flowfile.id).into()
}

/// The same of an item that no repeat of its call runs again.
fn letter(refusal: &Refusal, call: &Call) -> Bytes {
    told(&refusal.clone().letter(), call)
}

fn by(call: &Call) -> ResolvedBy {
    if call.live.flows[call.flow].record.is_some() { ResolvedBy::Record } else { ResolvedBy::Verify }
}

fn carried_bytes(content: &Content) -> u64 {
    let rows = content.carried.iter().filter_map(|carried| carried.rows.as_ref()).map(|rows| rows.held_bytes() as u64).sum::<u64>();
    let values = content.carried.iter().filter_map(|carried| carried.value.as_ref());
    rows + values.map(|value| spillgate_model::json::datum_bytes(value) as u64).sum::<u64>()
}

/// From half of `ceiling` to all of it: attempts that failed together do not come back together.
fn jittered(ceiling: Duration) -> Duration {
    ceiling / 2 + crate::steps::jittered(ceiling / 2)
}
