//! A database of the live plan: its connector, its seats, and what is known about its health.

use std::fmt;
use std::sync::Arc;

use spillgate_config::plan::{DatabasePlan, Driver};
use spillgate_connector::Database;
use spillgate_telemetry::DatabaseMetrics;
use tokio::sync::Notify;

use crate::seats::{SeatCounts, SeatLimits, Seats};

/// A database of the live plan.
pub struct LiveDatabase {
    plan: DatabasePlan,
    guard: &'static str,
    pub(crate) seats: Arc<Seats>,
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
    /// Whether the last attempt to connect succeeded; unknown before the first one.
    pub reachable: Option<bool>,
    /// What the last failure to connect said; safe to show.
    pub last_error: Option<String>,
}

impl LiveDatabase {
    pub(crate) fn new(plan: &DatabasePlan, connector: Arc<dyn Database>, metrics: Arc<DatabaseMetrics>, answered: Arc<Notify>) -> Self {
        let limits = SeatLimits { max: plan.pool_max.max(1), line: plan.line, idle: plan.idle };
        let guard = connector.read_only_guard();
        LiveDatabase { plan: plan.clone(), guard, seats: Seats::new(connector, limits, metrics, answered) }
    }
    /// As configured.
    pub fn plan(&self) -> &DatabasePlan {
        &self.plan
    }
    /// How it is now.
    pub fn status(&self) -> DatabaseStatus {
        let (seats, reachable, last_error) = self.seats.state_of_health();
        DatabaseStatus {
            name: self.plan.name.clone(),
            driver: self.plan.driver,
            writable: self.plan.writable,
            guard: self.guard,
            seats,
            reachable,
            last_error,
        }
    }
    /// Whether a plan asks for the very same database: where the section stands in its file does not count.
    pub(crate) fn serves(&self, plan: &DatabasePlan) -> bool {
        self.plan == DatabasePlan { origin: self.plan.origin.clone(), ..plan.clone() }
    }
}

impl fmt::Debug for LiveDatabase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LiveDatabase").field("name", &self.plan.name).finish_non_exhaustive()
    }
}
