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
use crate::{names, unpoisoned};

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

/// Pairs that have series of their own, by tenant and flow.
#[derive(Debug, Default)]
pub(crate) struct CallSeries {
    pairs: Mutex<Pairs>,
    other: OnceLock<Arc<CallMetrics>>,
}

#[derive(Debug, Default)]
struct Pairs {
    by_tenant: BTreeMap<Box<str>, BTreeMap<Box<str>, Arc<CallMetrics>>>,
    count: usize,
    /// Pairs turned away since room was last looked for, which takes a walk over all.
    turned_away: usize,
}

impl CallSeries {
    pub(crate) fn get(&self, tenant: &str, flow: &str) -> Arc<CallMetrics> {
        let mut pairs = unpoisoned(self.pairs.lock());
        if let Some(metrics) = pairs.by_tenant.get(tenant).and_then(|flows| flows.get(flow)) {
            return metrics.clone();
        }
        if pairs.count >= CALL_SERIES && pairs.turned_away.is_multiple_of(CALL_SERIES) {
            pairs.forget_unused();
        }
        if pairs.count >= CALL_SERIES {
            pairs.turned_away += 1;
            return self.other.get_or_init(|| Arc::new(CallMetrics::new(names::OTHER, names::OTHER))).clone();
        }
        let metrics = Arc::new(CallMetrics::new(tenant, flow));
        pairs.by_tenant.entry(tenant.into()).or_default().insert(flow.into(), metrics.clone());
        pairs.count += 1;
        metrics
    }

    /// Every pair, in label order.
    pub(crate) fn all(&self) -> Vec<Arc<CallMetrics>> {
        let pairs = unpoisoned(self.pairs.lock());
        pairs.by_tenant.values().flat_map(BTreeMap::values).chain(self.other.get()).cloned().collect()
    }
}

impl Pairs {
    /// Drops pairs that nobody holds any more: their tenant or flow left the configuration.
    fn forget_unused(&mut self) {
        self.by_tenant.retain(|_, flows| {
            flows.retain(|_, metrics| Arc::strong_count(metrics) > 1);
            !flows.is_empty()
        });
        self.count = self.by_tenant.values().map(BTreeMap::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_counted_once_on_every_path() {
        let metrics = CallSeries::default().get("t", "f");
        metrics.begin().end(None, Duration::from_millis(3), 40);
        metrics.begin().end(Some(Code::DeadlineExceeded), Duration::from_secs(2), 2);
        let left = metrics.begin();
        assert_eq!(metrics.in_flight(), 1);
        drop(left);
        metrics.count(Some(Code::RateExceeded), Duration::ZERO, 0);
        let outcomes: Vec<_> = metrics.outcomes().collect();
        assert_eq!(outcomes, [("rate_exceeded", 1), ("deadline_exceeded", 1), ("ok", 1), ("hung_up", 1)]);
        assert_eq!((metrics.in_flight(), metrics.reply_bytes.value(), metrics.seconds.count()), (0, 42, 3));
    }

    #[test]
    fn e8_pairs_beyond_the_bound_share_one_label() {
        let series = CallSeries::default();
        let held: Vec<_> = (0..CALL_SERIES + 100).map(|index| series.get(&format!("tenant-{index}"), "f")).collect();
        assert_eq!(series.all().len(), CALL_SERIES + 1);
        assert_eq!(held.iter().filter(|metrics| metrics.labels() == [names::OTHER, names::OTHER]).count(), 100);
        drop(held);
        let later = (0..=CALL_SERIES).map(|_| series.get("after a reload", "f")).last().expect("some");
        assert_eq!(later.labels()[0], "after a reload", "what nobody holds makes room");
    }
}
