//! Things that happened: each is one function that writes the log line and counts the metric, so that neither is forgotten.
//!
//! Invariants
//! 1. A kind (per database, where it is about one) writes a few lines in ten seconds at most; the next line says how many were held back.
//! 2. What is passed in is already scrubbed of secrets by whoever made it.

use std::net::IpAddr;
use std::time::Duration;

use crate::Telemetry;
use crate::databases::DatabaseMetrics;

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

/// A call failed with more to say than its caller may hear; `internal` is for the log only.
pub fn call_failed(telemetry: &Telemetry, request_id: &str, code: &str, internal: &str) {
    if let Some(held_back) = telemetry.process().call_failed.pass() {
        tracing::warn!(request_id, code, internal, held_back, "call failed");
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

/// An operator changed something, or tried to: who, from where, what, and how it ended.
pub fn admin_change(admin: &str, remote: IpAddr, change: &str, outcome: &str) {
    tracing::info!(admin, %remote, change, outcome, "changed by an operator");
}

/// Somebody without a right to it asked the admin face.
pub fn admin_denied(telemetry: &Telemetry, remote: IpAddr, code: &str, why: &str) {
    if let Some(held_back) = telemetry.process().admin_denied.pass() {
        tracing::warn!(%remote, code, why, held_back, "admin request denied");
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
