//! Runs flows: intake, seats, steps, verdicts, reload.
//!
//! A call goes forward only: typed input -> cache -> steps -> seat -> statement -> bounded rows -> outcome.
//!
//! Invariants
//! 1. A call holds at most one seat of a database at a time, and gives it back on every path: reply, refusal, deadline,
//!    hang-up, panic. A statement that was abandoned keeps its seat until the connector says that it is gone.
//! 2. A read ends with its caller; a write that was started ends by itself or by its deadline, whoever still listens.
//! 3. A write is committed before its reply is made. Where the end of a write is not known, the outcome says so.
//! 4. A reload builds everything first and swaps last; a fault changes nothing; calls end under the plan they began with.
//! 5. Everything is bounded: waiting lines, caches, kept statements, retries, what a step may read.
//!
//! 6. Durable work (`durable`) is acknowledged once it is on disk; its workers run what stands behind a `queue` step as a call runs.
//!
//! It refuses: HTTP replies (the gateway makes them), kinds of databases (the server makes connectors), how items are kept (the store).

mod breaker;
mod cache;
mod database;
mod durable;
pub mod intake;
mod live;
mod once;
mod page;
pub mod query;
mod reload;
pub mod reply;
mod run;
mod seats;
mod statements;
mod steps;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use spillgate_admission::{Budget, Permit};
use spillgate_config::plan::DatabasePlan;
use spillgate_config::{Overrides, Plan};
use spillgate_connector::Database;
use spillgate_model::{Datum, Flowfile, Refusal, Rows};
use spillgate_queue::{Job, LaneName, Room, Store};
use spillgate_telemetry::{Telemetry, TraceContext};
use tokio::sync::Notify;

pub use breaker::{BreakerMove, BreakerView, KeptBreaker};
pub use database::{DatabaseStatus, LiveDatabase};
pub use durable::{Durable, HeldBy, HeldLane, JobView, Unserved};
pub use live::{Live, LiveTenant};
pub use once::Standing;
use seats::Purpose;
pub use seats::SeatCounts;
pub use spillgate_admission::seats::{Class as SeatClass, LimitReason, SeatStatus, TenantSeats, Transition};
pub use spillgate_admission::{BreakerState, BreakerStatus, Outage};

/// Makes connectors from plans: given by the server, which alone knows the concrete kinds. Touches no network.
pub type MakeDatabase = Arc<dyn Fn(&DatabasePlan) -> Result<Arc<dyn Database>, String> + Send + Sync>;

/// One call to run.
#[derive(Debug)]
pub struct Call {
    /// The plan it was admitted under.
    pub live: Arc<Live>,
    /// Index into `live.plan.flows`.
    pub flow: usize,
    /// Index into `live.tenants`.
    pub tenant: usize,
    /// Input, deadline, ids.
    pub flowfile: Flowfile,
    /// A page's cursor as the caller sent it, and the size it asked for.
    pub page: PageRequest,
    /// Held until the outcome is made, and by the gateway until its reply is sent: a write that outlives its caller keeps it.
    pub permit: Option<Arc<Permit>>,
    /// `spillgate test`: rows per step instead of the database. A `queue` step is passed straight through then.
    pub stubs: Option<Arc<std::collections::BTreeMap<Arc<str>, Rows>>>,
    /// Of a flow with a `queue` step: what [`Engine::reserve`] gave. Without it room is asked for when the item is made.
    pub room: Option<Room>,
    /// `Idempotency-Key` as it was sent.
    pub key: Option<Arc<str>>,
    /// `Prefer: wait=N`: how long to wait for the end of a job; never past the deadline.
    pub wait: Option<Duration>,
    /// `Spillgate-Depth`: hops of the run so far.
    pub depth: u32,
    /// Where the call stands in a trace.
    pub trace: Option<TraceContext>,
}

impl Call {
    /// What every call has; what else it has is set over it.
    pub fn new(live: Arc<Live>, flow: usize, tenant: usize, flowfile: Flowfile) -> Call {
        Call {
            live,
            flow,
            tenant,
            flowfile,
            page: PageRequest::default(),
            permit: None,
            stubs: None,
            room: None,
            key: None,
            wait: None,
            depth: 0,
            trace: None,
        }
    }
    /// The same for work that goes on when the call is over.
    pub(crate) fn without_permit(&self) -> Call {
        let Call { live, flow, tenant, flowfile, key, depth, trace, .. } = self;
        let bare = Call::new(live.clone(), *flow, *tenant, flowfile.clone());
        Call { key: key.clone(), depth: *depth, trace: *trace, ..bare }
    }
}

/// What the caller asked of a paged flow.
#[derive(Clone, Debug, Default)]
pub struct PageRequest {
    /// As it came.
    pub cursor: Option<String>,
    /// Rows wanted; the flow's own size without it.
    pub size: Option<usize>,
}

/// How a call ended. Only the gateway turns it into a reply.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Outcome {
    Rows {
        rows: Arc<Rows>,
        next: Option<String>,
        affected: Option<u64>,
        stale: Option<Duration>,
    },
    Value {
        value: Datum,
        stale: Option<Duration>,
    },
    /// The item is durable. With an end where it was waited for and came in time.
    Job(JobView),
    /// The reply of an earlier call with the same key: its body, byte for byte.
    Kept(Bytes),
    Refused(Box<Refusal>),
}

/// Cheap handle.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<reload::Inner>,
}

impl Engine {
    /// Builds everything for a plan. On a fault nothing was started. Needs a running async runtime; opens no connection.
    pub fn start(plan: Arc<Plan>, make_database: MakeDatabase, telemetry: Telemetry, cursor_key: [u8; 32]) -> Result<Engine, Vec<String>> {
        reload::start(plan, make_database, telemetry, cursor_key).map(|inner| Engine { inner })
    }
    /// Puts another plan in place: databases whose settings are the same keep their pools, tenants what they have taken.
    pub fn apply(&self, plan: Arc<Plan>) -> Result<(), Vec<String>> {
        self.inner.apply(plan)?;
        self.inner.durability.follow(&self.inner);
        Ok(())
    }
    /// Puts other limits over those of tenants: `change` sees what is live and gives all overrides there are to be, or why not. One
    /// change at a time, reloads included. The next call meets them, lowering evicts nothing, and plans that are applied later keep
    /// them.
    pub fn change_overrides<E>(&self, change: impl FnOnce(&Live) -> Result<Overrides, E>) -> Result<(), E> {
        self.inner.change_overrides(change)
    }
    /// What runs now.
    pub fn live(&self) -> Arc<Live> {
        self.inner.live.load_full()
    }
    /// Runs a call to its end or its deadline. Dropping it is a hang-up: a read statement is ended, a write goes on.
    pub async fn run(&self, call: Call) -> Outcome {
        run::run(&self.inner, call, &run::Notes::default()).await
    }
    /// The same, and how long the call waited for seats.
    pub async fn run_measured(&self, call: Call) -> (Outcome, Duration) {
        let notes = run::Notes::default();
        let outcome = run::run(&self.inner, call, &notes).await;
        (outcome, notes.waited())
    }
    /// The store is open: workers and schedules start. Once.
    pub fn attach_store(&self, store: Store) {
        self.inner.durability.attach(&self.inner, store);
    }
    /// The store would not open: durable work is refused, all else goes on.
    pub fn store_failed(&self, detail: String) {
        self.inner.durability.failed(detail);
    }
    /// Whether there is no store because nothing needs one. `false`: one is being opened.
    pub fn store_absent(&self, absent: bool) {
        self.inner.durability.set_absent(absent);
    }
    /// How the store is.
    pub fn store(&self) -> Durable {
        self.inner.durability.state()
    }
    /// Room for one item, asked for before the body is read: `bytes` is the most that a request may bring. `None`: the flow has no
    /// `queue` step.
    pub fn reserve(&self, live: &Live, tenant: usize, flow: usize, bytes: u64) -> Result<Option<Room>, Refusal> {
        if live.plan.flows[flow].queue.is_none() {
            return Ok(None);
        }
        durable::reserve(self.inner.durability.store()?, live, tenant, flow, bytes)
    }
    /// Whether a key that a caller sent stands for work already: such a call needs memory only, no room. Before the body is read.
    pub fn knows_key(&self, live: &Live, tenant: usize, flow: usize, key: &str) -> bool {
        self.inner.durability.store().is_ok_and(|store| once::is_known(store, live, tenant, flow, key))
    }
    /// How a call stands in the store: whether it is a replay, and whether its business key is free. Asked when its input is known.
    pub fn standing(&self, call: &Call) -> Standing {
        let flow = &call.live.plan.flows[call.flow];
        if flow.idempotency.is_none() && flow.unique.is_none() {
            return Standing::New;
        }
        self.inner.durability.store().map_or(Standing::New, |store| once::standing(store, call))
    }
    /// Room for one more item of a lane under the limits in force, such as for a dead letter that is replayed.
    pub fn lane_room(&self, live: &Live, lane: &LaneName, bytes: u64) -> Result<Room, Refusal> {
        durable::lane_room(self.inner.durability.store()?, live, lane, bytes)
    }
    /// A job of this tenant. `unknown_job`: there is none, or it is another's; `result_gone`: not even its state is kept.
    pub async fn job(&self, live: &Live, tenant: usize, id: &str) -> Result<JobView, Refusal> {
        durable::job(self.inner.durability.of_jobs()?, live, tenant, id).await
    }
    /// How a job of this tenant stands, from memory alone.
    pub fn job_state(&self, live: &Live, tenant: usize, id: &str) -> Result<Job, Refusal> {
        durable::job_state(self.inner.durability.of_jobs()?, live, tenant, id)
    }
    /// Ends a job that waits as `cancelled`. One that runs or has ended stays as it is: the view says so.
    pub async fn cancel_job(&self, live: &Live, tenant: usize, id: &str) -> Result<JobView, Refusal> {
        durable::cancel_job(self.inner.durability.of_jobs()?, live, tenant, id).await
    }
    /// Whether the first statement of a call would be refused its seat, for want of room in the tenant's line or of time before the
    /// deadline: the gate asks last, of calls whose key is not known. Of flows whose seat comes later, or may not be needed, nothing
    /// is foreseen.
    pub fn expects(&self, live: &Live, tenant: usize, flow: usize, deadline: std::time::Instant) -> Option<Refusal> {
        let database = live.flows[flow].asked_first?;
        let (seats, tenant) = (&live.databases[database], &live.tenants[tenant]);
        seats.seats.foresee(&Purpose {
            tenant: &tenant.plan.name,
            share: tenant.share(database, seats.plan()),
            class: tenant.class(),
            flow: &live.flows[flow].seats[database],
            deadline: deadline.into(),
        })
    }
    /// Whether a breaker would not let the first statement of a tenant's call pass: the gate asks it before [`Engine::expects`], of the
    /// same flows.
    pub fn breaker_refuses(&self, live: &Live, tenant: usize, flow: usize) -> Option<Refusal> {
        let (prepared, plan, tenant) = (&live.flows[flow], &live.plan.flows[flow], &live.tenants[tenant].plan.name);
        let database = prepared.asked_first?;
        let (first, of_flow) = (&live.databases[database], prepared.breakers[database].as_ref());
        let own = first.breakers.own.refuses(tenant, first.plan().breaker.as_ref());
        own.or_else(|| of_flow?.refuses(tenant, plan.breaker.as_ref()))
    }
    /// All breakers of the live plan: each database's own, and after it those of its flows.
    pub fn breakers(&self) -> Vec<BreakerView> {
        let live = self.inner.live.load();
        let mut views: Vec<_> = breaker::of_plan(&live).flat_map(|(breaker, plan)| breaker.views(plan)).collect();
        for view in views.iter_mut().filter(|view| view.flow.is_none()) {
            let database = live.databases.iter().find(|database| database.plan().name == view.database);
            view.reachable = database.and_then(|database| database.status().reachable);
        }
        views
    }
    /// Told whenever a breaker opens or closes: whoever keeps them reads [`Engine::kept_breakers`] then.
    pub fn breaker_moved(&self) -> Arc<Notify> {
        self.inner.breakers.moved.clone()
    }
    /// Breakers that are not closed, as they are kept across a restart. If many are not, those that have not been for longest.
    pub fn kept_breakers(&self) -> Vec<KeptBreaker> {
        breaker::kept(&self.inner.live.load())
    }
    /// Opens breakers that were open before a restart. Those the plan does not have are passed over, and so are those that were told
    /// better meanwhile.
    pub fn restore_breakers(&self, kept: &[KeptBreaker]) {
        let live = self.inner.live.load();
        for (breaker, plan) in breaker::of_plan(&live) {
            for kept in kept.iter().filter(|kept| breaker.is(kept)) {
                breaker.restore(kept, plan, &live.plan);
            }
        }
    }
    /// Brings the metrics of seats and breakers up to date: whoever renders the page calls it first.
    pub fn publish_seats(&self) {
        let live = self.inner.live.load();
        live.databases.iter().for_each(|database| database.publish());
        breaker::of_plan(&live).for_each(|(breaker, plan)| breaker.refresh(plan));
    }
    /// Lanes that have work and are held back by something the store does not know of: a database, a full target, memory.
    pub fn held_lanes(&self) -> Vec<HeldLane> {
        self.inner.durability.held(&self.inner.live.load())
    }
    /// What waits in the store for another configuration. Cheap where nothing does.
    pub fn unserved(&self) -> Unserved {
        self.inner.durability.unserved(&self.inner.live.load())
    }
    /// Takes no more items for work; what runs goes on. Called first when a server stops.
    pub fn stop_taking(&self) {
        self.inner.durability.stop_taking();
    }
    /// Ends attempts that still run: the grace is over. Their items stay, or are looked into after the next start.
    pub async fn cut_off(&self) {
        self.inner.durability.cut_off().await;
    }
    /// The server's memory budget, shared with the gate.
    pub fn memory(&self) -> &Arc<Budget> {
        &self.inner.memory
    }
    /// When the clock that the gates are shown began: the gateway counts from it, the admin face reads by it.
    pub fn started(&self) -> std::time::Instant {
        self.inner.started
    }
    /// Bytes that cached replies hold.
    pub fn cached_bytes(&self) -> u64 {
        self.inner.cache.held_bytes()
    }
    /// Ends when no write and no attempt at an item runs any more: the last thing a stopping server waits for. No items are taken
    /// from here on.
    pub async fn drained(&self) {
        self.inner.durability.drained().await;
        self.inner.writes.close();
        self.inner.writes.wait().await;
    }
}
