//! What is counted per database.

use std::sync::Arc;
use std::time::Duration;

use crate::instrument::{Counter, Gauge, Histogram};
use crate::seats::{SeatRefused, SeatSeries};
use crate::throttle::Throttle;

/// How a statement ended, as a label.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementOutcome {
    Completed,
    /// The database refused it.
    Refused,
    /// Refused for a passing reason.
    Passing,
    LinkLost,
    /// Ended by the database.
    Ended,
    /// Ended by us: deadline or hang-up.
    Cancelled,
    /// A value was inexact or too large.
    UnusableValue,
    /// The database does not fit the flow (no transactions, failed self-test).
    Unfit,
}

impl StatementOutcome {
    /// Every outcome.
    pub const ALL: [StatementOutcome; 8] = [
        StatementOutcome::Completed,
        StatementOutcome::Refused,
        StatementOutcome::Passing,
        StatementOutcome::LinkLost,
        StatementOutcome::Ended,
        StatementOutcome::Cancelled,
        StatementOutcome::UnusableValue,
        StatementOutcome::Unfit,
    ];
    /// The label.
    pub fn name(self) -> &'static str {
        match self {
            StatementOutcome::Completed => "completed",
            StatementOutcome::Refused => "refused",
            StatementOutcome::Passing => "passing",
            StatementOutcome::LinkLost => "link_lost",
            StatementOutcome::Ended => "ended",
            StatementOutcome::Cancelled => "cancelled",
            StatementOutcome::UnusableValue => "unusable_value",
            StatementOutcome::Unfit => "unfit",
        }
    }
}

/// Counts for one database. Made once per name; outlives reloads.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct DatabaseMetrics {
    pub(crate) name: Box<str>,
    /// Most connections.
    pub seats: Gauge,
    /// Seats that may be held now.
    pub seat_limit: Gauge,
    pub seats_in_use: Gauge,
    /// Taken until the end of a cancelled statement is known.
    pub ending: Gauge,
    pub idle: Gauge,
    pub waiting: Gauge,
    pub connects: Counter,
    /// Counted by [`crate::happened::database_unreachable`].
    pub connect_failures: Counter,
    /// Counted by [`crate::happened::statement_cancelled`].
    pub cancels: Counter,
    /// Counted by [`crate::happened::seat_lost`].
    pub lost: Counter,
    pub wait_seconds: Histogram,
    /// Steps tried again.
    pub retries: Counter,
    /// Steps that would have been, but for the retry budget.
    pub retries_refused: Counter,
    pub(crate) statements: [Counter; StatementOutcome::ALL.len()],
    pub(crate) statement_seconds: Histogram,
    pub(crate) tenants: SeatSeries,
    pub(crate) unreachable: Throttle,
    pub(crate) failed: Throttle,
    pub(crate) seat_lost: Throttle,
    pub(crate) cancelled: Throttle,
    pub(crate) unfit: Throttle,
}

impl DatabaseMetrics {
    pub(crate) fn new(name: &str, held_back: &Arc<Counter>) -> Self {
        let throttle = || Throttle::new(held_back);
        DatabaseMetrics {
            name: name.into(),
            seats: Gauge::default(),
            seat_limit: Gauge::default(),
            seats_in_use: Gauge::default(),
            ending: Gauge::default(),
            idle: Gauge::default(),
            waiting: Gauge::default(),
            connects: Counter::default(),
            connect_failures: Counter::default(),
            cancels: Counter::default(),
            lost: Counter::default(),
            wait_seconds: Histogram::default(),
            retries: Counter::default(),
            retries_refused: Counter::default(),
            statements: Default::default(),
            statement_seconds: Histogram::default(),
            tenants: SeatSeries::default(),
            unreachable: throttle(),
            failed: throttle(),
            seat_lost: throttle(),
            cancelled: throttle(),
            unfit: throttle(),
        }
    }
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// A call of a tenant waited so long for a seat, whether it got one or not.
    pub fn waited(&self, tenant: &str, time: Duration) {
        self.wait_seconds.record(time);
        self.tenants.waited(tenant, time);
    }
    /// A call of a tenant was refused a seat.
    pub fn seat_refused(&self, tenant: &str, why: SeatRefused) {
        self.tenants.refused(tenant, why);
    }
    /// Calls of all tenants that were refused a seat for this.
    pub fn seats_refused(&self, why: SeatRefused) -> u64 {
        self.tenants.all_refused(why)
    }
    /// Seats that each tenant holds and calls of it that wait, at this moment: whoever renders the page says so first.
    pub fn tenants_now<'a>(&self, tenants: impl Iterator<Item = (&'a str, u64, u64)>) {
        self.tenants.now(tenants);
    }
    /// Counts a statement that ended.
    pub fn statement(&self, outcome: StatementOutcome, duration: Duration) {
        self.statements[outcome as usize].increment();
        self.statement_seconds.record(duration);
    }
    /// Statements that ended this way.
    pub fn ended(&self, outcome: StatementOutcome) -> u64 {
        self.statements[outcome as usize].value()
    }
}
