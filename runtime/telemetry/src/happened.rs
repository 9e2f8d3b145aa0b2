//! Things that happened: each is one function that writes the log line and counts the metric, so that neither is forgotten.
//!
//! Invariants
//! 1. A kind (per database, where it is about one) writes a few lines in ten seconds at most; the next line says how many were held back.
//! 2. What is passed in is already scrubbed of secrets by whoever made it.

use std::time::Duration;

use crate::databases::DatabaseMetrics;
use crate::Telemetry;

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

/// A call ended in a fault of this server or of a service behind a flow; `internal` is for the log only.
pub fn call_failed(telemetry: &Telemetry, flow: &str, request_id: &str, code: &str, internal: &str) {
    if let Some(held_back) = telemetry.process().call_failed.pass() {
        tracing::error!(flow, request_id, code, internal, held_back, "call failed");
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
pub fn reload_refused<'a>(telemetry: &Telemetry, faults: impl IntoIterator<Item = &'a str>) {
    /// Faults written out; the rest is a number.
    const SHOWN: usize = 20;
    telemetry.process().reloads_refused.increment();
    let mut faults = faults.into_iter();
    for fault in faults.by_ref().take(SHOWN) {
        tracing::error!(fault, "configuration refused");
    }
    let more = faults.count();
    if more > 0 {
        tracing::error!(more, "configuration refused: further faults");
    }
}
