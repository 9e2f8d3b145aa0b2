//! What is counted per tenant and flow.
//!
//! Invariants
//! 1. A call that began is counted exactly once when it ends, on every path: dropped unended it is a hang-up.
//! 2. There are at most [`CALL_SERIES`] pairs, whatever callers send and however often the configuration changes; what
//!    is beyond shares the label [`names::OTHER`] (case E8).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use spillgate_model::Code;

use crate::instrument::{Counter, Gauge, Histogram};
use crate::names;
use crate::unpoisoned;

/// Most pairs of tenant and flow that have series of their own.
pub const CALL_SERIES: usize = 5_000;

const OK: usize = Code::ALL.len();
const HUNG_UP: usize = Code::ALL.len() + 1;
const OUTCOMES: usize = Code::ALL.len() + 2;

/// Counts for one tenant and flow. Held by whoever runs calls, looked up once.
#[derive(Debug)]
pub struct CallMetrics {
    tenant: Box<str>,
    flow: Box<str>,
    outcomes: [AtomicU64; OUTCOMES],
    pub(crate) seconds: Histogram,
    pub(crate) in_flight: Gauge,
    pub(crate) reply_bytes: Counter,
}

impl CallMetrics {
    fn new(tenant: &str, flow: &str) -> Self {
        CallMetrics {
            tenant: tenant.into(),
            flow: flow.into(),
            outcomes: std::array::from_fn(|_| AtomicU64::new(0)),
            seconds: Histogram::default(),
            in_flight: Gauge::default(),
            reply_bytes: Counter::default(),
        }
    }

    /// A call begins. End it with [`RunningCall::end`]; dropped, it counts as hung up.
    pub fn begin(self: &Arc<Self>) -> RunningCall {
        self.in_flight.increment();
        RunningCall { metrics: Some(self.clone()) }
    }
    /// Counts a call that was refused before it began: `None` is success.
    pub fn count(&self, code: Option<Code>, duration: Duration, reply_bytes: u64) {
        self.outcomes[code.map_or(OK, |code| code as usize)].fetch_add(1, Ordering::Relaxed);
        self.seconds.record(duration);
        self.reply_bytes.add(reply_bytes);
    }
    /// Calls that ended this way; `None` is success.
    pub fn ended(&self, code: Option<Code>) -> u64 {
        self.outcomes[code.map_or(OK, |code| code as usize)].load(Ordering::Relaxed)
    }
    /// Calls whose caller left.
    pub fn hung_up(&self) -> u64 {
        self.outcomes[HUNG_UP].load(Ordering::Relaxed)
    }
    /// Calls running.
    pub fn in_flight(&self) -> i64 {
        self.in_flight.value()
    }
    pub(crate) fn labels(&self) -> [&str; 2] {
        [&self.tenant, &self.flow]
    }
    /// Outcomes that happened, with their label.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let labels = Code::ALL.iter().map(|code| code.name()).chain(["ok", "hung_up"]);
        labels.zip(&self.outcomes).map(|(label, count)| (label, count.load(Ordering::Relaxed))).filter(|(_, count)| *count > 0)
    }
}

/// A call that began and has not ended.
#[derive(Debug)]
pub struct RunningCall {
    metrics: Option<Arc<CallMetrics>>,
}

impl RunningCall {
    /// The call ended: `None` is success.
    pub fn end(mut self, code: Option<Code>, duration: Duration, reply_bytes: u64) {
        if let Some(metrics) = self.metrics.take() {
            metrics.in_flight.decrement();
            metrics.count(code, duration, reply_bytes);
        }
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        if let Some(metrics) = self.metrics.take() {
            metrics.in_flight.decrement();
            metrics.outcomes[HUNG_UP].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// All pairs that were ever asked for.
#[derive(Debug, Default)]
pub(crate) struct CallSeries {
    pairs: Mutex<BTreeMap<(Box<str>, Box<str>), Arc<CallMetrics>>>,
    other: OnceLock<Arc<CallMetrics>>,
}

impl CallSeries {
    pub(crate) fn get(&self, tenant: &str, flow: &str) -> Arc<CallMetrics> {
        let mut pairs = unpoisoned(self.pairs.lock());
        let room = pairs.len() < CALL_SERIES;
        let key = (Box::from(tenant), Box::from(flow));
        match pairs.get(&key) {
            Some(metrics) => metrics.clone(),
            None if room => pairs.entry(key).or_insert_with(|| Arc::new(CallMetrics::new(tenant, flow))).clone(),
            None => self.other.get_or_init(|| Arc::new(CallMetrics::new(names::OTHER, names::OTHER))).clone(),
        }
    }
    /// Every pair, in label order.
    pub(crate) fn all(&self) -> Vec<Arc<CallMetrics>> {
        let pairs = unpoisoned(self.pairs.lock());
        pairs.values().chain(self.other.get()).cloned().collect()
    }
}
