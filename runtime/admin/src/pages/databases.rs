//! Databases: settings, who holds seats and who waits, the limit now and why; and breakers.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use spillgate_config::plan::{BreakerPlan, DatabasePlan, Driver, Shed};
use spillgate_engine::{BreakerView, DatabaseStatus, LimitReason, SeatCounts, SeatStatus};
use spillgate_model::Code;
use spillgate_telemetry::{DatabaseMetrics, SeatRefused, StatementOutcome};

use super::{Amount, milliseconds};

/// `GET /admin/v1/databases`.
#[derive(Serialize)]
pub(crate) struct Databases<'a> {
    pub(crate) databases: Vec<DatabaseState<'a>>,
}

/// A database, and how it is now.
#[derive(Serialize)]
pub(crate) struct DatabaseState<'a> {
    #[serde(flatten)]
    settings: DatabaseSettings<'a>,
    /// What enforces that a read-only session cannot write.
    read_only_by: &'static str,
    /// Unknown before the first attempt to connect.
    reachable: Option<bool>,
    last_error: Option<String>,
    seats: Seats,
    statements: BTreeMap<&'static str, u64>,
    /// Calls, and steps of calls, that were not let at it, by code.
    refused: BTreeMap<&'static str, u64>,
    connects: u64,
    connect_failures: u64,
    cancels: u64,
}

/// As configured.
#[derive(Serialize)]
pub(crate) struct DatabaseSettings<'a> {
    name: &'a str,
    driver: &'static str,
    access: &'static str,
    pool_max: usize,
    fast_only: usize,
    shed: &'static str,
    line: usize,
    idle_ms: Amount,
    statement_timeout_ms: Amount,
    /// `null`: it is off.
    breaker: Option<BreakerSettings>,
    from: String,
}

#[derive(Serialize)]
struct BreakerSettings {
    window_ms: Amount,
    min_calls: u64,
    open_below: f64,
    probes: u32,
    probe_limit_ms: Amount,
    cool_down_ms: Amount,
}

impl BreakerSettings {
    fn of(plan: &BreakerPlan) -> Self {
        BreakerSettings {
            window_ms: milliseconds(plan.window),
            min_calls: plan.min_calls,
            open_below: plan.open_below,
            probes: plan.probes,
            probe_limit_ms: milliseconds(plan.probe_limit),
            cool_down_ms: milliseconds(plan.cool_down),
        }
    }
}

#[derive(Serialize)]
struct Seats {
    max: usize,
    /// Seats that may be held now, and why no more.
    limit: u32,
    limit_because: LimitBecause,
    /// Those in use and those that are ending: what the tenants hold adds up to it.
    held: u32,
    /// Of those held, by flows that are slow or not yet measured.
    slow: u32,
    in_use: usize,
    /// Set aside: their statements are ending, or are lost in a driver.
    ending: usize,
    idle: usize,
    lost: u64,
    waiting: usize,
    tenants: Vec<TenantSeats>,
    limit_changes: u64,
    /// Oldest first.
    last_limit_changes: Vec<LimitChange>,
}

#[derive(Serialize)]
struct TenantSeats {
    tenant: String,
    class: &'static str,
    /// What it may hold now, in all its classes: less than configured while the limit is below the pool.
    limit: u32,
    /// In use and ending.
    held: u32,
    waiting: u32,
    oldest_wait_ms: Amount,
    /// Its line stands: newest go first, and what waited too long is shed.
    standing: bool,
}

#[derive(Serialize)]
struct LimitChange {
    ago_ms: Amount,
    limit: u32,
    because: LimitBecause,
}

/// Why the limit is what it is.
#[derive(Serialize)]
struct LimitBecause {
    reason: &'static str,
    /// How many times longer than usual calls held their seats.
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<f64>,
}

impl LimitBecause {
    fn of(reason: LimitReason) -> Self {
        let (reason, times) = match reason {
            LimitReason::Pool => ("pool", None),
            LimitReason::Slowed { times } => ("slowed", Some((times * 100.0).round() / 100.0)),
            LimitReason::Recovering => ("recovering", None),
        };
        LimitBecause { reason, times }
    }
}

impl<'a> DatabaseSettings<'a> {
    pub(crate) fn of(plan: &'a DatabasePlan) -> Self {
        DatabaseSettings {
            name: &plan.name,
            driver: match plan.driver {
                Driver::Odbc => "odbc",
                Driver::Postgres => "postgres",
                Driver::Sqlite => "sqlite",
            },
            access: if plan.writable { "read-write" } else { "read-only" },
            pool_max: plan.pool_max,
            fast_only: plan.fast_only,
            shed: match plan.shed {
                Shed::Adaptive => "adaptive",
                Shed::Off => "off",
            },
            line: plan.line,
            idle_ms: milliseconds(plan.idle),
            statement_timeout_ms: milliseconds(plan.statement_timeout),
            breaker: plan.breaker.as_ref().map(BreakerSettings::of),
            from: plan.origin.to_string(),
        }
    }
}

impl<'a> DatabaseState<'a> {
    /// `by_breakers`: what its breakers refused; `now` on the clock that seats are shown: since the engine's start.
    pub(crate) fn of(plan: &'a DatabasePlan, status: DatabaseStatus, metrics: &DatabaseMetrics, by_breakers: u64, now: Duration) -> Self {
        let overloaded = metrics.seats_refused(SeatRefused::LineFull) + metrics.seats_refused(SeatRefused::Shed);
        let refused = [
            (Code::DatabaseUnreachable, metrics.seats_refused(SeatRefused::Unreachable)),
            (Code::Overloaded, overloaded),
            (Code::WaitTooLong, metrics.seats_refused(SeatRefused::WaitTooLong)),
            (Code::BreakerOpen, by_breakers),
        ];
        DatabaseState {
            settings: DatabaseSettings::of(plan),
            read_only_by: status.guard,
            reachable: status.reachable,
            last_error: status.last_error,
            seats: Seats::of(&status.seats, &status.fair, now),
            statements: StatementOutcome::ALL.iter().map(|outcome| (outcome.name(), metrics.ended(*outcome))).collect(),
            refused: refused.into_iter().map(|(code, count)| (code.name(), count)).collect(),
            connects: metrics.connects.value(),
            connect_failures: metrics.connect_failures.value(),
            cancels: metrics.cancels.value(),
        }
    }
}

impl Seats {
    fn of(counts: &SeatCounts, fair: &SeatStatus, now: Duration) -> Self {
        let tenants = fair.tenants.iter().map(|tenant| TenantSeats {
            tenant: tenant.tenant.to_string(),
            class: tenant.class.name(),
            limit: tenant.limit,
            held: tenant.held,
            waiting: tenant.waiting,
            oldest_wait_ms: milliseconds(tenant.oldest_wait),
            standing: tenant.standing,
        });
        let changes = fair.last_transitions.iter().map(|change| LimitChange {
            ago_ms: milliseconds(now.saturating_sub(change.at)),
            limit: change.limit,
            because: LimitBecause::of(change.reason),
        });
        Seats {
            max: counts.max,
            limit: fair.limit,
            limit_because: LimitBecause::of(fair.reason),
            held: fair.in_use,
            slow: fair.slow,
            in_use: counts.in_use,
            ending: counts.ending,
            idle: counts.idle,
            lost: counts.lost,
            waiting: counts.waiting,
            tenants: tenants.collect(),
            limit_changes: fair.transitions,
            last_limit_changes: changes.collect(),
        }
    }
}

/// `GET /admin/v1/breakers`.
#[derive(Serialize)]
pub(crate) struct Breakers {
    pub(crate) breakers: Vec<BreakerPage>,
}

/// A breaker: of a database, or of one flow on it and tenant.
#[derive(Serialize)]
pub(crate) struct BreakerPage {
    database: String,
    /// `null`: the database's own.
    flow: Option<String>,
    /// Of a flow: the tenant whose calls failed lately. `null`: all others, who are let through.
    tenant: Option<String>,
    state: &'static str,
    /// Of a database's own: whether the last try to open a session succeeded. While none does, one call at a time tries, and the others are
    /// refused until then, however it stands.
    reachable: Option<bool>,
    /// Of one that is not closed: how long it has not been, and how long nobody may ask still.
    outage_ms: Option<Amount>,
    opens_in_ms: Option<Amount>,
    probes_out: usize,
    /// In its window; of a flow's `null` tenant: those of all tenants together.
    calls: u64,
    failures: u64,
    /// `null`: it is off.
    settings: Option<BreakerSettings>,
    /// Oldest first.
    last_moves: Vec<Move>,
}

#[derive(Serialize)]
struct Move {
    at: String,
    to: &'static str,
}

impl BreakerPage {
    pub(crate) fn of(view: BreakerView) -> Self {
        let BreakerView { database, flow, tenant, plan, reachable, status, moves } = view;
        BreakerPage {
            database: database.to_string(),
            flow: flow.map(|flow| flow.to_string()),
            tenant: tenant.map(|tenant| tenant.to_string()),
            state: status.state.name(),
            reachable,
            outage_ms: status.outage.map(|outage| milliseconds(outage.lasted)),
            opens_in_ms: status.outage.map(|outage| milliseconds(outage.cool_down)),
            probes_out: status.probes,
            calls: status.calls,
            failures: status.failures,
            settings: plan.as_ref().map(BreakerSettings::of),
            last_moves: moves.into_iter().map(|moved| Move { at: super::audit::time(moved.at_ms), to: moved.to.name() }).collect(),
        }
    }
}
