//! Scheduled runs: each tick is a claimed item of the engine's own lane, so that its end, what it hands on and the flow's high-water mark
//! are one record.
//!
//! A tick whose run before has not ended, that finds no room or no memory, or that was missed, is skipped and counted. A run that was
//! cut off is not made up for: the next tick begins from the mark where it was.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::FutureExt as _;
use sha2::{Digest as _, Sha256};
use spillgate_config::plan::{Flow, Limit, Origin as From, QueuePlan, SchedulePlan, WhenFull};
use spillgate_model::{Flowfile, Refusal, Value, problem};
use spillgate_queue::{Appended, Appending, End, Hash, JobId, JobState, LaneName, Lease, Need, NewItem, QueueLimits, Store};
use spillgate_telemetry::happened::FailedCall;
use spillgate_telemetry::{Tick, happened};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::append::content_of;
use super::claim::Claim;
use super::codec::{Reader, Writer};
use super::content::{Begins, Origin};
use super::dispatch::{Signals, Told};
use super::keeping::keeping;
use super::ticks::{Due, Next, Now};
use super::until;
use crate::intake::{self, Given};
use crate::reload::Inner;
use crate::run::{self, Ended, Notes};
use crate::steps::{Context, Left};
use crate::{Call, Live, Outcome};

/// The engine's own queue of scheduled runs.
pub(super) const SCHEDULE: &str = "(schedule)";
/// Renewed at each third of it while the run goes on.
pub(super) const LEASE: Duration = Duration::from_secs(30);
/// How long the end of a run is kept.
pub(super) const KEEP: Duration = Duration::from_secs(3_600);
/// Most bytes that are kept of what went wrong.
pub(super) const OUTCOME_BYTES: u64 = 16 * 1024;

/// How runs that were cut off are looked into: like items of a queue of one worker.
pub(super) fn left_over(name: Arc<str>) -> QueuePlan {
    let unlimited = || Limit { value: u64::MAX, origin: From::Default };
    QueuePlan {
        name,
        items: unlimited(),
        bytes: unlimited(),
        max_item: unlimited(),
        shared: false,
        when_full: WhenFull::Refuse,
        workers: 1,
        attempts: 1,
        lease: LEASE,
        expires: KEEP,
        max_result: OUTCOME_BYTES,
        result_keep: KEEP,
        dead_items: u64::MAX,
        dead_keep: KEEP,
        origin: From::Default,
    }
}

/// One schedule.
struct Scheduled {
    /// Of the flow as it was when `next` was found.
    version: u64,
    next: Next,
    running: bool,
    /// Of a flow that queues: what the last tick appended.
    last: Option<JobId>,
}

/// Runs what is due until told to stop.
pub(super) async fn run(engine: Weak<Inner>, store: Store, signals: Signals) {
    let mut scheduled: HashMap<Arc<str>, Scheduled> = HashMap::new();
    let mut running: JoinSet<(Arc<str>, Option<JobId>)> = JoinSet::new();
    let Some(inner) = engine.upgrade() else { return };
    let mut reloaded = Told::by(inner.durability.reloaded.clone());
    drop(inner);
    loop {
        let Some(inner) = engine.upgrade() else { return };
        let live = inner.live.load_full();
        let now = now();
        follow(&mut scheduled, &live, now);
        let mut wakes = None;
        for (index, flow, plan) in schedules(&live) {
            let Some(state) = scheduled.get_mut(&flow.name) else { continue };
            if let Due::Now { missed } = state.next.look(&plan.when, now) {
                (0..missed.min(1)).for_each(|_| happened::schedule_tick(&inner.telemetry, &flow.name, Tick::Missed));
                if state.running || state.last.is_some_and(|job| store.job(job).is_some_and(|job| !job.state.is_end())) {
                    happened::schedule_tick(&inner.telemetry, &flow.name, Tick::Overlapping);
                } else {
                    state.running = true;
                    let tick = Ticking { inner: inner.clone(), store: store.clone(), live: live.clone(), flow: index };
                    let (name, signals) = (flow.name.clone(), signals.clone());
                    running.spawn(async move {
                        // A fault of ours costs this tick: its item comes out again.
                        let last = AssertUnwindSafe(tick.run(&signals)).catch_unwind().await;
                        (name, last.unwrap_or(None))
                    });
                }
            }
            wakes = wakes.into_iter().chain(state.next.look_at(now)).min();
        }
        drop((inner, live));
        tokio::select! {
            () = until(wakes) => {}
            () = reloaded.again() => {}
            Some(Ok((flow, last))) = running.join_next() => {
                if let Some(state) = scheduled.get_mut(&flow) {
                    (state.running, state.last) = (false, last);
                }
            }
            () = signals.stop.cancelled() => break,
        }
    }
    while running.join_next().await.is_some() {}
}

fn now() -> Now {
    Now { steady: Instant::now(), wall: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() }
}

fn schedules(live: &Live) -> impl Iterator<Item = (usize, &Arc<Flow>, &SchedulePlan)> {
    live.plan.flows.iter().enumerate().filter_map(|(index, flow)| flow.schedule.as_ref().map(|plan| (index, flow, plan)))
}

/// Keeps the pace of schedules whose flow is the same.
fn follow(scheduled: &mut HashMap<Arc<str>, Scheduled>, live: &Live, now: Now) {
    scheduled.retain(|name, state| state.running || schedules(live).any(|(_, flow, _)| flow.name == *name));
    for (_, flow, plan) in schedules(live) {
        let first = || Next::first(&plan.when, now);
        let state = scheduled.entry(flow.name.clone()).or_insert_with(|| Scheduled {
            version: flow.version,
            next: first(),
            running: false,
            last: None,
        });
        if state.version != flow.version {
            (state.version, state.next) = (flow.version, first());
        }
    }
}

/// One tick.
struct Ticking {
    inner: Arc<Inner>,
    store: Store,
    live: Arc<Live>,
    flow: usize,
}

impl Ticking {
    fn flow(&self) -> &Arc<Flow> {
        &self.live.plan.flows[self.flow]
    }

    /// Runs the flow. What it appended, where it queues.
    async fn run(&self, signals: &Signals) -> Option<JobId> {
        let tick = |tick| happened::schedule_tick(&self.inner.telemetry, &self.flow().name, tick);
        let started = match self.call() {
            Ok(call) if self.flow().queue.is_some() => return self.append(call, tick).await,
            Ok(call) => self.claim(call).await,
            Err(refusal) => Err(refusal),
        };
        match started {
            Ok((call, claim)) => {
                tick(Tick::Run);
                self.run_claimed(&call, claim, signals).await;
            }
            Err(refusal) => self.refused(&refusal),
        }
        None
    }

    fn refused(&self, refusal: &Refusal) {
        let (telemetry, flow) = (&self.inner.telemetry, self.flow());
        happened::schedule_tick(telemetry, &flow.name, Tick::Refused);
        let tenant = flow.schedule.as_ref().map_or("", |plan| &self.live.tenants[plan.tenant].plan.name);
        let internal = refusal.internal.as_deref().unwrap_or(&refusal.detail);
        let call = FailedCall { tenant, flow: &flow.name, request_id: &request_id(flow), code: refusal.code.name(), internal };
        happened::call_failed(telemetry, &call);
    }

    async fn append(&self, call: Call, tick: impl Fn(Tick)) -> Option<JobId> {
        match Box::pin(super::append::scheduled(&self.inner, call, &Notes::default())).await {
            Outcome::Job(job) => {
                tick(Tick::Run);
                Some(job.id)
            }
            Outcome::Refused(refusal) => {
                self.refused(&refusal);
                None
            }
            _ => None,
        }
    }

    fn call(&self) -> Result<Call, Box<Refusal>> {
        let flow = self.flow();
        let tenant_index = flow.schedule.as_ref().map_or(0, |plan| plan.tenant);
        let tenant = &self.live.tenants[tenant_index].plan;
        let intake = intake::read(flow, tenant, &Given { body: Some(b"{}"), ..Given::default() })?;
        let flowfile = Flowfile {
            id: Arc::from(request_id(flow)),
            tenant: tenant.name.clone(),
            run: None,
            input: intake.values,
            deadline: (Instant::now() + flow.deadline.value.min(super::fit::LONGEST)).into_std(),
        };
        Ok(Call::new(self.live.clone(), self.flow, tenant_index, flowfile))
    }

    fn lane(&self, call: &Call) -> LaneName {
        LaneName { queue: SCHEDULE.into(), tenant: call.flowfile.tenant.clone() }
    }

    /// Makes the item of the run, born claimed.
    async fn claim(&self, call: Call) -> Result<(Call, Claim), Box<Refusal>> {
        let content = content_of(&call, Begins::AtStart, Origin::Schedule, Vec::new());
        let key = content.record_key();
        let content = content.encode().map_err(|error| Refusal::new(spillgate_model::Code::Internal, error.to_string()))?;
        let queued = &self.live.tenants[call.tenant].plan.queued;
        let limits = QueueLimits {
            queue_items: u64::MAX,
            queue_bytes: u64::MAX,
            tenant_items: queued.items.value,
            tenant_bytes: queued.bytes.value,
            tenant_disk: queued.disk.value,
            shared: false,
            item_bytes: u64::MAX,
            outcome_bytes: OUTCOME_BYTES,
        };
        let lane = self.lane(&call);
        let need = Need { items: 1, bytes: content.len() as u64, shed_oldest: false };
        let room = self.store.reserve(&lane, need, &limits).map_err(|full| super::room::refusal(&full))?;
        let mark = self.store.note(&lane, &mark_name(&self.flow().name)).await.map_err(|error| super::store_refusal(&error))?;
        let item = NewItem { content: content.into(), claimed: true, ..NewItem::default() };
        let appended = self.store.append(Appending { room, items: vec![item] }).await.map_err(|error| super::store_refusal(&error))?;
        let Some(Appended::New { lease: Some(lease), .. }) = appended.into_iter().next() else {
            return Err(Refusal::new(spillgate_model::Code::Internal, "The store gave no lease for a claimed item.").into());
        };
        self.store.renew(&lease, LEASE).map_err(|error| super::store_refusal(&error))?;
        let mut claim = Claim::new(self.store.clone(), lease, key, true);
        (claim.scheduled, claim.watermark) = (true, mark.as_deref().and_then(mark_of).unwrap_or(Value::Null));
        Ok((call, claim))
    }

    async fn run_claimed(&self, call: &Call, claim: Claim, signals: &Signals) {
        let tenant = &self.live.tenants[call.tenant];
        let (memory, most) = (self.flow().memory, self.live.plan.server.memory.value);
        let reserved = tenant.gate.reserve_memory(&tenant.limits, memory, &self.inner.memory, most);
        let _memory = match reserved {
            Ok(memory) => memory,
            Err(refusal) => return self.end(call, claim.into_lease(), JobState::Failed, failed(&refusal, call)).await,
        };
        let notes = Notes::default();
        let context = Context::new(&self.inner, call, &notes).claimed(Some(&claim)).unattended();
        let running = Box::pin(run::unless_stopped(&context, signals.cut_off.cancelled()));
        // Without an end the item is looked into when it comes out again.
        let Some(ended) = keeping(&self.store, claim.lease(), LEASE, running).await else { return };
        let Ended { outcome, left, emits, mark, .. } = ended;
        match outcome {
            Outcome::Refused(refusal) => {
                let internal = refusal.internal.as_deref().unwrap_or(&refusal.detail);
                super::call_failed(&self.inner, call, refusal.code.name(), internal);
                // Dropped without an end it comes out again, and is looked into.
                if !matches!(left, Left::Unknown(_)) {
                    self.end(call, claim.into_lease(), JobState::Failed, failed(&refusal, call)).await;
                }
            }
            _ => {
                let note = mark.map(|mark| (mark_name(&self.flow().name), mark_bytes(&mark)));
                let end = End { state: JobState::Succeeded, outcome: None, keep: KEEP, frees_keys: true, emits, note };
                self.end(call, claim.into_lease(), JobState::Succeeded, end).await;
            }
        }
    }

    async fn end(&self, call: &Call, lease: Lease, state: JobState, end: End) {
        let job = lease.job().to_string();
        if let Err(error) = self.store.finish(lease, End { state, ..end }).await {
            super::call_failed(&self.inner, call, "store_failed", &format!("job {job}: {error}"));
        }
    }
}

/// Every run of a schedule has the same: it is nobody's request.
fn request_id(flow: &Flow) -> String {
    format!("schedule-{}", flow.name)
}

fn failed(refusal: &Refusal, call: &Call) -> End {
    let outcome = Some(Bytes::from(problem::body(refusal, refusal.retry_after_ms(), &call.flowfile.id)));
    End { state: JobState::Failed, outcome, keep: KEEP, frees_keys: true, emits: Vec::new(), note: None }
}

/// Under what a flow's mark is kept in its tenant's lane.
fn mark_name(flow: &str) -> Hash {
    let digest = Sha256::new().chain_update(b"watermark ").chain_update(flow).finalize();
    let mut name = Hash::default();
    name.copy_from_slice(&digest[..16]);
    name
}

fn mark_bytes(mark: &Value) -> Bytes {
    let mut writer = Writer::default();
    writer.byte(1);
    writer.value(mark);
    writer.out.into()
}

fn mark_of(bytes: &[u8]) -> Option<Value> {
    let mut reader = Reader { rest: bytes };
    (reader.byte() == Ok(1)).then(|| reader.value().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_comes_back_exactly() {
        for mark in [Value::Integer(i64::MIN), Value::Text("2026-01-02T03:04:05.123456789012".into()), Value::Number(0.1)] {
            assert_eq!(mark_of(&mark_bytes(&mark)), Some(mark));
        }
        assert_eq!((mark_of(b""), mark_of(b"\x02x"), mark_of(b"\x01")), (None, None, None));
        assert_ne!(mark_name("a"), mark_name("b"));
    }
}
