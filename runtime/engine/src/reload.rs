//! Starting, and putting another plan in place: everything is built first and swapped last.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use spillgate_admission::{Budget, RunLimits, TenantLimits};
use spillgate_config::plan::TenantPlan;
use spillgate_config::{Overrides, Plan, in_force};
use spillgate_telemetry::Telemetry;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::MakeDatabase;
use crate::breaker::{self, Breakers, DatabaseBreakers};
use crate::cache::Cache;
use crate::database::LiveDatabase;
use crate::durable::Durability;
use crate::live::{Live, LiveTenant};
use crate::once::Waiting;
use crate::steps::{HttpClient, PreparedFlow};

/// How often idle sessions are looked at.
const IDLE_CHECK: Duration = Duration::from_secs(1);

/// What outlives plans.
pub(crate) struct Inner {
    pub(crate) live: ArcSwap<Live>,
    pub(crate) memory: Arc<Budget>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) http: HttpClient,
    pub(crate) cursor_key: [u8; 32],
    /// When the clock that the gates are shown began.
    pub(crate) started: std::time::Instant,
    /// Large evaluations at once.
    pub(crate) evaluations: Semaphore,
    /// Writes that run, callers or not.
    pub(crate) writes: TaskTracker,
    pub(crate) durability: Durability,
    pub(crate) breakers: Arc<Breakers>,
    /// Calls that wait for the first with their key.
    pub(crate) repeats: Arc<Waiting>,
    make_database: MakeDatabase,
    pub(crate) telemetry: Telemetry,
    /// Held while another plan or other limits are put in place.
    applying: Mutex<()>,
}

pub(crate) fn start(
    plan: Arc<Plan>,
    make_database: MakeDatabase,
    telemetry: Telemetry,
    cursor_key: [u8; 32],
) -> Result<Arc<Inner>, Vec<String>> {
    let durability = Durability::default();
    let breakers = Breakers::new(durability.answered.clone());
    let started = std::time::Instant::now();
    let live = build(plan, &make_database, &telemetry, &durability, &breakers, started, None)?;
    let inner = Arc::new(Inner {
        started,
        live: ArcSwap::from_pointee(live),
        memory: Arc::default(),
        cache: Cache::new(telemetry.process().cache.clone()),
        http: HttpClient::default(),
        cursor_key,
        evaluations: Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from)),
        writes: TaskTracker::new(),
        durability,
        breakers,
        repeats: Arc::default(),
        make_database,
        telemetry,
        applying: Mutex::default(),
    });
    tokio::spawn(close_idle(Arc::downgrade(&inner)));
    Ok(inner)
}

impl Inner {
    pub(crate) fn apply(&self, plan: Arc<Plan>) -> Result<(), Vec<String>> {
        let _one_at_a_time = self.applying.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.live.load_full();
        let (make, telemetry, durability) = (&self.make_database, &self.telemetry, &self.durability);
        let live = Arc::new(build(plan, make, telemetry, durability, &self.breakers, self.started, Some(&before))?);
        self.live.store(live.clone());
        for old in &before.databases {
            if !live.databases.iter().any(|kept| Arc::ptr_eq(&kept.seats, &old.seats)) {
                old.seats.retire();
            }
        }
        for database in &live.databases {
            database.rules();
            database.seats.keep_flows(&live.plan);
            database.breakers.keep(&live.plan);
        }
        Ok(())
    }

    /// Puts other limits over those of the plan. The next call meets them; what runs goes on under those it met.
    pub(crate) fn change_overrides<E>(&self, change: impl FnOnce(&Live) -> Result<Overrides, E>) -> Result<(), E> {
        let _one_at_a_time = self.applying.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.live.load_full();
        let overrides = Arc::new(change(&before)?);
        let tenants = live_tenants(&before.plan, &overrides, Some(&before));
        let (databases, flows, plan) = (before.databases.clone(), before.flows.clone(), before.plan.clone());
        self.live.store(Arc::new(Live { tenants, databases, flows, plan, overrides }));
        Ok(())
    }
}

/// Everything for a plan, or every fault. Keeps the sessions of databases that need no others, and what tenants have taken.
fn build(
    plan: Arc<Plan>,
    make_database: &MakeDatabase,
    telemetry: &Telemetry,
    durability: &Durability,
    breakers_of_all: &Arc<Breakers>,
    started: std::time::Instant,
    before: Option<&Live>,
) -> Result<Live, Vec<String>> {
    let mut faults = Vec::new();
    let mut databases = Vec::with_capacity(plan.databases.len());
    let (places, tenants) = (places(&plan, before), plan.tenants.len());
    for wanted in &plan.databases {
        let kept = before.and_then(|live| live.databases.iter().find(|database| database.serves(wanted)));
        match kept {
            Some(kept) => databases.push(Arc::new(kept.under(wanted, &places))),
            None => match make_database(wanted) {
                Ok(connector) => {
                    let metrics = telemetry.database_metrics(&wanted.name);
                    let known = before.and_then(|live| live.databases.iter().find(|database| database.reaches(wanted)));
                    let breakers = known.map(|database| database.breakers.clone());
                    let breakers = breakers.unwrap_or_else(|| DatabaseBreakers::new(breakers_of_all, &wanted.name, telemetry));
                    let answered = durability.answered.clone();
                    let began = started.into();
                    databases.push(Arc::new(LiveDatabase::new(wanted, connector, breakers, metrics, answered, began, tenants)));
                }
                Err(problem) => faults.push(format!("database {}: {problem}", wanted.name)),
            },
        }
    }
    let mut flows = Vec::with_capacity(plan.flows.len());
    for flow in &plan.flows {
        match PreparedFlow::new(flow, &plan, &databases) {
            Ok(prepared) => flows.push(prepared),
            Err(problem) => faults.push(problem),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let overrides = before.map(|before| before.overrides.clone()).unwrap_or_default();
    Ok(Live { tenants: live_tenants(&plan, &overrides, before), databases, flows: flows.into(), plan, overrides })
}

/// Which place each tenant of a plan had under the plan before.
fn places(plan: &Plan, before: Option<&Live>) -> Vec<Option<usize>> {
    let known: HashMap<&str, usize> =
        before.iter().flat_map(|live| &live.tenants).enumerate().map(|(place, tenant)| (&*tenant.plan.name, place)).collect();
    plan.tenants.iter().map(|tenant| known.get(&*tenant.name).copied()).collect()
}

/// Tenants in the plan's order, with the limits in force and what they have taken.
fn live_tenants(plan: &Plan, overrides: &Overrides, before: Option<&Live>) -> Vec<LiveTenant> {
    let known: HashMap<&str, &LiveTenant> =
        before.iter().flat_map(|live| &live.tenants).map(|tenant| (&*tenant.plan.name, tenant)).collect();
    let live_tenant = |plan: TenantPlan| LiveTenant {
        gate: known.get(&*plan.name).map(|before| before.gate.clone()).unwrap_or_default(),
        limits: limits_of(&plan),
        plan,
    };
    in_force(plan, overrides).into_iter().map(live_tenant).collect()
}

fn limits_of(plan: &TenantPlan) -> TenantLimits {
    let run = &plan.run;
    TenantLimits {
        rate: plan.rate.value,
        in_flight: plan.in_flight.value,
        memory: plan.memory.value,
        repeat_budget: plan.repeat_budget.value,
        run: RunLimits {
            live: run.live.value,
            calls: run.calls.value,
            in_flight: run.in_flight.value,
            retries: run.retries.value,
            depth: run.depth.value,
            ttl: run.ttl.value,
        },
    }
}

/// Closes sessions that nobody needs, and forgets breakers that say nothing any more, as long as the engine lives.
async fn close_idle(inner: Weak<Inner>) {
    let mut tick = tokio::time::interval(IDLE_CHECK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let Some(inner) = inner.upgrade() else { return };
        let live = inner.live.load();
        for database in &live.databases {
            database.seats.close_idle(Instant::now());
        }
        breaker::of_plan(&live).for_each(|(breaker, plan)| breaker.forget_idle(plan));
    }
}
