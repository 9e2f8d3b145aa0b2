//! What the process says about itself: metrics, access records, logs, traces.
//!
//! Invariants
//! 1. Nothing here makes a call wait: counting is an atomic, a record goes into a bounded buffer or is dropped and counted.
//! 2. Everything is bounded: series ([`CALL_SERIES`]), buffers, lines of one kind, the queue of spans.
//! 3. Metric names stand in [`names`] and nowhere else; labels come from the configuration.
//! 4. Nothing is global but the log: several [`Telemetry`] may live in one process.
//!
//! It refuses: knowing flows, databases or HTTP beyond their names and codes.

pub mod access;
mod calls;
mod databases;
pub mod happened;
mod instrument;
pub mod names;
mod process;
mod throttle;
mod trace;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, LockResult, Mutex};

pub use access::AccessRecord;
pub use calls::{CALL_SERIES, CallMetrics, RunningCall};
pub use databases::{DatabaseMetrics, StatementOutcome};
pub use instrument::{Counter, Gauge, Histogram};
pub use process::ProcessMetrics;
pub use trace::TraceContext;

/// Where lines go.
#[derive(Default)]
pub enum Sink {
    /// Nowhere, at no cost.
    #[default]
    Off,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file, appended to.
    File(PathBuf),
    /// Anything else (tests).
    Writer(Box<dyn std::io::Write + Send>),
}

/// What to start. The default says nothing anywhere.
#[derive(Default)]
pub struct TelemetryOptions {
    /// One JSON line a call.
    pub access: Sink,
    /// JSON log lines. The first one started in a process with other than `Off` gets the log.
    pub log: Sink,
    /// Base URL of an OTLP/HTTP collector.
    pub otlp: Option<String>,
    /// The program's version.
    pub version: &'static str,
}

/// Why telemetry could not start.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum StartError {
    #[error("{path} cannot be opened for access records: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("a thread could not be started: {0}")]
    Thread(std::io::Error),
    #[error("SPILLGATE_LOG cannot be understood: {0}")]
    Filter(String),
    #[error("spans cannot be sent to {url}: {problem}")]
    Otlp { url: String, problem: String },
}

/// Cheap handle.
#[derive(Clone)]
pub struct Telemetry {
    inner: Arc<Inner>,
}

struct Inner {
    process: ProcessMetrics,
    calls: calls::CallSeries,
    databases: Mutex<BTreeMap<Box<str>, Arc<DatabaseMetrics>>>,
}

impl Telemetry {
    /// Starts writers and exporters.
    pub fn start(options: TelemetryOptions) -> Result<Telemetry, StartError> {
        let _ = options;
        let inner = Inner { process: ProcessMetrics::default(), calls: calls::CallSeries::default(), databases: Mutex::default() };
        Ok(Telemetry { inner: Arc::new(inner) })
    }
    /// Counts for a tenant and flow of the configuration (or [`names::UNKNOWN`]). Look it up once, not per call.
    pub fn call_metrics(&self, tenant: &str, flow: &str) -> Arc<CallMetrics> {
        self.inner.calls.get(tenant, flow)
    }
    /// Counts for a database of the configuration: the same for the same name, also after a reload.
    pub fn database_metrics(&self, name: &str) -> Arc<DatabaseMetrics> {
        let mut databases = unpoisoned(self.inner.databases.lock());
        databases.entry(name.into()).or_insert_with(|| Arc::new(DatabaseMetrics::new(name))).clone()
    }
    /// Counts of the whole process.
    pub fn process(&self) -> &ProcessMetrics {
        &self.inner.process
    }
    /// Writes a call's record, and its span where spans are exported. Never waits.
    pub fn access(&self, record: &AccessRecord<'_>) {
        let _ = record;
    }
    /// The metrics page, in Prometheus' text format 0.0.4.
    pub fn render_metrics(&self) -> String {
        String::new()
    }
    /// Writes out what is buffered and stops writers and exporters; waits a second or two at most. Blocks: call it off
    /// the async workers, last.
    pub fn shutdown(&self) {}
}

/// A lock whose holder panicked still guards counts that are whole: every change under these locks is one step.
fn unpoisoned<T>(lock: LockResult<T>) -> T {
    lock.unwrap_or_else(std::sync::PoisonError::into_inner)
}
