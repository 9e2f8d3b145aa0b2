//! What the process says about itself: metrics, access records, logs, traces.
//!
//! Invariants
//! 1. Nothing here makes a call wait: counting is an atomic, a record goes into a bounded buffer or is dropped and counted.
//! 2. Everything is bounded: series ([`CALL_SERIES`]), buffers, lines of one kind, the queue of spans.
//! 3. Metric names stand in [`names`] and nowhere else; labels come from the configuration.
//! 4. Nothing is global but the log: several [`Telemetry`] may live in one process.
//!
//! It refuses: knowing flows, databases or HTTP beyond their names and codes.

mod access;
mod breakers;
mod calls;
mod collector;
mod databases;
mod durable;
mod exposition;
pub mod happened;
mod instrument;
mod logs;
pub mod names;
mod process;
mod seats;
mod spans;
mod throttle;
mod trace;
mod writer;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, LockResult, Mutex};
use std::time::{Duration, SystemTime};

pub use access::{AccessRecord, TEXT_BYTES};
pub use breakers::{BreakerLabel, BreakerMetrics};
pub use calls::{CALL_SERIES, CallMetrics, RunningCall};
pub use databases::{DatabaseMetrics, StatementOutcome};
pub use durable::{BUCKETS, DurableMetrics, DurableReport, LANE_SERIES, LaneReport, ResolvedBy, StoreReport, StoreState, Tick};
pub use instrument::{Counter, Gauge, Histogram};
pub use process::{CacheMetrics, ProcessMetrics};
pub use seats::{SEAT_SERIES, SeatRefused};
pub use trace::TraceContext;

use exposition::Page;
use spans::Spans;
use writer::LineWriter;

/// How long the end waits for each writer.
const CLOSE_LIMIT: Duration = Duration::from_millis(1_500);

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
    #[error("{path} cannot be opened for writing: {source}")]
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

/// Database and flow.
type BreakerLabels = (Box<str>, Box<str>);

struct Inner {
    version: &'static str,
    process: ProcessMetrics,
    durable: DurableMetrics,
    calls: calls::CallSeries,
    databases: Mutex<BTreeMap<Box<str>, Arc<DatabaseMetrics>>>,
    breakers: Mutex<BTreeMap<BreakerLabels, Arc<BreakerMetrics>>>,
    access: Option<LineWriter>,
    log: Option<LineWriter>,
    spans: Option<Spans>,
}

impl Telemetry {
    /// Starts writers and exporters. Nothing that is off costs a thread.
    pub fn start(options: TelemetryOptions) -> Result<Telemetry, StartError> {
        let process = ProcessMetrics::default();
        let log = options.log.writer("log", &process.log_dropped)?;
        if let Some(writer) = &log {
            let dispatch = logs::from_environment(writer.clone()).map_err(StartError::Filter)?;
            // A process has one log; where another one was first (tests), that one stays.
            drop(tracing::dispatcher::set_global_default(dispatch));
        }
        let access = options.access.writer("access", &process.access_dropped)?;
        let start_spans = |url: String| {
            let spans = Spans::start(&url, options.version, process.spans_dropped.clone(), &process.log_held_back);
            spans.map_err(|problem| StartError::Otlp { url, problem })
        };
        let spans = options.otlp.map(start_spans).transpose()?;
        let durable = DurableMetrics::new(&process.log_held_back);
        let (calls, databases, breakers) = (calls::CallSeries::default(), Mutex::default(), Mutex::default());
        let inner = Inner { version: options.version, process, durable, calls, databases, breakers, access, log, spans };
        Ok(Telemetry { inner: Arc::new(inner) })
    }

    /// Counts for a tenant and flow of the configuration (or [`names::UNKNOWN`]). Ask once and hold it: it takes a lock.
    pub fn call_metrics(&self, tenant: &str, flow: &str) -> Arc<CallMetrics> {
        self.inner.calls.get(tenant, flow)
    }

    /// Counts for a database of the configuration: the same for the same name, also after a reload.
    pub fn database_metrics(&self, name: &str) -> Arc<DatabaseMetrics> {
        let mut databases = unpoisoned(self.inner.databases.lock());
        let make = || Arc::new(DatabaseMetrics::new(name, &self.inner.process.log_held_back));
        databases.entry(name.into()).or_insert_with(make).clone()
    }

    /// Counts for the breaker of a database, or of a flow on it: the same for the same names, also after a reload.
    pub fn breaker_metrics(&self, database: &str, flow: Option<&str>) -> Arc<BreakerMetrics> {
        let flow = flow.unwrap_or_default();
        let mut breakers = unpoisoned(self.inner.breakers.lock());
        let make = || Arc::new(BreakerMetrics::new(database, flow, &self.inner.process.log_held_back));
        breakers.entry((database.into(), flow.into())).or_insert_with(make).clone()
    }

    /// Calls, and steps of calls, that the breakers of a database and of all flows on it did not let pass.
    pub fn refused_by_breakers(&self, database: &str) -> u64 {
        let breakers = unpoisoned(self.inner.breakers.lock());
        breakers.values().filter(|breaker| *breaker.database == *database).map(|breaker| breaker.refused.value()).sum()
    }

    /// Counts of the whole process.
    pub fn process(&self) -> &ProcessMetrics {
        &self.inner.process
    }

    /// Counts of durable work that no store keeps.
    pub fn durable(&self) -> &DurableMetrics {
        &self.inner.durable
    }

    /// Writes a call's record, and its span where spans are exported. Never waits. The call ends now.
    pub fn access(&self, record: &AccessRecord<'_>) {
        if self.inner.access.is_none() && self.inner.spans.is_none() {
            return;
        }
        let now = SystemTime::now();
        if let Some(writer) = &self.inner.access {
            access::append(record, now, writer);
        }
        if let Some(spans) = &self.inner.spans {
            spans.append(record, now);
        }
    }

    /// Whether spans are exported: whether a call without a trace should start one.
    pub fn exports_spans(&self) -> bool {
        self.inner.spans.is_some()
    }

    /// The metrics page, in Prometheus' text format 0.0.4, of a process without a store.
    pub fn render_metrics(&self) -> String {
        self.render_metrics_with(&DurableReport::default())
    }

    /// The metrics page with durable work as it is at this moment.
    pub fn render_metrics_with(&self, durable: &DurableReport) -> String {
        let mut page = Page::default();
        let databases: Vec<_> = unpoisoned(self.inner.databases.lock()).values().cloned().collect();
        exposition::calls(&mut page, &self.inner.calls.all());
        exposition::databases(&mut page, &databases);
        let breakers: Vec<_> = unpoisoned(self.inner.breakers.lock()).values().cloned().collect();
        exposition::breakers::breakers(&mut page, &breakers);
        exposition::breakers::retries(&mut page, &databases);
        exposition::durable::lanes(&mut page, durable);
        exposition::durable::counts(&mut page, &self.inner.durable);
        exposition::durable::store(&mut page, durable);
        exposition::process(&mut page, &self.inner.process, self.inner.version);
        page.into_text()
    }

    /// Writes out what is buffered and stops writers and exporters. Waits a few seconds at most, also where nobody takes
    /// the bytes; blocks, so call it off the async workers, last.
    pub fn shutdown(&self) {
        if let Some(spans) = &self.inner.spans {
            spans.close(CLOSE_LIMIT);
        }
        for writer in [&self.inner.access, &self.inner.log].into_iter().flatten() {
            writer.close(CLOSE_LIMIT);
        }
    }
}

impl Sink {
    fn writer(self, name: &str, dropped: &Arc<Counter>) -> Result<Option<LineWriter>, StartError> {
        let sink: Box<dyn Write + Send> = match self {
            Sink::Off => return Ok(None),
            Sink::Stdout => Box::new(std::io::stdout()),
            Sink::Stderr => Box::new(std::io::stderr()),
            Sink::File(path) => match OpenOptions::new().create(true).append(true).open(&path) {
                Ok(file) => Box::new(file),
                Err(source) => return Err(StartError::File { path, source }),
            },
            Sink::Writer(sink) => sink,
        };
        LineWriter::start(name, sink, dropped.clone()).map(Some).map_err(StartError::Thread)
    }
}

/// A lock whose holder panicked still guards what is whole: every change under these locks is one step.
fn unpoisoned<T>(lock: LockResult<T>) -> T {
    lock.unwrap_or_else(std::sync::PoisonError::into_inner)
}
