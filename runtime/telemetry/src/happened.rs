//! Things that happened: each is one function that writes the log line and counts the metric, so that neither is forgotten.
//!
//! Invariants
//! 1. A kind (per database, where it is about one) writes a few lines in ten seconds at most; the next line says how many were held back.
//! 2. What is passed in is already scrubbed of secrets by whoever made it.

use std::net::IpAddr;
use std::time::Duration;

use crate::Telemetry;
use crate::breakers::{BreakerLabel, BreakerMetrics};
use crate::databases::DatabaseMetrics;
use crate::durable::{ResolvedBy, Tick};

/// A connection could not be made.
pub fn database_unreachable(database: &DatabaseMetrics, detail: &str) {
    database.connect_failures.increment();
    if let Some(held_back) = database.unreachable.pass() {
        tracing::warn!(database = database.name(), detail, held_back, "database unreachable");
    }
}

/// A connection was lost while a statement ran, or its end was never known.
pub fn seat_lost(database: &DatabaseMetrics, detail: &str) {
    database.lost.increment();
    if let Some(held_back) = database.seat_lost.pass() {
        tracing::warn!(database = database.name(), detail, held_back, "seat lost");
    }
}

/// A statement was ended for a deadline or a hang-up.
pub fn statement_cancelled(database: &DatabaseMetrics, flow: &str, why: &str, after: Duration) {
    database.cancels.increment();
    if let Some(held_back) = database.cancelled.pass() {
        let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        tracing::info!(database = database.name(), flow, why, after_ms, held_back, "statement cancelled");
    }
}

/// A statement failed in a way the operator should see; `detail` is the driver's own, scrubbed.
pub fn statement_failed(database: &DatabaseMetrics, flow: &str, request_id: &str, sqlstate: Option<&str>, detail: &str) {
    if let Some(held_back) = database.failed.pass() {
        tracing::warn!(database = database.name(), flow, request_id, sqlstate, detail, held_back, "statement failed");
    }
}

/// The connector's check of driver or settings failed.
pub fn database_unfit(database: &DatabaseMetrics, detail: &str) {
    if let Some(held_back) = database.unfit.pass() {
        tracing::error!(database = database.name(), detail, held_back, "database unfit");
    }
}

/// A breaker opened, let its first probe pass, or closed: a flow's for one tenant. `calls` and `failures` were counted when it did.
pub fn breaker_moved(breaker: &BreakerMetrics, tenant: &str, to: BreakerLabel, calls: u64, failures: u64, outage: Duration) {
    breaker.moved(to);
    let Some(held_back) = breaker.told.pass() else { return };
    let (database, flow, outage_ms) = (&*breaker.database, &*breaker.flow, u64::try_from(outage.as_millis()).unwrap_or(u64::MAX));
    match to {
        BreakerLabel::Open => tracing::warn!(database, flow, tenant, calls, failures, outage_ms, held_back, "breaker open"),
        BreakerLabel::HalfOpen => tracing::info!(database, flow, tenant, outage_ms, held_back, "breaker half open"),
        BreakerLabel::Closed => tracing::info!(database, flow, tenant, outage_ms, held_back, "breaker closed"),
    }
}

/// A call, an attempt or a scheduled run that failed.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct FailedCall<'a> {
    pub tenant: &'a str,
    pub flow: &'a str,
    pub request_id: &'a str,
    pub code: &'a str,
    /// For the log only.
    pub internal: &'a str,
}

/// A call failed with more to say than its caller may hear, or without a caller who hears it.
pub fn call_failed(telemetry: &Telemetry, call: &FailedCall<'_>) {
    let FailedCall { tenant, flow, request_id, code, internal } = *call;
    if let Some(held_back) = telemetry.process().call_failed.pass() {
        tracing::warn!(tenant, flow, request_id, code, internal, held_back, "call failed");
    }
}

/// A listener cannot take a connection, such as where the process has no file descriptor left.
pub fn not_accepted(telemetry: &Telemetry, listener: &'static str, error: &std::io::Error) {
    if let Some(held_back) = telemetry.process().not_accepted.pass() {
        tracing::warn!(listener, %error, held_back, "no connection can be accepted");
    }
}

/// A configuration runs now: the first one at start, or another one after a reload.
pub fn reload_applied(telemetry: &Telemetry, version: &str) {
    telemetry.process().reloads_applied.increment();
    config_started(telemetry, version);
}

/// The configuration the process started with.
pub fn config_started(telemetry: &Telemetry, version: &str) {
    *crate::unpoisoned(telemetry.process().config_version.lock()) = Some(version.into());
    tracing::info!(version, "configuration applied");
}

/// A reload was refused: nothing that runs has changed. `faults` are lines `FILE:LINE:COLUMN: MESSAGE`.
pub fn reload_refused(telemetry: &Telemetry, faults: &[String]) {
    /// Faults written out; the rest is a number.
    const SHOWN: usize = 20;
    telemetry.process().reloads_refused.increment();
    for fault in faults.iter().take(SHOWN) {
        tracing::error!(fault, "configuration refused");
    }
    if faults.len() > SHOWN {
        tracing::error!(more = faults.len() - SHOWN, "configuration refused: further faults");
    }
}

/// An operator changed something, or tried to.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct AdminChange<'a> {
    pub admin: &'a str,
    pub remote: IpAddr,
    /// One word: the label of its count.
    pub action: &'static str,
    /// What it was done to; empty: the server.
    pub subject: &'a str,
    /// Whether it was done.
    pub done: bool,
    /// What it came to.
    pub outcome: &'a str,
}

/// An operator changed something, or tried to: who, from where, what, and how it ended.
pub fn admin_change(telemetry: &Telemetry, change: &AdminChange<'_>) {
    let AdminChange { admin, remote, action, subject, done, outcome } = *change;
    telemetry.process().admin_change(action, done);
    tracing::info!(admin, %remote, action, subject, outcome, "changed by an operator");
}

/// Somebody without a right to it asked the admin face.
pub fn admin_denied(telemetry: &Telemetry, remote: IpAddr, code: &str, why: &str) {
    if let Some(held_back) = telemetry.process().admin_denied.pass() {
        tracing::warn!(%remote, code, why, held_back, "admin request denied");
    }
}

/// What a start of the store found.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct StoreFound<'a> {
    pub lanes: u64,
    pub waiting: u64,
    pub cut_bytes: u64,
    pub cut_records: u64,
    pub quarantined_extents: u64,
    pub missing_files: &'a [String],
    /// What was acknowledged and is lost, a sentence each.
    pub losses: &'a [String],
    /// What else a person should know.
    pub remarks: &'a [String],
}

/// The store serves. Anything lost or set aside is a warning.
pub fn store_recovered(found: &StoreFound<'_>, took: Duration) {
    let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let StoreFound { lanes, waiting, cut_bytes, cut_records, quarantined_extents, missing_files, losses, remarks } = *found;
    let missing = missing_files.join(", ");
    if cut_records == 0 && quarantined_extents == 0 && missing_files.is_empty() && losses.is_empty() {
        tracing::info!(lanes, waiting, took_ms, "store recovered");
    } else {
        tracing::warn!(lanes, waiting, took_ms, cut_bytes, cut_records, quarantined_extents, missing, "store recovered with losses");
    }
    for loss in losses {
        tracing::error!(loss, "store recovered: lost");
    }
    for remark in remarks {
        tracing::warn!(remark, "store recovered: remark");
    }
}

/// The store would not open, or a sync or a write failed: no durable work until a restart.
pub fn store_failed(detail: &str) {
    tracing::error!(detail, "store failed");
}

/// The volume's free space fell below the reserve: no new durable work.
pub fn disk_low(telemetry: &Telemetry, free_bytes: u64, reserve_bytes: u64) {
    let durable = telemetry.durable();
    durable.disk_low.increment();
    if let Some(held_back) = durable.told.disk.pass() {
        tracing::warn!(free_bytes, reserve_bytes, held_back, "disk low");
    }
}

/// There is room on the volume again.
pub fn disk_back(telemetry: &Telemetry, free_bytes: u64) {
    if let Some(held_back) = telemetry.durable().told.disk.pass() {
        tracing::info!(free_bytes, held_back, "disk space is back");
    }
}

/// An item used up its attempts, or could not be run at all: it is a dead letter. The store counts it.
pub fn item_dead(telemetry: &Telemetry, queue: &str, tenant: &str, flow: &str, job: &str, code: &str) {
    if let Some(held_back) = telemetry.durable().told.item_dead.pass() {
        tracing::warn!(queue, tenant, flow, job, code, held_back, "item dead");
    }
}

/// A job ended as `unknown`: somebody must look. The store counts it.
pub fn outcome_unknown(telemetry: &Telemetry, tenant: &str, flow: &str, job: &str) {
    if let Some(held_back) = telemetry.durable().told.outcome_unknown.pass() {
        tracing::error!(tenant, flow, job, held_back, "outcome unknown");
    }
}

/// A lane's dead letters are full: nothing of it is served until some are replayed or purged.
pub fn lane_parked(telemetry: &Telemetry, queue: &str, tenant: &str) {
    let durable = telemetry.durable();
    durable.parked.increment();
    if let Some(held_back) = durable.told.lane_parked.pass() {
        tracing::warn!(queue, tenant, held_back, "lane parked");
    }
}

/// A worker's lease ran out before its work ended: whatever it does now ends nothing.
pub fn lease_lost(telemetry: &Telemetry, queue: &str, tenant: &str, flow: &str, job: &str) {
    let durable = telemetry.durable();
    durable.leases_lost.increment();
    if let Some(held_back) = durable.told.lease_lost.pass() {
        tracing::warn!(queue, tenant, flow, job, held_back, "lease lost");
    }
}

/// The end of a write that was cut off was found out, or could not be.
pub fn interrupted_resolved(telemetry: &Telemetry, flow: &str, job: &str, by: ResolvedBy, end: &str) {
    let durable = telemetry.durable();
    durable.interrupted[by as usize].increment();
    if let Some(held_back) = durable.told.interrupted.pass() {
        tracing::info!(flow, job, by = by.name(), end, held_back, "cut-off write resolved");
    }
}

/// The end of a call with a key could not be kept: after the next start it is looked into.
pub fn end_not_kept(job: &str, end: &str, detail: &str) {
    tracing::error!(job, end, detail, "end not kept");
}

/// Items wait in a queue, or for a tenant, that the configuration no longer has: they stay, and nobody works on them.
pub fn items_unserved(queue: &str, waiting: u64) {
    tracing::warn!(queue, waiting, "items unserved");
}

/// A schedule's tick came, or did not.
pub fn schedule_tick(telemetry: &Telemetry, flow: &str, tick: Tick) {
    let durable = telemetry.durable();
    durable.tick(flow, tick);
    if tick != Tick::Run
        && let Some(held_back) = durable.told.tick.pass()
    {
        tracing::info!(flow, outcome = tick.name(), held_back, "schedule tick skipped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::tests::logged;

    fn telemetry() -> Telemetry {
        Telemetry::start(crate::TelemetryOptions::default()).expect("nothing to start")
    }

    #[test]
    fn what_happened_is_logged_and_counted_together() {
        let telemetry = telemetry();
        let database = telemetry.database_metrics("as400");
        let lines = logged("info", || {
            database_unreachable(&database, "connection refused");
            seat_lost(&database, "link gone");
            statement_cancelled(&database, "truck_position", "deadline", Duration::from_millis(2_000));
            reload_applied(&telemetry, "v2");
            reload_refused(&telemetry, &["flows/a.toml:3:1: unknown key".to_owned()]);
        });
        let messages: Vec<_> = lines.iter().filter_map(|line| line["message"].as_str()).collect();
        let expected = ["database unreachable", "seat lost", "statement cancelled", "configuration applied", "configuration refused"];
        assert_eq!(messages, expected);
        assert_eq!(lines[4]["fault"], "flows/a.toml:3:1: unknown key");
        assert_eq!([&database.connect_failures, &database.lost, &database.cancels].map(crate::Counter::value), [1, 1, 1]);
        assert_eq!((telemetry.process().reloads(), telemetry.process().config_version().as_deref()), ((1, 1), Some("v2")));
    }

    #[test]
    fn durable_work_is_logged_and_counted_together() {
        let telemetry = telemetry();
        let missing = ["extents-0003".to_owned()];
        let lines = logged("info", || {
            store_recovered(&StoreFound { lanes: 2, waiting: 7, ..StoreFound::default() }, Duration::from_millis(12));
            store_recovered(&StoreFound { cut_bytes: 9, cut_records: 1, missing_files: &missing, ..StoreFound::default() }, Duration::ZERO);
            store_failed("no space left");
            disk_low(&telemetry, 10, 20);
            disk_back(&telemetry, 30);
            item_dead(&telemetry, "bookings", "agent", "book_trip", "2f-1a", "database_error");
            outcome_unknown(&telemetry, "agent", "book_trip", "2f-1b");
            lane_parked(&telemetry, "bookings", "agent");
            lease_lost(&telemetry, "bookings", "agent", "book_trip", "2f-1c");
            interrupted_resolved(&telemetry, "book_trip", "2f-1d", ResolvedBy::Record, "succeeded");
            schedule_tick(&telemetry, "nightly", Tick::Run);
            schedule_tick(&telemetry, "nightly", Tick::Overlapping);
        });
        let messages: Vec<_> = lines.iter().filter_map(|line| line["message"].as_str()).collect();
        let expected = [
            "store recovered",
            "store recovered with losses",
            "store failed",
            "disk low",
            "disk space is back",
            "item dead",
            "outcome unknown",
            "lane parked",
            "lease lost",
            "cut-off write resolved",
            "schedule tick skipped",
        ];
        assert_eq!(messages, expected);
        assert_eq!((&lines[1]["level"], &lines[1]["missing"]), (&"WARN".into(), &"extents-0003".into()));
        let durable = telemetry.durable();
        assert_eq!([&durable.disk_low, &durable.parked, &durable.leases_lost].map(crate::Counter::value), [1, 1, 1]);
        assert_eq!(durable.interrupted(ResolvedBy::Record), 1);
        assert_eq!(durable.ticks()["nightly"], [1, 1, 0, 0]);
    }

    #[test]
    fn a_storm_of_one_database_is_counted_in_full_and_hides_no_other() {
        let telemetry = telemetry();
        let (noisy, quiet) = (telemetry.database_metrics("noisy"), telemetry.database_metrics("quiet"));
        let lines = logged("info", || {
            (0..500).for_each(|_| database_unreachable(&noisy, "refused"));
            database_unreachable(&quiet, "refused");
        });
        assert_eq!(noisy.connect_failures.value(), 500);
        assert!(lines.len() < 20 && lines.iter().any(|line| line["database"] == "quiet"), "{} lines", lines.len());
        let page = telemetry.render_metrics();
        assert!(page.contains("spillgate_log_lines_held_back_total 49"), "{page}");
    }
}
