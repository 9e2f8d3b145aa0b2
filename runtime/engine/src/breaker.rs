//! Breakers, one for each database and one for each flow on it and tenant: asked before a seat is, told by how the work at the database
//! ended.
//!
//! Invariants
//! 1. What keeps everybody from the database (no session can be opened, or it is gone before anything was sent) counts against the
//!    database. A statement that gets no answer in time, was ended by the database, or takes its link with it counts against its flow,
//!    and there for its tenant alone: no flow ever shuts the database for other flows, and what one tenant asks of a flow never shuts the
//!    flow for other tenants. A database that goes down is noticed by the sessions that cannot be opened instead.
//! 2. What callers get wrong, what they give up, and what this server refuses count against nobody.
//! 3. A deadline counts only where the database had half of the flow's own: neither a wait in line nor a caller in haste opens anything.
//! 4. Each passage is told once, by drop at the latest; where both stay closed it takes no lock and allocates nothing.
//! 5. A move is announced, and whoever keeps breakers across restarts reads them then; no call waits for that.
//!
//! The arithmetic is [`spillgate_admission::Breaker`].

mod kept;
mod passage;
mod view;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use spillgate_admission::{Breaker, BreakerLimits, BreakerState, Moved, Pass, Said, Shut, TenantBreakers};
use spillgate_config::Plan;
use spillgate_config::plan::{BreakerPlan, Flow};
use spillgate_model::{Code, Refusal, Scope, wall};
use spillgate_telemetry::{BreakerLabel, BreakerMetrics, Telemetry, happened};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Live;
use crate::steps::jittered;
pub use kept::KeptBreaker;
pub(crate) use kept::kept;
pub(crate) use passage::Passage;
pub use view::{BreakerMove, BreakerView};

/// The longest that callers are spread over beyond the time they are told, so that they do not come back together.
const SPREAD: Duration = Duration::from_secs(1);

/// What all breakers of an engine share.
pub(crate) struct Breakers {
    /// When their clock began.
    began: Instant,
    /// A breaker opened or closed.
    pub(crate) moved: Arc<Notify>,
    /// Told when a breaker closes: work that waits for its database may go on.
    answered: Arc<Notify>,
}

/// With the version of the flow: one whose file was mended is another flow.
type Versioned = (u64, Arc<LiveBreaker>);

/// The breakers of one database: its own, and one for each flow that uses it.
pub(crate) struct DatabaseBreakers {
    pub(crate) own: Arc<LiveBreaker>,
    flows: Mutex<HashMap<Arc<str>, Versioned>>,
    telemetry: Telemetry,
}

/// A breaker of the live plan.
pub(crate) struct LiveBreaker {
    database: Arc<str>,
    /// `None`: the database's own.
    flow: Option<Arc<str>>,
    breaker: Whose,
    metrics: Arc<BreakerMetrics>,
    all: Arc<Breakers>,
}

/// Who is let through or shut out together.
enum Whose {
    /// Everybody: a database that nobody reaches.
    Everybody(Breaker),
    /// Each tenant by itself: a flow whose statements are not answered.
    EachTenant(TenantBreakers),
}

impl Breakers {
    pub(crate) fn new(answered: Arc<Notify>) -> Arc<Self> {
        Arc::new(Breakers { began: Instant::now(), moved: Arc::default(), answered })
    }
    pub(crate) fn now(&self) -> Duration {
        self.at(Instant::now())
    }
    fn at(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.began)
    }
}

impl DatabaseBreakers {
    pub(crate) fn new(all: &Arc<Breakers>, database: &Arc<str>, telemetry: &Telemetry) -> Arc<Self> {
        let own = LiveBreaker::new(all, database, None, telemetry);
        Arc::new(DatabaseBreakers { own, flows: Mutex::default(), telemetry: telemetry.clone() })
    }

    /// The one of a flow.
    pub(crate) fn of(&self, flow: &Flow) -> Arc<LiveBreaker> {
        let mut flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        match flows.get(&flow.name) {
            Some((version, breaker)) if *version == flow.version => breaker.clone(),
            _ => {
                let breaker = LiveBreaker::new(&self.own.all, &self.own.database, Some(&flow.name), &self.telemetry);
                flows.insert(flow.name.clone(), (flow.version, breaker.clone()));
                breaker
            }
        }
    }

    /// Forgets flows and tenants that are in no plan any more.
    pub(crate) fn keep(&self, plan: &Plan) {
        let mut flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        flows.retain(|name, _| plan.flows.binary_search_by(|flow| flow.name.cmp(name)).is_ok());
        for (_, breaker) in flows.values() {
            breaker.keep(plan);
        }
    }
}

impl LiveBreaker {
    /// A closed one. `flow`: its name, or `None` for the database's own.
    fn new(all: &Arc<Breakers>, database: &Arc<str>, flow: Option<&Arc<str>>, telemetry: &Telemetry) -> Arc<Self> {
        let metrics = telemetry.breaker_metrics(database, flow.map(|flow| &**flow));
        metrics.stands(BreakerLabel::Closed);
        metrics.shut_out.set(0);
        let breaker = match flow {
            None => Whose::Everybody(Breaker::default()),
            Some(_) => Whose::EachTenant(TenantBreakers::default()),
        };
        Arc::new(LiveBreaker { database: database.clone(), flow: flow.cloned(), breaker, metrics, all: all.clone() })
    }

    /// The refusal that a call of a tenant would meet now. It takes nobody's place as a probe.
    pub(crate) fn refuses(&self, tenant: &str, plan: Option<&BreakerPlan>) -> Option<Refusal> {
        let (limits, now) = (limits(plan?), self.all.now());
        let shut = match &self.breaker {
            Whose::Everybody(breaker) => breaker.refuses(&limits, now),
            Whose::EachTenant(breakers) => breakers.refuses(tenant, &limits, now),
        };
        shut.map(|shut| self.refusal(shut))
    }

    /// Closes what nobody came to for long, and forgets what says nothing any more.
    pub(crate) fn forget_idle(&self, plan: Option<&BreakerPlan>) {
        let Some(limits) = plan.map(limits) else { return };
        let now = self.all.now();
        let rest = |tenant: &str, breaker: &Breaker| breaker.rest(&limits, now).map_or((), |moved| self.moved(tenant, moved, &limits));
        match &self.breaker {
            Whose::Everybody(breaker) => rest("", breaker),
            Whose::EachTenant(breakers) => {
                breakers.all().iter().for_each(|(tenant, breaker)| rest(tenant, breaker));
                breakers.forget(&limits, now);
            }
        }
    }

    fn keep(&self, plan: &Plan) {
        if let Whose::EachTenant(breakers) = &self.breaker {
            breakers.keep(|name| plan.tenants.binary_search_by(|tenant| (*tenant.name).cmp(name)).is_ok());
        }
    }

    fn enter(&self, tenant: &str, limits: &BreakerLimits, at: Instant) -> Result<Pass, Box<Refusal>> {
        let now = self.all.at(at);
        let entered = match &self.breaker {
            Whose::Everybody(breaker) => breaker.enter(limits, now),
            Whose::EachTenant(breakers) => breakers.enter(tenant, limits, now),
        };
        let pass = entered.map_err(|shut| Box::new(self.refusal(shut)))?;
        if let Some(moved) = pass.moved {
            self.moved(tenant, moved, limits);
        }
        Ok(pass)
    }

    fn told(&self, tenant: &Arc<str>, pass: Pass, said: Said, limits: &BreakerLimits, at: Instant) {
        let now = self.all.at(at);
        let moved = match &self.breaker {
            Whose::Everybody(breaker) => breaker.told(pass, said, limits, now),
            Whose::EachTenant(breakers) => breakers.told(tenant, pass, said, limits, now),
        };
        if let Some(moved) = moved {
            self.moved(tenant, moved, limits);
        }
    }

    fn moved(&self, tenant: &str, moved: Moved, limits: &BreakerLimits) {
        let Moved { to, outage, calls, failures } = moved;
        let tenant = if self.flow.is_some() { tenant } else { "" };
        happened::breaker_moved(&self.metrics, tenant, label(to), calls, failures, outage);
        self.publish(limits);
        self.all.moved.notify_one();
        if to == BreakerState::Closed {
            self.all.answered.notify_waiters();
        }
    }

    fn refusal(&self, shut: Shut) -> Refusal {
        self.metrics.refused.increment();
        let (scope, detail) = match self.flow {
            None => (Scope::Database, "No sessions of the database could be opened; nothing is sent to it before valid_until."),
            Some(_) => (Scope::Flow, "Your calls of this flow got no good answer; it is not run for you before valid_until."),
        };
        let spread = jittered((shut.retry_after / 4).min(SPREAD));
        let valid_until = wall_ms().saturating_add(milliseconds(shut.retry_after));
        let mut refusal = Refusal::new(Code::BreakerOpen, detail).retry_after(shut.retry_after + spread).valid_until(valid_until);
        refusal.scope = scope;
        refusal
    }
}

/// All breakers of a plan, with their settings: each database's own, and after it those of its flows.
pub(crate) fn of_plan(live: &Live) -> impl Iterator<Item = (&Arc<LiveBreaker>, Option<&BreakerPlan>)> {
    live.databases.iter().enumerate().flat_map(|(index, database)| {
        let flows = live.flows.iter().zip(&live.plan.flows);
        let of_flows = flows.filter_map(move |(prepared, flow)| Some((prepared.breakers[index].as_ref()?, flow.breaker.as_ref())));
        std::iter::once((&database.breakers.own, database.plan().breaker.as_ref())).chain(of_flows)
    })
}

impl fmt::Debug for LiveBreaker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LiveBreaker").field("database", &self.database).field("flow", &self.flow).finish_non_exhaustive()
    }
}

fn limits(plan: &BreakerPlan) -> BreakerLimits {
    let BreakerPlan { window, min_calls, open_below, probes, probe_limit, cool_down } = *plan;
    BreakerLimits { window, min_calls, open_below, probes, probe_limit, cool_down }
}

fn label(state: BreakerState) -> BreakerLabel {
    match state {
        BreakerState::Closed => BreakerLabel::Closed,
        BreakerState::Open => BreakerLabel::Open,
        BreakerState::HalfOpen => BreakerLabel::HalfOpen,
    }
}

fn wall_ms() -> u64 {
    wall::milliseconds(SystemTime::now())
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
