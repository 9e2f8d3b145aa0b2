//! A database of the live plan: its connector, its seats, and what is known about its health.

use std::fmt;
use std::sync::Arc;

use spillgate_admission::RetryBudget;
use spillgate_admission::seats::{Pool, SeatStatus};
use spillgate_config::plan::{DatabasePlan, Driver, Shed};
use spillgate_connector::Database;
use spillgate_telemetry::DatabaseMetrics;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::breaker::DatabaseBreakers;
use crate::seats::{Health, SeatCounts, SeatLimits, Seats};

/// A database of the live plan.
pub struct LiveDatabase {
    plan: DatabasePlan,
    guard: &'static str,
    pub(crate) seats: Arc<Seats>,
    pub(crate) breakers: Arc<DatabaseBreakers>,
    /// What each of the plan's tenants may try again.
    pub(crate) retries: RetryBudget,
}

/// What the admin face and `readyz` say about a database.
#[derive(Clone, Debug)]
pub struct DatabaseStatus {
    /// As configured.
    pub name: Arc<str>,
    /// Its kind.
    pub driver: Driver,
    /// Whether write steps are allowed.
    pub writable: bool,
    /// What enforces that a read-only session cannot write.
    pub guard: &'static str,
    /// What its seats are doing.
    pub seats: SeatCounts,
    /// Who holds them and who waits, by tenant and class; the limit now and why.
    pub fair: SeatStatus,
    /// Whether the last attempt to connect succeeded; unknown before the first one.
    pub reachable: Option<bool>,
    /// What the last failure to connect said; safe to show.
    pub last_error: Option<String>,
}

impl LiveDatabase {
    /// `began`: since when moments are counted that pages show. `tenants`: how many the plan has.
    pub(crate) fn new(
        plan: &DatabasePlan,
        connector: Arc<dyn Database>,
        breakers: Arc<DatabaseBreakers>,
        metrics: Arc<DatabaseMetrics>,
        answered: Arc<Notify>,
        began: Instant,
        tenants: usize,
    ) -> Self {
        let guard = connector.read_only_guard();
        let seats = Seats::new(connector, limits_of(plan), metrics, answered, began);
        LiveDatabase { plan: plan.clone(), guard, seats, breakers, retries: RetryBudget::new(tenants) }
    }
    /// The same sessions under another plan, whose limits they follow from [`Self::rules`] on. `places`: which one each of its tenants
    /// had under the plan before.
    pub(crate) fn under(&self, plan: &DatabasePlan, places: &[Option<usize>]) -> Self {
        let LiveDatabase { guard, seats, breakers, retries, .. } = self;
        LiveDatabase { plan: plan.clone(), guard, seats: seats.clone(), breakers: breakers.clone(), retries: retries.under(places) }
    }
    /// Its plan is the one that runs.
    pub(crate) fn rules(&self) {
        self.seats.set_limits(limits_of(&self.plan));
    }
    /// As configured.
    pub fn plan(&self) -> &DatabasePlan {
        &self.plan
    }
    /// How it is now.
    pub fn status(&self) -> DatabaseStatus {
        let Health { counts, fair, reachable, last_error } = self.seats.health();
        DatabaseStatus {
            name: self.plan.name.clone(),
            driver: self.plan.driver,
            writable: self.plan.writable,
            guard: self.guard,
            seats: counts,
            fair,
            reachable,
            last_error,
        }
    }
    /// Tells the metrics who holds seats and who waits.
    pub(crate) fn publish(&self) {
        let fair = self.seats.health().fair;
        let metrics = &self.seats.metrics;
        metrics.seat_limit.set(u64::from(fair.limit));
        metrics.tenants_now(fair.tenants.iter().map(|of| (&*of.tenant, u64::from(of.held), u64::from(of.waiting))));
    }
    /// Whether a plan asks for the same server, whatever else is new: what is known of how it answers is still true.
    pub(crate) fn reaches(&self, plan: &DatabasePlan) -> bool {
        (&self.plan.name, self.plan.driver, &self.plan.connection) == (&plan.name, plan.driver, &plan.connection)
    }
    /// Whether a plan asks for the very same sessions, and as many. What can change while they are open does not count, nor where the
    /// section stands in its file.
    pub(crate) fn serves(&self, plan: &DatabasePlan) -> bool {
        let DatabasePlan { fast_only, shed, breaker, line, idle, origin, .. } = plan.clone();
        *plan == DatabasePlan { fast_only, shed, breaker, line, idle, origin, ..self.plan.clone() }
    }
}

/// The adaptive limit goes no lower.
const FLOOR: u32 = 4;

fn limits_of(plan: &DatabasePlan) -> SeatLimits {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let adaptive = plan.shed == Shed::Adaptive;
    let pool = Pool { max: count(plan.pool_max).max(1), fast_only: count(plan.fast_only), floor: FLOOR, adaptive };
    SeatLimits { pool, idle: plan.idle }
}

impl fmt::Debug for LiveDatabase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LiveDatabase").field("name", &self.plan.name).finish_non_exhaustive()
    }
}
